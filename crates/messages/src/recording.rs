//! Options of a recording, their defaults and checks, and messages on what happens in one.

use crate::captures::interface;
use crate::errors::io_words;
use crate::events::Line;
use crate::numbers::{asked_size, bytes, grouped, packets, parse_size, parse_time};
use crate::sources::check;
use crate::{Refusal, refusal, refuse};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use weir_engine::ledger::Ledger;
use weir_engine::name::Name;
use weir_engine::provenance::{Chosen, stamp};
use weir_engine::record::disk::{self, DiskEvent, Left, OnDisk};
use weir_engine::record::trigger::{
    Condition, Figure, Keep, Key, Saved, Threshold, Trigger, is_name,
};
use weir_engine::record::{Error, Incomplete, Settings, Status};
use weir_engine::rewrite::Rewrite;
use weir_engine::socket;
use weir_filter::{Names, Sets};
use weir_measure::{Field, KeyKind, NoSuchKey};
use weir_memory::{Available, Policy, Request};
use weir_packet::savefile::Direction;
use weir_packet::suggestions::did_you_mean;
use weir_pipeline::select::Selection;
use weir_store::disk::{Opened, Recovered, Retention};
use weir_store::record::Shape;
use weir_store::ring;

/// Memory for packets by default, bytes.
const RAM: u64 = 4 << 30;

/// Smallest memory for packets, bytes.
const LEAST_RAM: u64 = 2 << 20;

/// Smallest record on disk, bytes: eight of the smallest segments.
const LEAST_DISK: u64 = 8 << 20;

/// Largest length of a segment by default, bytes.
const SEGMENT: u64 = 256 << 20;

/// Options of a recording, in plain values.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for packets, bytes; `None` for 4 GiB, or a quarter of the free memory if that is
    /// less.
    pub ram: Option<u64>,
    /// Pages of that memory.
    pub pages: Policy,
    /// Addresses at which packets begin in that memory.
    pub align: Shape,
    /// Longest time for which packets are kept; `None` for as long as there is room.
    pub age: Option<Duration>,
    /// Number of bytes of each conversation after which its packets are left out; `None` for no such limit.
    pub cutoff: Option<u64>,
    /// Largest captured length, bytes: longer packets are cut. 0 means no limit.
    pub snaplen: u32,
    /// Whether the capture takes only packets of one direction.
    pub direction: Option<Direction>,
    /// Largest size of the record on disk, bytes; `None` for no record but the files that triggers save.
    pub disk: Option<u64>,
    /// Largest interval at which packets on disk are made durable.
    pub sync: Duration,
    /// Largest length of a segment, bytes; `None` for 256 MiB, or an eighth of the record on disk if that is less.
    pub segment: Option<u64>,
    /// Longest time of a segment; `None` for an eighth of the age.
    pub segment_time: Option<Duration>,
    /// Level of zstd with which complete segments are compressed, 1 to 19; `None`: they stay as they are.
    pub compress: Option<i32>,
    /// Bytes of the file system that stay free.
    pub reserve: u64,
    /// Largest size of all saved files, bytes; `None` for no limit.
    pub saved_size: Option<u64>,
    /// Longest time for which saved files are kept; `None` for no limit.
    pub saved_age: Option<Duration>,
    /// Permission bits of the files.
    pub mode: u32,
    /// Whether host names in expressions are looked up.
    pub resolve: bool,
    /// Sets of addresses in expressions.
    pub sets: Sets,
    /// Names and conditions of the triggers that have the settings of `trigger`.
    pub triggers: Vec<(String, Condition)>,
    /// Settings of triggers that have none of their own; its name and its condition are not used.
    pub trigger: Trigger,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ram: None,
            pages: Policy::default(),
            align: Shape::default(),
            age: None,
            cutoff: None,
            snaplen: 0,
            direction: None,
            disk: None,
            sync: Duration::from_secs(1),
            segment: None,
            segment_time: None,
            compress: None,
            reserve: 1 << 30,
            saved_size: None,
            saved_age: None,
            mode: 0o600,
            resolve: false,
            sets: Sets::default(),
            triggers: Vec::new(),
            trigger: Trigger::default(),
        }
    }
}

