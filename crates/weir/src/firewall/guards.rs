//! Checks of the interfaces of a firewall: whose packets may be taken away from this host, and where packets may be sent.

use super::{RulesFile, called};
use crate::capture;
use crate::cli::firewall::FirewallArgs;
use crate::port;
use anyhow::{anyhow, bail};
use weir_engine::capture::DPDK;
use weir_engine::firewall::interface_lock::{InterfaceLocks, LockError};
use weir_engine::guard::interfaces_of_device;
use weir_engine::name::Name;
use weir_firewall::Verdict;
use weir_firewall::rules::{Action, RuleList};
use weir_messages::Refusal;

/// Refuses guarded interfaces that are not named: those of IN if their packets are taken away from this host, and those of OUT.
pub fn check(
    arguments: &FirewallArgs,
    pairs: &[(Name, Name)],
    takes_away: bool,
) -> anyhow::Result<()> {
    for (source, _) in pairs.iter().filter(|_| takes_away) {
        capture::check_taking(source, &arguments.live.taking.yes_take)?;
    }
    for (_, sink) in pairs {
        port::check_guard(sink, &arguments.yes_send())?;
    }
    Ok(())
}

/// Locks the interfaces between which packets are forwarded, those of DPDK's devices too. **Errors**: another firewall has one of them.
pub fn lock(locks: &mut InterfaceLocks, pairs: &[(Name, Name)]) -> anyhow::Result<()> {
    for name in pairs.iter().flat_map(|(source, sink)| [source, sink]) {
        let interfaces = match name.utf8().strip_prefix(DPDK) {
            Some(device) => interfaces_of_device(device),
            None => capture::interface(name)
                .or(port::interface(name))
                .map(str::to_owned)
                .into_iter()
                .collect(),
        };
        for interface in interfaces {
            locks.add(&interface).map_err(|error| match error {
                LockError::Held { .. } => anyhow!(
                    "{name}: {error}; both would forward, and what either lets pass would pass: end that one, or give it \
                     --bidirectional and rules with `on`"
                ),
                error => anyhow!("{name}: {error}"),
            })?;
        }
    }
    Ok(())
}

/// Refuses rules that reject packets if nothing may be sent where they came from: `silent` says why.
pub fn check_answers(
    rules: Option<&RulesFile>,
    list: &RuleList,
    silent: &[Refusal],
) -> anyhow::Result<()> {
    let Some(why) = silent.first() else {
        return Ok(());
    };
    let is_reject = |verdict: Verdict| verdict == Verdict::Reject;
    if let Some(rule) = list
        .rules
        .iter()
        .find(|rule| matches!(rule.action, Action::Decide(verdict) if is_reject(verdict)))
    {
        bail!(
            "{}: line {}: packets that are rejected get an answer; {why}",
            called(rules),
            rule.line
        );
    }
    if [list.default, list.non_ip, list.malformed]
        .into_iter()
        .any(is_reject)
    {
        bail!(
            "{}: packets that are rejected get an answer; {why}",
            called(rules)
        );
    }
    Ok(())
}
