//! Options of a measurement: their defaults and checks, and messages on why a measurement cannot begin.

use crate::captures::interface;
use crate::geo;
use crate::measured::Answers;
use crate::measured::columns::{choose, has_names};
use crate::numbers::{asked_time, grouped};
use crate::refusals::Terms;
use crate::sources::{check, check_cpus, check_schemes, check_sort};
use crate::{Refusal, refusal, refuse};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_engine::name::Name;
use weir_engine::run::Run;
use weir_engine::session::Order;
use weir_io::Input;
use weir_measure::health;
use weir_measure::names;
use weir_measure::owners::Owners;
use weir_measure::{By, Config, Geo, KeyKind, SharedTables, Sketch, Unfit, Windowing};
use weir_memory::{Policy, Request};
use weir_packet::addresses::Addresses;
use weir_packet::flow::Tunnels;
use weir_packet::savefile::MAX_SNAPLEN;
use weir_pipeline::measuring::{Design, Distribute, Settings};

/// Most windows open at once. Each has tables of its own.
pub const MOST_OPEN: i64 = 64;

/// Bytes of a packet that hold all headers from which a flow key is read, except headers of tunnels
/// in tunnels.
const HEADERS: u32 = 512;

/// Options of a measurement, in plain values.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kinds of key that are counted, a table each; at least one.
    pub keys: Vec<KeyKind>,
    /// Figure that ranks the keys.
    pub by: By,
    /// Most rows of a table.
    pub rows: usize,
    /// Most rows of a table of the keys that changed most since the window before.
    pub changers: usize,
    /// Least share of a row in the figure that ranks, from 0 to 1.
    pub above: Option<f64>,
    /// Speed of the link in each direction, bit/s, if it is known.
    pub link_bits_per_s: Option<f64>,
    /// Addresses on this side of the link, which tell incoming from outgoing packets.
    pub local: Option<Arc<Addresses>>,
    /// Databases of the keys asn, country and network, and of columns with their names.
    pub geo: Option<Arc<Geo>>,
    /// Whether rates are shown, because keys are ranked by bytes per second.
    pub by_rate: bool,
    /// Processes of the sockets of this host, for the key process.
    pub owners: Option<Arc<Owners>>,
    /// Names of the columns of the rows, separated by commas; `None` for the usual ones.
    pub columns: Option<String>,
    /// Length of a window of packet time; `None` for one answer about all packets.
    pub window: Option<Duration>,
    /// Time that a window waits for late packets; `None` for the default.
    pub late: Option<Duration>,
    /// Table that counts the keys by packets or bytes. Other figures have a sample of pairs instead.
    pub sketch: Sketch,
    /// Memory of each table, bytes; `None` for [`weir_measure::table_memory`].
    pub memory: Option<u64>,
    /// Pages of that memory.
    pub pages: Policy,
    /// Seed of the hash functions; `None` for a seed drawn again, so that nobody can aim
    /// collisions.
    pub seed: Option<u64>,
    /// Whether all workers share the tables.
    pub shared: bool,
    /// Way in which packets reach the workers.
    pub design: Design,
    /// Rule by which a distributor chooses a worker; `None` for the default.
    pub distribute: Option<Distribute>,
    /// Number of worker threads.
    pub workers: usize,
    /// Processors to bind the threads to, in turn.
    pub cpus: Vec<usize>,
    /// Number of packets per batch.
    pub batch: usize,
    /// Tunnels inside which the flow key is read, if at all.
    pub inner: Option<Tunnels>,
    /// Whether processing times are recorded.
    pub timing: bool,
    /// Parts of the health of the traffic to examine.
    pub health: health::Parts,
    /// Whether each window is searched for findings.
    pub findings: bool,
    /// Whether the packets are searched for names of addresses although no key and no column has them.
    pub reads_names: bool,
    /// Whether repeated packets are left out, which may lie in different files.
    pub dedup: bool,
    /// Whether files are merged by packet time; `None`: they are with windows, and if repeated packets are left out, unless a named pipe is
    /// among them.
    pub merge: Option<bool>,
    /// Whether all packets of the files are sorted by time first.
    pub sort: bool,
    /// Whether the file is followed after its end.
    pub follow: bool,
}

/// Most packets that a worker takes at once.
const MOST_BATCH: usize = 1024;

impl Default for Options {
    /// The defaults of the engine, with a seed drawn again.
    fn default() -> Self {
        let Settings {
            inner,
            config,
            design,
            workers,
            cpus,
            batch,
            timing,
            ..
        } = Settings::default();
        let Config {
            ref keys,
            by,
            sketch,
            ref request,
            ..
        } = *config;
        Self {
            keys: keys.clone(),
            by,
            rows: 10,
            changers: 0,
            above: None,
            link_bits_per_s: None,
            local: None,
            geo: None,
            by_rate: false,
            owners: None,
            columns: None,
            window: None,
            late: None,
            sketch,
            memory: None,
            pages: request.pages,
            seed: None,
            shared: false,
            design,
            distribute: None,
            workers,
            cpus,
            batch,
            inner,
            timing,
            health: health::Parts::default(),
            findings: false,
            reads_names: false,
            dedup: false,
            merge: None,
            sort: false,
            follow: false,
        }
    }
}