/// Returns the expressions that decide what triggers save: the conditions of the triggers, and the
/// choice of kept packets.
pub fn expressions<'a>(
    triggers: &'a [(String, Condition)],
    keep: &'a Keep,
) -> impl Iterator<Item = &'a str> {
    let fires = |condition: &'a Condition| match condition {
        Condition::Matches(expression) => Some(&expression[..]),
        _ => None,
    };
    let kept = if let Keep::Matches(expression) = keep {
        Some(&expression[..])
    } else {
        None
    };
    triggers
        .iter()
        .filter_map(move |(_, condition)| fires(condition))
        .chain(kept)
}

/// Functions called with what happens in a recording, by its threads.
pub struct Listeners {
    /// Called with events of the disk thread.
    pub on_disk: OnDisk,
    /// Called with each file that a trigger saved, or failed to save.
    pub on_saved: Box<dyn FnMut(&Saved) + Send>,
}

impl Options {
    /// Refuses contradictory options, sources and directories before anything is opened.
    pub fn check(&self, sources: &[Name], directory: &Name) -> Result<(), Refusal> {
        let path = Path::new(directory);
        if directory.is_dash() || interface(directory).is_some() || path.exists() && !path.is_dir()
        {
            refuse!(
                "{directory} is not a directory: weir record SOURCE... DIR, where DIR is for what is saved"
            );
        }
        if self.trigger.before.is_zero() && self.trigger.after.is_zero() {
            refuse!("--before 0 and --after 0 would save nothing");
        }
        if let (Some(disk), Some(segment)) = (self.disk, self.segment)
            && segment > disk / 2
        {
            refuse!(
                "--segment {} of --disk {}: packets are removed a segment at a time, so that at least two must fit: --segment {}",
                asked_size(segment),
                asked_size(disk),
                asked_size((disk / 8).max(1 << 20))
            );
        }
        if let Some(disk) = self.disk {
            check_disk(disk, &asked_size(disk)).map_err(Refusal)?;
        }
        if let Some(segment) = self.segment {
            check_segment(segment, &asked_size(segment)).map_err(Refusal)?;
        }
        check_mode(self.mode, &format!("{:o}", self.mode)).map_err(Refusal)?;
        check(sources, false)
    }

    /// A trigger with the common settings.
    pub fn trigger(&self, name: String, condition: Condition) -> Trigger {
        Trigger {
            name,
            condition,
            ..self.trigger.clone()
        }
    }

    /// Returns the choice of the packets of a recording whose run has this selection.
    fn chosen(&self, selection: &Selection) -> Chosen {
        let mut chosen = Chosen::by(selection).cut_to(self.snaplen);
        if let Some(cutoff) = self.cutoff {
            chosen = chosen.only(format!(
                "packets of the first {cutoff} bytes of each conversation"
            ));
        }
        chosen.one_way(self.direction)
    }

    /// Returns the settings of the engine, with `more` triggers. Without any, requests save all packets. `selection`: if the sources
    /// are interfaces, and the selection of the run.
    /// **Errors**: there is less memory.
    pub fn settings(
        &self,
        directory: &Name,
        (live, selection): (bool, &Selection),
        more: Vec<Trigger>,
        listeners: Listeners,
    ) -> Result<Settings, Refusal> {
        let ours = self
            .triggers
            .iter()
            .map(|(name, condition)| self.trigger(name.clone(), condition.clone()));
        let mut triggers: Vec<Trigger> = ours.chain(more).collect();
        if triggers.is_empty() {
            triggers.push(self.trigger("signal".to_owned(), Condition::Asked));
        }
        Ok(Settings {
            directory: Path::new(directory).to_owned(),
            ring: ring::Settings {
                bytes: usize::try_from(self.ram()?).unwrap_or(usize::MAX),
                shape: self.align,
                max_pins: None,
                memory: Request {
                    pages: self.pages,
                    ..Request::default()
                },
            },
            age: self.age,
            cutoff: self.cutoff,
            chosen: self.chosen(selection),
            disk: self.disk(),
            on_disk: listeners.on_disk,
            triggers,
            waits: !live,
            names: Names {
                resolve: self.resolve,
                sets: self.sets.clone(),
            },
            inner: selection.inner,
            mode: self.mode,
            reserve: self.reserve,
            rewrite: Rewrite::default(),
            on_saved: listeners.on_saved,
        })
    }

