//! End-to-end tests of the `weir` command: the built binary, its files, its exit codes, compared with tcpdump.

mod bad_input;
mod bench;
mod capture;
mod counts;
mod demo;
mod doctor;
mod firewall;
mod info;
mod inner;
mod interrupted;
mod limits;
mod limits_of_records;
mod lines;
mod live;
mod measure;
mod names;
mod outputs;
mod query;
mod record;
mod recording;
mod sinks;
mod sorting;
mod stuck;
mod support;
mod terminal;
mod walls;
