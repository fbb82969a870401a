//! Each policy forced, on this machine, against the kernel's own books read here once more in another way.

mod forced;
mod support;
mod without;
