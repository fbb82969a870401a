//! Runs of the engine, in one program: each program more links the whole engine once more.

mod batches;
mod firewall;
mod forwarding;
mod handle;
mod kept;
mod keys;
mod outputs;
mod recording;
mod rejected;
mod running;
