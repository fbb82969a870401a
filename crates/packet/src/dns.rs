//! DNS messages (RFC 1035): header, names, questions and records, as views of the bytes.
//!
//! A message is hostile: every length and count in it is a claim. Names are decoded into a buffer of fixed size. A compression
//! pointer must lead to a place in front of the previous place that was read, so that no name is endless. Nothing here
//! allocates.
//!
//! Messages over TCP begin with two bytes of length, which the caller removes.

use core::fmt;

/// Bytes of the header.
pub const HEADER: usize = 12;

/// Most bytes of a name, with the length byte of each label and the empty label at its end (RFC 1035, 2.3.4).
pub const NAME_MAX: usize = 255;

/// Most compression pointers that lead to the labels of a name: a name has no more labels (RFC 1035, 2.3.4), and a pointer is of use only
/// in front of a label.
pub const POINTERS_MAX: u8 = 127;

/// Types of records that have a use in this project.
pub mod kinds {
    /// IPv4 address.
    pub const A: u16 = 1;
    /// Canonical name.
    pub const CNAME: u16 = 5;
    /// IPv6 address.
    pub const AAAA: u16 = 28;
    /// Pseudo-record of extensions (RFC 6891).
    pub const OPT: u16 = 41;
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identification, equal in a query and its answer.
    pub id: u16,
    /// Flags, operation code and response code as they are in the message.
    pub flags: u16,
    /// Number of entries that the message claims: questions, answers, authorities, additional records.
    pub counts: [u16; 4],
}

impl Header {
    /// The header of `message`, if the message is long enough.
    pub fn read(message: &[u8]) -> Option<Self> {
        let word = |at: usize| be16(message, 2 * at);
        Some(Self {
            id: word(0)?,
            flags: word(1)?,
            counts: [word(2)?, word(3)?, word(4)?, word(5)?],
        })
    }

    /// Whether the message is an answer.
    pub const fn is_response(self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// Operation code: 0 is a standard query.
    pub const fn opcode(self) -> u8 {
        (self.flags >> 11 & 15) as u8
    }

    /// Whether the answer was cut to fit (TC).
    pub const fn is_truncated(self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// Response code of the header, without the bits that an OPT record adds: 0 no error, 2 server failure, 3 no such name.
    pub const fn rcode(self) -> u8 {
        (self.flags & 15) as u8
    }
}

/// Reason why a name, question or record could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The captured bytes end.
    Truncated,
    /// A compression pointer leads forwards or in a circle, or follows [`POINTERS_MAX`] others.
    Pointer,
    /// A label has a length byte with the reserved bits 01 or 10; in a text, a label is empty or too long.
    Label,
    /// The name has more than [`NAME_MAX`] bytes.
    TooLong,
}

/// A name: labels, each after a byte with its length, and the empty label at the end.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; NAME_MAX],
    len: u8,
}

impl Name {
    /// The name of the root, which has no label.
    pub const ROOT: Self = Self {
        bytes: [0; NAME_MAX],
        len: 1,
    };

    /// The name at offset `at` of `message`, without compression, and the offset after it.
    ///
    /// **Cost**: linear in the bytes of the name and its pointers, of which there are at most [`POINTERS_MAX`].
    pub fn read(message: &[u8], at: usize) -> Result<(Self, usize), Malformed> {
        let mut name = Self {
            bytes: [0; NAME_MAX],
            len: 0,
        };
        let mut place = at;
        // Pointers lead in front of this offset.
        let mut before = at;
        let mut end = None;
        let mut pointers = 0;
        loop {
            let length = *message.get(place).ok_or(Malformed::Truncated)?;
            match length >> 6 {
                0 => {
                    let next = place + 1 + usize::from(length);
                    let label = message.get(place..next).ok_or(Malformed::Truncated)?;
                    name.append(label)?;
                    place = next;
                    if length == 0 {
                        return Ok((name, end.unwrap_or(place)));
                    }
                }
                3 => {
                    let target =
                        usize::from(be16(message, place).ok_or(Malformed::Truncated)? & 0x3fff);
                    end = end.or(Some(place + 2));
                    if target >= before || pointers == POINTERS_MAX {
                        return Err(Malformed::Pointer);
                    }
                    pointers += 1;
                    (before, place) = (target, target);
                }
                _ => return Err(Malformed::Label),
            }
        }
    }

    /// The name of a text such as `www.example.com`, with or without a dot at its end. Bytes of labels may be any but a dot.
    ///
    /// **Errors**: an empty label, or one of more than 63 bytes; more than [`NAME_MAX`] bytes.
    pub fn of_text(text: &[u8]) -> Result<Self, Malformed> {
        const LABEL_MAX: usize = 63;
        let mut name = Self {
            bytes: [0; NAME_MAX],
            len: 0,
        };
        let text = text.strip_suffix(b".").unwrap_or(text);
        for label in text.split(|byte| *byte == b'.') {
            if label.is_empty() || label.len() > LABEL_MAX {
                return Err(Malformed::Label);
            }
            name.append(&[label.len() as u8])?;
            name.append(label)?;
        }
        name.append(&[0])?;
        Ok(name)
    }

