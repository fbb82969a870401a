//! Numbers in text for people: how they are printed, and how options give them.

use std::time::Duration;
use weir_io::compressed::ZSTD_WINDOWS;

/// Number with its digits in groups: `8 000 000`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Number of packets: `1 packet`, `1 234 packets`.
pub fn packets(n: u64) -> String {
    counted(n, "packet")
}

/// Number of things: `1 segment`, `1 234 segments`.
pub fn counted(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Rate, with one decimal below 1000: `12.5`, `1 234`.
pub fn rate(per_s: f64) -> String {
    if per_s < 999.95 {
        format!("{per_s:.1}")
    } else {
        grouped(per_s.round() as u64)
    }
}

/// Share of `part` in `whole`: `25.0 %`; `-` if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", part as f64 * 100.0 / whole as f64)
    }
}

/// A share as `1%` or `0.5%`, from 0 to 1. **Errors**: another form; 0 or less; more than 100 %.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(str::trim_end);
    let share = number.and_then(|number| number.parse::<f64>().ok());
    match share {
        Some(share) if share > 0.0 && share <= 100.0 => Ok(share / 100.0),
        _ => Err(format!("'{text}' is not a share: write 1% or 0.1%")),
    }
}

/// The speed of a link, bit/s: `1G`, `100M`, `2.5Gbit/s`; units are decimal. **Errors**: another form; 0 or less.
pub fn parse_speed(text: &str) -> Result<f64, String> {
    let short = text.strip_suffix("bit/s").unwrap_or(text).trim_end();
    let (digits, unit) = match short.char_indices().next_back() {
        Some((at, 'k')) => (&short[..at], 1e3),
        Some((at, 'M')) => (&short[..at], 1e6),
        Some((at, 'G')) => (&short[..at], 1e9),
        Some((at, 'T')) => (&short[..at], 1e12),
        _ => (short, 1.0),
    };
    match digits.trim_end().parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed * unit < 1e18 => Ok(speed * unit),
        _ => Err(format!(
            "'{text}' is not a speed: write 1G, 100M or 2.5G (bit/s)"
        )),
    }
}

/// Bytes in decimal units: `4.1 GB`.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// Bit rate in decimal units: `1.2 Gbit/s`.
pub fn bit_rate(bits_per_s: f64) -> String {
    scaled(
        bits_per_s,
        &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
    )
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

/// Duration: `0.09 s`, `12.0 s`, `3 min 20 s`, `1 h 2 min 3 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if seconds < 1.0 => format!("{seconds:.2} s"),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 3600.0 => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
        _ => format!(
            "{} h {} min {} s",
            grouped(time.as_secs() / 3600),
            time.as_secs() / 60 % 60,
            time.as_secs() % 60
        ),
    }
}

/// Short time in three digits: `35 us`, `1.25 ms`, `250 ms`, `3.40 s`; negative if a clock went back.
pub fn latency(ns: i64) -> String {
    const UNITS: [&str; 4] = ["ns", "us", "ms", "s"];
    let sign = if ns < 0 { "-" } else { "" };
    let mut value = ns.unsigned_abs() as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 || value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{sign}{value:.digits$} {}", UNITS[unit])
}

/// Time from an option, exact to the last digit: `63 ms`, `10 s`, `90 s`, `5 min`.
pub fn asked_time(time: Duration) -> String {
    const UNITS: [(u128, &str); 5] = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1000, "us"),
    ];
    let ns = time.as_nanos();
    let whole = UNITS
        .into_iter()
        .find(|(unit, _)| ns >= *unit && ns.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or(if ns == 0 { (1, "s") } else { (1, "ns") });
    format!(
        "{} {name}",
        grouped(u64::try_from(ns / unit).unwrap_or(u64::MAX))
    )
}

/// Size as options take it, exact: `500`, `64k`, `10M`, `1G`.
pub fn asked_size(n: u64) -> String {
    let units = [
        (1 << 40, "T"),
        (1 << 30, "G"),
        (1 << 20, "M"),
        (1 << 10, "k"),
    ];
    let whole = units
        .into_iter()
        .find(|(unit, _)| n >= *unit && n.is_multiple_of(*unit));
    whole.map_or_else(
        || n.to_string(),
        |(unit, name)| format!("{}{name}", n / unit),
    )
}

/// Parses a size: digits and an optional k, M, G or T (binary).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
        Some((at, 'T' | 't')) => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    let unit = text.trim_end_matches(['b', 'B', 'i', ' ']).trim_end();
    let is_wordy = unit.len() < text.len() && parse_size(unit).is_ok();
    let n: u64 = digits.parse().map_err(|_| match is_wordy {
        true => format!("'{text}' is not a size (did you mean {unit}?): write 500, 64k, 10M or 1G"),
        false => format!("'{text}' is not a size: write 500, 64k, 10M or 1G"),
    })?;
    n.checked_mul(factor)
        .ok_or_else(|| format!("'{text}' is too large"))
}

/// Parses the argument of `-C`. A plain number counts million bytes, as in tcpdump.
pub fn parse_rotation_size(text: &str) -> Result<u64, String> {
    let size = match text.parse::<u64>() {
        Ok(millions) => millions
            .checked_mul(1_000_000)
            .ok_or_else(|| format!("'{text}' is too large"))?,
        Err(_) => parse_size(text)?,
    };
    if size == 0 {
        Err("a size of 0 would never hold a packet".to_owned())
    } else {
        Ok(size)
    }
}

