//! Settings of a source.

use crate::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_engine::batches;
use weir_engine::capture::Settings;
use weir_engine::dedup::{MOST as MOST_COMPARED, Within};
use weir_engine::firewall::RuleSettings;
use weir_engine::name::Name;
use weir_engine::records::{self, CheckError, Query};
use weir_engine::session::Order;
use weir_filter::{Names, Sets};
use weir_messages::errors::directory_words;
use weir_messages::sets::{check_sets, parse_set, read_sets};
use weir_packet::flow::Tunnels;
use weir_pipeline::select::{Selection, Span};

/// Most threads that read and filter files.
pub const MOST_WORKERS: usize = 1024;

/// Sizes of a table of connections, as the command has them: 2 GiB at most.
const CONNECTIONS: std::ops::RangeInclusive<usize> = 1024..=1 << 26;

/// Settings of a source.
#[derive(Clone, Debug)]
pub struct Options {
    /// Filter in the language of libpcap; empty for all packets.
    pub filter: String,
    /// Further filters, each of which marks some of the packets that pass.
    pub splits: Vec<String>,
    /// Whether the verdicts of the filter are inverted.
    pub invert: bool,
    /// Whether the filter judges the innermost packet of a frame: after tags, labels, PPPoE and extension headers, and in tunnels.
    pub inner: bool,
    /// Whether names of hosts in the filter are looked up.
    pub resolve: bool,
    /// Sets of addresses that expressions name as in `src @banned`: each is a name and a file,
    /// `banned=banned.txt`. The file has an address, a prefix or a range a line, `#` begins a
    /// comment, and it is read when the source is opened.
    pub sets: Vec<String>,
    /// Order of the packets of several files.
    pub order: Order,
    /// Threads that read and filter files, [`MOST_WORKERS`] at most; 0 for one for each processor.
    pub workers: usize,
    /// Number of packets that pass, after which the source ends.
    pub limit: Option<u64>,
    /// Most batches that wait or are held, [`MOST_BATCHES`](crate::MOST_BATCHES) at most. While there are so many, a file is not read,
    /// and a capture drops packets once its ring is full, and counts them.
    pub batches: usize,
    /// Settings of the capture from an interface.
    pub capture: Settings,
    /// Interfaces whose packets AF_XDP or DPDK may take away from this host, although they carry
    /// its default route or this login, or are ports of a bridge.
    pub yes_take: Vec<String>,
    /// The least and the greatest time of the packets that are wanted, ns since 1970.
    pub times: [Option<i64>; 2],
    /// Duplicates that are left out of the packets that pass: they have the verdict 0, and count as filtered.
    pub dedup: Option<Within>,
    /// Rules of a firewall, in the language of `weir firewall`. Packets that the rules deny have the verdict 0, and are counted as denied.
    /// Names of files in the rules are relative to the working directory.
    pub rules: Option<String>,
    /// Number of connections for which there is room if a rule asks for the states of packets, 1024 to 67108864.
    pub connections: usize,
    /// Ends an opening that waits for an interface, and the run, once another thread sets it.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            filter: String::new(),
            splits: Vec::new(),
            invert: false,
            inner: false,
            resolve: false,
            sets: Vec::new(),
            order: Order::OneByOne,
            workers: 0,
            limit: None,
            batches: 64,
            capture: Settings::default(),
            yes_take: Vec::new(),
            times: [None; 2],
            dedup: None,
            rules: None,
            connections: 65_536,
            stop: None,
        }
    }
}

