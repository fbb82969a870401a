//! A DNS query and its answer (RFC 1035 section 4).

use super::wire::{End, UDP, write_udp};
use super::{DialogueFacts, Dialogues, MILLISECOND};
use crate::FRAME_MAX;

const RESOLVER: End = End {
    address: [198, 19, 1, 1],
    port: 53,
};
/// Codes of failure (RFC 1035 section 4.1.1): server failure, and no such name.
const FAILURES: [u8; 2] = [2, 3];

/// A query, and then its answer.
#[derive(Debug)]
pub(super) struct Dialogue {
    client: End,
    number: u32,
    due: Option<i64>,
    is_asked: bool,
    is_slow: bool,
    /// Code of the answer; `None` if there is no answer.
    code: Option<u8>,
    /// Time between query and answer, ns.
    wait: i64,
}

impl Dialogue {
    pub(super) fn new(plan: &Dialogues, number: u32, due: i64, random: u64) -> Self {
        let [_, third, b, c] = number.to_be_bytes();
        let is_slow = number < plan.slow;
        let fails = !is_slow && number < plan.slow + plan.failing;
        let is_lost = !is_slow && !fails && number < plan.slow + plan.failing + plan.unanswered;
        let code = if fails {
            FAILURES[number as usize % 2]
        } else {
            0
        };
        Self {
            client: End {
                address: [10, 145, b, c],
                port: 20_000 + u16::from(third),
            },
            number,
            due: Some(due),
            is_asked: false,
            is_slow,
            code: (!is_lost).then_some(code),
            wait: match is_slow {
                true => plan.slow_ns,
                false => 5 * MILLISECOND + (random >> 16) as i64 % (25 * MILLISECOND),
            },
        }
    }

    pub(super) fn due(&self) -> Option<i64> {
        self.due
    }

    pub(super) fn write(&mut self, buf: &mut [u8; FRAME_MAX], facts: &mut DialogueFacts) -> usize {
        let code = if self.is_asked { self.code } else { None };
        let len = self.message(&mut buf[UDP..], code);
        if code.is_some() {
            facts.answers += 1;
            facts.slow += u64::from(self.is_slow);
            facts.failing += u64::from(code != Some(0));
            facts.waited_ns += self.wait;
            self.due = None;
            return write_udp(buf, (RESOLVER, self.client), len);
        }
        facts.queries += 1;
        facts.unanswered += u64::from(self.code.is_none());
        self.is_asked = true;
        let answers = self.code.is_some();
        self.due = self.due.filter(|_| answers).map(|due| due + self.wait);
        write_udp(buf, (self.client, RESOLVER), len)
    }

    /// Writes a query, or an answer with this code, and returns its length. The name is a number below "test" (RFC 6761).
    fn message(&self, buf: &mut [u8], code: Option<u8>) -> usize {
        let answers = u8::from(code == Some(0));
        let flags = match code {
            None => [0x01, 0x00],
            Some(code) => [0x81, 0x80 | code],
        };
        buf[..2].copy_from_slice(&(self.number as u16).to_be_bytes());
        buf[2..4].copy_from_slice(&flags);
        buf[4..12].copy_from_slice(&[0, 1, 0, answers, 0, 0, 0, 0]);
        buf[12] = 8;
        for (at, digit) in buf[13..21].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(self.number >> (28 - 4 * at) & 15) as usize];
        }
        // The rest of the name, type A, class IN.
        buf[21..31].copy_from_slice(b"\x04test\0\0\x01\0\x01");
        if answers == 0 {
            return 31;
        }
        // A pointer to the name, type A, class IN, time to live, and an address of documentation (RFC 5737).
        buf[31..47].copy_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 203, 0, 113, 7]);
        47
    }
}
