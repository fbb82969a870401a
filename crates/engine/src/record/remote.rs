//! Requests to a recording over its control socket.
//!
//! ```text
//! {"request":"status"}                  {"ok":{"recorded":1200,"history":{"seconds":3.2,...},"triggers":[...],...}}
//! {"request":"trigger","name":"dns"}    {"ok":{"fired":["dns"],"refused":{}}}   without a name: all triggers
//!                                       {"error":"trigger dns does not fire: ..."}   if none fires
//! {"request":"query","expression":"udp","from_ns":null,"to_ns":null,"follow":false}
//!                                       {"ok":{"number":7}}, then pcapng bytes of the packets in RAM
//! ```

use super::{Handle, Shared};
use crate::socket::Reply;
use crate::socket::protocol::{check_members, flag_member, text_member};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use weir_filter::Names;
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Statistics};
use weir_pipeline::select;
use weir_store::ring::{Filters, Scan};

/// Bytes that are gathered before a write.
const BUFFER: usize = 256 << 10;

/// Pause of a query that follows while nothing comes.
const PAUSE: Duration = Duration::from_millis(20);

/// Packets in RAM that a query asks for.
struct Query {
    shared: Arc<Shared>,
    scan: Scan,
    /// Whether later packets are also sent.
    follows: bool,
    /// Packets lost before the ring that the packets on disk report, or that were lost before the
    /// packets in RAM arrived.
    told: u64,
}

/// Answers a request.
pub(super) fn request(handle: &Handle, request: &Value) -> Reply {
    let answer = match request["request"].as_str() {
        Some("status") => check_members(request, &[]).map(|()| Reply::Done(handle.status().json())),
        Some("trigger") => trigger(handle, request),
        Some("query") => query(handle, request),
        Some(other) => Err(format!(
            "unknown request '{other}': status, trigger and query are known"
        )),
        None => Err("a request has a member \"request\": status, trigger or query".to_owned()),
    };
    answer.unwrap_or_else(Reply::Refused)
}

fn trigger(handle: &Handle, request: &Value) -> Result<Reply, String> {
    check_members(request, &["name"])?;
    let name = text_member(request, "name")?;
    let asked = handle
        .fire(name, "a request on the control socket")
        .map_err(|why| why.to_string())?;
    asked.json().map(Reply::Done)
}

fn query(handle: &Handle, request: &Value) -> Result<Reply, String> {
    check_members(
        request,
        &["expression", "behind_tags", "from_ns", "to_ns", "follow"],
    )?;
    let time = |name: &str| match &request[name] {
        Value::Null => Ok(None),
        value => value
            .as_i64()
            .map(Some)
            .ok_or_else(|| format!("{name} is not a time in ns since 1970")),
    };
    let (from_ns, to_ns) = (
        time("from_ns")?.unwrap_or(i64::MIN),
        time("to_ns")?.unwrap_or(i64::MAX),
    );
    let expression = text_member(request, "expression")?.unwrap_or("");
    let history = handle.history();
    let compile = if flag_member(request, "behind_tags")? {
        Filters::compile_behind_tags
    } else {
        Filters::compile
    };
    let follows = flag_member(request, "follow")?;
    let filters = match expression.trim() {
        "" => None,
        _ => match compile(expression, &history.interfaces(), &Names::NONE) {
            Ok(filters) => Some(Arc::new(filters)),
            // It may be for packets on disk, and those in RAM do not match.
            Err(_)
                if handle.generation().is_some()
                    && select::check(expression, &Names::NONE).is_ok() =>
            {
                compile(expression, &[], &Names::NONE).ok().map(Arc::new)
            }
            Err(error) => return Err(error.to_string()),
        },
    };
    let number = handle.first_in_ram();
    // Without packets on disk the answer begins with the oldest one in RAM.
    let scan = Scan::new(
        history,
        handle.generation().map(|_| number),
        filters,
        from_ns..=to_ns,
    );
    let scan = if follows { scan.following() } else { scan };
    let query = Query {
        shared: Arc::clone(&handle.shared),
        scan,
        follows,
        told: handle.told_elsewhere(),
    };
    let first = json!({ "number": number, "generation": handle.generation() });
    Ok(Reply::Stream {
        first,
        write: Box::new(move |out| query.write(out)),
    })
}

impl Query {
    /// Packets that the answer lacks: lost before the ring, or gone from it before they were read.
    fn lost(&self) -> u64 {
        self.shared
            .dropped()
            .saturating_sub(self.told)
            .saturating_add(self.scan.missed())
    }

    /// Writes the packets as pcapng, with interface statistics of lost packets.
    fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut encoder = Encoder::new(Format::Pcapng, 0);
        let (mut bytes, mut ids) = (Vec::with_capacity(BUFFER * 2), Vec::new());
        encoder.begin(&mut bytes);
        // Captures count what they lose, from the first count on; files may have no counter.
        let (mut told, mut starved) = (shared.waits.then_some(0), 0);
        loop {
            let matches = self.scan.next(shared.steady_ns());
            let loses = told.is_none_or(|told| self.lost() > told);
            if ids.len() < shared.history.interface_count() {
                let interfaces = shared.history.interfaces();
                let id = |interface| {
                    encoder
                        .interface(interface)
                        .expect("a pcapng file takes interfaces of any link type")
                };
                ids = interfaces.iter().map(id).collect();
            }
            if let (true, Some(&id)) = (loses, ids.first()) {
                let lost = self.lost();
                told = Some(lost);
                let time_ns = shared.clock.now().wall_ns;
                let counts = Statistics {
                    time_ns,
                    dropped_by_system: Some(lost),
                    ..Statistics::default()
                };
                encoder.statistics(&mut bytes, id, &counts, &[]);
            }
            // Other readers may keep all chunks that may be kept, for a moment.
            let is_starved =
                std::mem::replace(&mut starved, self.scan.starved()) < self.scan.starved();
            match matches {
                Some(matches) => {
                    for record in matches.records() {
                        let id = ids[record.frame.interface as usize];
                        encoder.packet(&mut bytes, id, record.time_ns, &record.frame);
                    }
                    self.scan.reuse(matches);
                }
                None if is_starved || self.follows && !shared.has_ended() => {
                    self.scan.rest();
                    out.write_all(&bytes)?;
                    bytes.clear();
                    out.flush()?;
                    std::thread::sleep(PAUSE);
                }
                None => break,
            }
            if bytes.len() >= BUFFER {
                // A client that reads slowly keeps no chunk.
                self.scan.rest();
                out.write_all(&bytes)?;
                bytes.clear();
            }
        }
        self.scan.rest();
        out.write_all(&bytes)?;
        out.flush()
    }
}
