//! The `weir` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: weir_io::sys::exhausted::Allocator = weir_io::sys::exhausted::Allocator;

fn main() -> ExitCode {
    weir_command::main()
}
