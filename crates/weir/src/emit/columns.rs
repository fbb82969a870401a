//! Packets as rows of columns: csv, tsv, JSON, and a table for people.

use anyhow::bail;
use weir_engine::zone::Zone;
use weir_messages::measured::proto_name;
use weir_messages::rows::{Form, RowWriter, heading};
use weir_packet::fields::{FIELDS, Field, Packet, USUAL, Value, field};
use weir_packet::line::{Conversations, Style, flag_letters, write_line};
use weir_packet::suggestions::did_you_mean;
use weir_packet::time::{Digits, Shape, Stamp};

/// Members of a JSON object if no columns are named.
const MEMBERS: [&str; 12] = [
    "time",
    "link",
    "interface",
    "direction",
    "length",
    "captured",
    "src",
    "sport",
    "dst",
    "dport",
    "proto",
    "summary",
];

/// Columns of packets, in a form.
#[derive(Debug)]
pub struct Columns {
    /// Form of the rows.
    pub form: Form,
    fields: Vec<&'static Field>,
    /// Format of a time in a table for people.
    shape: Shape,
    /// Text of one value.
    scratch: String,
}

impl Columns {
    /// Columns of the names in `list`, separated by commas; without a list the usual ones. **Errors**: an unknown name; two of the same.
    pub fn new(form: Form, list: Option<&str>, shape: Shape) -> anyhow::Result<Self> {
        let fields = match (list, form) {
            (Some(list), _) => list.split(',').map(named).collect::<Result<Vec<_>, _>>()?,
            (None, Form::Json) => usual(&MEMBERS),
            (None, _) => usual(&USUAL),
        };
        for (i, field) in fields.iter().enumerate() {
            if fields[..i].iter().any(|before| before.name == field.name) {
                bail!("--columns names {} twice: leave one out", field.name);
            }
        }
        Ok(Self {
            form,
            fields,
            shape,
            scratch: String::new(),
        })
    }

    /// The line with the names of the columns; empty in JSON.
    pub fn heading(&self) -> String {
        heading(
            self.form,
            self.fields
                .iter()
                .map(|field| (field.name, self.width(field))),
        )
    }

    /// Width of a column in a table.
    fn width(&self, field: &Field) -> usize {
        let width = match (field.name, self.shape) {
            ("time", Shape::Clock) => 15,
            ("time", Shape::DateClock) => 26,
            ("time", Shape::Epoch) => 17,
            _ => field.width,
        };
        width.max(field.name.len())
    }

    /// Appends the row of a packet. Times of a table are of `zone`.
    pub fn write(
        &mut self,
        out: &mut String,
        packet: &Packet<'_>,
        (style, conversations): (&Style, &mut Conversations),
        zone: &mut Zone,
    ) {
        let mut row = RowWriter::new(out, self.form, "\"type\":\"packet\"");
        for field in &self.fields {
            let (name, width) = (field.name, self.width(field));
            let text = &mut self.scratch;
            text.clear();
            match (field.of)(packet) {
                None => row.none(name, width),
                Some(Value::Number(number)) => row.number(name, width, format_args!("{number}")),
                Some(Value::Epoch(ns)) => {
                    Stamp(ns).write(text, Shape::Epoch, Digits::Nano, 0);
                    row.number(name, width, format_args!("{text}"));
                }
                Some(Value::Time(ns)) => {
                    match self.form {
                        Form::Table => {
                            Stamp(ns).write(text, self.shape, Digits::Micro, zone.east_s(ns))
                        }
                        _ => Stamp(ns).write(text, Shape::Rfc3339, Digits::Nano, 0),
                    }
                    row.word(name, width, format_args!("{text}"));
                }
                Some(Value::Hex { bits, digits }) => {
                    row.word(name, width, format_args!("0x{bits:0digits$x}"));
                }
                Some(Value::Mac([a, b, c, d, e, f])) => {
                    let mac = format_args!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
                    row.word(name, width, mac);
                }
                Some(Value::Address(address)) => row.word(name, width, format_args!("{address}")),
                Some(Value::Network(address, bits)) => {
                    row.word(name, width, format_args!("{address}/{bits}"));
                }
                Some(Value::Country([a, b])) => {
                    row.word(name, width, format_args!("{}{}", a as char, b as char));
                }
                Some(Value::Protocol(proto)) => {
                    row.word(name, width, format_args!("{}", proto_name(proto)));
                }
                Some(Value::Word(word)) => row.word(name, width, format_args!("{word}")),
                Some(Value::Flags(flags)) => {
                    flag_letters(text, flags);
                    row.word(name, width, format_args!("{text}"));
                }
                Some(Value::Link(link)) => match link.name() {
                    Some(link) => row.word(name, width, format_args!("{link}")),
                    None => row.word(name, width, format_args!("{}", link.0)),
                },
                Some(Value::Text(of)) => row.text(name, width, of),
                Some(Value::Line) => {
                    write_line(text, packet.link, &packet.frame, style, conversations);
                    row.text(name, width, text);
                }
            }
        }
        row.end();
    }
}

fn usual(names: &[&str]) -> Vec<&'static Field> {
    names.iter().filter_map(|name| field(name)).collect()
}

fn named(name: &str) -> anyhow::Result<&'static Field> {
    let Some(field) = field(name) else {
        let near = did_you_mean(name, FIELDS.iter().map(|field| field.name));
        bail!("--columns: unknown column '{name}'{near}: weir help columns lists them");
    };
    Ok(field)
}