impl Options {
    /// Refuses numbers that are too large, and a first time after the last.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (what, value, most) in [
            ("batches", self.batches, batches::MOST),
            ("workers", self.workers, MOST_WORKERS),
        ] {
            if value > most {
                return Err(Error::refused(format!(
                    "{what}: {value} are too many, and {most} are the most"
                )));
            }
        }
        if let [Some(from), Some(to)] = self.times
            && from > to
        {
            return Err(Error::refused(format!(
                "from_ns {from} is later than to_ns {to}: no packet can lie between them"
            )));
        }
        if let Some(Within::Packets(packets)) = self.dedup
            && !(2..=MOST_COMPARED).contains(&packets)
        {
            return Err(Error::refused(format!(
                "dedup: {packets} is no number of packets from 2 to {MOST_COMPARED}"
            )));
        }
        if !CONNECTIONS.contains(&self.connections) {
            let (least, most) = (CONNECTIONS.start(), CONNECTIONS.end());
            let words = format!(
                "connections: {} is none of {least} to {most}",
                self.connections
            );
            return Err(Error::refused(words));
        }
        Ok(())
    }

    /// Refuses settings that are about batches, for `what` has none.
    pub(crate) fn check_no_batches(&self, what: &str) -> Result<(), Error> {
        let given = [
            ("splits", !self.splits.is_empty()),
            ("invert", self.invert),
            ("limit", self.limit.is_some()),
            ("rules", self.rules.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Error::refused(format!(
                "{name}: {what} has none: leave it out"
            ))),
            None => Ok(()),
        }
    }

    /// Reads the sets. `remark` gets lines about them. **Errors**: a file that cannot be read; there
    /// are sets, but neither the filter, the splits nor `more` expressions name one.
    pub(crate) fn names<'a>(
        &'a self,
        more: impl IntoIterator<Item = &'a str>,
        remark: impl FnMut(String),
    ) -> Result<Names, Error> {
        let files = self
            .sets
            .iter()
            .map(|set| parse_set(set))
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::refused)?;
        let expressions = std::iter::once(&self.filter)
            .chain(&self.splits)
            .map(String::as_str)
            .chain(more);
        check_sets(&files, expressions).map_err(Error::refused)?;
        let read = read_sets(&files).map_err(Error::refused)?;
        read.remarks.into_iter().for_each(remark);
        Ok(Names {
            resolve: self.resolve,
            sets: read.sets,
        })
    }

    pub(crate) fn selection(&self, names: &Names) -> Selection {
        Selection {
            expression: self.filter.clone(),
            invert: self.invert,
            inner: self.tunnels(),
            names: names.clone(),
            splits: self.splits.clone(),
            span: self.span(),
            ..Selection::default()
        }
    }

    pub(crate) fn span(&self) -> Span {
        let [from_ns, to_ns] = self.times;
        Span {
            from_ns,
            to_ns,
            last_ns: None,
        }
    }

    pub(crate) fn tunnels(&self) -> Option<Tunnels> {
        self.inner.then(Tunnels::default)
    }

    pub(crate) fn workers(&self) -> usize {
        if self.workers == 0 {
            weir_pipeline::processors()
        } else {
            self.workers
        }
    }

    pub(crate) fn rule_settings(&self) -> RuleSettings {
        RuleSettings {
            inner: self.tunnels(),
            seed: RandomState::new().hash_one(0),
            connections: self.connections,
        }
    }

    /// The question to a record directory, if one is named. Packets that its recorder has only in
    /// memory are also requested; if the recorder cannot be asked, `remark` gets a line.
    pub(crate) fn query(
        &self,
        names: &[Name],
        sets: &Sets,
        mut remark: impl FnMut(String),
    ) -> Result<Option<Arc<Query>>, Error> {
        let is_record = |name: &Name| !name.is_dash() && Path::new(name).is_dir();
        let [from_ns, to_ns] = self.times;
        let [directory] = names else { return Ok(None) };
        if !is_record(directory) {
            return Ok(None);
        }
        records::check(Path::new(directory)).map_err(|error| match error {
            CheckError::Io(error) => {
                Error::failed(format!("{directory}: {}", directory_words(&error)))
            }
            error => Error::failed(error),
        })?;
        let chooses =
            records::choosing(&self.filter, self.invert, self.inner, self.resolve).to_owned();
        let sets = sets.clone();
        let wanted = records::Selection {
            from_ns,
            to_ns,
            expression: chooses,
            behind_tags: false,
            sets,
        };
        let mut query = Query::new(wanted);
        if let Err(error) = query.ask_recorder(Path::new(directory), false) {
            remark(format!(
                "{directory}: the recorder: {error}; packets that are not on disk yet are left out"
            ));
        }
        Ok(Some(Arc::new(query)))
    }
}
