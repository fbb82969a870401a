//! Help: what the keys do, and what the tab shows.

use crate::draw::Canvas;
use crate::ui::Tab;

/// Keys, what they do, and the same in more words for wide terminals if there is more to say.
const KEYS: [(&str, &str, &str); 15] = [
    ("arrows, PgUp, PgDn", "choose a row, or a finding above", ""),
    ("Enter, Esc", "open what is chosen, go back", ""),
    ("Tab, 1 to 6", "other tables; 6 is that of k", ""),
    (
        "/",
        "only rows with a text; !text: without",
        "show only rows with this text; !text those without",
    ),
    ("s", "order by another figure", ""),
    ("p", "pause, and go on", ""),
    ("<, >, .", "back and forth in time; last step", ""),
    (
        "t",
        "steps of 1 s, 10 s, 1 min",
        "steps of 1 s (10 min), 10 s (2 h), 1 min (24 h)",
    ),
    (
        "f",
        "capture by another expression",
        "capture by another expression (tcpdump's)",
    ),
    (
        "k",
        "count by a further key",
        "count by a further key, as --key of weir measure",
    ),
    (
        "n",
        "names from DNS and TLS, or none",
        "names of hosts, as DNS and TLS tell them, or none",
    ),
    (
        "w",
        "write packets from before to a file",
        "write the packets of the row from before to a file",
    ),
    (
        "B",
        "bundle: this screen, rows, packets",
        "write an incident bundle: this screen, rows, packets",
    ),
    ("^L, ^Z", "draw again; suspend (fg goes on)", ""),
    ("q, ^C", "quit", ""),
];

/// Contents of a tab.
fn about(tab: Tab) -> [&'static str; 2] {
    match tab {
        Tab::Hosts => [
            "Each address, with what it sends and receives.",
            "Enter: its conversations. seen: how long ago it came first.",
        ],
        Tab::Conversations => [
            "Both directions of a flow: -> from the first end, <- back.",
            "Enter: all figures.",
        ],
        Tab::Services => [
            "The port of each packet that is the service, with its name.",
            "Enter: its conversations.",
        ],
        Tab::Dns => [
            "DNS servers, and the names that are slow, fail or get no answer.",
            "Figures are of one second.",
        ],
        Tab::Tcp => [
            "again: segments that were sent again, which are losses on the way.",
            "Figures are of one second.",
        ],
        Tab::Key => ["The key that k chose.", "Enter: all figures."],
    }
}

/// First row of the keys.
fn top(height: u16) -> u16 {
    3 + u16::from(height > 20)
}

/// Number of pages that all keys take on a terminal of this height.
pub(crate) fn pages(height: u16) -> usize {
    let rows = height.saturating_sub(top(height) + 2).max(1);
    KEYS.len().div_ceil(rows.into())
}

/// Draws a page.
pub(crate) fn draw(canvas: &mut Canvas<'_>, page: usize) {
    let look = canvas.scene.look;
    let (width, height) = canvas.size();
    let wide = width >= 80;
    canvas.put(1, 0, "weir watch", look.accent());
    let tab = canvas.scene.ui.tab;
    canvas.put(13, 0, tab.title(), look.chosen());
    for (line, y) in about(tab).into_iter().zip(1..) {
        canvas.put(1, y, line, look.plain());
    }
    let column = if wide { 24 } else { 21 };
    let rows = top(height)..height - 2;
    for ((keys, short, long), y) in KEYS.iter().skip(page * rows.len()).zip(rows) {
        canvas.put(1, y, keys, look.accent());
        let does = if wide && !long.is_empty() {
            long
        } else {
            short
        };
        canvas.put(column, y, does, look.plain());
    }
    if height > 22 {
        let words = "~ before a figure: not exact; see Enter. Nothing is resolved.";
        canvas.put(1, height - 3, words, look.faint());
    }
}
