//! Lines and frames of the protocol, as bytes.
//!
//! ```text
//! frame    0          4              4 + length
//!          | u32 LE   | bytes        |             length 1 to 65536: bytes of the stream
//!          | 0        |                            end of the stream
//!          | 2^31 + n | n bytes: UTF-8 |           the stream ended early, for this reason; n up to 65536
//! ```

use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};

/// Version of the requests and answers. A request may have the member `version`; without it, it is of version 1.
pub const VERSION: u64 = 1;

/// Length of a request without its line end, bytes, at most.
pub const LONGEST_REQUEST: usize = 1 << 20;

/// Length of an answer without its line end, bytes, at most.
pub const LONGEST_ANSWER: usize = 16 << 20;

/// Bytes of a frame, without its length, at most.
pub const LONGEST_FRAME: usize = 64 << 10;

/// Bit of a frame's length that marks the reason of an early end.
const EARLY_END: u32 = 1 << 31;

/// Bytes of the length in front of a frame.
const HEADER: usize = 4;

/// Kinds of line that [`read_line`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line with its line end, which is removed.
    Whole,
    /// No line: the bytes are at their end.
    End,
    /// The last bytes, without a line end.
    Unended,
    /// More bytes than allowed; the rest of the line is not read.
    TooLong,
}

/// Reads a line of at most `most` bytes into `line`, whose former contents are discarded. **Errors**: errors of the reader.
pub fn read_line(from: &mut impl BufRead, most: usize, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    from.take(most as u64 + 1).read_until(b'\n', line)?;
    Ok(match line.last() {
        Some(b'\n') => {
            line.pop();
            Line::Whole
        }
        Some(_) if line.len() > most => Line::TooLong,
        Some(_) => Line::Unended,
        None => Line::End,
    })
}

/// Checks that a request has no members but `request` and these. **Errors**: the reason of a refusal. A member that is misspelt would
/// otherwise be taken for one that was left out.
pub fn check_members(request: &Value, members: &[&str]) -> Result<(), String> {
    let mut given = request
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys());
    let Some(unknown) = given.find(|name| *name != "request" && !members.contains(&name.as_str()))
    else {
        return Ok(());
    };
    let name = request["request"].as_str().unwrap_or_default();
    Err(match members {
        [] => format!("the request {name} has no member \"{unknown}\"; it has none"),
        _ => format!(
            "the request {name} has no member \"{unknown}\"; it has {}",
            members.join(", ")
        ),
    })
}

/// Returns a member that is text, or nothing. **Errors**: the reason of a refusal.
pub fn text_member<'a>(request: &'a Value, member: &str) -> Result<Option<&'a str>, String> {
    match &request[member] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        other => Err(format!("\"{member}\" is a string, and not {other}")),
    }
}

/// Returns a member that is true or false; false without it. **Errors**: the reason of a refusal.
pub fn flag_member(request: &Value, member: &str) -> Result<bool, String> {
    match &request[member] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        other => Err(format!("\"{member}\" is true or false, and not {other}")),
    }
}

/// Reads the request of a line. **Errors**: the reason why the line is not a request.
pub fn parse_request(line: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(line) {
        Ok(request @ Value::Object(_)) => Ok(request),
        Ok(_) => Err("a request is a JSON object on one line".to_owned()),
        Err(error) => Err(format!("a request is a JSON object on one line: {error}")),
    }
}

/// Takes the member `version` off a request. **Errors**: the reason of a refusal, if this program does not know the version.
pub fn take_version(request: &mut Value) -> Result<(), String> {
    let version = request
        .as_object_mut()
        .and_then(|members| members.remove("version"));
    match version {
        None => Ok(()),
        Some(known) if known == VERSION => Ok(()),
        Some(other) => Err(format!(
            "requests of version {other} are not known: this program takes version {VERSION}"
        )),
    }
}

/// Returns the value of the answer to the request `version`, which every socket takes.
pub fn version_value() -> Value {
    json!({ "version": VERSION, "weir": env!("CARGO_PKG_VERSION") })
}

/// Returns a request with the version of this program.
pub fn with_version(request: &Value) -> Value {
    let mut request = request.clone();
    if let Some(members) = request.as_object_mut() {
        members.insert("version".to_owned(), VERSION.into());
    }
    request
}

/// Returns the line `{"ok":VALUE}`, with its line end.
pub fn ok_line(value: &Value) -> Vec<u8> {
    line(&json!({ "ok": value }))
}

/// Returns the line `{"error":"TEXT"}`, with its line end.
pub fn error_line(text: &str) -> Vec<u8> {
    line(&json!({ "error": text }))
}

