//! Requests to a recording over its control socket.
//!
//! ```text
//! {"request":"status"}                  {"ok":{"recorded":1200,"history":{"seconds":3.2,...},"triggers":[...],...}}
//! {"request":"trigger","name":"dns"}    {"ok":{}}      without a name: all triggers
//! {"request":"query","expression":"udp","from_ns":null,"to_ns":null,"follow":false}
//!                                       {"ok":{"number":7}}, then pcapng bytes of the packets in RAM
//! ```

use super::Handle;
use crate::socket::Reply;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Statistics};
use weir_store::ring::{Cursor, Filters, From, Piece};

/// Bytes that are gathered before a write.
const BUFFER: usize = 256 << 10;

/// Pause of a query that follows while nothing comes.
const PAUSE: Duration = Duration::from_millis(20);

/// Packets in RAM that a query asks for.
struct Query {
    handle: Handle,
    filters: Option<Arc<Filters>>,
    expression: String,
    times_ns: RangeInclusive<i64>,
    /// Whether packets that come later are sent too.
    follows: bool,
    cursor: Cursor,
    /// Number of the first packet that is sent; `None` for the oldest one in RAM.
    start: Option<u64>,
    /// Number of the first packet that is not sent.
    until: u64,
}

/// Answers a request.
pub(super) fn request(handle: &Handle, request: &Value) -> Reply {
    match request["request"].as_str() {
        Some("status") => Reply::Done(handle.status().json()),
        Some("trigger") => {
            let name = request["name"].as_str();
            if handle.fire(name, "a request on the control socket") {
                Reply::Done(json!({}))
            } else {
                Reply::Refused(match name {
                    Some(name) => format!("there is no trigger {name}"),
                    None => "the recording has ended".to_owned(),
                })
            }
        }
        Some("query") => query(handle, request),
        Some(other) => Reply::Refused(format!("there is no request '{other}': status, trigger and query are")),
        None => Reply::Refused("a request has a member \"request\": status, trigger or query".to_owned()),
    }
}

fn query(handle: &Handle, request: &Value) -> Reply {
    let time = |name: &str| match &request[name] {
        Value::Null => Ok(None),
        value => value.as_i64().map(Some).ok_or_else(|| format!("{name} is no time in ns since 1970")),
    };
    let (from_ns, to_ns) = match (time("from_ns"), time("to_ns")) {
        (Ok(from), Ok(to)) => (from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX)),
        (Err(why), _) | (_, Err(why)) => return Reply::Refused(why),
    };
    let expression = request["expression"].as_str().unwrap_or("").to_owned();
    let history = handle.history();
    let filters = match Filters::compile(&expression, &history.interfaces(), false) {
        _ if expression.trim().is_empty() => None,
        Ok(filters) => Some(Arc::new(filters)),
        Err(error) => return Reply::Refused(error.to_string()),
    };
    let (number, follows) = (handle.first_in_ram(), request["follow"].as_bool().unwrap_or(false));
    let query = Query {
        filters,
        expression,
        times_ns: from_ns..=to_ns,
        follows,
        cursor: history.cursor(From::Number(number)),
        start: handle.generation().map(|_| number),
        until: if follows { u64::MAX } else { history.next() },
        handle: handle.clone(),
    };
    let first = json!({ "number": number, "generation": handle.generation() });
    Reply::Stream { first, write: Box::new(move |out| query.write(out)) }
}

impl Query {
    /// Writes the packets as pcapng. Packets that leave the ring before they are read are counted as dropped in interface statistics.
    fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let shared = Arc::clone(&self.handle.shared);
        let mut encoder = Encoder::new(Format::Pcapng, 0);
        let (mut bytes, mut ids, mut found) = (Vec::with_capacity(BUFFER * 2), Vec::new(), Vec::new());
        encoder.begin(&mut bytes);
        let (mut seen, mut lost, mut starved) = (0, 0, 0);
        loop {
            let mut piece = self.cursor.next(shared.steady_ns());
            if let Some(some) = &mut piece {
                self.describe(&mut encoder, &mut ids);
                let from = some.number(0).min(self.until);
                let lost_now = from - *self.start.get_or_insert(from) - seen;
                if lost_now > lost && !ids.is_empty() {
                    lost = lost_now;
                    let time_ns = shared.clock.now().wall_ns;
                    let counts = Statistics { time_ns, dropped_by_system: Some(lost), ..Statistics::default() };
                    encoder.statistics(&mut bytes, ids[0], &counts, &[]);
                }
                some.truncate((self.until - from) as usize);
                seen += some.len() as u64;
            }
            // Other readers may keep all chunks that may be kept, for a moment.
            let is_starved = std::mem::replace(&mut starved, self.cursor.starved()) < self.cursor.starved();
            match piece.filter(|piece| !piece.is_empty()) {
                Some(piece) => self.encode(&piece, &mut encoder, &ids, &mut found, &mut bytes),
                None if is_starved || self.follows && !shared.has_ended() => {
                    out.write_all(&bytes)?;
                    bytes.clear();
                    out.flush()?;
                    std::thread::sleep(PAUSE);
                }
                None => break,
            }
            if bytes.len() >= BUFFER {
                out.write_all(&bytes)?;
                bytes.clear();
            }
        }
        out.write_all(&bytes)?;
        out.flush()
    }

    /// Takes up interfaces that are new in the ring.
    fn describe(&mut self, encoder: &mut Encoder, ids: &mut Vec<u32>) {
        let history = self.handle.history();
        if ids.len() < history.interface_count() {
            let interfaces = history.interfaces();
            if let Some(filters) = &mut self.filters
                && let Ok(more) = Filters::compile(&self.expression, &interfaces, false)
            {
                *filters = Arc::new(more);
            }
            let id = |interface| encoder.interface(interface).expect("a pcapng file takes interfaces of any link type");
            *ids = interfaces.iter().map(id).collect();
        }
    }

    /// Appends the wanted packets of a piece.
    fn encode(&self, piece: &Piece, encoder: &mut Encoder, ids: &[u32], found: &mut Vec<u32>, bytes: &mut Vec<u8>) {
        found.clear();
        match &self.filters {
            Some(filters) => filters.find(piece, found),
            None => found.extend(0..piece.len() as u32),
        }
        for &index in &*found {
            let record = piece.record(index as usize);
            if record.time_ns.is_none_or(|time_ns| self.times_ns.contains(&time_ns)) {
                encoder.packet(bytes, ids[record.frame.interface as usize], record.time_ns, &record.frame);
            }
        }
    }
}
