use super::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use weir_testkit::lacking::have;

const S: i64 = 1_000_000_000;

/// The zone of that name, or `None` where no zone files are installed.
fn zone(name: &str) -> Option<TimeZone> {
    let zone = TimeZone::get(name).ok();
    if zone.is_none() {
        weir_testkit::lacking::skipped("moment", format_args!("no time zone {name}"));
    }
    zone
}

/// The expected numbers are those of `date -d TEXT +%s`, with TZ=Europe/Berlin where there is no zone.
#[test]
fn moments_read_as_people_write_them() {
    // Another day than those of the texts, so that none is taken for today's.
    let now: Timestamp = "2026-12-24T05:36:14.123456789Z".parse().unwrap();
    let Some(zone) = zone("Europe/Berlin") else {
        return;
    };
    let ns = |text: &str| {
        let meaning = Moment(text.to_owned()).ns(now, &zone)?;
        assert_eq!(
            (meaning.first_ns, meaning.twice.as_ref()),
            (meaning.last_ns, None),
            "{text}"
        );
        Ok::<_, String>(meaning.first_ns)
    };
    for (text, seconds) in [
        ("2026-11-23T05:30:00Z", 1_795_411_800),
        ("2026-11-23 05:30:00Z", 1_795_411_800),
        ("2026-11-23T05:30Z", 1_795_411_800),
        ("2026-11-23T05:30:00+01:00", 1_795_408_200),
        ("2026-11-23 05:30-03:30", 1_795_424_400),
        ("2026-11-23 05:30 ", 1_795_408_200),
        ("2026-11-23 05:30", 1_795_408_200),
        ("2026-11-23 05:30:00", 1_795_408_200),
        ("2026-11-23T05:30", 1_795_408_200),
        ("2026-11-23", 1_795_388_400),
        ("2025-12-31 23:59:59", 1_767_221_999),
        ("2026-07-01 05:30", 1_782_876_600),
        ("05:30", 1_798_086_600),
        ("05:30:07", 1_798_086_607),
        ("05:30Z", 1_798_090_200),
        ("05:30-08:00", 1_798_119_000),
        ("1795412174", 1_795_412_174),
        ("0", 0),
    ] {
        assert_eq!(ns(text), Ok(seconds * S), "{text}");
    }
    assert_eq!(
        ns("2026-11-23 05:30[America/New_York]"),
        Ok(1_795_429_800 * S)
    );
    assert_eq!(ns("1795412174.000000001"), Ok(1_795_412_174_000_000_001));
    assert_eq!(ns("1795412174.5"), Ok(1_795_412_174_500_000_000));
    assert_eq!(ns("2026-11-23T05:30:00.25Z"), Ok(1_795_411_800_250_000_000));
    assert_eq!(ns("2026-11-23 05:30:00.25"), Ok(1_795_408_200_250_000_000));
    let present = 1_798_090_574_123_456_789;
    for (text, ago) in [
        ("now", 0),
        ("-5m", 300),
        ("5m ago", 300),
        (" 90 ago", 90),
        ("-0", 0),
        ("2h ago", 7200),
    ] {
        assert_eq!(ns(text), Ok(present - ago * S), "{text}");
    }
}

/// No zone, date or word of a text is passed over.
#[test]
fn what_is_not_understood_whole_is_refused() {
    let now: Timestamp = "2026-12-24T05:36:14Z".parse().unwrap();
    for text in [
        "",
        "-",
        "ago",
        "yesterday",
        "25:00",
        "2026-13-01",
        "2026-02-29 05:30",
        "2026-11-23T",
        "2026-11-23+01:00",
        "2026-11-23 05:30 Berlin",
        "2026-11-23 05:30[Atlantis/City]",
        "2026-11-23 05:30+99:00",
        "2026-11-23T05:30:00Z 05:31",
        "2026-11-23 2026-11-24",
        "1.",
        ".5",
        "+5m",
        "9999-01-01",
    ] {
        assert!(
            Moment(text.to_owned()).ns(now, &TimeZone::UTC).is_err(),
            "{text}"
        );
    }
}

