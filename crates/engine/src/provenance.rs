//! Provenance of the packets of a file or a record: the choice that was made, in the fields that pcapng has for it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use weir_filter::sets::are_named_in;
use weir_packet::savefile::{Direction, HOLDS_ONLY, Interface, Layout, cut_length};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_pipeline::select::Selection;

/// Largest length of an expression in the field for it, bytes. A longer one is named in a comment, by its begin.
const MOST: usize = 16 << 10;

/// Length of the longest expression of [`Chosen`] in the field for it, bytes: two with the words between them.
pub(crate) const LONGEST: usize = MOST + 16;

/// Bytes that a comment has of an expression, at most.
const BEGIN: usize = 512;

/// Choice of packets: an expression, a snap length, and further rules in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Expression of libpcap that all packets match.
    filter: Option<String>,
    /// Comments on choices that such an expression cannot express.
    comments: Vec<String>,
    /// Bytes of each packet, at most; 0 for whole packets.
    snaplen: u32,
}

impl Chosen {
    /// The choice that a selection makes.
    pub fn by(selection: &Selection) -> Self {
        let chosen = Self::by_expression(selection);
        match selection.span.words(stamp) {
            Some(times) => chosen.only(times),
            None => chosen,
        }
    }

    fn by_expression(selection: &Selection) -> Self {
        let Selection {
            expression,
            invert,
            inner,
            behind_tags,
            ..
        } = selection;
        let expression = expression.trim();
        if expression.is_empty() {
            return match invert {
                true => Self::default().only("packets that match no expression: none".to_owned()),
                false => Self::default(),
            };
        }
        if inner.is_some() || *behind_tags || are_named_in(expression) || expression.len() > MOST {
            let what = if inner.is_some() {
                "packets with an innermost packet that"
            } else {
                "packets that"
            };
            let verb = match (invert, inner.is_some()) {
                (false, false) => "match",
                (false, true) => "matches",
                (true, false) => "do not match",
                (true, true) => "does not match",
            };
            let tags = if *behind_tags {
                ", behind VLAN tags too"
            } else {
                ""
            };
            return Self::default().only(format!("{what} {verb}: {}{tags}", begin_of(expression)));
        }
        let filter = if *invert {
            format!("not ({expression})")
        } else {
            expression.to_owned()
        };
        Self {
            filter: Some(filter),
            ..Self::default()
        }
    }

    /// Adds that packets were chosen by this too, in words: `packets that the interface received`.
    #[must_use]
    pub fn only(mut self, what: String) -> Self {
        self.comments.push(format!("{HOLDS_ONLY}{what}"));
        self
    }

    /// Adds that packets of one direction were chosen; `None` for both.
    #[must_use]
    pub fn one_way(self, direction: Option<Direction>) -> Self {
        match direction {
            None => self,
            Some(Direction::In) => self.only("packets that the interface received".to_owned()),
            Some(Direction::Out) => self.only("packets that the interface sent".to_owned()),
        }
    }

    /// Adds that a firewall passed the packets, or denied them; `by` names its rules.
    #[must_use]
    pub fn by_firewall(self, passed: bool, by: Option<&str>) -> Self {
        let verb = if passed { "passed" } else { "denied" };
        let by = by.map_or(String::new(), |by| format!(", by {by}"));
        self.only(format!("packets that the firewall {verb}{by}"))
    }

    /// Adds that packets were cut to this many bytes; 0 for whole packets.
    #[must_use]
    pub fn cut_to(self, snaplen: u32) -> Self {
        Self {
            snaplen: cut_length(self.snaplen, snaplen),
            ..self
        }
    }