    /// Appends a label with its length byte, or a part of both.
    fn append(&mut self, label: &[u8]) -> Result<(), Malformed> {
        let start = usize::from(self.len);
        let room = self.bytes.get_mut(start..start + label.len());
        room.ok_or(Malformed::TooLong)?.copy_from_slice(label);
        self.len += label.len() as u8;
        Ok(())
    }

    /// The name as in a message without compression, 1 to [`NAME_MAX`] bytes. Letters keep their case.
    pub fn as_wire(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Makes letters of ASCII small, because names differ by more than case only (RFC 4343). Length bytes are below 64, so that
    /// none of them is a letter.
    pub const fn make_lowercase(&mut self) {
        self.bytes.make_ascii_lowercase();
    }

    /// The labels from the first to the last, without the empty one.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.as_wire();
        core::iter::from_fn(move || {
            let (&length, behind) = rest.split_first()?;
            let (label, behind) = behind.split_at_checked(usize::from(length))?;
            rest = behind;
            (!label.is_empty()).then_some(label)
        })
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_wire() == other.as_wire()
    }
}

impl Eq for Name {}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Writes labels with a dot between them; the root is `.`. Dots and backslashes within a label get a backslash in front, and
/// bytes that are not printable ASCII become `\DDD`, the decimal number of the byte (RFC 4343, 2.1).
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len <= 1 {
            return f.write_str(".");
        }
        for (index, label) in self.labels().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            for &byte in label {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                    b'!'..=b'~' => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
        }
        Ok(())
    }
}

/// An entry of the question section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The wanted name.
    pub name: Name,
    /// Type of the wanted records.
    pub kind: u16,
    /// Class, 1 for the Internet. Multicast DNS has a flag in the highest bit.
    pub class: u16,
}

/// A record of one of the other sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Section: 1 answers, 2 authorities, 3 additional records; an index of [`Header::counts`].
    pub section: usize,
    /// The name that the record is about.
    pub name: Name,
    /// Type of the record.
    pub kind: u16,
    /// Class, 1 for the Internet; in an OPT record, the size of datagrams that the sender takes, bytes.
    pub class: u16,
    /// Time to live, s; in an OPT record, extended flags.
    pub ttl: u32,
    /// The data.
    pub data: &'a [u8],
    /// Offset of the data in the message. Names in the data may be compressed: read them with [`Name::read`].
    pub data_at: usize,
}

/// The entries of a message, in order: questions first, then records.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    message: &'a [u8],
    at: usize,
    /// Entries to come of each section.
    left: [u16; 4],
}

impl<'a> Entries<'a> {
    /// The entries after the header; the counts of the header are what they claim to be.
    pub fn new(message: &'a [u8], header: Header) -> Self {
        Self {
            message,
            at: HEADER,
            left: header.counts,
        }
    }

    /// The next question, until there is none or a malformed one.
    pub fn question(&mut self) -> Option<Result<Question, Malformed>> {
        self.left[0] = self.left[0].checked_sub(1)?;
        let question = self.read_question();
        self.give_up_unless(question.is_ok());
        Some(question)
    }

    /// The next record, until there is none or a malformed one. Questions that were not read are skipped.
    pub fn record(&mut self) -> Option<Result<Record<'a>, Malformed>> {
        while let Some(question) = self.question() {
            if let Err(why) = question {
                return Some(Err(why));
            }
        }
        let section = (1..4).find(|section| self.left[*section] > 0)?;
        self.left[section] -= 1;
        let record = self.read_record(section);
        self.give_up_unless(record.is_ok());
        Some(record)
    }

    /// After a malformed entry, the start of the next is unknown.
    const fn give_up_unless(&mut self, good: bool) {
        if !good {
            self.left = [0; 4];
        }
    }

    fn read_question(&mut self) -> Result<Question, Malformed> {
        let (name, at) = Name::read(self.message, self.at)?;
        let kind = be16(self.message, at).ok_or(Malformed::Truncated)?;
        let class = be16(self.message, at + 2).ok_or(Malformed::Truncated)?;
        self.at = at + 4;
        Ok(Question { name, kind, class })
    }

    fn read_record(&mut self, section: usize) -> Result<Record<'a>, Malformed> {
        const FIXED: usize = 10;
        let (name, at) = Name::read(self.message, self.at)?;
        let fixed: &[u8; FIXED] = self
            .message
            .get(at..)
            .and_then(<[u8]>::first_chunk)
            .ok_or(Malformed::Truncated)?;
        let [k0, k1, c0, c1, t0, t1, t2, t3, l0, l1] = *fixed;
        let data_at = at + FIXED;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let data = self.message.get(data_at..data_at + length);
        let data = data.ok_or(Malformed::Truncated)?;
        self.at = data_at + length;
        Ok(Record {
            section,
            name,
            kind: u16::from_be_bytes([k0, k1]),
            class: u16::from_be_bytes([c0, c1]),
            ttl: u32::from_be_bytes([t0, t1, t2, t3]),
            data,
            data_at,
        })
    }
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?
        .first_chunk()
        .copied()
        .map(u16::from_be_bytes)
}
