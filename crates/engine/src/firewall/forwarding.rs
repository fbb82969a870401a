//! A firewall between interfaces, or from an interface to a file: from the names to the end, the same for every front end.
//!
//! ```text
//! new        the names are checked; nothing is opened yet
//! claim      guards are asked, and the interfaces are locked
//! needs      what the forwarding takes from the system
//! open       captures and ports, one direction after another; interfaces are closed to this host
//! rights     what the open captures still take; here a front end confines the process
//! begin      captures have begun, and files are made
//! control    the controller, for changes meanwhile
//! forward    packets, to the end of one direction
//! end        packets are this host's again; the runs are left to be finished
//! ```

mod attendant;
mod checks;
mod threads;

pub use attendant::{Attendant, Occurrence};
pub use checks::{RulesCheck, RulesRefused, Silence, Stranger, departure, is_by_af_packet};

use super::control_port::{ControlPackets, ControlPort, Times};
use super::controller::{Clock, Controller, Direction, ReadRules};
use super::ends::LiveEnds;
use super::interface_lock::{InterfaceLocks, LockError};
use super::reject::Answers;
use super::{Firewall, SharedPolicy};
use crate::capture::{
    self, AF_PACKET, AF_XDP, CaptureRequest, DPDK, Direction as Captured, FanoutBy, Live,
    is_interface,
};
use crate::event::Event;
use crate::guard::{self, Guarded, interfaces_of_device};
use crate::name::Name;
use crate::outputs::{Outputs, Target};
use crate::port::{self, Finisher, Port, PortError, PortSink};
use crate::run::{self, Ended, Run, Setup};
use crate::session::{End, Session, Unopened};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_io::sys::ingress::ClosedIngress;
use weir_io::sys::privilege::Capability;
use weir_io::sys::{bpf, packet_socket};
use weir_pipeline::measuring;
use weir_pipeline::select::Selection;

/// Longest time that a packet waits for others in AF_PACKET's ring.
const RETIRE: Duration = Duration::from_millis(1);

/// Settings of a forwarding.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the source, as the user wrote it.
    pub source: Name,
    /// Name of the sink, as the user wrote it: an interface, a port, or a file.
    pub sink: Name,
    /// Whether packets are forwarded from the sink to the source too, by the same rules.
    pub bidirectional: bool,
    /// Whether this host also receives the packets. By default the firewall keeps them from it.
    pub tap: bool,
    /// Whether packets pass unjudged while the firewall is slower than their arrival.
    pub fails_open: bool,
    /// Settings of the captures. The firewall replaces their direction and the time for which packets wait.
    pub capture: capture::Settings,
    /// Number of workers of each interface, which AF_PACKET shares the packets out to; `None` for one of each queue.
    pub workers: Option<usize>,
    /// Name of the interface where packets of a file would leave.
    pub departure: Option<String>,
    /// Whether there is a further output in a file.
    pub writes: bool,
    /// Whether packets to a control port are obeyed.
    pub obeys_packets: bool,
    /// Interfaces whose packets may be taken away from this host although they are [guarded](guard).
    pub yes_take: Vec<String>,
    /// Interfaces that may send although they are guarded.
    pub yes_send: Vec<String>,
}

/// The policy of a forwarding, and its outputs in files.
pub struct Work {
    /// The policy.
    pub policy: Arc<SharedPolicy>,
    /// Ends of bans and rules.
    pub ends: Arc<LiveEnds>,
    /// The control port, if there is one.
    pub control: Option<Arc<ControlPort>>,
    /// Output of the packets that pass, if the sink is a file.
    pub file: Option<Target>,
    /// Further output, if there is one.
    pub written: Option<Target>,
    /// Settings of a measurement of the packets that pass, which each direction and each worker makes; `None` for no measurement.
    pub measure: Option<measuring::Settings>,
}

/// Needs of a forwarding from the system.
pub struct Needs<'a> {
    /// The sources, with needs of their own.
    pub sources: &'a Session,
    /// Ports and files that packets go to.
    pub sinks: Vec<&'a Name>,
}

/// A notice during the opening.
#[non_exhaustive]
pub enum Notice<'a> {
    /// Notice of a capture.
    Capture(capture::Notice<'a>),
    /// AF_XDP cannot capture from the interface, and AF_PACKET does.
    WithoutXdp(Unopened),
    /// A source is open.
    Opened {
        /// The interface, if it was closed to this host.
        closed: Option<&'a str>,
        /// A capture for each queue or share.
        session: &'a Session,
    },
}

