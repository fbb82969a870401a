//! Columns of a table: which there are depends on the tab and on the width of the terminal, never on the rows.

use crate::ui::Tab;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Title.
    pub title: &'static str,
    /// Width in characters. The first column takes the rest.
    pub width: u16,
    /// Least width of a terminal that has the column.
    pub from: u16,
    /// Whether it is aligned to the left.
    pub left: bool,
}

const fn right(title: &'static str, width: u16, from: u16) -> Column {
    Column {
        title,
        width,
        from,
        left: false,
    }
}

const fn left(title: &'static str, width: u16, from: u16) -> Column {
    Column {
        title,
        width,
        from,
        left: true,
    }
}

/// Number of points of the history of a row.
pub(crate) const HISTORY: u16 = 10;

/// Columns of hosts, services and other keys.
const KEYS: [Column; 9] = [
    left("", 0, 0),
    right("sends", 11, 0),
    right("receives", 11, 0),
    right("share", 7, 0),
    left("history", HISTORY, 76),
    right("seen", 7, 76),
    right("packets/s", 10, 110),
    right("peak", 11, 110),
    right("bound", 8, 110),
];

/// Columns of conversations.
const CONVERSATIONS: [Column; 9] = [
    left("conversation", 0, 0),
    right("->", 11, 0),
    right("<-", 11, 0),
    right("share", 7, 76),
    left("history", HISTORY, 110),
    right("seen", 7, 110),
    right("packets/s", 10, 150),
    right("peak", 11, 150),
    right("bound", 8, 150),
];

/// Columns of TCP conversations.
const TCP: [Column; 9] = [
    left("conversation", 0, 0),
    right("again", 6, 0),
    right("share", 7, 76),
    right("resets", 6, 0),
    right("RTT", 8, 0),
    right("handshake", 9, 110),
    right("unordered", 9, 110),
    right("dup ACKs", 8, 110),
    right("zero window", 11, 150),
];

/// Columns of DNS.
const DNS: [Column; 6] = [
    left("server or name", 0, 0),
    right("queries", 8, 0),
    right("mean", 8, 0),
    right("longest", 8, 76),
    right("failed", 7, 76),
    right("unanswered", 10, 0),
];

/// Title of the first column of a tab of keys.
fn title(tab: Tab) -> &'static str {
    match tab {
        Tab::Hosts => "host",
        Tab::Services => "service",
        _ => "key",
    }
}

/// Columns of a tab.
pub(crate) fn of(tab: Tab) -> &'static [Column] {
    match tab {
        Tab::Hosts | Tab::Services | Tab::Key => &KEYS,
        Tab::Conversations => &CONVERSATIONS,
        Tab::Dns => &DNS,
        Tab::Tcp => &TCP,
    }
}

/// A column in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Number of the column in the tab.
    pub index: usize,
    /// Title.
    pub title: &'static str,
    /// First character.
    pub x: u16,
    /// Width in characters.
    pub width: u16,
    /// Whether it is aligned to the left.
    pub left: bool,
}

/// Characters before the first column: the mark of the chosen row.
const MARK: u16 = 3;

/// Columns of a tab in a terminal of this width, in their places.
pub(crate) fn placed(tab: Tab, width: u16) -> Vec<Placed> {
    let all = of(tab).iter().enumerate();
    let shown: Vec<_> = all.filter(|(_, column)| width >= column.from).collect();
    let fixed: u16 = shown
        .iter()
        .skip(1)
        .map(|(_, column)| column.width + 1)
        .sum();
    let first = width.saturating_sub(MARK + fixed + 1);
    let mut x = MARK;
    shown
        .into_iter()
        .map(|(index, column)| {
            let own = if index == 0 { first } else { column.width };
            let placed = Placed {
                index,
                title: if index == 0 && column.title.is_empty() {
                    title(tab)
                } else {
                    column.title
                },
                x,
                width: own,
                left: column.left,
            };
            x += own + 1;
            placed
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stay_within_the_terminal_and_apart() {
        for tab in Tab::ALL {
            for width in 56..=250 {
                let columns = placed(tab, width);
                assert!(columns[0].width >= 16, "{tab:?} {width}");
                for pair in columns.windows(2) {
                    assert!(pair[0].x + pair[0].width < pair[1].x, "{tab:?} {width}");
                }
                let last = columns.last().unwrap();
                assert!(last.x + last.width < width, "{tab:?} {width}");
            }
        }
    }
}
