//! A TCP connection, segment by segment.

use super::wire::{ACK, End, FIN, PUSH, RST, SYN, Segment, write_tcp};
use super::{ConnectionFacts, Connections, MILLISECOND};
use crate::FRAME_MAX;
use crate::frame::Noise;

/// Time from one end to the other and back, ns. Analysers take it from the handshake.
const ROUND_TRIP: i64 = 20 * MILLISECOND;
/// Time after which a segment is sent again, ns.
const AGAIN: i64 = 250 * MILLISECOND;
/// Time for which a window stays closed, ns.
const CLOSED: i64 = 300 * MILLISECOND;
const WINDOW: u16 = 64_240;
/// Longest payload of a segment, bytes.
const SEGMENT: u16 = 1400;

/// Kinds of trouble that a connection may have.
#[derive(Clone, Copy, Debug)]
struct Troubles {
    again: bool,
    overtaken: bool,
    closed: bool,
    reset: bool,
}

/// The next frame of a connection. One round trip of requests and responses follows another, then the end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Syn,
    SynAck,
    Established,
    Request,
    /// The response comes in two segments; which of them comes next.
    First,
    Second,
    FirstAgain,
    Acknowledge,
    Reopen,
    ClientFin,
    ServerFin,
    LastAck,
    Reset,
    Done,
}

/// A connection that has not ended.
#[derive(Debug)]
pub(super) struct Connection {
    client: End,
    server: End,
    due: i64,
    step: Step,
    troubles: Troubles,
    /// Requests still to be sent.
    left: u32,
    random: u64,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
    /// Lengths of the two segments of a response.
    response: [u16; 2],
}

impl Connection {
    pub(super) fn new(plan: &Connections, number: u32, due: i64, random: u64) -> Self {
        let [_, third, b, c] = number.to_be_bytes();
        let client = End {
            address: [10, 144, b, c],
            port: 40_000 + u16::from(third),
        };
        let server = End {
            address: [198, 19, 0, 1 + (random >> 8) as u8 % 16],
            port: 443,
        };
        Self {
            client,
            server,
            due,
            step: Step::Syn,
            troubles: Troubles {
                again: number < plan.retransmissions,
                overtaken: number < plan.reordered,
                closed: number < plan.zero_windows,
                reset: number < plan.resets,
            },
            // Each response has one trouble at most.
            left: 2 + (random >> 16) as u32 % 3,
            random,
            next: [random as u32, (random >> 32) as u32],
            response: [0; 2],
        }
    }

    pub(super) fn due(&self) -> Option<i64> {
        (self.step != Step::Done).then_some(self.due)
    }

    /// Some length from 100 to the longest.
    fn draw(&mut self) -> u16 {
        self.random = self
            .random
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        100 + (self.random >> 48) as u16 % (SEGMENT - 100)
    }

    pub(super) fn write(
        &mut self,
        buf: &mut [u8; FRAME_MAX],
        noise: &Noise,
        facts: &mut ConnectionFacts,
    ) -> usize {
        let (is_client, segment) = match self.step {
            Step::Request => (true, self.request(facts)),
            Step::First | Step::Second | Step::FirstAgain => (false, self.respond(facts)),
            Step::Acknowledge | Step::Reopen => (true, self.acknowledge(facts)),
            _ => self.control(facts),
        };
        let ends = match is_client {
            true => (self.client, self.server),
            false => (self.server, self.client),
        };
        write_tcp(buf, ends, &segment, noise)
    }

    fn then(&mut self, step: Step, after: i64) {
        self.step = step;
        self.due += after;
    }

    /// A segment of this side, after all that it has sent.
    fn segment(&self, side: usize, flags: u8, len: u16) -> Segment {
        Segment {
            sequence: self.next[side],
            acknowledged: if flags & ACK == 0 {
                0
            } else {
                self.next[1 - side]
            },
            flags,
            window: WINDOW,
            len,
        }
    }

