//! Figures of an answer as structures: the health of TCP and DNS, and findings.

use crate::call::{
    Failure, Object, WEIR_CLOSED, WEIR_NOTHING, WEIR_OK, call, check, get, kind, store, weir_status,
};
use crate::text::{Text, weir_text};
use core::ffi::c_char;
use std::ffi::CString;
use std::ptr::null;
use std::sync::Arc;
use weir_api::{Answer, Finding, health};

/// The list of DNS servers with the most queries.
pub const WEIR_DNS_SERVERS: u32 = 0;
/// The list of names with the longest times.
pub const WEIR_DNS_SLOW: u32 = 1;
/// The list of names with the most answers of failure.
pub const WEIR_DNS_FAILING: u32 = 2;
/// The list of names with the most queries without an answer.
pub const WEIR_DNS_UNANSWERED: u32 = 3;

/// Health of the TCP conversations of an answer. The page docs/reference/health.md has the rule of each figure.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct weir_tcp {
    /// Conversations.
    pub conversations: u64,
    /// Conversations whose begin was not seen.
    pub midway: u64,
    /// Conversations for which there is room.
    pub capacity: u64,
    /// Conversations that were displaced because the table was full; the sums have their figures.
    pub evicted: u64,
    /// The most that a displaced conversation had retransmitted.
    pub evicted_retransmitted: u64,
    /// TCP packets that could not be judged, such as fragments.
    pub unjudged: u64,
    /// Rows for weir_answer_conversation.
    pub rows: u64,
}

/// Figures of TCP segments: of one end of a conversation, or of all conversations.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct weir_tcp_figures {
    /// Segments.
    pub packets: u64,
    /// Bytes of payload.
    pub payload: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Bytes of payload sent again.
    pub retransmitted_bytes: u64,
    /// Retransmitted segments that duplicate ACKs asked for.
    pub fast: u64,
    /// Retransmitted segments that were acknowledged before.
    pub spurious: u64,
    /// Segments whose bytes were seen before.
    pub repeated: u64,
    /// Segments out of order.
    pub out_of_order: u64,
    /// Duplicate ACKs.
    pub duplicate_acks: u64,
    /// Windows of 0.
    pub zero_windows: u64,
    /// Segments with RST.
    pub resets: u64,
    /// Segments after a gap.
    pub gaps: u64,
    /// Segments whose acknowledgement was not timed.
    pub untimed: u64,
    /// Acknowledgements that were timed.
    pub rtt_count: u64,
    /// Shortest round trip, ns; -1 without one.
    pub rtt_min_ns: i64,
    /// Mean round trip, ns; -1 without one.
    pub rtt_mean_ns: i64,
    /// Longest round trip, ns; -1 without one.
    pub rtt_max_ns: i64,
}

/// A TCP conversation. Its texts stay until the answer is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_tcp_conversation {
    /// Address of the client; of the lower end if the begin was not seen.
    pub src: *const c_char,
    /// Address of the other end.
    pub dst: *const c_char,
    /// Port of `src`.
    pub sport: u32,
    /// Port of `dst`.
    pub dport: u32,
    /// Time of the first packet, ns since 1970.
    pub first_ns: i64,
    /// Time of the latest packet.
    pub latest_ns: i64,
    /// Time of the handshake, ns; -1 if it is unknown.
    pub handshake_ns: i64,
    /// 1 if the begin was seen.
    pub begun: u32,
    /// 0.
    pub reserved: u32,
}

/// Health of the DNS transactions of an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct weir_dns {
    /// Answers without a query.
    pub unasked: u64,
    /// Messages that could not be read.
    pub unread: u64,
    /// Names for which there is room.
    pub capacity: u64,
    /// Open queries that were displaced because the table was full.
    pub evicted_queries: u64,
    /// Names that were displaced.
    pub evicted_names: u64,
    /// Servers that were displaced.
    pub evicted_servers: u64,
    /// Rows of the list WEIR_DNS_SERVERS.
    pub servers: u64,
    /// Rows of the list WEIR_DNS_SLOW.
    pub slow: u64,
    /// Rows of the list WEIR_DNS_FAILING.
    pub failing: u64,
    /// Rows of the list WEIR_DNS_UNANSWERED.
    pub unanswered: u64,
}

