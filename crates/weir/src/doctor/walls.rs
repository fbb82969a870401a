//! Confinement of a run: the walls are tried on this process, which has nothing else to do.

use super::{Finding, Group, State};
use crate::walls::{Tried, invoking};
use landlock::{LandlockStatus, RulesetStatus};
use serde_json::json;
use weir_io::sys::privilege;

/// Raises the walls of a run, and reports which of them hold. Later checks must not need any rights.
pub fn group() -> Group {
    let user = (privilege::user_id(), invoking().map(|user| user.id()));
    let tried = Tried::now();
    Group {
        key: "walls",
        title: "Walls",
        about: "What confines weir before it parses packets, those of files too. With DPDK, whose threads start earlier, capabilities are given up and nothing else holds.",
        findings: vec![
            self::user(user),
            rights(&tried.rights),
            landlock(&tried),
            seccomp(&tried.calls),
        ],
    }
}

/// Finding about the user of this process, and the user who called sudo; both as user IDs.
fn user((own, invoking): (u32, Option<u32>)) -> Finding {
    let (key, label) = ("user", "user");
    let found = |text: String| {
        Finding::ok(
            key,
            label,
            text,
            json!({ "uid": own, "becomes": invoking.filter(|_| own == 0) }),
        )
    };
    match (own, invoking) {
        (0, Some(user)) if user != 0 => found(format!("root, and becomes user {user} who called sudo")),
        (0, _) => found("root, and stays root".to_owned())
            .state(State::Better)
            .means("with -Z USER, weir becomes USER before it parses packets; under sudo the user who called it"),
        _ => found(format!("user {own}")),
    }
}

fn rights(given_up: &Result<(), String>) -> Finding {
    let (key, label) = ("capabilities", "capabilities");
    match given_up {
        Ok(()) => Finding::ok(
            key,
            label,
            "given up, but those that a run needs to its end",
            json!(true),
        ),
        Err(why) => Finding::unknown(key, label, why),
    }
}

fn landlock(tried: &Tried) -> Finding {
    let (key, label) = ("landlock", "Landlock");
    let status = match &tried.paths {
        Ok(status) => status,
        Err(why) => return Finding::unknown(key, label, why),
    };
    let missing = |text: &str| {
        Finding::ok(key, label, text, json!(null))
            .state(State::Missing)
            .means("a run may open all files that its user may open")
    };
    match (status.landlock, &status.ruleset) {
        (
            LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            },
            ruleset,
        ) => {
            let abi = kernel_abi.unwrap_or(effective_abi as i32);
            let found = |words| Finding::ok(key, label, format!("ABI {abi}: {words}"), json!(abi));
            match ruleset {
                RulesetStatus::FullyEnforced => {
                    found("a run opens its sources and outputs only, and connects to nothing")
                }
                _ => found("a run opens its sources and outputs only")
                    .state(State::Better)
                    .means("Linux 6.12 keeps it from connections and from signals to others too"),
            }
        }
        (LandlockStatus::NotEnabled, _) => missing(
            "in the kernel, but not enabled: add landlock to lsm= of the kernel's command line",
        ),
        (LandlockStatus::NotImplemented, _) => {
            missing("not in this kernel (Linux 5.13, CONFIG_SECURITY_LANDLOCK)")
        }
    }
}

fn seccomp(raised: &Result<(), String>) -> Finding {
    let (key, label) = ("seccomp", "seccomp");
    match raised {
        Ok(()) => Finding::ok(
            key,
            label,
            "a run makes the system calls it needs only",
            json!(true),
        ),
        Err(why) => Finding::ok(key, label, format!("not to be had: {why}"), json!(false))
            .state(State::Missing)
            .means("a run may make any system call"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_whom_a_run_becomes() {
        let becomes = |found: Finding| (found.state, found.text, found.value["becomes"].as_u64());
        assert_eq!(
            becomes(user((0, Some(1000)))),
            (
                State::Ok,
                "root, and becomes user 1000 who called sudo".into(),
                Some(1000)
            )
        );
        assert_eq!(
            becomes(user((0, None))),
            (State::Better, "root, and stays root".into(), None)
        );
        assert_eq!(becomes(user((0, Some(0)))).0, State::Better);
        assert_eq!(
            becomes(user((1000, None))),
            (State::Ok, "user 1000".into(), None)
        );
    }

    #[test]
    fn a_wall_that_cannot_be_had_is_missing() {
        assert_eq!(seccomp(&Err("no".to_owned())).state, State::Missing);
        assert_eq!(seccomp(&Ok(())).value, json!(true));
        assert_eq!(rights(&Err("no".to_owned())).text, "unknown: no");
        let tried = |paths| Tried {
            rights: Ok(()),
            paths,
            calls: Ok(()),
        };
        assert_eq!(landlock(&tried(Err("no".to_owned()))).state, State::Unknown);
    }
}