    fn request(&mut self, facts: &mut ConnectionFacts) -> Segment {
        let len = self.draw() / 2;
        let segment = self.segment(0, PUSH | ACK, len);
        self.next[0] = self.next[0].wrapping_add(len.into());
        self.left -= 1;
        facts.payload[0] += u64::from(len);
        self.response = [self.draw(), self.draw()];
        let overtakes = self.troubles.overtaken;
        self.then(
            if overtakes { Step::Second } else { Step::First },
            ROUND_TRIP / 2,
        );
        segment
    }

    /// A segment of the response. While the first of two segments is overtaken, it is sent second.
    fn respond(&mut self, facts: &mut ConnectionFacts) -> Segment {
        let [first, second] = self.response;
        let at = self.next[1];
        let base = self.segment(1, PUSH | ACK, 0);
        let segment = |skipped: u16, len: u16| Segment {
            sequence: at.wrapping_add(skipped.into()),
            len,
            ..base
        };
        let (segment, step, after) = match (self.step, self.troubles) {
            (
                Step::Second,
                Troubles {
                    overtaken: true, ..
                },
            ) => (segment(first, second), Step::First, MILLISECOND / 10),
            (
                Step::First,
                Troubles {
                    overtaken: true, ..
                },
            ) => {
                facts.reordered += 1;
                self.troubles.overtaken = false;
                (segment(0, first), Step::Acknowledge, ROUND_TRIP / 2)
            }
            (Step::First, Troubles { again: true, .. }) => {
                (segment(0, first), Step::FirstAgain, AGAIN)
            }
            (Step::FirstAgain, _) => {
                facts.retransmissions += 1;
                self.troubles.again = false;
                (segment(0, first), Step::Second, MILLISECOND / 10)
            }
            (Step::First, _) => (segment(0, first), Step::Second, MILLISECOND / 10),
            _ => (segment(first, second), Step::Acknowledge, ROUND_TRIP / 2),
        };
        if step == Step::Acknowledge {
            self.next[1] = at.wrapping_add(u32::from(first) + u32::from(second));
            facts.payload[1] += u64::from(first) + u64::from(second);
        }
        self.then(step, after);
        segment
    }

    fn acknowledge(&mut self, facts: &mut ConnectionFacts) -> Segment {
        let mut segment = self.segment(0, ACK, 0);
        if self.step == Step::Acknowledge && self.troubles.closed {
            facts.zero_windows += 1;
            self.troubles.closed = false;
            segment.window = 0;
            self.then(Step::Reopen, CLOSED);
            return segment;
        }
        let step = match (self.left, self.troubles.reset) {
            (1.., _) => Step::Request,
            (0, true) => Step::Reset,
            (0, false) => Step::ClientFin,
        };
        self.then(step, 2 * ROUND_TRIP);
        segment
    }

    /// Segments of the beginning and the end. SYN and FIN take a sequence number.
    fn control(&mut self, facts: &mut ConnectionFacts) -> (bool, Segment) {
        let (side, flags, step, after) = match self.step {
            Step::Syn => (0, SYN, Step::SynAck, ROUND_TRIP / 2),
            Step::SynAck => (1, SYN | ACK, Step::Established, ROUND_TRIP / 2),
            Step::Established => (0, ACK, Step::Request, MILLISECOND),
            Step::ClientFin => (0, FIN | ACK, Step::ServerFin, ROUND_TRIP / 2),
            Step::ServerFin => (1, FIN | ACK, Step::LastAck, ROUND_TRIP / 2),
            Step::LastAck => (0, ACK, Step::Done, 0),
            _ => (0, RST | ACK, Step::Done, 0),
        };
        match self.step {
            Step::Established => facts.established += 1,
            Step::LastAck => facts.finished += 1,
            Step::Reset => facts.reset += 1,
            _ => {}
        }
        let segment = self.segment(side, flags, 0);
        if flags & (SYN | FIN) != 0 {
            self.next[side] = self.next[side].wrapping_add(1);
        }
        self.then(step, after);
        (side == 0, segment)
    }
}