/// Figures of DNS transactions: of a server, of a name, or of all.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_dns_figures {
    /// Address of the server, or the name, as text of printable ASCII; NULL for all transactions. It stays until the answer is freed.
    pub name: *const c_char,
    /// Numbers of answers by response code: 0 no error, 2 server failure, 3 no such name. They stay until the answer is freed.
    pub codes: *const u64,
    /// Number of `codes`.
    pub code_count: u32,
    /// 0.
    pub reserved: u32,
    /// Queries that began a transaction.
    pub queries: u64,
    /// Queries sent again.
    pub retransmitted: u64,
    /// Answers after the first.
    pub repeated: u64,
    /// Queries without an answer.
    pub unanswered: u64,
    /// Transactions that were timed.
    pub time_count: u64,
    /// Median time, ns, within 7 %; -1 without one.
    pub median_ns: i64,
    /// Mean time, ns; -1 without one.
    pub mean_ns: i64,
    /// Longest time, ns; -1 without one.
    pub max_ns: i64,
}

/// A finding that began or ended. Its texts stay until the answer is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_finding {
    /// Number of the finding; its begin and its end have the same.
    pub number: u64,
    /// "scan", "flood", "storm", "slow_dns", "loss" or "new_host".
    pub kind: *const c_char,
    /// "begin"; "end"; "open": it goes on at the end of the measurement.
    pub state: *const c_char,
    /// Address that it is about; NULL: the whole link.
    pub host: *const c_char,
    /// Begin of the first window that met the rule, ns since 1970.
    pub begin_ns: i64,
    /// End of the last window that met it.
    pub last_ns: i64,
    /// Figure of the last window, in `unit`.
    pub figure: f64,
    /// Largest figure.
    pub most: f64,
    /// Unit of both figures, in words.
    pub unit: *const c_char,
    /// Counts of the window with the largest figure, in words.
    pub row: *const c_char,
}

/// Figures of an answer, and the texts of their rows.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    health: Option<Arc<health::Report>>,
    findings: Vec<Finding>,
    /// Ends of each conversation.
    ends: Vec<[CString; 2]>,
    /// Names of each list of DNS.
    names: [Vec<CString>; 4],
    /// Kind, state, host, unit and row of each finding.
    words: Vec<[Option<CString>; 5]>,
}

/// A text for C. Bytes of 0 are left out.
fn c_text(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(bytes).expect("no byte is 0")
}

impl Figures {
    pub fn of(answer: &Answer) -> Self {
        let tcp = answer
            .health
            .as_ref()
            .and_then(|health| health.tcp.as_ref());
        let dns = answer
            .health
            .as_ref()
            .and_then(|health| health.dns.as_ref());
        let ends = |row: &health::tcp::Row| {
            [row.key.source(), row.key.destination()].map(|address| {
                c_text(&address.map_or(String::new(), |address| address.to_string()))
            })
        };
        let servers = |row: &health::dns::ServerRow| c_text(&row.server.to_string());
        let names = |rows: &[health::dns::NameRow]| {
            rows.iter()
                .map(|row| c_text(&row.name.to_string()))
                .collect()
        };
        let words = |finding: &Finding| {
            [
                Some(c_text(finding.kind.name())),
                Some(c_text(finding.state.name())),
                finding.host.map(|host| c_text(&host.to_string())),
                Some(c_text(finding.kind.unit())),
                Some(c_text(&finding.row)),
            ]
        };
        Self {
            ends: tcp.map_or(Vec::new(), |tcp| tcp.rows.iter().map(ends).collect()),
            names: dns.map_or_else(Default::default, |dns| {
                [
                    dns.servers.iter().map(servers).collect(),
                    names(&dns.slow),
                    names(&dns.failing),
                    names(&dns.unanswered),
                ]
            }),
            words: answer.findings.iter().map(words).collect(),
            health: answer.health.clone(),
            findings: answer.findings.clone(),
        }
    }

    fn tcp(&self) -> Option<&health::tcp::Report> {
        self.health.as_ref()?.tcp.as_ref()
    }

    fn dns(&self) -> Option<&health::dns::Report> {
        self.health.as_ref()?.dns.as_ref()
    }

    /// Row of a list of DNS. **Errors**: an unknown list.
    fn dns_row(&self, list: u32, index: usize) -> Result<Option<weir_dns_figures>, Failure> {
        let Some(dns) = self.dns() else {
            return Ok(None);
        };
        let row = match list {
            WEIR_DNS_SERVERS => dns.servers.get(index).map(|row| &row.figures),
            WEIR_DNS_SLOW => figures_of(&dns.slow, index),
            WEIR_DNS_FAILING => figures_of(&dns.failing, index),
            WEIR_DNS_UNANSWERED => figures_of(&dns.unanswered, index),
            other => {
                let words = format!("list {other}: it is WEIR_DNS_SERVERS to WEIR_DNS_UNANSWERED");
                return Err(Failure::refused(words));
            }
        };
        Ok(row.map(|row| dns_figures(self.names[list as usize][index].as_ptr(), row)))
    }
}

