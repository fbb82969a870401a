//! Sets of interfaces by name: the values of `on` and `to`.

use super::Why;
use core::fmt::{self, Display, Formatter};

/// Direction of a packet at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The packet arrives there: `on`.
    Arrival,
    /// The packet leaves there if it passes: `to`.
    Departure,
}

impl Side {
    /// Returns the word of the condition.
    pub fn word(self) -> &'static str {
        match self {
            Self::Arrival => "on",
            Self::Departure => "to",
        }
    }
}

/// Name of an interface, or the names with a common beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Name(String),
    Prefix(String),
}

impl Pattern {
    fn of(text: &str) -> Result<Self, Why> {
        match text.strip_suffix('*') {
            Some(prefix) if !prefix.contains('*') => Ok(Self::Prefix(prefix.to_owned())),
            None if !text.contains('*') => Ok(Self::Name(text.to_owned())),
            _ => Err(Why::NoInterface(text.to_owned())),
        }
    }

    fn holds(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}

/// Condition on the interface where a packet arrives, or where it leaves.
///
/// The condition holds for a name that is among the included patterns, or if there are none, and among no excluded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// Direction of the packet.
    pub side: Side,
    included: Vec<Pattern>,
    excluded: Vec<Pattern>,
    text: String,
}

impl Interfaces {
    /// Reads names with commas between them; a `*` at the end of a name stands for any rest, and a `!` in front of it excludes it. A text with a
    /// quote in front is one name.
    pub(super) fn parse(side: Side, text: &str) -> Result<Self, Why> {
        let (mut included, mut excluded) = (Vec::new(), Vec::new());
        if let Some(name) = text.strip_prefix(['\'', '"']) {
            included.push(Pattern::Name(name.to_owned()));
            return Ok(Self {
                side,
                included,
                excluded,
                text: name.to_owned(),
            });
        }
        for element in text.split(',') {
            let (name, patterns) = match element.strip_prefix('!') {
                Some(name) => (name, &mut excluded),
                None => (element, &mut included),
            };
            if name.is_empty() {
                return Err(Why::EmptyElement);
            }
            patterns.push(Pattern::of(name)?);
        }
        Ok(Self {
            side,
            included,
            excluded,
            text: text.to_owned(),
        })
    }

    /// Whether the condition holds at the interface of this name.
    pub fn holds(&self, name: &str) -> bool {
        let is_included =
            self.included.is_empty() || self.included.iter().any(|pattern| pattern.holds(name));
        is_included && !self.excluded.iter().any(|pattern| pattern.holds(name))
    }
}

impl Display for Interfaces {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
