//! The firewall: the eight mixes of the multithreaded packet filter's course, rule lists of several lengths, and the time until a change is in
//! force.

mod force;
mod lists;
mod mixes;

use crate::Size;
use crate::report::Report;

/// Columns of the raw data.
pub const RAW: &str = "part,case,rival,round,ns_per_packet,answer";

/// Runs all parts.
pub fn run(size: Size, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    mixes::run(size, rounds, report);
    lists::run(size, rounds, report)?;
    force::run(size, report)?;
    report.bars();
    Ok(())
}