fn figures_of(rows: &[health::dns::NameRow], index: usize) -> Option<&health::dns::Figures> {
    rows.get(index).map(|row| &row.figures)
}

fn tcp_figures(figures: &health::tcp::Figures) -> weir_tcp_figures {
    let &health::tcp::Figures {
        packets,
        bytes: payload,
        retransmitted,
        retransmitted_bytes,
        fast,
        spurious,
        repeated,
        out_of_order,
        duplicate_acks,
        zero_windows,
        resets,
        gaps,
        untimed,
        rtt,
    } = figures;
    let (rtt_min_ns, rtt_max_ns) = rtt.range_ns().unwrap_or((-1, -1));
    weir_tcp_figures {
        packets,
        payload,
        retransmitted,
        retransmitted_bytes,
        fast,
        spurious,
        repeated,
        out_of_order,
        duplicate_acks,
        zero_windows,
        resets,
        gaps,
        untimed,
        rtt_count: rtt.count,
        rtt_min_ns,
        rtt_mean_ns: rtt.mean_ns().unwrap_or(-1),
        rtt_max_ns,
    }
}

fn dns_figures(name: *const c_char, figures: &health::dns::Figures) -> weir_dns_figures {
    let times = &figures.times;
    weir_dns_figures {
        name,
        codes: figures.codes.as_ptr(),
        code_count: figures.codes.len() as u32,
        reserved: 0,
        queries: figures.queries,
        retransmitted: figures.retransmitted,
        repeated: figures.repeated,
        unanswered: figures.unanswered,
        time_count: times.count,
        median_ns: times.median_ns().unwrap_or(-1),
        mean_ns: times.mean_ns().unwrap_or(-1),
        max_ns: if times.count > 0 { times.max_ns } else { -1 },
    }
}

/// Does work on the figures of an answer. Other texts have none.
fn with_figures(
    answer: weir_text,
    work: impl FnOnce(&Figures) -> Result<bool, Failure>,
) -> weir_status {
    call(|| {
        let object = get(answer, kind::TEXT)?;
        let Object::Text(text) = &*object else {
            return Err(Failure::new(WEIR_CLOSED, "the handle is none of a text"));
        };
        let found = text.figures().map(work).transpose()?;
        Ok(match found {
            Some(true) => WEIR_OK,
            _ => WEIR_NOTHING,
        })
    })
}

/// Gives the health of the TCP conversations of an answer of weir_measure_next, and their sum. WEIR_NOTHING if the measurement has no
/// WEIR_HEALTH_TCP. `sum` may be NULL.
///
/// # Safety
/// `tcp` leads to memory for its structure; `sum` is NULL or leads to memory for figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_answer_tcp(
    answer: weir_text,
    tcp: *mut weir_tcp,
    sum: *mut weir_tcp_figures,
) -> weir_status {
    with_figures(answer, |figures| {
        check(tcp, "tcp")?;
        let Some(report) = figures.tcp() else {
            return Ok(false);
        };
        let health::tcp::Numbers {
            conversations,
            midway,
            evicted,
            evicted_retransmitted,
            unjudged,
        } = report.numbers;
        let numbers = weir_tcp {
            conversations,
            midway,
            capacity: report.capacity,
            evicted,
            evicted_retransmitted,
            unjudged,
            rows: report.rows.len() as u64,
        };
        // SAFETY: the caller promises memory for both.
        unsafe {
            store(tcp, numbers, "tcp")?;
            if !sum.is_null() {
                sum.write(tcp_figures(&report.sum));
            }
        }
        Ok(true)
    })
}