impl Options {
    /// Returns the settings of the engine. Binds this thread to the first processor of [`cpus`](Self::cpus), if there is one.
    /// **Errors**: contradictory options or sources.
    pub fn settings(&self, sources: &[Name]) -> Result<Settings, Refusal> {
        check_schemes(sources)?;
        check(sources, self.follow)?;
        if self.follow && self.merge == Some(true) {
            refuse!("--merge needs the end of each source, and --follow has none");
        }
        check_sort(sources, self.sort)?;
        if !(1..=MOST_BATCH).contains(&self.batch) {
            refuse!("--batch {}: it is 1 to {MOST_BATCH} packets", self.batch);
        }
        let live = is_live(sources);
        self.check_figure()?;
        self.check_findings()?;
        self.check_keys(sources)?;
        self.check_times(if live { sources.len() } else { 0 })?;
        self.check_geo()?;
        self.check_design(sources, live)?;
        check_cpus(&self.cpus)?;
        let seed = self.seed.map_or_else(draw_seed, Ok)?;
        let config = Config {
            keys: self.keys.clone(),
            by: self.by,
            sketch: self.sketch,
            shared: self.shared.then(SharedTables::default),
            memory: usize::try_from(self.table_memory())
                .map_err(|_| refusal!("--memory {} is too large", self.table_memory()))?,
            rows: self.memory.is_none().then_some(self.rows),
            // With memory populated at the start, no packet waits for a page.
            request: Request {
                pages: self.pages,
                populate: live,
                ..Request::default()
            },
            windowing: self.windowing(live)?,
            seed,
            local: self.local.clone(),
            geo: self.geo.clone(),
            watch: self.findings,
            names: self.names(),
            owners: self.owners.clone(),
            times: self.has_times(),
        };
        Ok(Settings {
            inner: self.inner,
            config: Arc::new(config),
            design: self.design,
            distribute: self.distribute.unwrap_or_default(),
            workers: self.workers,
            cpus: self.cpus.clone(),
            batch: self.batch,
            timing: self.timing,
            health: self.health(seed),
        })
    }

    /// Whether the packets are searched for names of addresses.
    pub fn reads_names(&self) -> bool {
        self.names().is_some()
    }

    /// Memory for names, bytes, if a key or a column has names.
    fn names(&self) -> Option<usize> {
        let has_column = self.columns.as_deref().is_some_and(has_names);
        let has_any = self.reads_names || has_column || self.keys.contains(&KeyKind::Name);
        has_any.then(|| self.memory_or(names::MEMORY))
    }

    /// Memory of each table as `--memory` says it, bytes, or `usual`.
    fn memory_or(&self, usual: usize) -> usize {
        self.memory.map_or(usual, |memory| {
            usize::try_from(memory).unwrap_or(usize::MAX)
        })
    }

    /// Returns the health to look at, if any.
    fn health(&self, seed: u64) -> Option<health::Config> {
        let names = self.names();
        let is_wanted = self.health != health::Parts::default() || names.is_some();
        is_wanted.then(|| health::Config {
            parts: self.health,
            names,
            memory: self.memory_or(health::MEMORY),
            rows: self.rows,
            windows: self.window.is_some(),
            seed,
        })
    }

    /// Returns the memory of each table, bytes.
    fn table_memory(&self) -> u64 {
        // A sample improves with each byte, as all sketches but `heavy`.
        let sketch = match self.by.is_distinct() {
            true => Sketch::Exact,
            false => self.sketch,
        };
        self.memory.unwrap_or_else(|| {
            weir_measure::table_memory(sketch, self.rows, self.has_times()) as u64
        })
    }

    /// Returns the contents of the answers. **Errors**: columns that no row has.
    pub fn answers(&self) -> Result<Answers, Refusal> {
        let columns = self.columns.as_deref();
        let columns = columns.map(|list| choose(list, &self.keys, self.by));
        Ok(Answers {
            above: self.above,
            link_bits_per_s: self.link_bits_per_s,
            by_rate: self.by_rate,
            columns: columns.transpose()?,
            geo: self.geo.clone(),
            keys: self.keys.clone(),
            by: self.by,
            rows: self.rows,
            changers: self.changers,
            place: None,
            uncounted: false,
        })
    }

