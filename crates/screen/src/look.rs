//! Colours and characters.

use ratatui_core::style::{Color, Modifier, Style};

/// Colours and characters that the terminal has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether there are colours.
    pub colour: bool,
    /// Whether the background is light.
    pub light: bool,
    /// Whether only ASCII is drawn.
    pub ascii: bool,
}

impl Look {
    /// Titles and the chosen tab.
    pub(crate) fn accent(self) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        match (self.colour, self.light) {
            (false, _) => bold,
            (true, false) => bold.fg(Color::Cyan),
            (true, true) => bold.fg(Color::Blue),
        }
    }

    /// Findings, and a link that is rather full.
    pub(crate) fn warning(self) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        match (self.colour, self.light) {
            (false, _) => bold,
            (true, false) => bold.fg(Color::Yellow),
            (true, true) => bold.fg(Color::Magenta),
        }
    }

    /// Losses, and a link that is full.
    pub(crate) fn alarm(self) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        match self.colour {
            false => bold.add_modifier(Modifier::REVERSED),
            true => bold.fg(Color::Red),
        }
    }

    /// Plain text.
    pub(crate) fn plain(self) -> Style {
        Style::new()
    }

    /// The chosen row.
    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Text that explains.
    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Style of a share of the link.
    pub(crate) fn fullness(self, share: f64) -> Style {
        match share {
            _ if share >= 0.9 => self.alarm(),
            _ if share >= 0.7 => self.warning(),
            _ => self.plain(),
        }
    }
}
