//! Words on what was asked of a record, and on what it lacks.

use crate::numbers::counted;
use weir_engine::name::Name;
use weir_engine::provenance::stamp;
use weir_engine::records::{Counts, Selection};
use weir_packet::savefile::HOLDS_ONLY;
use weir_pipeline::select::Span;

/// Comments of a file with packets of a record: where they are from, and of which times.
pub fn query_comments(directory: &Name, selection: &Selection) -> Vec<String> {
    let path =
        std::path::absolute(directory).map_or_else(|_| directory.clone(), |path| Name::from(&path));
    let mut comments = vec![format!("weir query: packets of the record {}", path.text())];
    comments.extend(times_words(selection).map(|times| format!("{HOLDS_ONLY}{times}")));
    comments
}

/// Words on the times of a question to a record; `None` for all times.
fn times_words(selection: &Selection) -> Option<String> {
    let span = Span {
        from_ns: selection.from_ns,
        to_ns: selection.to_ns,
        last_ns: None,
    };
    span.words(stamp)
}

/// Times of the first and the last packet of a record, ns since 1970, as its segments on disk tell them.
pub fn covered_ns(counts: &Counts) -> Option<(i64, i64)> {
    let times = counts
        .segments
        .iter()
        .filter_map(|segment| segment.times_ns);
    times.reduce(|(first, last), (least, greatest)| (first.min(least), last.max(greatest)))
}

/// Words on packets that may be lost in the time asked for; `None` if none are.
pub fn lost_words(counts: &Counts) -> Option<String> {
    let lost = &counts.lost;
    let (from, to) = lost.between_ns.filter(|_| lost.packets > 0)?;
    let (from, to) = (stamp(from), stamp(to));
    let packets = counted(lost.packets, "packet");
    let were = if lost.packets == 1 { "was" } else { "were" };
    Some(match lost.at_most {
        true => format!(
            "up to {packets} {were} lost in the time asked for: segments that reach beyond it lost them between {from} and {to}"
        ),
        false => format!("{packets} {were} lost between {from} and {to}"),
    })
}