/// Gives row `index` of the TCP conversations of an answer, with the figures of the segments of `src` (`sent`) and of `dst` (`received`).
/// WEIR_NOTHING after the last row. `sent` and `received` may be NULL.
///
/// # Safety
/// `conversation` leads to memory for its structure; `sent` and `received` are NULL or lead to memory for figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_answer_conversation(
    answer: weir_text,
    index: usize,
    conversation: *mut weir_tcp_conversation,
    sent: *mut weir_tcp_figures,
    received: *mut weir_tcp_figures,
) -> weir_status {
    with_figures(answer, |figures| {
        check(conversation, "conversation")?;
        let Some(row) = figures.tcp().and_then(|tcp| tcp.rows.get(index)) else {
            return Ok(false);
        };
        let [src, dst] = &figures.ends[index];
        let found = weir_tcp_conversation {
            src: src.as_ptr(),
            dst: dst.as_ptr(),
            sport: row.key.sport.into(),
            dport: row.key.dport.into(),
            first_ns: row.first_ns,
            latest_ns: row.latest_ns,
            handshake_ns: row.handshake_ns.unwrap_or(-1),
            begun: row.begun.into(),
            reserved: 0,
        };
        // SAFETY: the caller promises memory for all.
        unsafe {
            store(conversation, found, "conversation")?;
            for (to, of) in [sent, received].into_iter().zip(&row.directions) {
                if !to.is_null() {
                    to.write(tcp_figures(of));
                }
            }
        }
        Ok(true)
    })
}

/// Gives the health of the DNS transactions of an answer, and their sum. WEIR_NOTHING if the measurement has no WEIR_HEALTH_DNS. `sum` may
/// be NULL.
///
/// # Safety
/// `dns` leads to memory for its structure; `sum` is NULL or leads to memory for figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_answer_dns(
    answer: weir_text,
    dns: *mut weir_dns,
    sum: *mut weir_dns_figures,
) -> weir_status {
    with_figures(answer, |figures| {
        check(dns, "dns")?;
        let Some(report) = figures.dns() else {
            return Ok(false);
        };
        let numbers = weir_dns {
            unasked: report.sum.unasked,
            unread: report.unread,
            capacity: report.capacity,
            evicted_queries: report.evicted_queries,
            evicted_names: report.evicted_names,
            evicted_servers: report.evicted_servers,
            servers: report.servers.len() as u64,
            slow: report.slow.len() as u64,
            failing: report.failing.len() as u64,
            unanswered: report.unanswered.len() as u64,
        };
        // SAFETY: the caller promises memory for both.
        unsafe {
            store(dns, numbers, "dns")?;
            if !sum.is_null() {
                sum.write(dns_figures(null(), &report.sum));
            }
        }
        Ok(true)
    })
}

/// Gives row `index` of a list of DNS: WEIR_DNS_SERVERS, WEIR_DNS_SLOW, WEIR_DNS_FAILING or WEIR_DNS_UNANSWERED. WEIR_NOTHING after the
/// last row.
///
/// # Safety
/// `row` leads to memory for figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_answer_dns_row(
    answer: weir_text,
    list: u32,
    index: usize,
    row: *mut weir_dns_figures,
) -> weir_status {
    with_figures(answer, |figures| {
        check(row, "row")?;
        let Some(found) = figures.dns_row(list, index)? else {
            return Ok(false);
        };
        // SAFETY: the caller promises memory for figures.
        unsafe { store(row, found, "row")? };
        Ok(true)
    })
}

/// Gives finding `index` of an answer. It has the findings that began or ended since the answer before; the summary also has open ones.
/// WEIR_NOTHING after the last, and without WEIR_FINDINGS.
///
/// # Safety
/// `finding` leads to memory for a finding.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_answer_finding(
    answer: weir_text,
    index: usize,
    finding: *mut weir_finding,
) -> weir_status {
    with_figures(answer, |figures| {
        check(finding, "finding")?;
        let (Some(of), Some(words)) = (figures.findings.get(index), figures.words.get(index))
        else {
            return Ok(false);
        };
        let [kind, state, host, unit, row] = words
            .each_ref()
            .map(|text| text.as_ref().map_or(null(), |text| text.as_ptr()));
        let found = weir_finding {
            number: of.number,
            kind,
            state,
            host,
            begin_ns: of.begin_ns,
            last_ns: of.last_ns,
            figure: of.figure,
            most: of.most,
            unit,
            row,
        };
        // SAFETY: the caller promises memory for a finding.
        unsafe { store(finding, found, "finding")? };
        Ok(true)
    })
}

impl Text {
    /// The text of an answer, with its figures.
    pub fn of_answer(answer: Answer) -> Self {
        let has_figures = answer.health.is_some() || !answer.findings.is_empty();
        let figures = has_figures.then(|| Box::new(Figures::of(&answer)));
        Self::with(answer.json, figures)
    }
}