/// Returns `value` on one line, with its line end.
pub fn line(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

/// Reads the answer of a line: the value of `ok`, or inside the text of `error`. **Errors**: the
/// reason why the line is not an answer.
pub fn parse_answer(line: &[u8]) -> Result<Result<Value, String>, String> {
    let mut answer = match serde_json::from_slice(line) {
        Ok(Value::Object(answer)) if answer.len() == 1 => answer,
        Ok(_) => return Err("it is not an object of one key".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    match (answer.remove("ok"), answer.remove("error")) {
        (Some(value), _) => Ok(Ok(value)),
        (_, Some(Value::String(text))) => Ok(Err(text)),
        _ => Err("its key is neither ok nor error".to_owned()),
    }
}

/// Writer of frames. Bytes are gathered until a frame is full, or until [`flush`](Write::flush).
#[derive(Debug)]
pub struct WriteFrames<W> {
    to: W,
    /// Room for the length, and the bytes of the next frame.
    frame: Vec<u8>,
}

impl<W: Write> WriteFrames<W> {
    /// Creates a writer of frames to `to`.
    pub fn new(to: W) -> Self {
        Self {
            to,
            frame: vec![0; HEADER],
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let length = self.frame.len() - HEADER;
        if length > 0 {
            self.frame[..HEADER].copy_from_slice(&(length as u32).to_le_bytes());
            self.to.write_all(&self.frame)?;
            self.frame.truncate(HEADER);
        }
        Ok(())
    }

    /// Sends what was gathered and the mark of the end; if `early` gives a reason, the mark of an early end.
    pub fn finish(mut self, early: Option<&str>) -> io::Result<()> {
        self.send()?;
        match early {
            None => self.to.write_all(&[0; HEADER])?,
            Some(why) => {
                let why = &why.as_bytes()[..why.floor_char_boundary(LONGEST_FRAME)];
                let length = EARLY_END | why.len() as u32;
                self.to.write_all(&[&length.to_le_bytes(), why].concat())?;
            }
        }
        self.to.flush()
    }
}

impl<W: Write> Write for WriteFrames<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.frame.len() == HEADER + LONGEST_FRAME {
            self.send()?;
        }
        let taken = bytes.len().min(HEADER + LONGEST_FRAME - self.frame.len());
        self.frame.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        self.to.flush()
    }
}

/// Reader of the bytes in frames.
///
/// **Errors** of reading, in addition to errors of the inner reader: `Other` with the sender's
/// reason, if the stream ended early; `UnexpectedEof`, if the bytes end before the mark of the end;
/// `InvalidData`, if a frame is too long.
#[derive(Debug)]
pub struct ReadFrames<R> {
    from: R,
    /// Length of the next frame, as far as it was read: a read may fail between its bytes and be repeated.
    header: [u8; HEADER],
    /// Bytes of `header` that were read.
    headed: usize,
    /// Bytes of the current frame that were not read yet.
    left: usize,
    ended: bool,
}

impl<R: Read> ReadFrames<R> {
    /// Creates a reader of the frames in `from`.
    pub fn new(from: R) -> Self {
        Self {
            from,
            header: [0; HEADER],
            headed: 0,
            left: 0,
            ended: false,
        }
    }

    /// Returns the inner reader.
    pub fn get_ref(&self) -> &R {
        &self.from
    }

    /// Takes the inner reader back, at the end of the frames.
    pub fn into_inner(self) -> R {
        self.from
    }

    /// Reads the length of the next frame.
    fn next_frame(&mut self) -> io::Result<()> {
        while self.headed < HEADER {
            match self.from.read(&mut self.header[self.headed..])? {
                0 => return Err(cut_off()),
                read => self.headed += read,
            }
        }
        self.headed = 0;
        let length = u32::from_le_bytes(self.header);
        let size = (length & !EARLY_END) as usize;
        if size > LONGEST_FRAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a frame is longer than allowed",
            ));
        }
        if length & EARLY_END != 0 {
            let mut why = vec![0; size];
            self.from.read_exact(&mut why)?;
            self.ended = true;
            return Err(io::Error::other(String::from_utf8_lossy(&why).into_owned()));
        }
        (self.left, self.ended) = (size, size == 0);
        Ok(())
    }
}

impl<R: Read> Read for ReadFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.left == 0 && !self.ended {
            self.next_frame()?;
        }
        if self.ended {
            return Ok(0);
        }
        let most = buffer.len().min(self.left);
        match self.from.read(&mut buffer[..most])? {
            0 => Err(cut_off()),
            read => {
                self.left -= read;
                Ok(read)
            }
        }
    }
}

fn cut_off() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the other process ended in the middle of its answer",
    )
}

#[cfg(test)]
mod tests {
    use super::super::fuzz_body;
    use super::*;
    use weir_testkit::Random;