    /// Adds another choice.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.add_filter(other.filter.as_deref());
        for comment in &other.comments {
            if !self.comments.contains(comment) {
                self.comments.push(comment.clone());
            }
        }
        self.cut_to(other.snaplen)
    }

    fn add_filter(&mut self, more: Option<&str>) {
        let Some(more) = more else { return };
        match self.filter.take() {
            None => self.filter = Some(more.to_owned()),
            Some(own) if own == more => self.filter = Some(own),
            Some(own) if own.len() + more.len() <= MOST => {
                self.filter = Some(format!("({own}) and ({more})"))
            }
            Some(own) => {
                self.filter = Some(own);
                self.comments.push(format!(
                    "{HOLDS_ONLY}packets that match: {}",
                    begin_of(more)
                ));
            }
        }
    }

    /// Bytes of each packet, at most; 0 for whole packets.
    pub fn snaplen(&self) -> u32 {
        self.snaplen
    }

    /// The interface, whose packets were chosen by this and by its own description.
    pub fn described<'a>(&self, interface: &'a Interface) -> Cow<'a, Interface> {
        if *self == Self::default() {
            return Cow::Borrowed(interface);
        }
        let filter = interface.filter.clone();
        let both = Self {
            filter,
            ..Self::default()
        }
        .and(self);
        let mut described = interface.clone();
        described.filter = both.filter;
        // In front of the comments of strangers, of which there may be too many.
        let new = both
            .comments
            .into_iter()
            .filter(|comment| !interface.comments.contains(comment));
        described.comments.splice(0..0, new.collect::<Vec<_>>());
        described.snaplen = cut_length(interface.snaplen, self.snaplen);
        Cow::Owned(described)
    }

    /// Returns the parts of the choice in words.
    pub fn words(&self) -> Vec<String> {
        let interface = Interface::plain(
            weir_packet::LinkType::ETHERNET,
            0,
            weir_packet::savefile::Resolution(9),
        );
        self.described(&interface).holds_only(true)
    }
}

/// Time as RFC 3339 has it, in UTC.
pub fn stamp(ns: i64) -> String {
    let mut text = String::new();
    Stamp(ns).write(&mut text, Shape::Rfc3339, Digits::Micro, 0);
    text
}

/// Moves the filter of an interface to a comment, which has its begin.
pub(crate) fn shorten_filter(interface: &mut Interface) {
    if let Some(filter) = interface.filter.take() {
        interface.comments.insert(
            0,
            format!("{HOLDS_ONLY}packets that match: {}", begin_of(&filter)),
        );
    }
}

/// The begin of an expression, which may be very long.
fn begin_of(expression: &str) -> Cow<'_, str> {
    if expression.len() <= BEGIN {
        return Cow::Borrowed(expression);
    }
    let end = (0..=BEGIN)
        .rev()
        .find(|&at| expression.is_char_boundary(at))
        .unwrap_or(0);
    Cow::Owned(format!(
        "{}... ({} bytes in all)",
        &expression[..end],
        expression.len()
    ))
}

/// Function that returns remarks on the packets of a file once all of them are in it.
pub type Remarks = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Provenance of the packets of a file.
#[derive(Clone, Default)]
pub struct Provenance {
    /// Choice of the packets.
    pub chosen: Chosen,
    /// Comments of the section: where the packets are from.
    pub comments: Vec<String>,
    /// Remarks at the end, for the statistics.
    pub remarks: Option<Remarks>,
}

impl fmt::Debug for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provenance")
            .field("chosen", &self.chosen)
            .finish_non_exhaustive()
    }
}

impl Provenance {
    /// The same for packets that also match the expression of another selection.
    #[must_use]
    pub fn and(&self, selection: &Selection) -> Self {
        Self {
            chosen: self.chosen.clone().and(&Chosen::by_expression(selection)),
            ..self.clone()
        }
    }
}

