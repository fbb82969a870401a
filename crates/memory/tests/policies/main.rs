//! Each policy forced on this machine, compared with the kernel's own reports, which are read here in another way.

mod forced;
mod support;
mod without;