    /// Refuses keys, tables and a state that contradict the figure that ranks.
    fn check_figure(&self) -> Result<(), Refusal> {
        let by = self.by;
        for key in &self.keys {
            match by.check(*key) {
                Err(Unfit::Key { advice, .. }) => {
                    refuse!("--key {key} cannot be ranked with --by {by}: {advice}")
                }
                other => other.map_err(|why| refusal!("{why}"))?,
            }
        }
        if by.is_distinct() && self.above.is_some() {
            refuse!(
                "--above is a share of all packets or bytes, and --by {by} counts neither: leave it out, or use --top"
            );
        }
        if by.is_distinct() && self.sketch != Sketch::default() {
            return Err(no_sketch(by));
        }
        if by.is_distinct() && self.shared {
            refuse!(
                "--state shared cannot be had with --by {by}, because workers cannot share the sample of pairs: \
                 use --state separate, which gives the same answer"
            );
        }
        Ok(())
    }

    /// Refuses findings that windows or tables cannot give.
    fn check_findings(&self) -> Result<(), Refusal> {
        if !self.findings {
            return Ok(());
        }
        let Some(window) = self.window else {
            refuse!("--findings needs windows: add --window 1s");
        };
        if window < Duration::from_secs(1) {
            refuse!(
                "--findings cannot be had with --window {}, which is too short for rates: use --window 1s",
                asked_time(window)
            );
        }
        if self.shared {
            refuse!(
                "--findings cannot be had with --state shared, because workers cannot share the sample of contacts: \
                 use --state separate"
            );
        }
        Ok(())
    }

    /// Refuses keys and columns that the databases cannot give.
    fn check_geo(&self) -> Result<(), Refusal> {
        let geo = self.geo.as_deref();
        for key in self.keys.iter().filter(|key| key.needs_geo()) {
            geo::check(geo, &format!("--key {key}"), *key)?;
        }
        for (column, kind) in geo::of_columns(self.columns.as_deref()) {
            geo::check(geo, &format!("--columns: {column}"), kind)?;
        }
        Ok(())
    }

    /// Refuses keys that the tables cannot have.
    fn check_keys(&self, sources: &[Name]) -> Result<(), Refusal> {
        let name = self.sketch.name();
        if let Some(key) = self.keys.iter().find(|key| !self.sketch.can_count(**key)) {
            if self.sketch == Sketch::ReversibleSets {
                refuse!(
                    "--sketch {name} cannot have --key {key}: it recovers flows, so use --key 5tuple, or --sketch heavy"
                );
            }
            refuse!(
                "--sketch {name} cannot have --key {key}: it recovers IPv4 addresses and pairs of them, so use --key src, \
                 dst, src/24 or pair, or --sketch heavy"
            );
        }
        if let Some(key) = self.keys.iter().find(|key| key.needs_owners()) {
            let owners = self.owners.as_ref();
            owners.ok_or_else(|| {
                refusal!("--key {key} needs the sockets of this host as they are now: measure one of its interfaces by weir measure")
            })?;
            let sources = sources.iter();
            if let Some(file) = sources.clone().find(|name| interface(name).is_none()) {
                refuse!(
                    "{file}: --key {key} needs the sockets of this host as they are now, so measure one of its interfaces, and \
                     no file"
                );
            }
        }
        Ok(())
    }

    /// Refuses a design that contradicts the tables, the windows or the sources.
    fn check_design(&self, sources: &[Name], live: bool) -> Result<(), Refusal> {
        let &Self { design, shared, .. } = self;
        if shared && !self.sketch.can_be_shared() {
            refuse!(
                "--state shared cannot be had with --sketch {}, whose update touches several places at once: \
                 use exact, cms, sht or rs, or --state separate",
                self.sketch.name()
            );
        }
        if shared
            && self.window.is_some()
            && live
            && !matches!(design, Design::Async | Design::Sync)
        {
            refuse!(
                "--state shared cannot be had with --window on interfaces, whose workers end their windows apart: \
                 use --state separate, or --design async"
            );
        }
        if self.distribute.is_some() && design == Design::Rss {
            refuse!(
                "--distribute is the rule of a distributor, and --design rss has none: use async or sync"
            );
        }
        if self.distribute.is_some() && design == Design::Auto {
            refuse!(
                "--distribute is the rule of a distributor: choose one with --design async or sync"
            );
        }
        if design == Design::Rss && sources.first().is_some_and(Name::is_dash) {
            refuse!(
                "--design rss splits a source among the workers, and standard input cannot be split: use async or sync"
            );
        }
        Ok(())
    }