/// Parses the largest accepted window of zstd data, in bytes.
pub fn parse_zstd_window(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    let (least, most) = ZSTD_WINDOWS;
    if (least..=most).contains(&size) {
        Ok(size)
    } else {
        Err(format!(
            "'{text}' is not a size of a zstd window: use 1k to 2G"
        ))
    }
}

/// Parses a time: `500ms`, `10s`, `5m`, `2h`, `7d`. A plain number counts seconds.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let at = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let factor = match &text[at..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => {
            return Err(format!(
                "'{text}' is not a time: write 500ms, 10s or 5m (units: us, ms, s, m, h, d)"
            ));
        }
    };
    let n: f64 = text[..at].parse().map_err(|_| {
        format!("'{text}' is not a time: write 500ms, 10s or 5m (units: us, ms, s, m, h, d)")
    })?;
    Duration::try_from_secs_f64(n * factor).map_err(|_| format!("'{text}' is too long"))
}

/// Parses a time to add, exactly, ns: `1h`, `-1h`, `-0.000000001s`. A plain number counts seconds.
pub fn parse_shift(text: &str) -> Result<i64, String> {
    let wrong = || {
        format!(
            "'{text}' is not a time to add: write 1h, -1h or -0.25s (units: ns, us, ms, s, m, h, d)"
        )
    };
    let (sign, amount) = match text.strip_prefix('-') {
        Some(amount) => (-1, amount),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let at = amount
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(amount.len());
    let unit_ns: i128 = match &amount[at..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(wrong()),
    };
    let (whole, decimals) = amount[..at].split_once('.').unwrap_or((&amount[..at], ""));
    if whole.len() + decimals.len() == 0 || whole.len() > 19 || decimals.len() > 15 {
        return Err(wrong());
    }
    let digits: i128 = format!("{whole}{decimals}").parse().map_err(|_| wrong())?;
    let parts = digits * unit_ns;
    let scale = 10i128.pow(decimals.len() as u32);
    if parts % scale != 0 {
        return Err(format!("'{text}' has parts of a nanosecond"));
    }
    i64::try_from(sign * parts / scale).map_err(|_| format!("'{text}' is longer than 292 years"))
}

/// Parses a list of processors: `0,2-3`.
pub fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    let bad = || format!("'{text}' is not a list of processors: write 0,2-3");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| bad())?;
        let last: usize = last.trim().parse().map_err(|_| bad())?;
        if first > last || last >= 4096 {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_add_are_exact() {
        for (text, ns) in [
            ("1h", 3_600_000_000_000),
            ("-1h", -3_600_000_000_000),
            ("+0.5", 500_000_000),
            ("-0.000000001s", -1),
            ("1795412174.123456789", 1_795_412_174_123_456_789),
            ("1.5ms", 1_500_000),
            ("-250ns", -250),
            (".5s", 500_000_000),
        ] {
            assert_eq!(parse_shift(text), Ok(ns), "{text}");
        }
        for text in [
            "", "-", "h", ".", "1.2.3", "--1", "1 s", "1y", "0.1ns", "400000d", "1e9",
        ] {
            assert!(parse_shift(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(packets(1), "1 packet");
        assert_eq!(packets(1000), "1 000 packets");
        assert_eq!(rate(12.34), "12.3");
        assert_eq!(rate(999.94), "999.9");
        assert_eq!(rate(999.95), "1 000");
        assert_eq!(percent(1, 4), "25.0 %");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(4_100_000_000), "4.1 GB");
        assert_eq!(duration(Duration::from_millis(90)), "0.09 s");
        assert_eq!(duration(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(duration(Duration::from_millis(3_599_999)), "59 min 59 s");
        assert_eq!(duration(Duration::from_secs(3723)), "1 h 2 min 3 s");
        assert_eq!(
            duration(Duration::from_secs(3_600_000)),
            "1 000 h 0 min 0 s"
        );
        for (text, shown) in [
            ("63ms", "63 ms"),
            ("1.5ms", "1 500 us"),
            ("0.2", "200 ms"),
            ("0", "0 s"),
            ("1s", "1 s"),
            ("90s", "90 s"),
            ("300s", "5 min"),
            ("2h", "2 h"),
        ] {
            assert_eq!(asked_time(parse_time(text).unwrap()), shown, "{text}");
        }
        assert_eq!(asked_time(Duration::from_nanos(1)), "1 ns");
        assert_eq!(parse_size("64k"), Ok(65_536));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for size in [
            0,
            1,
            500,
            1000,
            1024,
            65_536,
            10 << 20,
            900 << 30,
            (1 << 40) + 1,
            u64::MAX,
        ] {
            assert_eq!(parse_size(&asked_size(size)), Ok(size));
        }
        assert!(parse_size("64q").is_err());
        assert!(parse_size("").is_err());
        assert_eq!(parse_rotation_size("2"), Ok(2_000_000));
        assert_eq!(parse_rotation_size("2k"), Ok(2048));
        assert!(parse_rotation_size("0").is_err());
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("5m"), Ok(Duration::from_secs(300)));
        assert!(parse_time("5 weeks").is_err());
        assert_eq!(parse_cpus("0,2-3"), Ok(vec![0, 2, 3]));
        assert!(parse_cpus("3-1").is_err());
        assert!(parse_cpus("a").is_err());
    }
}
