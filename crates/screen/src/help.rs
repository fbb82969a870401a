//! Help: what the keys do, and what the tab shows.

use crate::draw::Canvas;
use crate::ui::Tab;

const KEYS: [(&str, &str); 17] = [
    (
        "Up, Down, PgUp, PgDn",
        "choose a row; above the first are the findings",
    ),
    ("Enter, Esc", "open what is chosen, and go back"),
    ("Tab, 1 to 6", "other tables; 6 is that of k"),
    ("/", "show only rows with this text; !text those without"),
    ("s", "order by another figure"),
    ("p", "pause, and go on"),
    ("<, >", "go back and forth in time"),
    (".", "go to the last step"),
    ("t", "steps of 1 s (10 min), 10 s (2 h), 1 min (24 h)"),
    ("f", "capture by another expression (tcpdump's)"),
    ("k", "count by a further key, as --key of weir measure"),
    ("n", "names of hosts, as DNS and TLS tell them, or none"),
    (
        "w",
        "write the packets of the chosen row from before to a file",
    ),
    ("B", "write an incident bundle: this screen, rows, packets"),
    ("^L", "draw everything again"),
    ("^Z", "suspend; fg goes on"),
    ("q, ^C", "quit"),
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

/// Draws the page.
pub(crate) fn draw(canvas: &mut Canvas<'_>) {
    let look = canvas.scene.look;
    let (width, height) = canvas.size();
    let wide = width >= 76;
    canvas.put(1, 0, "weir watch", look.accent());
    let tab = canvas.scene.ui.tab;
    canvas.put(13, 0, tab.title(), look.chosen());
    let mut y = 1;
    for line in about(tab) {
        canvas.put(1, y, line, look.plain());
        y += 1;
    }
    let column = if wide { 24 } else { 22 };
    for ((keys, does), y) in KEYS.iter().zip(y + u16::from(height > 20)..height - 2) {
        canvas.put(1, y, keys, look.accent());
        canvas.put(column, y, does, look.plain());
    }
    if height > 22 {
        let words = "~ before a figure: not exact; see Enter. Nothing is resolved.";
        canvas.put(1, height - 3, words, look.faint());
    }
}