/// Function called with the notices during the opening.
pub type Hear<'a> = &'a mut dyn FnMut(Notice<'_>);

/// Reason for which a forwarding is refused, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source stands for all interfaces.
    #[error("packets are forwarded from one interface")]
    AnyInterface,
    /// One of the interfaces is in another network namespace.
    #[error("packets are forwarded between interfaces of one network namespace")]
    OtherNamespace,
    /// The packets would leave where they come from.
    #[error("{sink} is where the packets come from")]
    SameInterface {
        /// Name of the sink.
        sink: Name,
    },
    /// Packets cannot be forwarded from the sink, because it is not an interface.
    #[error("{sink} is not an interface, from which packets could be forwarded too")]
    OneWay {
        /// Name of the sink.
        sink: Name,
    },
    /// Both directions are wanted, and an output in a file.
    #[error("a file takes the packets of one direction")]
    WritesBoth,
    /// An interface and a file have the name of the sink.
    #[error("{sink} is an interface, and the name of a file")]
    FileAndInterface {
        /// Name of the sink.
        sink: Name,
    },
    /// The interface where packets leave is named twice.
    #[error("packets leave at {sink}, and at no other interface")]
    Departure {
        /// Name of the sink.
        sink: Name,
    },
    /// Packets are to be distributed, and there are not several workers of an AF_PACKET interface.
    #[error("{interface} does not share packets out to several workers")]
    NotShared {
        /// Name of the interface.
        interface: String,
    },
    /// Packets may pass unread, and control packets are to be read.
    #[error("packets that pass unread are not obeyed")]
    OpenWithControl,
    /// An interface is guarded.
    #[error("{name}: {error}")]
    Guarded {
        /// Name of the source or sink.
        name: Name,
        /// The reason.
        error: Guarded,
    },
    /// An interface is not locked.
    #[error("{name}: {error}")]
    Locked {
        /// Name of the source or sink.
        name: Name,
        /// The reason.
        error: LockError,
    },
    /// A source cannot be captured.
    #[error(transparent)]
    Unopened(#[from] Unopened),
    /// An awaited interface cannot be closed to this host.
    #[error("{interface} is not there, and cannot be closed to this host")]
    Awaited {
        /// Name of the interface.
        interface: String,
    },
    /// An interface is not closed to this host.
    #[error("{source_name}: {error}")]
    NotClosed {
        /// Name of the source.
        source_name: Name,
        /// The reason.
        error: bpf::Error,
    },
    /// The source has several queues, and a file takes the packets of one.
    #[error("{source_name} has {queues} queues, and a file takes the packets of one")]
    Queues {
        /// Name of the source.
        source_name: Name,
        /// Number of queues.
        queues: usize,
    },
    /// A port cannot be opened.
    #[error("{name}: {error}")]
    Port {
        /// Name of the port.
        name: Name,
        /// The reason.
        error: PortError,
    },
    /// The rules cannot be followed here.
    #[error(transparent)]
    Rules(#[from] RulesRefused),
    /// A run cannot begin, or cannot go on.
    #[error(transparent)]
    Run(#[from] run::Error),
    /// The thread of a direction cannot be started.
    #[error("a thread of a direction: {0}")]
    Thread(io::Error),
    /// The thread of a direction panicked.
    #[error("a direction panicked")]
    Panic,
}

/// A direction of forwarding, or a share of it.
pub struct Way {
    /// Name of the source, with the way of capturing.
    pub source: Name,
    /// Name of the sink.
    pub sink: Name,
    session: Session,
    run: Run,
}

impl Way {
    /// Completes the outputs of the direction, as [`Run::finish`] does.
    pub fn finish(self, on: crate::event::On<'_>) -> (Ended, Outputs) {
        self.run.finish(on)
    }
}

/// A firewall between interfaces, or from an interface to a file.
pub struct Forwarding {
    settings: Settings,
    /// Sources and sinks of the directions, by the names of their ports.
    pairs: Vec<(Name, Name)>,
    sources: Session,
    check: Arc<RulesCheck>,
    locks: InterfaceLocks,
    closed: Vec<ClosedIngress>,
    ways: Vec<Way>,
    work: Option<(Arc<SharedPolicy>, Arc<LiveEnds>)>,
    stop: Arc<AtomicBool>,
    clock: Option<Clock>,
}

impl Forwarding {
    /// Makes a forwarding. **Errors**: the settings contradict each other.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let sink = port_of(&settings.sink);
        checks::check(&settings, &sink)?;
        let source = settings.source.clone();
        let pairs = match settings.bidirectional {
            true => vec![
                (source.clone(), sender(&sink)),
                (settings.sink.clone(), sender(&port_of(&source))),
            ],
            false => vec![(source, sink)],
        };
        let sources = pairs.iter().map(|(source, _)| source.clone()).collect();
        Ok(Self {
            sources: Session::new(sources),
            check: Arc::new(RulesCheck::new(&settings, &pairs)),
            pairs,
            settings,
            locks: InterfaceLocks::default(),
            closed: Vec::new(),
            ways: Vec::new(),
            work: None,
            stop: Arc::default(),
            clock: None,
        })
    }

    /// Returns the name of the sink: for an interface, the name of its port.
    pub fn sink(&self) -> &Name {
        &self.pairs[0].1
    }

    /// Returns what rules must have to be followed here. Once the forwarding is [open](Self::open), it knows whether packets that are
    /// rejected can be answered.
    pub fn rules_check(&self) -> &Arc<RulesCheck> {
        &self.check
    }

    /// Whether packets are kept from this host's own stack.
    fn takes_away(&self) -> bool {
        !self.settings.tap && port::is_port(self.sink())
    }

    /// Refuses guarded interfaces that are not named, and locks the interfaces, unless the sink is a file. **Errors**: another firewall
    /// has one of them.
    pub fn claim(&mut self) -> Result<(), Error> {
        let Settings {
            yes_take, yes_send, ..
        } = &self.settings;
        for (source, _) in self.pairs.iter().filter(|_| self.takes_away()) {
            guard::check_taking(source, yes_take).map_err(|error| guarded(source, error))?;
        }
        for (_, sink) in &self.pairs {
            port::check_guard(sink, yes_send).map_err(|error| guarded(sink, error))?;
        }
        self.lock()
    }

    /// Locks the interfaces, including interfaces of DPDK's devices.
    fn lock(&mut self) -> Result<(), Error> {
        if !port::is_port(self.sink()) {
            return Ok(());
        }
        for name in self.pairs.iter().flat_map(|(source, sink)| [source, sink]) {
            let interfaces = match name.utf8().strip_prefix(DPDK) {
                Some(device) => interfaces_of_device(device),
                None => Live::of(name)
                    .map(Live::interface)
                    .or(port::interface(name))
                    .map(str::to_owned)
                    .into_iter()
                    .collect(),
            };
            for interface in interfaces {
                self.locks.add(&interface).map_err(|error| Error::Locked {
                    name: name.clone(),
                    error,
                })?;
            }
        }
        Ok(())
    }

    /// Returns the needs of the forwarding from the system.
    pub fn needs(&self) -> Needs<'_> {
        Needs {
            sources: &self.sources,
            sinks: self.pairs.iter().map(|(_, sink)| sink).collect(),
        }
    }

    /// Opens captures and ports, one direction after another. Returns `false` if `stop` was set first. **Errors**: the first source or
    /// port that cannot be opened; rules that cannot be followed here.
    pub fn open(
        &mut self,
        work: Work,
        stop: &Arc<AtomicBool>,
        hear: Hear<'_>,
    ) -> Result<bool, Error> {
        let Work {
            policy,
            ends,
            control,
            mut file,
            mut written,
            measure,
        } = work;
        self.stop = Arc::clone(stop);
        self.sources.check_memory(&self.settings.capture)?;
        let mut silent = Vec::new();
        for (source, sink) in self.pairs.clone() {
            let (source, session) = self.open_source(&source, hear)?;
            let queues = session.inputs().len();
            if queues == 0 {
                return Ok(false);
            }
            if queues > 1 && (file.is_some() || written.is_some()) {
                return Err(Error::Queues {
                    source_name: source,
                    queues,
                });
            }
            // Each queue has a worker, and each worker a sender of its own.
            for session in session.divided() {
                let main = match file.take() {
                    Some(file) => file,
                    None => port_output(&sink, &self.settings.yes_send)?,
                };
                let mut firewall = self.firewall(&policy, &source, &sink);
                if let Some(port) = &control {
                    let times = Times::Clock(Arc::clone(&ends));
                    firewall = firewall.controlled(ControlPackets::new(port, times));
                }
                // Rejected packets are answered where they came from, unless they are only looked at.
                if port::is_port(&sink) && !port::is_dpdk(&source) {
                    firewall = self.answering(firewall, &source, &mut silent)?;
                }
                let splits = Vec::from_iter(written.take());
                let run = Run::new(Setup {
                    selection: Selection {
                        splits: vec![String::new(); splits.len()],
                        ..Selection::default()
                    },
                    firewall: Some(firewall),
                    measure: measure.clone(),
                    main,
                    splits,
                    stop: Arc::clone(stop),
                    ..Setup::default()
                });
                let (source, sink) = (source.clone(), sink.clone());
                self.ways.push(Way {
                    source,
                    sink,
                    session,
                    run,
                });
            }
        }
        let check = self.check.with_silent(silent);
        self.check = Arc::new(check);
        self.check.check(policy.rules().list())?;
        // Those that were waited for.
        self.lock()?;
        self.work = Some((policy, ends));
        Ok(true)
    }

    /// Begins to capture from a source. If the packets are taken away from this host, an interface without a prefix is captured with
    /// AF_XDP, which delivers packets at once, or else with AF_PACKET. Returns the name with the way of capturing.
    fn open_source(&mut self, source: &Name, hear: Hear<'_>) -> Result<(Name, Session), Error> {
        let (takes_away, stop) = (self.takes_away(), Arc::clone(&self.stop));
        let settings = self.settings.clone();
        let request = request(&settings);
        let is_bare = Live::of(source).map(Live::interface) == Some(source.utf8());
        let mut session = Session::default();
        if is_bare && takes_away && settings.workers.is_none() {
            let by_xdp = Name::from(format!("{AF_XDP}{}", source.utf8()));
            let mut on = |notice: capture::Notice<'_>| hear(Notice::Capture(notice));
            match session.add(&by_xdp, &request, &stop, &mut on) {
                Ok(_) => {
                    hear(Notice::Opened {
                        closed: None,
                        session: &session,
                    });
                    return Ok((by_xdp, session));
                }
                Err(error) => hear(Notice::WithoutXdp(error)),
            }
        }
        let source = port_of(source);
        let interface = source.utf8().strip_prefix(AF_PACKET).filter(|_| takes_away);
        let closed = match interface {
            Some(interface) => self.close(&source, interface)?,
            None => false,
        };
        let mut on = |notice: capture::Notice<'_>| hear(Notice::Capture(notice));
        session.add(&source, &request, &stop, &mut on)?;
        hear(Notice::Opened {
            closed: interface.filter(|_| closed),
            session: &session,
        });
        Ok((source, session))
    }

    /// Closes an interface to this host before it is captured, so that no packet goes both ways. A missing interface is refused when it
    /// is opened.
    fn close(&mut self, source: &Name, interface: &str) -> Result<bool, Error> {
        let Some(index) = packet_socket::index_of(interface) else {
            return match self.settings.capture.wait {
                true => Err(Error::Awaited {
                    interface: interface.to_owned(),
                }),
                false => Ok(false),
            };
        };
        let closed = ClosedIngress::new(index).map_err(|error| Error::NotClosed {
            source_name: source.clone(),
            error,
        })?;
        self.closed.push(closed);
        Ok(true)
    }

    fn firewall(&self, policy: &Arc<SharedPolicy>, source: &Name, sink: &Name) -> Firewall {
        let departure = departure(sink).or_else(|| self.settings.departure.clone());
        let firewall =
            Firewall::new(policy, Some(checks::interface_of(source).to_owned())).leaving(departure);
        match self.settings.fails_open {
            true => firewall.failing_open(),
            false => firewall,
        }
    }

    /// Has rejected packets answered at the interface where they came from, if it may send; else the reason is added to `silent`.
    fn answering(
        &self,
        firewall: Firewall,
        source: &Name,
        silent: &mut Vec<Silence>,
    ) -> Result<Firewall, Error> {
        let interface = Live::of(source).map_or("", Live::interface);
        let name = Name::from(format!("{AF_PACKET}{interface}"));
        // An interface whose packets are taken away is the firewall's.
        let taken = self.takes_away().then(|| interface.to_owned());
        let named: Vec<String> = self
            .settings
            .yes_send
            .iter()
            .cloned()
            .chain(taken)
            .collect();
        if let Err(why) = port::check_guard(&name, &named) {
            silent.push(Silence { name, why });
            return Ok(firewall);
        }
        let port = Port::open(&name, &named).map_err(|error| Error::Port { name, error })?;
        Ok(firewall.answering(Answers::new(port.outlasting_down())))
    }

    /// Returns the capabilities that the open captures still take.
    pub fn rights(&self) -> Vec<Capability> {
        self.ways
            .iter()
            .flat_map(|way| way.session.rights())
            .collect()
    }

    /// Begins the captures, and makes the files. `hear` gets the number of the direction with each event. Returns `false` if the
    /// forwarding was stopped before that.
    pub fn begin(&mut self, hear: &mut dyn FnMut(usize, Event<'_>)) -> Result<bool, Error> {
        for (number, Way { session, run, .. }) in self.ways.iter_mut().enumerate() {
            if !session.begin(run, &mut |event| hear(number, event))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the directions that are open, or shares of them.
    pub fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// Returns the place that drops packets if it has no room: the kernel, or a device of DPDK.
    pub fn place(&self) -> &'static str {
        self.ways.last().map_or("kernel", |way| way.session.place())
    }

    /// Makes the controller, once the forwarding is [open](Self::open), and starts the thread that ends bans and rules. `read_rules`
    /// reads the rules again, and refuses rules that fail the [check](Self::rules_check). **Errors**: no thread can be started.
    ///
    /// **Panics**: the forwarding is not open.
    pub fn control(&mut self, read_rules: ReadRules) -> io::Result<Arc<Controller>> {
        let direction = |way: &Way| Direction {
            source: way.source.as_source(),
            sink: way.sink.as_output(),
            place: way.session.place(),
            control: Arc::clone(way.run.control()),
        };
        let (policy, ends) = self.work.clone().expect("the forwarding is open");
        let directions = self.ways.iter().map(direction).collect();
        let controller = Controller::new(policy, ends, directions, read_rules);
        self.clock = Some(controller.end_bans()?);
        Ok(controller)
    }

    /// Forwards packets to the end of one direction, which ends the others. `hears` are the functions that hear the events of each
    /// direction, in its thread; this thread calls `look` at intervals. Returns the cause of the first end.
    pub fn forward<'a>(
        &mut self,
        hears: impl IntoIterator<Item = Box<dyn FnMut(Event<'_>) + Send + 'a>>,
        look: &mut dyn FnMut(),
    ) -> Result<End, Error> {
        let directions = self.ways.iter_mut().zip(hears);
        threads::forward(
            directions.map(|(way, hear)| (&mut way.session, &mut way.run, hear)),
            &self.stop,
            look,
        )
    }

    /// Gives the interfaces back to this host, and returns the directions to be finished.
    pub fn end(self) -> Vec<Way> {
        self.ways
    }
}

/// Makes the output for a port that packets are forwarded to: their checksums are filled in, and merged segments cut. **Errors**: the port
/// cannot be opened.
pub fn port_output(name: &Name, yes_send: &[String]) -> Result<Target, Error> {
    let port = Port::open(name, yes_send).map_err(|error| Error::Port {
        name: name.clone(),
        error,
    })?;
    let sink = PortSink {
        port: port.outlasting_down(),
        snaplen: 0,
        flush_each: false,
        finisher: Finisher::new(name),
    };
    Ok((name.as_output(), Some(Box::new(sink))))
}

fn guarded(name: &Name, error: Guarded) -> Error {
    Error::Guarded {
        name: name.clone(),
        error,
    }
}

/// Returns the request for a capture: all packets that the interface receives. Packets that it sends were judged at their arrival, or
/// belong to the host. A packet does not wait long for others.
fn request(settings: &Settings) -> CaptureRequest<'_> {
    CaptureRequest {
        settings: capture::Settings {
            direction: Captured::In,
            retire: Some(RETIRE),
            ..settings.capture
        },
        shares: settings.workers.unwrap_or(1),
        yes_take: &settings.yes_take,
        ..CaptureRequest::default()
    }
}

/// Name of a sink as a port, if an interface and no file has the name.
fn port_of(name: &Name) -> Name {
    match is_interface(name.utf8()) && !Path::new(name).exists() {
        true => Name::from(format!("{AF_PACKET}{}", name.utf8())),
        false => name.clone(),
    }
}

/// Port that sends where `port` receives: an interface has one AF_XDP socket for a queue, so AF_PACKET sends.
fn sender(port: &Name) -> Name {
    let is_xdp = port.utf8().starts_with(AF_XDP);
    match port::interface(port).filter(|_| is_xdp) {
        Some(interface) => Name::from(format!("{AF_PACKET}{interface}")),
        None => port.clone(),
    }
}

/// Whether the kernel gives all packets of a flow to one worker.
fn is_by_flow(fanout: FanoutBy) -> bool {
    !matches!(fanout, FanoutBy::Address | FanoutBy::Random)
}