    /// Memory for packets. **Errors**: more than there is.
    fn ram(&self) -> Result<u64, Refusal> {
        let free = Available::now();
        let ordinary = free.map_or(u64::MAX, |free| free.bytes);
        let Some(asked) = self.ram else {
            return Ok(RAM.min(ordinary / 4).max(LEAST_RAM));
        };
        if asked < LEAST_RAM {
            refuse!(
                "--ram {}: at least {} are needed",
                asked_size(asked),
                asked_size(LEAST_RAM)
            );
        }
        let all = ordinary.max(free.map_or(0, |free| free.huge.max(free.other_huge)));
        if asked > all {
            let unit = if all >= 8 << 30 { 1 << 30 } else { 1 << 20 };
            let fits = asked_size(all / 4 * 3 / unit * unit);
            refuse!(
                "--ram {}: {} of memory are free; --ram {fits} leaves some for others",
                asked_size(asked),
                bytes(all)
            );
        }
        Ok(asked)
    }

    /// Settings of the disk, if packets are kept there.
    fn disk(&self) -> Option<disk::Settings> {
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        self.disk.map(|bytes| disk::Settings {
            sync: self.sync,
            // Whole segments are removed, so a few of them make up the record.
            segment_bytes: self.segment.unwrap_or(SEGMENT.min(bytes / 8)),
            segment_time: self
                .segment_time
                .or(self.age.map(|age| (age / 8).max(Duration::from_secs(1)))),
            compress: self.compress,
            retention: Retention {
                bytes: Some(bytes),
                age_ns: self.age.map(nanoseconds),
                trigger_bytes: self.saved_size,
                trigger_age_ns: self.saved_age.map(nanoseconds),
                reserve_bytes: self.reserve,
            },
        })
    }
}

/// Message on a control socket that cannot be made.
pub fn listen_refusal(directory: &Name, error: Error) -> Refusal {
    match error {
        Error::Socket(socket::Error::InUse { .. }) => {
            refusal!("{directory}: another weir record runs on this directory")
        }
        error => refusal!("{error}"),
    }
}

/// Refuses a size that is too little for a record on disk; `text` is the size as the user wrote it.
pub fn check_disk(bytes: u64, text: &str) -> Result<u64, String> {
    if bytes >= LEAST_DISK {
        Ok(bytes)
    } else {
        Err(format!(
            "'{text}' is too little for a record: 8M is the least"
        ))
    }
}

/// Refuses a size that no segment has.
pub fn check_segment(bytes: u64, text: &str) -> Result<u64, String> {
    match bytes {
        1_048_576..=4_294_967_296 => Ok(bytes),
        _ => Err(format!("'{text}' is not a size of a segment: 1M to 4G are")),
    }
}

/// Refuses permissions that a file of a recording cannot have.
pub fn check_mode(mode: u32, text: &str) -> Result<u32, String> {
    match mode {
        mode if mode & !0o666 == 0 && mode & 0o600 == 0o600 => Ok(mode),
        _ => Err(format!(
            "'{text}' is not a mode of a file: write 600, 640 or 644"
        )),
    }
}

fn named(text: &str, (example, instance): (&str, &str)) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, what)) if is_name(name) => Ok((name.to_owned(), what.to_owned())),
        _ => Err(format!(
            "'{text}' is not {example} with a name of letters, digits, '.', '_' and '-', for instance {instance}"
        )),
    }
}

/// Name of the ready rule for scans.
pub const SCAN: &str = "scan";

/// Parses a trigger that an expression fires, `NAME=EXPR`, or the name of a ready rule.
pub fn parse_trigger(text: &str) -> Result<(String, Condition), String> {
    if !text.contains('=') {
        let condition = parse_rule(text).map_err(|_| {
            format!(
                "'{text}' is neither NAME=EXPR, such as dns='udp port 53', nor a ready rule: scan is the only one"
            )
        })?;
        return Ok((text.to_owned(), condition));
    }
    let (name, expression) = named(text, ("NAME=EXPR", "dns='udp port 53'"))?;
    if expression.trim() == SCAN {
        return Err(format!(
            "'{text}': the rule is --trigger {SCAN}, without NAME=; with another name it is rule = \"{SCAN}\" in a file of --triggers"
        ));
    }
    Ok((name, Condition::Matches(parse_expression(&expression)?)))
}