    fn windowing(&self, live: bool) -> Result<Windowing, Refusal> {
        let ns = |time: Duration| {
            i64::try_from(time.as_nanos()).map_err(|_| refusal!("{} is too long", asked_time(time)))
        };
        let Some(window) = self.window else {
            return Ok(Windowing::default());
        };
        if window.is_zero() {
            refuse!("--window 0 would never hold a packet: write --window 1s");
        }
        let late = self.late.unwrap_or_else(|| default_late(window, live));
        let windowing = Windowing {
            window_ns: Some(ns(window)?),
            late_ns: ns(late)?,
        };
        if windowing.most_open() > MOST_OPEN {
            refuse!(
                "--late {} would keep {} windows of {} open at once: more than {MOST_OPEN} are not allowed",
                asked_time(late),
                grouped(windowing.most_open() as u64),
                asked_time(window),
            );
        }
        Ok(windowing)
    }

    /// Returns the order in which files are read.
    pub fn order(&self, sources: &[Name]) -> Order {
        // One program may fill several named pipes one after another, and would wait for ever if all had to be open at once.
        let named_pipe = |source: &Name| {
            let path = Path::new(source);
            path.metadata()
                .is_ok_and(|about| about.file_type().is_fifo())
                && !path.starts_with("/dev/fd")
        };
        let needs_order = self.window.is_some() || self.has_peaks() || self.dedup;
        let by_windows = || needs_order && !sources.iter().any(named_pipe);
        match self.merge {
            _ if self.sort => Order::Sorted,
            merge if sources.len() > 1 && merge.unwrap_or_else(by_windows) => Order::Merged,
            _ => Order::OneByOne,
        }
    }

    /// Returns the number of rings or queues that each interface is shared out to. **Errors**: the design of the run has one
    /// distributor, for one interface.
    pub fn shares(&self, run: &Run, sources: &[Name]) -> Result<usize, Refusal> {
        if run.distributes() && sources.len() > 1 {
            refuse!(
                "--design async and sync have one distributor, for one interface: name one, or use rss"
            );
        }
        // Each interface has at least one worker.
        Ok(if run.shares_out() {
            (self.workers / sources.len()).max(1)
        } else {
            1
        })
    }

    /// Refuses captures whose queues may separate the directions of a conversation, if the health needs both. `inputs` is the number of
    /// queues and rings; `by_flow`: AF_PACKET gives both directions to one ring.
    pub fn check_health(
        &self,
        sources: &[Name],
        inputs: usize,
        by_flow: bool,
    ) -> Result<(), Refusal> {
        let other = |source: &Name| {
            let text = source.text();
            text.starts_with("af_xdp:") || text.starts_with("dpdk:")
        };
        let separates = inputs > sources.len() && (!by_flow || sources.iter().any(other));
        if separates && (self.health.tcp || self.health.dns) {
            refuse!(
                "--health compares both directions of a conversation, and the queues of this capture may separate them: \
                 use --workers 1, or AF_PACKET with --fanout hash"
            );
        }
        Ok(())
    }

    /// Returns the words of messages on why a run cannot begin.
    pub fn terms(&self) -> Terms {
        Terms {
            instead: "--no-merge reads files one after another, --sort takes any number of them",
            expression: Some("--filter"),
            tables: (self.table_memory(), self.pages),
        }
    }
}

/// Refusal of a sketch for a figure that a sample of pairs counts.
pub fn no_sketch(by: By) -> Refusal {
    refusal!(
        "--sketch cannot be chosen with --by {by}, which is counted by a sample of all pairs: leave --sketch out"
    )
}

/// Whether the sources are interfaces.
fn is_live(sources: &[Name]) -> bool {
    sources.iter().any(|source| interface(source).is_some())
}

/// Refuses several queues for the one distributor of a run.
pub fn check_queues(run: &Run, inputs: &[Input]) -> Result<(), Refusal> {
    if run.distributes() && inputs.len() > 1 {
        refuse!(
            "--design async and sync have one distributor, for one queue: name one, as in af_xdp:eth0:0, or use rss"
        );
    }
    Ok(())
}

/// Bytes of each packet that a capture keeps. Expressions and tunnels may need `whole` packets, and outputs up to `written` bytes.
pub fn snaplen(whole: bool, written: u32) -> u32 {
    if whole {
        MAX_SNAPLEN
    } else {
        HEADERS.max(written)
    }
}

/// Time that a window waits for late packets by default.
fn default_late(window: Duration, live: bool) -> Duration {
    /// Windows that a default wait may keep open at once.
    const OPEN: u32 = 8;
    if live {
        window.saturating_mul(OPEN).min(Duration::from_millis(200))
    } else {
        window.min(Duration::from_secs(1))
    }
}

/// Draws a random seed that no sender of packets can guess.
fn draw_seed() -> Result<u64, Refusal> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| refusal!("no random numbers from the system: {error}"))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_left_alone_are_those_of_the_engine() {
        let options = Options {
            seed: Some(0),
            ..Options::default()
        };
        let ours = options
            .settings(&[Name::from("a.pcap")])
            .expect("a file can be measured");
        assert_eq!(format!("{ours:?}"), format!("{:?}", Settings::default()));
    }
}
