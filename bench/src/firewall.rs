//! The firewall: the eight mixes of the multithreaded packet filter's course, rule lists of several lengths, and the time until a change is in
//! force.

#[cfg(feature = "dpdk")]
mod by_dpdk;
mod force;
mod lists;
mod mixes;

use crate::Size;
use crate::report::Report;

/// Columns of the raw data.
pub const RAW: &str = "part,case,rival,round,ns_per_packet,answer";

/// Runs the parts and cases whose names begin with `only`, such as `mixes` or `lists acl 1000`.
pub fn run(
    size: Size,
    rounds: usize,
    only: &str,
    accepts: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let is_asked_for = |part: &str| part.starts_with(only) || only.starts_with(part);
    if is_asked_for("mixes") {
        mixes::run(size, rounds, accepts, report);
    }
    if is_asked_for("lists") {
        lists::run(size, rounds, only, report)?;
    }
    if is_asked_for("force") {
        force::run(size, report)?;
    }
    report.bars();
    Ok(())
}
