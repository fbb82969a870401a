//! The `weir` command as a user meets it: the built binary, its files, its exit codes, and tcpdump beside it.

mod bad_input;
mod counts;
mod info;
mod lines;
mod live;
mod outputs;
mod support;
