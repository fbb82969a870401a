//! The policies with less: as an unprivileged user, and with huge pages switched off.

use crate::support::in_child;
use weir_memory::{Contiguity, Error, Policy, Region, Request};
use weir_testkit::skipped;

/// Command that runs its arguments without the relevant capabilities, and with a low limit of locked memory.
const UNPRIVILEGED: [&str; 4] = [
    "sh",
    "-c",
    "ulimit -l 64 && exec setpriv --bounding-set=-ipc_lock,-sys_admin --inh-caps=-ipc_lock,-sys_admin \"$@\"",
    "sh",
];

#[test]
fn frames_that_are_hidden_are_reported_as_unverified() {
    if !in_child(
        "without::frames_that_are_hidden_are_reported_as_unverified",
        &UNPRIVILEGED,
    ) {
        return;
    }
    match Region::zeroed(
        4 << 20,
        &Request {
            pages: Policy::Contiguous,
            ..Request::default()
        },
    ) {
        Ok(region) => {
            let obtained = region.obtained();
            let Contiguity::Unverified(why) = &obtained.contiguity else {
                panic!("{obtained:?}")
            };
            assert!(
                why.contains("CAP_SYS_ADMIN")
                    && obtained.to_string().contains("contiguity unverified"),
                "{obtained}"
            );
        }
        Err(error @ (Error::ThpOff { .. } | Error::NoSuchPages { .. })) => {
            skipped("frames_that_are_hidden_are_reported_as_unverified", error);
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_lock_beyond_the_limit_names_the_command() {
    if !in_child(
        "without::a_lock_beyond_the_limit_names_the_command",
        &UNPRIVILEGED,
    ) {
        return;
    }
    let error = Region::zeroed(
        1 << 20,
        &Request {
            lock: true,
            ..Request::default()
        },
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("the limit is 64.0 KiB") && error.contains("ulimit -l 1024"),
        "{error}"
    );
    assert!(
        Region::zeroed(
            10,
            &Request {
                lock: true,
                ..Request::default()
            }
        )
        .unwrap()
        .obtained()
        .locked_bytes
            > 0
    );
}

#[test]
fn huge_pages_that_are_off_are_an_error_when_forced_and_a_step_down_else() {
    let name = "without::huge_pages_that_are_off_are_an_error_when_forced_and_a_step_down_else";
    if !in_child::<&str>(name, &[]) {
        return;
    }
    // SAFETY: the call sets a flag of this process, which runs only this test.
    let set = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(set, 0);
    for pages in [Policy::Thp, Policy::Contiguous] {
        let error = Region::zeroed(
            1 << 21,
            &Request {
                pages,
                ..Request::default()
            },
        )
        .unwrap_err();
        if matches!(error, Error::NoSuchPages { .. }) {
            return skipped(name, error);
        }
        assert!(matches!(error, Error::ThpOff { .. }), "{error}");
        let text = error.to_string();
        let command = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
        assert!(
            text.starts_with(pages.name()) && text.ends_with(command),
            "{text}"
        );
    }
    // Too much waste excludes the pool, whatever it holds.
    let obtained = Region::zeroed(
        3 << 20,
        &Request {
            populate: true,
            ..Request::default()
        },
    )
    .unwrap()
    .obtained();
    assert_eq!(
        (obtained.policy, obtained.page_bytes),
        (Policy::Virtual, 4096)
    );
    let tried: Vec<_> = obtained
        .stepped_down
        .iter()
        .map(|(policy, _)| *policy)
        .collect();
    assert_eq!(tried, [Policy::Hugetlb2M, Policy::Thp]);
    assert!(
        obtained.to_string().contains("; not thp: off"),
        "{obtained}"
    );
}