/// Parses a trigger that a threshold fires: `NAME=KEY>VALUE FIGURE/WINDOW`.
pub fn parse_threshold_trigger(text: &str) -> Result<(String, Condition), String> {
    let (name, spec) = named(
        text,
        ("NAME=KEY>VALUE FIGURE/WINDOW", "many='src>100 peers/10s'"),
    )?;
    Ok((name, Condition::Exceeds(parse_threshold(&spec)?)))
}

/// Parses the name of a ready rule.
pub fn parse_rule(text: &str) -> Result<Condition, String> {
    match text {
        SCAN => Ok(Condition::Scan),
        _ => Err(format!(
            "'{text}' is not a ready rule: scan is the only one"
        )),
    }
}

/// Refuses an empty expression, which every packet matches.
pub fn parse_expression(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err(
            "the expression is empty, and each packet would fire: write NAME='udp port 53'"
                .to_owned(),
        ),
        _ => Ok(text.to_owned()),
    }
}

/// Parses an interval, which has a length.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err(format!("'{text}' is not an interval: write 10m or 1h")),
        time => Ok(time),
    }
}

/// Parses the largest size of a file that has packets.
pub fn parse_file_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a file of 0 bytes would never hold a packet".to_owned()),
        size => Ok(size),
    }
}

/// Parses a threshold: `src>100 peers/10s`.
pub fn parse_threshold(spec: &str) -> Result<Threshold, String> {
    let bad = |why: &str| {
        format!(
            "'{spec}' is not a threshold: {why}; write dst>100k packets/s/1s or src>100 peers/10s"
        )
    };
    let (key, rest) = spec.split_once('>').ok_or_else(|| bad("'>' is missing"))?;
    let key = parse_key(key.trim()).map_err(|why| bad(&why))?;
    let (value, window) = rest
        .rsplit_once('/')
        .ok_or_else(|| bad("there is no window"))?;
    let window = parse_time(window.trim()).map_err(|why| bad(&why))?;
    if window.is_zero() {
        return Err(bad("the window has no length"));
    }
    let (value, figure) = value
        .trim()
        .split_once(' ')
        .ok_or_else(|| bad("there is no figure"))?;
    let figure = match figure.trim() {
        "packets/s" => Figure::Packets,
        "bit/s" => Figure::Bits,
        "peers" => Figure::Peers,
        "ports" => Figure::Ports,
        "contacts" => Figure::Contacts,
        "times" => Figure::Growth,
        other => return Err(bad(&unknown("figure", other, &FIGURES))),
    };
    if let (Some(elements), Key::Of(kind)) = (figure.elements(), key) {
        elements.check(kind).map_err(|why| bad(&why.to_string()))?;
    }
    if figure.elements().is_some() && window < Figure::LEAST_WINDOW {
        return Err(bad(
            "different elements are counted in windows of 100ms and more",
        ));
    }
    let above = parse_value(value).ok_or_else(|| bad(&format!("'{value}' is not a number")))?;
    Ok(Threshold {
        key,
        figure,
        above,
        window,
    })
}

/// Parses the key of a threshold.
fn parse_key(text: &str) -> Result<Key, String> {
    if text == TOTAL {
        return Ok(Key::Total);
    }
    let kind = text.parse::<KeyKind>().map_err(|why| match why {
        NoSuchKey::Unknown(word) => unknown("key", &word, &key_names()),
        why => why.to_string(),
    })?;
    match untold(kind) {
        None => Ok(Key::Of(kind)),
        Some(why) => Err(format!("thresholds do not count by {kind}: {why}")),
    }
}

/// Reason for which a packet in the memory of a recording does not tell its key of this kind, and what to do; `None` if it does.
fn untold(kind: KeyKind) -> Option<&'static str> {
    match kind {
        KeyKind::Name => Some("an address has its name at the end of a window only: use host"),
        KeyKind::Process | KeyKind::Container => Some(
            "the process of a socket is looked up after its packets: use service, or conversation",
        ),
        kind if kind.needs_geo() => Some("a recording reads no database: use src/24 or host/24"),
        KeyKind::Fields(fields) if fields.has(Field::Direction) => {
            Some("the memory of a recording keeps no directions: use src, dst, smac or dmac")
        }
        _ => None,
    }
}

/// Key of all packets together.
const TOTAL: &str = "total";