/// `date` says what clocks showed every quarter of an hour for a year: what they showed once is that time, what they showed twice
/// has both, and what they never showed is refused.
#[test]
fn local_times_are_those_that_clocks_showed() {
    if !have("local_times_are_those_that_clocks_showed", &["date"]) {
        return;
    }
    for (name, first, days) in [
        ("Europe/Berlin", "2026-01-01", 365),
        ("America/New_York", "2026-01-01", 365),
        ("America/St_Johns", "2026-01-01", 365),
        ("Australia/Lord_Howe", "2026-01-01", 365),
        ("America/Santiago", "2026-01-01", 365),
        ("America/Havana", "2026-01-01", 365),
        ("Pacific/Chatham", "2026-01-01", 365),
        ("Asia/Kolkata", "2026-01-01", 30),
        ("Pacific/Apia", "2011-12-20", 20),
    ] {
        let Some(zone) = zone(name) else { return };
        let start = first.parse::<Date>().unwrap().to_datetime(Time::midnight());
        let quarters = days * 96;
        let begin = Offset::UTC.to_timestamp(start).unwrap().as_second();
        // A day more at both ends, since local days begin at other times.
        let seconds = (-96..quarters + 96).map(|quarter| begin + quarter * 900);
        let shown = shown_by_date(name, &seconds.clone().collect::<Vec<_>>());
        let mut when: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (second, text) in seconds.zip(shown) {
            when.entry(text).or_default().push(second * S);
        }
        let (mut once, mut twice, mut never) = (0, 0, 0);
        for quarter in 0..quarters {
            let local = start + jiff::SignedDuration::from_secs(quarter * 900);
            let text = local.strftime("%F %H:%M").to_string();
            let meaning = Moment(text.clone()).ns(Timestamp::UNIX_EPOCH, &zone);
            match when.get(&text).map_or(&[][..], |seconds| &seconds[..]) {
                [] => {
                    assert!(meaning.unwrap_err().contains("never was"), "{name}: {text}");
                    never += 1;
                }
                [only] => {
                    assert_eq!(
                        meaning,
                        Ok(Meaning {
                            first_ns: *only,
                            last_ns: *only,
                            twice: None
                        }),
                        "{name}: {text}"
                    );
                    once += 1;
                }
                both => {
                    let meaning = meaning.unwrap();
                    assert_eq!([meaning.first_ns, meaning.last_ns], both, "{name}: {text}");
                    assert!(
                        meaning
                            .twice
                            .is_some_and(|twice| twice.contains("was twice")),
                        "{name}: {text}"
                    );
                    twice += 1;
                }
            }
        }
        assert!(once > quarters - 200, "{name}: {once}");
        assert_eq!(never > 0, name != "Asia/Kolkata", "{name}: {never}");
        assert_eq!(
            twice > 0,
            !["Asia/Kolkata", "Pacific/Apia"].contains(&name),
            "{name}: {twice}"
        );
    }
}

/// Texts that clocks in the zone `name` show at these seconds since 1970, by `date`.
fn shown_by_date(name: &str, seconds: &[i64]) -> Vec<String> {
    let mut date = Command::new("date")
        .args(["-f", "-", "+%F %H:%M"])
        .env("TZ", name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = date.stdin.take().unwrap();
    let lines: String = seconds
        .iter()
        .map(|second| format!("@{second}\n"))
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let out = date.wait_with_output().unwrap();
    writer.join().unwrap();
    let shown: Vec<String> = String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(shown.len(), seconds.len());
    shown
}

/// In some zones a day does not begin at midnight. The numbers are those of `date -d "@N"`, the first second of that day.
#[test]
fn a_date_alone_is_where_its_day_begins() {
    let Some(santiago) = zone("America/Santiago") else {
        return;
    };
    let day = Moment("2026-09-06".to_owned())
        .ns(Timestamp::UNIX_EPOCH, &santiago)
        .unwrap();
    assert_eq!(day.first_ns, 1_788_667_200 * S);
    let Some(havana) = zone("America/Havana") else {
        return;
    };
    let day = Moment("2026-11-01".to_owned())
        .ns(Timestamp::UNIX_EPOCH, &havana)
        .unwrap();
    assert_eq!(day.first_ns, 1_793_505_600 * S);
}