    #[test]
    fn lines_are_as_the_protocol_has_them() {
        assert_eq!(
            ok_line(&json!({ "b": 1, "a": [null, "x\ny"] })),
            b"{\"ok\":{\"b\":1,\"a\":[null,\"x\\ny\"]}}\n"
        );
        assert_eq!(
            error_line("no \"such\" thing\u{1}"),
            b"{\"error\":\"no \\\"such\\\" thing\\u0001\"}\n"
        );
        assert_eq!(parse_answer(b"{\"ok\":7}"), Ok(Ok(json!(7))));
        assert_eq!(
            parse_answer(b"{\"error\":\"why\"}"),
            Ok(Err("why".to_owned()))
        );
        for wrong in [
            &b""[..],
            b"7",
            b"{}",
            b"{\"ok\":1,\"error\":\"x\"}",
            b"{\"error\":1}",
            b"{\"OK\":1}",
            b"\xff",
        ] {
            assert!(parse_answer(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(
            parse_request(b"{\"status\":true}\r"),
            Ok(json!({ "status": true }))
        );
        for wrong in [
            &b""[..],
            b"[]",
            b"{",
            b"{}{}",
            b"\"x\"",
            b"\xff\xfe",
            &[b'['; 100_000],
        ] {
            let why = parse_request(wrong).unwrap_err();
            assert!(
                why.starts_with("a request is a JSON object on one line"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_line_has_its_longest_length_and_no_more() {
        let most = 5;
        for (bytes, expected) in [
            (&b"12345\nx"[..], (Line::Whole, &b"12345"[..])),
            (b"\n", (Line::Whole, b"")),
            (b"123456\n", (Line::TooLong, b"123456")),
            (b"12345", (Line::Unended, b"12345")),
            (b"", (Line::End, b"")),
        ] {
            let mut line = b"before".to_vec();
            let kind = read_line(&mut &bytes[..], most, &mut line).unwrap();
            assert_eq!((kind, &line[..]), expected, "{bytes:?}");
        }
    }

    #[test]
    fn frames_are_as_the_protocol_has_them() {
        let mut bytes = Vec::new();
        let mut writer = WriteFrames::new(&mut bytes);
        writer.write_all(b"ab").unwrap();
        writer.write_all(b"c").unwrap();
        writer.flush().unwrap();
        writer.flush().unwrap();
        writer.write_all(&[7; LONGEST_FRAME + 1]).unwrap();
        writer.finish(None).unwrap();
        let mut golden = b"\x03\0\0\0abc\0\0\x01\0".to_vec();
        golden.extend([7; LONGEST_FRAME]);
        golden.extend(b"\x01\0\0\0\x07\0\0\0\0");
        assert!(bytes == golden);

        let mut early = Vec::new();
        let mut writer = WriteFrames::new(&mut early);
        writer.write_all(b"ab").unwrap();
        writer.finish(Some("ring gone")).unwrap();
        assert_eq!(early, b"\x02\0\0\0ab\x09\0\0\x80ring gone");
        let mut read = Vec::new();
        let error = ReadFrames::new(&early[..])
            .read_to_end(&mut read)
            .unwrap_err();
        assert_eq!(
            (&read[..], error.to_string().as_str()),
            (&b"ab"[..], "ring gone")
        );
        for len in 0..6 {
            let error = ReadFrames::new(&early[..len])
                .read_to_end(&mut Vec::new())
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}");
        }
    }

    /// Runs the body of the fuzz target over random bytes, over lines and frames with damage, and over its kept corpus.
    #[test]
    fn the_fuzz_body_holds_for_any_bytes() {
        let good = [
            &b"{\"ok\":{\"a\":[1,2.5,\"x\\u0000\"]}}\n{\"error\":\"why\"}\n\n{\"query\":\"tcp\"}\n[1]\n{"[..],
            b"\x03\0\0\0abc\x01\0\0\0x\0\0\0\0",
            b"\x02\0\0\0ab\x09\0\0\x80ring gone",
        ];
        let mut random = Random(1);
        for turn in 0..2000 {
            let len = random.below(200);
            fuzz_body::socket(&random.bytes(len));
            let mut damaged = good[turn % good.len()].to_vec();
            let at = random.below(damaged.len());
            damaged[at] = random.next() as u8;
            fuzz_body::socket(
                &[&[random.next() as u8, random.next() as u8], &damaged[..]].concat(),
            );
        }
        for case in include_str!("../../../../fuzz/seeds/socket").lines() {
            let digits = case
                .as_bytes()
                .chunks(2)
                .map(|pair| std::str::from_utf8(pair).expect("ASCII"));
            let bytes: Vec<u8> = digits
                .map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal"))
                .collect();
            fuzz_body::socket(&bytes);
        }
    }
}
