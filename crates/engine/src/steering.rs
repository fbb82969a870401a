//! Steering of a sender while it sends: start, stop, rate and traffic, from other threads.
//!
//! A sender looks between two bursts whether orders wait, and obeys them in its own thread. **Cost**: a relaxed load for a look; no packet
//! takes a lock.
//!
//! Requests over the control socket of the sender, and from its script:
//!
//! ```text
//! {"request":"stop"}                                  {"ok":{"change":1}}; nothing leaves until start
//! {"request":"start"}
//! {"request":"stop","port":"eth1"}                    of a replay by two ports: packets of this one are left out until its start
//! {"request":"set","what":"rate","value":"100kpps"}   as --rate
//! {"request":"set","what":"speed","value":2}          of a replay: times as fast as captured
//! {"request":"set","what":"sizes","value":"imix"}     of streams, as --sizes
//! {"request":"set","what":"field","value":"ipv4.ttl=9"}   of streams, as --field
//! {"request":"status"}                                {"ok":{"sent":1200,"bytes":72000,...}}
//! {"request":"hold"}                                  {"ok":{"change":1}}; the sender ends with this connection
//! ```
//!
//! An order that was answered with `ok` is in force: later packets leave accordingly.

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz_body;

use crate::name::Name;
use crate::pairing::Pairs;
use crate::port::{injected, interface};
use crate::replay::Rate;
use crate::socket::Reply;
use crate::socket::protocol::{check_members, text_member};
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_generator::Packets;

/// Longest wait for a sender to obey.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two looks for the end of a connection that holds a sender.
const LOOK: Duration = Duration::from_millis(2);

/// Most orders that wait. Each caller waits for its own.
const WAITING: usize = 256;

/// An order to a sender.
#[derive(Debug)]
pub enum Order {
    /// Let no packet leave.
    Stop,
    /// Go on.
    Start,
    /// Leave out the packets of a port when they are due, or let them leave again.
    Port {
        /// Place among the ports.
        port: usize,
        /// Whether they are left out.
        stops: bool,
    },
    /// Send at another rate from now on.
    Rate(Rate),
    /// Send other packets of the same streams, from the next number on.
    Traffic(Box<Packets>),
}

/// Progress of a sender.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Packets that left.
    pub sent: u64,
    /// Bytes of these frames, without FCS.
    pub bytes: u64,
    /// Packets that the port refused.
    pub refused: u64,
    /// Wanted rate; `None` for times of the traffic's own.
    pub rate: Option<Rate>,
    /// Lateness of the last packet.
    pub late: Duration,
    /// Whether the sender has stopped, until it is started.
    pub is_stopped: bool,
    /// Packets of each stream, if there are streams.
    pub streams: Vec<u64>,
    /// Progress of each port of a replay.
    pub ports: Vec<PortProgress>,
}

/// Progress of one of several ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortProgress {
    /// Packets that left by it.
    pub sent: u64,
    /// Bytes of these frames, without FCS.
    pub bytes: u64,
    /// Packets that it refused.
    pub refused: u64,
    /// Lateness of its last packet.
    pub late: Duration,
    /// Whether an order stopped it alone.
    pub is_stopped: bool,
    /// Packets that were left out while it was stopped.
    pub left_out: u64,
}

impl PortProgress {
    fn json(&self, name: &Name) -> Value {
        json!({
            "name": name.text(), "sent": self.sent, "bytes": self.bytes, "refused": self.refused,
            "late_ns": nanoseconds(self.late), "stopped": self.is_stopped, "left_out": self.left_out,
        })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Progress {
    fn json(&self) -> Value {
        json!({
            "sent": self.sent, "bytes": self.bytes, "refused": self.refused,
            "rate": self.rate.map(|rate| rate.to_string()),
            "late_ns": nanoseconds(self.late),
            "stopped": self.is_stopped,
        })
    }
}

/// State of the sender's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The sender will look for orders before its next packet.
    #[default]
    Resting,
    Sending,
    Over,
}

#[derive(Debug, Default)]
struct Mail {
    waiting: Vec<Order>,
    /// Number of orders and questions so far, and of taken ones.
    asked: u64,
    taken: u64,
    /// Number of orders so far.
    changes: u64,
    phase: Phase,
    progress: Progress,
}

/// Orders to a sender, and its progress.
#[derive(Debug, Default)]
pub struct Steering {
    knocks: AtomicBool,
    mail: Mutex<Mail>,
    heard: Condvar,
    /// Whether a connection that held the sender has ended.
    lost: AtomicBool,
}

impl Steering {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether orders wait, for the sender. **Cost**: a relaxed load.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.knocks.load(Ordering::Relaxed)
    }

