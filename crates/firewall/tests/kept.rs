//! Bans that are kept over a restart: golden bytes, a naive twin over any bytes, and clocks that are set.

#[allow(dead_code, reason = "one SHA-256 for both tests")]
#[path = "bodies/control.rs"]
mod control;
#[path = "bodies/kept.rs"]
mod kept;

use std::net::IpAddr;
use std::time::Duration;
use weir_firewall::kept::{BootId, End, Kept, MOST, Moment, Origin, Why};
use weir_testkit::Random;

const WALL: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn boot(letter: char) -> BootId {
    BootId::new(&letter.to_string().repeat(36)).unwrap()
}

/// The sum is that of `sha256sum`: `head -n 4 FILE | sha256sum | head -c 16`.
const GOLDEN: &str = "weir bans 1
at 1700000000000000000 boot 01234567-89ab-cdef-0123-456789abcdef 5000000000
192.0.2.7 by ctl
192.0.2.16-192.0.2.31 by key-7 until 1700000600000000000 of 600000000000
end 2 67baa71a0513def1
";

fn golden() -> String {
    GOLDEN.to_owned()
}

#[test]
fn golden_text_is_read_and_written() {
    let text = golden();
    let kept = Kept::parse(text.as_bytes()).unwrap();
    assert_eq!(kept.text(), text);
    let ones = kept::ones(&kept);
    assert_eq!(
        (ones.len(), ones[0].clone()),
        (17, ("192.0.2.7".parse().unwrap(), "ctl".to_owned(), None))
    );
    let last = (
        "192.0.2.31".parse::<IpAddr>().unwrap(),
        "key-7".to_owned(),
        Some((600 * SECOND, 600 * SECOND)),
    );
    assert_eq!(ones[16], last);
    assert_eq!(kept.at.boot.map(|(_, ns)| ns), Some(5 * SECOND));
    assert_eq!(
        Kept::gather(kept.at.clone(), []).text().lines().count(),
        3,
        "no bans are a text too"
    );
}

/// Each byte of the text, changed, cut off or missing.
#[test]
fn a_damaged_text_is_refused_and_its_line_named() {
    let text = golden();
    for place in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[place] ^= 1;
        Kept::parse(&bytes).unwrap_err();
        let cut = Kept::parse(&text.as_bytes()[..place]).unwrap_err();
        let lines = text[..place].matches('\n').count() + 1;
        assert_eq!(cut.line, lines.max(1), "{place}: {cut}");
        bytes.remove(place);
        Kept::parse(&bytes).unwrap_err();
    }
    let refused = |text: &str| Kept::parse(text.as_bytes()).unwrap_err();
    assert_eq!((refused("").line, refused("").why), (1, Why::Other));
    assert_eq!(refused(&text.replace("2.7", "2.9")).why, Why::Sum);
    assert_eq!(refused(&(text.clone() + "\n")).line, 6);
    assert_eq!(refused(text.rsplit_once("end").unwrap().0).why, Why::Cut);
    let order = refused(&text.replace("192.0.2.7", "192.0.2.40"));
    assert_eq!((order.line, order.why), (4, Why::Order));
    let many = refused(&text.replace("192.0.2.31", "192.255.2.31"));
    assert_eq!((many.line, many.why), (4, Why::Many));
    assert_eq!(
        refused(&text.replace("of 6", "of 5")).line,
        4,
        "a ban has more time left than it lasts"
    );
}

#[test]
fn texts_are_read_as_by_a_naive_twin() {
    let (mut random, mut read) = (Random(21), 0);
    for _ in 0..4000 {
        let data: Vec<u8> = (0..random.below(400))
            .map(|_| random.below(256) as u8)
            .collect();
        read += kept::judge(&data);
    }
    assert!(
        read > 500,
        "most texts of the second kind have to be read by both: {read}"
    );
}

#[test]
fn as_many_addresses_as_a_text_has_come_back() {
    let at = Moment {
        wall_ns: WALL,
        boot: None,
    };
    // Each address has another program than its neighbor, so that each is a line.
    let by = ["one", "two"].map(|name| Origin::new(name).unwrap());
    let bans = (0..MOST as u32).map(|i| (IpAddr::V4(i.into()), by[i as usize % 2].clone(), None));
    let kept = Kept::gather(at, bans);
    assert_eq!(kept.bans.len(), MOST);
    assert_eq!(Kept::parse(kept.text().as_bytes()), Ok(kept));
}

/// A ban of ten minutes of which four are left, at a moment; clocks then go on, stand, or are set.
#[test]
fn the_time_that_is_left_bears_clocks_that_are_set() {
    let end = End {
        left_ns: 240 * SECOND,
        lasts_ns: 600 * SECOND,
    };
    let at = |wall: i64, boot: Option<(BootId, u64)>| Moment {
        wall_ns: WALL.strict_add_signed(wall * SECOND as i64),
        boot,
    };
    let (same, then) = (boot('a'), 1000 * SECOND);
    let known = Some((same, then));
    let later = |seconds: u64| Some((same, then + seconds * SECOND));
    for (before, now, left, what) in [
        (
            at(0, known),
            at(100, later(100)),
            Some(140),
            "both clocks go on",
        ),
        (
            at(0, known),
            at(-90_000, later(100)),
            Some(140),
            "the time of day was set back in the same boot",
        ),
        (
            at(0, known),
            at(90_000, later(100)),
            Some(140),
            "the time of day was set forth in the same boot",
        ),
        (
            at(0, known),
            at(100, Some((boot('b'), 5))),
            Some(140),
            "another boot",
        ),
        (
            at(0, known),
            at(-90_000, Some((boot('b'), 5))),
            Some(240),
            "another boot, whose clock begins in the past",
        ),
        (
            at(0, known),
            at(240, Some((boot('b'), 5))),
            None,
            "it ended while the machine was off",
        ),
        (
            at(0, known),
            at(239, Some((boot('b'), 5))),
            Some(1),
            "it did not",
        ),
        (
            at(0, known),
            at(240, later(240)),
            None,
            "it ended meanwhile",
        ),
        (
            at(0, known),
            at(100, Some((same, then - 1))),
            Some(140),
            "the clock of the boot went back: the time of day",
        ),
        (
            at(0, None),
            at(100, later(100)),
            Some(140),
            "the boot was not known",
        ),
        (
            at(0, None),
            at(-1, None),
            Some(240),
            "no boot is known, and the time of day was set back",
        ),
    ] {
        let kept = Kept {
            at: before,
            bans: Vec::new(),
        };
        assert_eq!(
            end.after(kept.age(&now)),
            left.map(Duration::from_secs),
            "{what}"
        );
    }
    let longer = End {
        left_ns: 700 * SECOND,
        lasts_ns: 600 * SECOND,
    };
    assert_eq!(
        longer.after(Duration::ZERO),
        Some(Duration::from_secs(600)),
        "never longer than it lasts in all"
    );
}
