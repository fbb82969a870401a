//! Figures that rank keys, and the kinds of key that have them.

use crate::{Field, Fields, KeyKind, Sketch};
use core::fmt;
use weir_sketch::Weigh;

/// Figure that ranks the keys of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Packets.
    #[default]
    Packets,
    /// Bytes on the wire.
    Bytes,
    /// Distinct addresses at the other end: destinations of a source, sources of a destination. The peers of a destination port
    /// or a protocol are destinations, the peers of a source port are sources.
    Peers,
    /// Distinct destination ports, each with its protocol: the ports that a source contacted, or that were contacted at a
    /// destination. Packets without ports do not count.
    Ports,
    /// Distinct pairs of a peer and a destination port. Packets without ports do not count.
    Contacts,
}

impl By {
    /// All figures, with their names.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("packets", Self::Packets),
        ("bytes", Self::Bytes),
        ("peers", Self::Peers),
        ("ports", Self::Ports),
        ("contacts", Self::Contacts),
    ];

    /// Returns the weight of a packet in the figure; `None` if the figure is a number of distinct elements.
    pub fn weigh(self) -> Option<Weigh> {
        match self {
            Self::Packets => Some(Weigh::Packets),
            Self::Bytes => Some(Weigh::Bytes),
            Self::Peers | Self::Ports | Self::Contacts => None,
        }
    }

    /// Returns whether the figure is a number of distinct elements.
    pub fn is_distinct(self) -> bool {
        self.weigh().is_none()
    }

    /// Checks that keys of a kind can have different numbers of such elements. **Errors**: advice on another figure or key.
    pub fn check(self, key: KeyKind) -> Result<(), Unfit> {
        if self.weigh().is_some() {
            return Ok(());
        }
        let advice = match (key, self) {
            (KeyKind::FiveTuple | KeyKind::Conversation, _) => {
                "it has one peer and one port: use the key src, dst or pair"
            }
            (KeyKind::Pair, Self::Peers) => {
                "it has one peer: count its ports, or use the key src or dst"
            }
            (KeyKind::Pair, Self::Contacts) => "its contacts are its ports: count these",
            (KeyKind::Sport | KeyKind::Dport, Self::Ports) => {
                "a port has no other ports: count its peers"
            }
            (KeyKind::Sport | KeyKind::Dport, Self::Contacts) => {
                "the contacts of a port are its peers: count these"
            }
            (KeyKind::Host(_) | KeyKind::Hosts | KeyKind::Name, _) => {
                "it counts both directions: use the key src or dst"
            }
            (KeyKind::Asn | KeyKind::Country | KeyKind::Network, _) => {
                "it counts both directions: use the key src or dst"
            }
            (KeyKind::Service | KeyKind::App | KeyKind::Process | KeyKind::Container, _) => {
                "it counts both directions: use the key dport"
            }
            (KeyKind::Mac, _) => "peers and ports have IP addresses: use the key src or dst",
            (KeyKind::Fields(fields), by) => match fields_advice(fields, by) {
                Some(advice) => advice,
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        Err(Unfit::Key {
            key,
            by: self,
            advice,
        })
    }
}

/// Returns why keys of several fields cannot have different numbers of elements; `None` if they can.
fn fields_advice(fields: Fields, by: By) -> Option<&'static str> {
    let has_pair = fields.has(Field::Src) && fields.has(Field::Dst);
    match by {
        _ if fields.needs_facts() => Some(
            "peers and ports are counted for addresses and ports alone: use the key src or dst",
        ),
        By::Peers | By::Contacts if has_pair => Some("it has one peer: leave out src or dst"),
        By::Ports | By::Contacts if fields.has(Field::Dport) => {
            Some("a port has no other ports: leave out dport, or count its peers")
        }
        By::Ports | By::Contacts if fields.has(Field::Sport) => {
            Some("ports are counted for addresses: leave out sport, or count its peers")
        }
        _ => None,
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, by)| by == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// Reason why settings of the counters do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// All keys of this kind have the same number of elements, or the number has another name.
    #[error("the key {key} cannot be ranked by {by}, because {advice}")]
    Key {
        /// Kind of key.
        key: KeyKind,
        /// Figure.
        by: By,
        /// Cause, and what to do.
        advice: &'static str,
    },
    /// Distinct elements are counted by one kind of sketch.
    #[error("{by} are counted by a sample of all pairs, so there is no sketch to choose")]
    Sketch {
        /// Figure.
        by: By,
    },
    /// The tables of a sketch cannot have keys of this kind.
    #[error("the sketch {sketch} cannot have the key {key}", sketch = .sketch.name())]
    Table {
        /// Kind of key.
        key: KeyKind,
        /// Sketch.
        sketch: Sketch,
    },
    /// Names are read from the first packet on, or not at all.
    #[error(
        "the key name needs the names in the packets, which this measurement does not read: begin it with the key name, or with a \
         column of names"
    )]
    Names,
    /// Sockets are listed from the begin on, or not at all.
    #[error(
        "the key process needs a list of sockets, which this measurement does not have: begin it with the key process"
    )]
    Owners,
    /// The tables of a sketch keep no times.
    #[error(
        "the sketch {sketch} keeps no times of its keys, which a column of this measurement needs: use heavy or exact",
        sketch = .sketch.name()
    )]
    Times {
        /// Sketch.
        sketch: Sketch,
    },
    /// The keys come from a database, and there is none.
    #[error("the key {key} needs a database of addresses, and the run has none with it")]
    Geo {
        /// Kind of key.
        key: KeyKind,
    },
    /// Workers cannot share a sample.
    #[error("workers cannot share the sample by which {by} are counted")]
    Shared {
        /// Figure.
        by: By,
    },
}
