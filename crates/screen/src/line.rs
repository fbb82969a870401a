//! A step as one line, for terminals on which lines follow one another.

use crate::scene::{About, Status};
use crate::text::{begin, cells, clean, packet_rate, shortened, shortened_key};
use weir_measure::{Counts, bits_per_second, per_second};
use weir_messages::measured::name;
use weir_messages::numbers::{bit_rate, grouped, percent};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_view::Snapshot;

/// Returns a line about the step of a snapshot: its time, the rates, losses, and the largest row of the first table. If no packets arrive,
/// the line says why. It has at most `width` characters, and no control characters.
pub fn line(snapshot: &Snapshot, about: &About, width: usize, ascii: bool) -> String {
    let mut text = String::new();
    Stamp(snapshot.from_ns).write(&mut text, Shape::Clock, Digits::Micro, about.east_s);
    text.truncate("00:00:00".len());
    if let Some(words) = about.status.words().filter(|_| is_quiet(&about.status)) {
        text.push_str(&format!("  {words}"));
        return shortened(&clean(&text, ascii), width);
    }
    let (totals, ns) = (&snapshot.totals, snapshot.totals.covered_ns);
    let rate = |counts: &Counts| {
        let bits = bits_per_second(counts.bytes, ns);
        format!("{:>10}", bits.map_or("-".to_owned(), bit_rate))
    };
    let arrivals = &totals.arrivals;
    text.push_str(&match about.has_sides {
        true => {
            let local = match arrivals.local.packets {
                0 => String::new(),
                _ => format!("  local {}", rate(&arrivals.local)),
            };
            format!(
                "  in {}  out {}{local}",
                rate(&arrivals.rx),
                rate(&arrivals.tx)
            )
        }
        false => format!("  all {}", rate(&totals.measured)),
    });
    let pace = per_second(totals.measured.packets, ns);
    let pace = pace.map_or("-".to_owned(), packet_rate);
    text.push_str(&format!("  {pace:>9}"));
    text.push_str(&match arrivals.dropped {
        0 => "  no loss".to_owned(),
        dropped => format!("  lost {}", grouped(dropped)),
    });
    let table = snapshot.tables.first();
    if let Some((table, row)) = table.and_then(|table| Some((table, table.rows.first()?))) {
        let (share, whole) = match table.by {
            weir_measure::Weigh::Bytes => (row.listed.counts.bytes, totals.measured.bytes),
            weir_measure::Weigh::Packets => (row.listed.counts.packets, totals.measured.packets),
        };
        text.push_str(&format!("  {:>7} ", percent(share, whole)));
        let room = width.saturating_sub(cells(&text));
        let name = clean(&name(table.kind, &row.listed.key), ascii);
        text.push_str(&shortened_key(&name, room));
    }
    begin(&text, width).to_owned()
}

/// Whether the line has the words of a status in place of figures.
fn is_quiet(status: &Status) -> bool {
    matches!(status, Status::Idle(_) | Status::LinkDown(_))
}