/// Returns the parts of the choice that the interfaces and sections of a source tell, each once, in
/// words. A part that only some interfaces tell has their numbers after it. A snap length is one if `has_cut`: a packet was cut.
pub fn holds_only(layout: &Layout, has_cut: bool) -> Vec<String> {
    /// Most interfaces named.
    const NAMED: usize = 4;
    let mut parts: Vec<(String, Vec<usize>)> = Vec::new();
    let (mut count, mut places) = (0, std::collections::HashMap::new());
    for (number, interface) in layout.interfaces.iter().enumerate() {
        count += 1;
        for part in interface.holds_only(has_cut) {
            let at = *places.entry(part.clone()).or_insert_with(|| {
                parts.push((part, Vec::new()));
                parts.len() - 1
            });
            parts[at].1.push(number);
        }
    }
    let of_interfaces = parts.into_iter().map(|(part, numbers)| {
        if numbers.len() == count {
            return part;
        }
        let named: Vec<String> = numbers.iter().take(NAMED).map(usize::to_string).collect();
        let more = if numbers.len() > NAMED {
            " and others"
        } else {
            ""
        };
        let noun = if numbers.len() == 1 {
            "interface"
        } else {
            "interfaces"
        };
        format!("{part} ({noun} {}{more})", named.join(", "))
    });
    let notes = layout.notes.iter().filter(|(name, _)| *name == "comment");
    let of_sections = notes
        .filter_map(|(_, text)| text.strip_prefix(HOLDS_ONLY))
        .map(str::to_owned);
    of_interfaces.chain(of_sections).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::LinkType;
    use weir_packet::flow::Tunnels;
    use weir_packet::savefile::Resolution;

    fn by(expression: &str) -> Selection {
        Selection {
            expression: expression.to_owned(),
            ..Selection::default()
        }
    }

    fn plain() -> Interface {
        Interface::plain(LinkType::ETHERNET, 262_144, Resolution::NANOSECOND)
    }

    #[test]
    fn a_choice_is_said_in_the_fields_of_an_interface() {
        assert!(matches!(
            Chosen::by(&by(" ")).described(&plain()),
            Cow::Borrowed(_)
        ));
        let tcp = Chosen::by(&by("tcp port 443"))
            .cut_to(128)
            .only("received packets".to_owned());
        let described = tcp.described(&plain()).into_owned();
        assert_eq!(described.filter.as_deref(), Some("tcp port 443"));
        assert_eq!(
            (described.snaplen, &described.comments[..]),
            (128, &["holds only received packets".to_owned()][..])
        );
        // The same again changes nothing; another expression is added.
        assert_eq!(*tcp.described(&described), described);
        let both = Chosen::by(&by("host 10.0.0.1 or host 10.0.0.2"))
            .described(&described)
            .into_owned();
        assert_eq!(
            both.filter.as_deref(),
            Some("(tcp port 443) and (host 10.0.0.1 or host 10.0.0.2)")
        );
        assert_eq!(
            both.holds_only(true),
            [
                "(tcp port 443) and (host 10.0.0.1 or host 10.0.0.2)",
                "128 bytes of each packet",
                "received packets"
            ]
        );
    }

    #[test]
    fn what_libpcap_would_not_take_is_a_comment() {
        let of = |selection: Selection| Chosen::by(&selection).words();
        assert_eq!(
            of(Selection {
                invert: true,
                ..by("tcp or udp")
            }),
            ["not (tcp or udp)"]
        );
        assert_eq!(
            of(Selection {
                inner: Some(Tunnels::default()),
                ..by("tcp")
            }),
            ["packets with an innermost packet that matches: tcp"]
        );
        assert_eq!(
            of(Selection {
                invert: true,
                ..by("src @lan")
            }),
            ["packets that do not match: src @lan"]
        );
        let tags = Selection {
            behind_tags: true,
            ..by("tcp")
        };
        assert_eq!(of(tags), ["packets that match: tcp, behind VLAN tags too"]);
        let long = "host 10.0.0.1 or ".repeat(2000) + "tcp";
        let words = of(by(&long));
        assert!(
            words[0].len() < 600 && words[0].ends_with("... (34003 bytes in all)"),
            "{words:?}"
        );
        // Two that fit, and both together do not.
        let half = "host 10.0.0.1 or ".repeat(600) + "tcp";
        let described = Chosen::by(&by(&half)).described(&plain()).into_owned();
        let both = Chosen::by(&by(&format!("udp or {half}")))
            .described(&described)
            .into_owned();
        assert_eq!(
            (both.filter.as_deref(), both.comments.len()),
            (Some(&half[..]), 1)
        );
    }

    #[test]
    fn what_only_some_interfaces_say_names_them() {
        let chosen = Chosen::by(&by("tcp")).described(&plain()).into_owned();
        let cut = Interface {
            snaplen: 96,
            ..chosen.clone()
        };
        let named = |number: usize| Interface {
            name: Some(number.to_string()),
            ..chosen.clone()
        };
        let layout = |interfaces: Vec<Interface>| Layout::spool(interfaces);
        assert_eq!(holds_only(&layout(vec![plain()]), true), [""; 0]);
        assert_eq!(
            holds_only(&layout(vec![chosen.clone(), cut.clone()]), true),
            ["tcp", "96 bytes of each packet (interface 1)"]
        );
        assert_eq!(
            holds_only(&layout(vec![plain(), chosen.clone(), cut]), true)[0],
            "tcp (interfaces 1, 2)"
        );
        let many = std::iter::once(plain()).chain((0..9).map(named)).collect();
        assert_eq!(
            holds_only(&layout(many), true),
            ["tcp (interfaces 1, 2, 3, 4 and others)"]
        );
    }
}
