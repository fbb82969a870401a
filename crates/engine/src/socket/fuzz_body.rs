//! Body, with its oracle, that the fuzz target and the tests share.

use super::protocol::{
    LONGEST_FRAME, Line, ReadFrames, WriteFrames, error_line, ok_line, parse_answer, parse_request,
    read_line,
};
use serde_json::Value;
use std::io::{self, BufReader, Read, Write};

/// Reads any bytes as lines and as frames, in pieces of any size, and compares them with a list of all lines and frames. The
/// first two bytes choose the longest line and the size of a piece.
pub fn socket(data: &[u8]) {
    let Some((&[most, piece], bytes)) = data.split_first_chunk() else {
        return;
    };
    lines(bytes, usize::from(most), usize::from(piece) + 1);
    frames(bytes, usize::from(piece) + 1);
}

/// Reader of pieces of a size, with an interruption between each two.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
    interrupted: bool,
}

impl<'a> Pieces<'a> {
    fn new(bytes: &'a [u8], piece: usize) -> Self {
        Self {
            bytes,
            piece,
            interrupted: false,
        }
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        let len = self.piece.min(buffer.len());
        self.bytes.read(&mut buffer[..len])
    }
}

fn lines(bytes: &[u8], most: usize, piece: usize) {
    let mut expected: Vec<(Line, &[u8])> = Vec::new();
    let mut pieces = bytes.split(|&byte| byte == b'\n').peekable();
    while let Some(line) = pieces.next() {
        if line.len() > most {
            expected.push((Line::TooLong, &line[..=most]));
            break;
        }
        match (pieces.peek(), line) {
            (Some(_), _) => expected.push((Line::Whole, line)),
            (None, []) => expected.push((Line::End, line)),
            (None, _) => expected.push((Line::Unended, line)),
        }
    }
    let mut reader = BufReader::with_capacity(16, Pieces::new(bytes, piece));
    let mut line = Vec::new();
    for (kind, text) in expected {
        assert_eq!(
            read_line(&mut reader, most, &mut line).expect("an interruption is repeated"),
            kind
        );
        assert_eq!(line, text);
        request_and_answers(&line);
    }
}

/// Compares requests and answers with what the JSON parser says alone, and reads answers that were written.
fn request_and_answers(line: &[u8]) {
    let value = serde_json::from_slice::<Value>(line).ok();
    let object = value.as_ref().filter(|value| value.is_object());
    assert_eq!(parse_request(line).ok().as_ref(), object);
    let only = object
        .and_then(|value| value.as_object())
        .filter(|object| object.len() == 1);
    let expected = only.and_then(|object| match (object.get("ok"), object.get("error")) {
        (Some(value), _) => Some(Ok(value.clone())),
        (_, Some(text)) => Some(Err(text.as_str()?.to_owned())),
        _ => None,
    });
    assert_eq!(parse_answer(line).ok(), expected);
    let text = String::from_utf8_lossy(line).into_owned();
    for answer in [value.map(Ok), Some(Err(text))].into_iter().flatten() {
        let written = match &answer {
            Ok(value) => ok_line(value),
            Err(text) => error_line(text),
        };
        let [inside @ .., b'\n'] = &written[..] else {
            panic!("an answer has a line end")
        };
        assert!(!inside.contains(&b'\n'));
        let read = parse_answer(inside).expect("it was written as an answer");
        // The parser may miss the nearest floating point number by one.
        assert!(read == answer || answer.is_ok_and(|value| has_floats(&value)));
    }
}

fn has_floats(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(values) => values.iter().any(has_floats),
        Value::Object(values) => values.values().any(has_floats),
        _ => false,
    }
}

fn frames(bytes: &[u8], piece: usize) {
    let (mut expected, mut rest) = (Vec::new(), bytes);
    let whole = loop {
        let Some((header, behind)) = rest.split_first_chunk::<4>() else {
            break false;
        };
        let length = u32::from_le_bytes(*header);
        if length == 0 {
            break true;
        }
        if length as usize > LONGEST_FRAME {
            break false;
        }
        let len = behind.len().min(length as usize);
        expected.extend_from_slice(&behind[..len]);
        rest = &behind[len..];
        if len < length as usize {
            break false;
        }
    };
    let mut read = Vec::new();
    let result = ReadFrames::new(Pieces::new(bytes, piece)).read_to_end(&mut read);
    assert_eq!(result.is_ok(), whole);
    assert_eq!(read, expected);

    let mut written = Vec::new();
    let mut writer = WriteFrames::new(&mut written);
    for part in bytes.chunks(piece) {
        writer.write_all(part).expect("memory takes all");
        if part.len() % 2 == 1 {
            writer.flush().expect("memory takes all");
        }
    }
    writer.finish(None).expect("memory takes all");
    let mut again = Vec::new();
    ReadFrames::new(&written[..])
        .read_to_end(&mut again)
        .expect("it was written whole");
    assert_eq!(again, bytes);
}