/// Names of the keys of thresholds.
fn key_names() -> Vec<&'static str> {
    let kinds = KeyKind::NAMES.into_iter();
    let names = kinds.map(|(name, _)| name).chain(KeyKind::FIELDS);
    let told = names.filter(|name| name.parse().is_ok_and(|kind| untold(kind).is_none()));
    [TOTAL].into_iter().chain(told).collect()
}

/// Names of the figures of thresholds.
const FIGURES: [&str; 6] = ["packets/s", "bit/s", "peers", "ports", "contacts", "times"];

/// Message on a word that is none of these names.
fn unknown(what: &str, word: &str, names: &[&str]) -> String {
    format!(
        "unknown {what} '{word}'{}: {}",
        did_you_mean(word, names.iter().copied()),
        names.join(", ")
    )
}

/// Parses a value with a decimal prefix: 100, 1.5k, 2M.
fn parse_value(text: &str) -> Option<f64> {
    let (digits, factor) = match text.char_indices().next_back() {
        Some((at, 'k')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let value = digits.parse::<f64>().ok()? * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Parses the packets that a trigger saves.
pub fn parse_keep(text: &str) -> Result<Keep, String> {
    Ok(match text {
        "all" => Keep::All,
        "flow" => Keep::Flow,
        "host" => Keep::Host,
        expression => Keep::Matches(expression.to_owned()),
    })
}

/// Messages on a file that a trigger saved, or failed to save.
pub fn saved_lines(saved: &Saved) -> Vec<Line> {
    let Saved {
        trigger,
        cause,
        path,
        packets: count,
        missed,
        remarks,
        error,
    } = saved;
    let name = Name::from(path);
    match error {
        None => {
            let line = format!("{name}: {}; trigger {trigger}: {cause}", packets(*count));
            let remarks = remarks.iter().map(|remark| format!("  {remark}"));
            let lines = std::iter::once(line).chain(remarks).map(Line::Plain);
            let missed = (*missed > 0).then(|| {
                format!(
                    "{name}: it lacks {}, which left memory before they were saved",
                    packets(*missed)
                )
            });
            lines.chain(missed.map(Line::Remark)).collect()
        }
        Some(error) => {
            let kept = if *count > 0 {
                format!("; {} are in it", packets(*count))
            } else {
                String::new()
            };
            vec![Line::Fault(format!(
                "{name}: {}{kept}; trigger {trigger}: {cause}",
                io_words(error)
            ))]
        }
    }
}

/// Returns the object of a file that a trigger saved, or failed to save.
pub fn saved_json(saved: &Saved) -> Value {
    json!({
        "trigger": saved.trigger,
        "cause": saved.cause,
        "file": Name::from(&saved.path).text(),
        "packets": saved.packets,
        "missed": saved.missed,
        "remarks": saved.remarks,
        "fault": saved.error.as_ref().map(io_words),
    })
}

fn damaged(places: u64) -> String {
    match places {
        0 => String::new(),
        1 => "; a place is damaged and left out".to_owned(),
        places => format!("; {places} places are damaged and left out"),
    }
}

/// Messages on what an earlier recording left in the directory.
pub fn opened_lines(opened: &Opened) -> Vec<Line> {
    let line = |found: &Recovered| {
        let name = Name::from(&*found.path);
        let why = found
            .damage
            .as_ref()
            .map_or(String::new(), |damage| format!(": {damage}"));
        let unended = found.unended_ns.map_or(String::new(), |ns| {
            format!(
                "; what was dropped after its last count, of {}, is not told",
                stamp(ns)
            )
        });
        let kept = packets(found.kept_packets) + " are in it";
        match (found.kept_bytes, found.cut_bytes) {
            (0, cut) => Line::Remark(format!(
                "{name}: {cut} bytes with no whole block are removed{why}"
            )),
            (_, 0) => {
                let index = match (&found.index, found.had_index) {
                    (Some(damage), _) => format!("its index is made anew ({damage})"),
                    (None, true) => "its index is made anew".to_owned(),
                    (None, false) => "had no index, and has one now".to_owned(),
                };
                let text = format!("{name}: {index}; {kept}{}{unended}", damaged(found.damaged));
                match (found.damaged, &found.index) {
                    (0, None) => Line::Plain(text),
                    (0, Some(_)) => Line::Remark(text),
                    _ => Line::Remark(format!("{text}{why}")),
                }
            }
            (_, cut) => {
                let damaged = damaged(found.damaged);
                Line::Remark(format!(
                    "{name}: {cut} bytes at the end are cut off{why}; {kept}{damaged}{unended}"
                ))
            }
        }
    };
    let orphans = opened.orphans.iter().map(|segment| {
        let name = Name::from(&*segment.path);
        Line::Remark(format!(
            "{name}: this segment is gone; its index stays, so that readers tell it"
        ))
    });
    let strange = opened.strange.iter().map(|(path, why)| {
        let name = Name::from(&**path);
        // Some reasons name the file themselves.
        let why = why
            .strip_prefix(&format!("{}: ", path.display()))
            .unwrap_or(why);
        Line::Remark(format!(
            "{name}: {why}; it is left alone, and is not a part of the record"
        ))
    });
    opened
        .recovered
        .iter()
        .map(line)
        .chain(orphans)
        .chain(strange)
        .collect()
}

/// Message on a file that an earlier recording did not complete.
pub fn incomplete_line(
    Incomplete {
        path,
        packets: count,
    }: &Incomplete,
) -> Line {
    let name = Name::from(&**path);
    Line::Remark(match count {
        0 => format!("{name}: an earlier recording left it without a packet, and it is removed"),
        _ => format!(
            "{name}: an earlier recording did not complete it; {} are in it",
            packets(*count)
        ),
    })
}

/// Message on an event of the disk.
pub fn disk_line(event: &DiskEvent<'_>) -> Line {
    match event {
        DiskEvent::Failed(error) => Line::Fault(format!(
            "{}; packets are kept in RAM, and the disk is tried again",
            disk_error_words(error)
        )),
        DiskEvent::Uncompressed(error) => Line::Remark(format!(
            "{}; the file stays uncompressed",
            disk_error_words(error)
        )),
        DiskEvent::Left(left) => {
            let text = format!(
                "{}; packets are kept in RAM until a directory is there again",
                left_words(left)
            );
            if left.gone > 0 {
                Line::Fault(text)
            } else {
                Line::Remark(text)
            }
        }
        DiskEvent::Moved(left) => {
            let text = format!(
                "{}; there is another one now, and packets are written to it",
                left_words(left)
            );
            if left.gone > 0 {
                Line::Fault(text)
            } else {
                Line::Remark(text)
            }
        }
        DiskEvent::Entered(directory) => Line::Remark(format!(
            "{}: there is a directory again, and packets are written to it",
            Name::from(*directory)
        )),
        DiskEvent::Deaf(error) => Line::Remark(format!(
            "{error}; weir query finds only what is on disk, and weir record --status finds nothing"
        )),
        _ => Line::Remark("the disk takes packets again".to_owned()),
    }
}

/// Message on a directory that no longer belongs to the recording.
fn left_words(left: &Left<'_>) -> String {
    let (name, count) = (Name::from(left.directory), packets(left.packets));
    match (left.is_removed, left.gone) {
        (true, 0) => format!(
            "{name}: the directory was removed, and {count} on disk with it, which memory still has"
        ),
        (true, gone) => {
            format!(
                "{name}: the directory was removed, and {count} on disk with it, {} of which are lost",
                grouped(gone)
            )
        }
        (false, _) => {
            format!("{name}: the directory was renamed or mounted over; {count} on disk stay in it")
        }
    }
}

/// Error of a recording that has ended and could not keep all that it was to keep; `None` if it
/// could.
pub fn unkept_line(directory: &Name, status: &Status) -> Option<String> {
    let [missed, gone, left] = match &status.disk {
        Some(disk) => [
            disk.missed,
            disk.gone,
            status.taken.saturating_sub(disk.durable.next),
        ],
        None => [0; 3],
    };
    let causes = [
        (status.dropped(), "found no room in memory"),
        (missed, "left memory before they were written to disk"),
        (gone, "were in the directory when it was removed"),
        (left, "were not on disk at the end"),
    ];
    let causes = causes.iter().filter(|(count, _)| *count > 0);
    let causes: Vec<_> = causes
        .map(|(count, what)| format!("{} {what}", packets(*count)))
        .collect();
    (!causes.is_empty()).then(|| {
        format!(
            "{directory}: the record is not whole: {}",
            causes.join("; ")
        )
    })
}

/// Message on a failure of the disk.
fn disk_error_words(error: &disk::Failure) -> String {
    match error {
        disk::Failure::File {
            action,
            path,
            offset,
            kept,
            source,
        } => {
            let at = offset.map_or(String::new(), |offset| format!(" at offset {offset}"));
            let kept = kept.map_or(String::new(), |kept| {
                format!("; {} are on disk", packets(kept))
            });
            format!(
                "{}: {action}{at}: {}{kept}",
                Name::from(&**path),
                io_words(source)
            )
        }
        error => error.to_string(),
    }
}

/// Returns the object of the end of a recording. `place` drops packets for lack of room.
pub fn end_json(ledger: &Ledger, status: &Status, place: &str, fault: Option<&str>) -> Value {
    let mut object = status.json();
    object["received"] = ledger.received.into();
    object["filtered"] = if ledger.uncounted {
        Value::Null
    } else {
        ledger.filtered.into()
    };
    object["dropped"][place] = ledger.dropped.source.into();
    if let Some(disk) = &status.disk {
        // The summary has the number alone, without its time.
        object["disk"]["durable"] = disk.durable.packets.into();
    }
    if ledger.without_counter > 0 {
        object["loss_not_recorded"] = true.into();
    }
    // Runs of a program for saved files, if the front end has one.
    object["on_trigger"] = Value::Null;
    object["fault"] = fault.into();
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_read_as_people_write_them() {
        let of = |text: &str| match parse_threshold_trigger(text) {
            Ok((name, Condition::Exceeds(threshold))) => Ok((
                name,
                threshold.key,
                threshold.figure,
                threshold.above,
                threshold.window,
            )),
            Ok(other) => panic!("{other:?}"),
            Err(why) => Err(why),
        };
        let seconds = Duration::from_secs;
        let flood = (
            "flood".to_owned(),
            Key::Of(KeyKind::DST),
            Figure::Packets,
            100_000.0,
            seconds(1),
        );
        assert_eq!(of("flood=dst>100k packets/s/1s"), Ok(flood));
        let scan = (
            "a-b".to_owned(),
            Key::Of(KeyKind::SRC),
            Figure::Peers,
            100.0,
            seconds(600),
        );
        assert_eq!(of("a-b=src > 100 peers/10m"), Ok(scan));
        let jump = ("j".to_owned(), Key::Total, Figure::Growth, 2.5, seconds(10));
        assert_eq!(of("j=total>2.5 times/10s"), Ok(jump));
        let wrong = [
            "x",
            "=src>1 peers/1s",
            "a=src",
            "a=port>1 peers/1s",
            "a=src>1 peers",
            "a=src>1/1s",
            "a=src>x peers/1s",
        ];
        for text in wrong.into_iter().chain([
            "a=src>1 cats/1s",
            "a=src>1 peers/0s",
            "a=src>-1 peers/1s",
            "a b=src>1 peers/1s",
            "a=src/129>1 peers/1s",
            "a=country>1 packets/s/1s",
            "a=name>1 packets/s/1s",
            "a=process>1 packets/s/1s",
            "a=vlan,direction>1 packets/s/1s",
            "a=src,src>1 packets/s/1s",
            "a=host>1 peers/1s",
            "a=vlan>1 peers/1s",
            "a=conversation>1 peers/1s",
            "a=src>1 ports/99ms",
        ]) {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_words_of_triggers_have_the_right_ones_in_their_messages() {
        let why = |result: Result<(String, Condition), String>| result.unwrap_err();
        for (text, words) in [
            (
                "m=src>100 contact/10s",
                "unknown figure 'contact' (did you mean contacts?): packets/s, ",
            ),
            (
                "m=scr>100 peers/10s",
                "unknown key 'scr' (did you mean src?): total, 5tuple, conversation, ",
            ),
            (
                "m=asn>100 bit/s/10s",
                "do not count by asn: a recording reads no database: use src/24",
            ),
            (
                "m=dport>100 ports/10s",
                "the key dport cannot be ranked by ports, because a port has no other ports",
            ),
        ] {
            let message = why(parse_threshold_trigger(text));
            assert!(message.contains(words), "{message}");
        }
        let message = why(parse_trigger("myscan=scan"));
        assert!(
            message.contains("--trigger scan, without NAME="),
            "{message}"
        );
        assert!(message.contains("rule = \"scan\""), "{message}");
    }
}