    /// Whether a connection that [held](Remote) the sender was lost.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the sender has ended.
    pub fn is_over(&self) -> bool {
        self.mail().phase == Phase::Over
    }

    /// Notes that a burst begins. Orders from before are obeyed before its first packet.
    pub fn begin(&self) {
        self.mail().phase = Phase::Sending;
    }

    /// Gives the waiting orders to the sender, which obeys them before its next packet. Packets that it has handed over have left.
    pub fn take(&self, progress: Progress) -> Vec<Order> {
        let mut mail = self.mail();
        self.knocks.store(false, Ordering::Relaxed);
        let orders = std::mem::take(&mut mail.waiting);
        mail.taken = mail.asked;
        mail.progress = progress;
        for order in &orders {
            match order {
                Order::Stop => mail.progress.is_stopped = true,
                Order::Start => mail.progress.is_stopped = false,
                Order::Rate(rate) => mail.progress.rate = Some(*rate),
                Order::Port { port, stops } => {
                    if let Some(port) = mail.progress.ports.get_mut(*port) {
                        port.is_stopped = *stops;
                    }
                }
                Order::Traffic(_) => {}
            }
        }
        self.heard.notify_all();
        orders
    }

    /// Notes that the sender has no packet, and will look for orders before its next packet.
    pub fn rest(&self, progress: Progress) {
        self.set_phase(Phase::Resting, progress);
    }

    /// Notes that the sender has ended. Later orders are refused.
    pub fn end(&self, progress: Progress) {
        self.set_phase(Phase::Over, progress);
    }

    fn set_phase(&self, phase: Phase, progress: Progress) {
        let mut mail = self.mail();
        // Orders that are not obeyed yet are in force with the next packet.
        (mail.phase, mail.progress) = (phase, progress);
        self.heard.notify_all();
    }

    /// Gives an order, or none, and waits until it is in force. Returns its number, and the progress. **Errors**: the reason of a refusal.
    pub fn ask(&self, order: Option<Order>, most: Duration) -> Result<(u64, Progress), String> {
        let over = || Err("the sender has ended".to_owned());
        let until = Instant::now() + most;
        let mut mail = self.mail();
        if mail.phase == Phase::Over {
            return over();
        }
        if mail.waiting.len() >= WAITING {
            return Err("too many orders wait: try again later".to_owned());
        }
        mail.changes += u64::from(order.is_some());
        mail.waiting.extend(order);
        mail.asked += 1;
        let (asked, change) = (mail.asked, mail.changes);
        self.knocks.store(true, Ordering::Relaxed);
        loop {
            if mail.taken >= asked || mail.phase == Phase::Resting {
                return Ok((change, mail.progress.clone()));
            }
            if mail.phase == Phase::Over {
                return over();
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return Err("the port takes nothing, and the sender does not answer: the order is in force with its next burst".to_owned());
            };
            let waited = self.heard.wait_timeout(mail, left);
            mail = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Function that reads a rate. **Errors**: the reason of a refusal.
pub type ReadRate = Box<dyn Fn(&str) -> Result<Rate, String> + Send + Sync>;

/// Function that makes traffic with another setting, `sizes` or `field`, and keeps the setting. **Errors**: the reason of a refusal.
pub type MakeTraffic = Box<dyn Fn(&str, &str) -> Result<Packets, String> + Send + Sync>;

/// The parts of a sender that requests change.
pub struct Remote {
    /// Its orders.
    pub steering: Arc<Steering>,
    /// Ends the sender once it is set.
    pub stop: Arc<AtomicBool>,
    /// Function that reads rates.
    pub rate: ReadRate,
    /// Maker of other traffic; `None` for a replay.
    pub traffic: Option<MakeTraffic>,
    /// Orders of traffic are given in the order in which it was made.
    pub making: Mutex<()>,
    /// Packets that arrived at the other end, if packets are received there.
    pub pairs: Option<Arc<Mutex<Pairs>>>,
    /// Names of the streams.
    pub streams: Vec<String>,
    /// The ports, if there are several in one order.
    pub ports: Vec<Name>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("steering", &self.steering)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// Answers a request.
    pub fn answer(&self, request: &Value) -> Reply {
        let done = match request["request"].as_str() {
            Some("stop") => self.stop_or_start(request, true),
            Some("start") => self.stop_or_start(request, false),
            Some("set") => self.set(request),
            Some("status") => check_members(request, &[]).and_then(|()| self.status()),
            Some("hold") => match check_members(request, &[]) {
                Ok(()) => return self.hold(),
                Err(why) => Err(why),
            },
            Some(other) => Err(format!(
                "unknown request '{other}': {REQUESTS} are known to a sender"
            )),
            None => Err(format!("a request has a member \"request\": {REQUESTS}")),
        };
        done.map_or_else(Reply::Refused, Reply::Done)
    }

    fn stop_or_start(&self, request: &Value, stops: bool) -> Result<Value, String> {
        check_members(request, &["port"])?;
        self.order(match text_member(request, "port")? {
            Some(name) => Order::Port {
                port: self.port(name)?,
                stops,
            },
            None if stops => Order::Stop,
            None => Order::Start,
        })
    }

    /// Place of a port, by its name, its interface or its number.
    fn port(&self, name: &str) -> Result<usize, String> {
        if self.ports.len() < 2 {
            return Err(format!(
                "'{name}': this sender has one port, which stop and start without a name stop and start"
            ));
        }
        let bare = |port: &&Name| interface(port).or(injected(port)) == Some(name);
        let numbered = || (1..=self.ports.len()).position(|number| number.to_string() == name);
        let named = self.ports.iter().position(|port| port.text() == name);
        let alone = || {
            let is_one = self.ports.iter().filter(bare).count() == 1;
            self.ports.iter().position(|port| is_one && bare(&port))
        };
        named.or_else(alone).or_else(numbered).ok_or_else(|| {
            let all: Vec<String> = self.ports.iter().map(Name::text).collect();
            format!(
                "'{name}' is none of the ports: name {} or a number, 1 or 2",
                all.join(", ")
            )
        })
    }

    fn status(&self) -> Result<Value, String> {
        let (_, progress) = self.steering.ask(None, PATIENCE)?;
        let mut status = progress.json();
        if self.ports.len() > 1 {
            // Before the first packet there is no progress.
            let states = progress.ports.iter().copied();
            let states = states.chain(std::iter::repeat(PortProgress::default()));
            let ports = self.ports.iter().zip(states);
            status["ports"] = ports.map(|(name, port)| port.json(name)).collect();
        }
        if !self.streams.is_empty() {
            let streams = self.streams.iter().zip(&progress.streams);
            let stream = |(name, sent): (&String, &u64)| json!({ "name": name, "sent": sent });
            status["streams"] = streams.map(stream).collect();
        }
        if let Some(pairs) = &self.pairs {
            let pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
            let all = pairs.report().all();
            let handed = progress.sent + progress.refused;
            status["under_way"] = pairs.after_the_last(handed).into();
            status["link_down"] = pairs.report().downs.is_down().into();
            status["received"] = all.received.into();
            status["duplicated"] = all.duplicated.into();
            status["reordered"] = all.reordered.into();
        }
        Ok(status)
    }

    fn order(&self, order: Order) -> Result<Value, String> {
        let (change, _) = self.steering.ask(Some(order), PATIENCE)?;
        Ok(json!({ "change": change }))
    }

    fn set(&self, request: &Value) -> Result<Value, String> {
        check_members(request, &["what", "value", "port"])?;
        if let Some(port) = text_member(request, "port")? {
            return Err(format!(
                "'{port}': a setting is of the whole sender: two ports have one global order, and so one rate; stop and start take a port"
            ));
        }
        let what = text_member(request, "what")?.unwrap_or_default();
        let text = || {
            text_member(request, "value")?.ok_or_else(|| format!("the value of {what} is a string"))
        };
        match (what, &self.traffic) {
            ("rate", _) => self.order(Order::Rate((self.rate)(text()?)?)),
            ("speed", None) => self.order(Order::Rate(Rate::Original(speed(&request["value"])?))),
            ("sizes" | "field", Some(make)) => {
                let _made = self.making.lock();
                self.order(Order::Traffic(Box::new(make(what, text()?)?)))
            }
            (_, None) => Err(format!(
                "'{what}' of a replay cannot be set: rate and speed can"
            )),
            (_, Some(_)) => Err(format!(
                "'{what}' of generated packets cannot be set: rate, sizes and field can"
            )),
        }
    }

    /// Ends the sender once the connection of this request has ended.
    fn hold(&self) -> Reply {
        let (steering, stop) = (Arc::clone(&self.steering), Arc::clone(&self.stop));
        let write = move |out: &mut dyn Write| -> io::Result<()> {
            while steering.mail().phase != Phase::Over {
                if let Err(gone) = out.flush() {
                    steering.lost.store(true, Ordering::Relaxed);
                    stop.store(true, Ordering::Relaxed);
                    return Err(gone);
                }
                std::thread::sleep(LOOK);
            }
            Ok(())
        };
        Reply::Stream {
            first: json!({ "change": self.steering.mail().changes }),
            write: Box::new(write),
        }
    }
}

/// Requests to a sender.
const REQUESTS: &str = "start, stop, set, status and hold";

fn speed(value: &Value) -> Result<f64, String> {
    let speed = value.as_f64().filter(|speed| *speed > 0.0);
    speed.ok_or_else(|| format!("{value} is not a speed: want a number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(has_traffic: bool) -> Remote {
        let read = |text: &str| match text {
            "max" => Ok(Rate::Max),
            _ => Err(format!("'{text}' is not a rate")),
        };
        let make = |what: &str, value: &str| -> Result<Packets, String> {
            Err(format!("{what}={value}: not here"))
        };
        Remote {
            steering: Arc::default(),
            stop: Arc::default(),
            rate: Box::new(read),
            traffic: has_traffic.then(|| -> MakeTraffic { Box::new(make) }),
            making: Mutex::default(),
            pairs: None,
            streams: Vec::new(),
            ports: Vec::new(),
        }
    }

    fn words(reply: &Reply) -> String {
        match reply {
            Reply::Done(value) => value.to_string(),
            Reply::Refused(why) => why.clone(),
            _ => "more".to_owned(),
        }
    }

    #[test]
    fn requests_are_answered_or_refused_by_name() {
        let (replay, generated) = (remote(false), remote(true));
        let set =
            |what: &str, value: Value| json!({"request": "set", "what": what, "value": value});
        for (remote, request, expected) in [
            (&replay, json!({"request": "stop"}), "{\"change\":1}"),
            (&replay, set("rate", "max".into()), "{\"change\":2}"),
            (&replay, set("speed", 2.into()), "{\"change\":3}"),
            (
                &replay,
                set("speed", 0.into()),
                "0 is not a speed: want a number above 0",
            ),
            (
                &replay,
                set("sizes", "imix".into()),
                "'sizes' of a replay cannot be set: rate and speed can",
            ),
            (
                &generated,
                set("speed", 2.into()),
                "'speed' of generated packets cannot be set: rate, sizes and field can",
            ),
            (
                &generated,
                set("rate", 7.into()),
                "\"value\" is a string, and not 7",
            ),
            (
                &generated,
                set("rate", "fast".into()),
                "'fast' is not a rate",
            ),
            (
                &generated,
                set("field", "a=b".into()),
                "field=a=b: not here",
            ),
            (
                &generated,
                json!({"request": "stop", "now": true}),
                "the request stop has no member \"now\"; it has port",
            ),
            (
                &generated,
                json!({"request": "rotate"}),
                "unknown request 'rotate': start, stop, set, status and hold are known to a sender",
            ),
            (
                &generated,
                json!({"request": "status"}),
                "{\"sent\":0,\"bytes\":0,\"refused\":0,\"rate\":null,\"late_ns\":0,\"stopped\":false}",
            ),
        ] {
            assert_eq!(words(&remote.answer(&request)), expected, "{request}");
        }
        let orders = replay.steering.take(Progress::default());
        assert!(
            matches!(orders[..], [Order::Stop, Order::Rate(Rate::Max), Order::Rate(Rate::Original(speed))] if speed == 2.0)
        );
    }

    #[test]
    fn a_port_is_named_by_name_interface_or_number() {
        let ports = |names: &[&str]| Remote {
            ports: names.iter().map(|name| Name::from(*name)).collect(),
            ..remote(false)
        };
        let one = ports(&["af_packet:a"]);
        let two = ports(&["af_packet:a", "inject:2"]);
        let queues = ports(&["af_xdp:a:0", "af_xdp:a:1"]);
        for (remote, name, place) in [
            (&two, "a", Ok(0)),
            (&two, "af_packet:a", Ok(0)),
            (&two, "1", Ok(0)),
            // A name is more than a number.
            (&two, "2", Ok(1)),
            (
                &two,
                "0",
                Err("'0' is none of the ports: name af_packet:a, inject:2 or a number, 1 or 2"),
            ),
            (&queues, "af_xdp:a:1", Ok(1)),
            (&queues, "2", Ok(1)),
            (
                &queues,
                "a",
                Err("'a' is none of the ports: name af_xdp:a:0, af_xdp:a:1 or a number, 1 or 2"),
            ),
            (
                &one,
                "a",
                Err(
                    "'a': this sender has one port, which stop and start without a name stop and start",
                ),
            ),
        ] {
            assert_eq!(remote.port(name), place.map_err(str::to_owned), "{name}");
        }
        let set = json!({"request": "set", "what": "rate", "value": "max", "port": "a"});
        assert!(words(&two.answer(&set)).contains("one global order, and so one rate"));
        two.answer(&json!({"request": "stop", "port": "2"}));
        two.answer(&json!({"request": "start", "port": "a"}));
        let orders = two.steering.take(Progress::default());
        let expected = [(1, true), (0, false)];
        for (order, expected) in orders.iter().zip(expected) {
            assert!(matches!(order, Order::Port { port, stops } if (*port, *stops) == expected));
        }
        assert_eq!(orders.len(), 2);
    }

    /// Runs the body of the fuzz target over right and over damaged requests.
    #[test]
    fn requests_are_those_of_a_list() {
        let good = "{\"request\":\"stop\"}\n{\"request\":\"start\"}\n{\"request\":\"status\"}\n{\"request\":\"hold\"}\n\
            {\"request\":\"set\",\"what\":\"rate\",\"value\":\"7\"}\n{\"request\":\"set\",\"what\":\"speed\",\"value\":2}\n\
            {\"request\":\"set\",\"what\":\"sizes\",\"value\":\"imix\"}\n{\"request\":\"stop\",\"of\":1}\n\
            {\"request\":\"stop\",\"port\":\"b\"}\n{\"request\":\"start\",\"port\":\"1\"}\n\
            {\"request\":\"stop\",\"port\":null}\n{\"request\":\"set\",\"what\":\"rate\",\"value\":\"7\",\"port\":\"a\"}\n";
        fuzz_body::requests(good.as_bytes());
        let mut random = weir_testkit::Random::behind(1);
        for _ in 0..2000 {
            let mut damaged = good.as_bytes().to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(damaged.len());
                damaged[at] = good.as_bytes()[random.below(good.len())];
            }
            fuzz_body::requests(&damaged);
        }
    }

    /// An order to a sender that sends is answered once it is taken; a sender that is over takes none.
    #[test]
    fn orders_are_in_force_when_they_are_answered() {
        let steering = Steering::default();
        steering.begin();
        let late = steering.ask(Some(Order::Start), Duration::ZERO);
        assert!(late.is_err());
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| steering.ask(Some(Order::Stop), PATIENCE));
            let mut orders = Vec::new();
            while orders.len() < 2 {
                orders.extend(steering.take(Progress::default()));
                std::thread::yield_now();
            }
            assert!(matches!(orders[..], [Order::Start, Order::Stop]));
            let (change, progress) = asked.join().unwrap().unwrap();
            assert_eq!((change, progress.is_stopped), (2, true));
        });
        assert!(!steering.is_asked());
        steering.end(Progress::default());
        assert_eq!(
            steering.ask(None, PATIENCE).unwrap_err(),
            "the sender has ended"
        );
    }
}
