//! `weir generate`: packets with known answers, in a capture file or sent by a port.

mod inject;
mod limit;
mod maker;
mod pace;

use crate::cli::{GenerateArgs, Rate};
use crate::emit::refuse_terminal;
use crate::numbers::packets;
use crate::outcome::{self, Outcome, answer, io_words, say, say_plain, stop_on_signals};
use crate::outputs::{absent_directory, refuse_bare_interface, refuse_record};
use crate::port::{self, Port, PortFault};
use crate::table::{Column, Narrow, grid};
use crate::terminal;
use crate::walls;
use crate::walls::Walls;
use anyhow::{Context, bail};
use limit::{Limit, rate_words};
use maker::{Maker, Wanted};
use pace::{Pace, Tally};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_engine::file::is_closed_pipe;
use weir_engine::name::Name;
use weir_generator::{FRAME_MAX, FlowCount, LINK_ADDRESSES};
use weir_io::output::{Output, OutputError, Rotation};
use weir_io::reserve::Reserve;
use weir_io::sys::Access;
use weir_io::sys::writer::Writer;
use weir_messages::errors::create_words;
use weir_messages::guards::{between, sending_line};
use weir_messages::sources::format_for;
use weir_packet::savefile::{Format, Interface, Resolution};
use weir_packet::{Frame, LinkType};
use weir_pipeline::{Slow, unless_stopped};

/// Rate without `--rate`, in packets per second.
const RATE: u64 = 1_000_000;

/// Packets between two looks at the clock where packets do not wait for their times.
const BURST: u64 = 64;

/// Runs the command.
pub fn run(arguments: &GenerateArgs) -> anyhow::Result<Outcome> {
    port::check_scheme(&arguments.sink)?;
    let limit = Limit::of(arguments)?;
    port::check_guard(&arguments.sink, &arguments.sending.yes_send)?;
    let stop = stop_on_signals();
    let walls = Walls::of_generate(arguments)?;
    if let Some(interface) = port::injected(&arguments.sink) {
        return inject::run(arguments, interface, limit, &walls, &stop);
    }
    if arguments.sink.text().is_empty() {
        bail!("the name of the output is empty: name a file, or - for standard output");
    }
    let to_port = port::is_port(&arguments.sink);
    refuse_bare_interface(&arguments.sink)?;
    if let Some(line) = absent_directory(&arguments.sink) {
        say(&line);
        return Ok(Outcome::Failed);
    }
    let tables = arguments.table.iter().filter(|table| !table.is_dash());
    for file in tables.chain((!to_port).then_some(&arguments.sink)) {
        refuse_record(file)?;
    }
    let rate = match arguments.rate {
        None if port::is_null(&arguments.sink) => Rate::Max,
        None => Rate::Of(RATE),
        Some(rate) => rate,
    };
    if rate == Rate::Max && !to_port {
        bail!("--rate max is for ports: a file has times, and its packets a rate");
    }
    if arguments.table.as_ref().is_some_and(Name::is_dash) {
        bail!("--table - would mix with other output: name a file");
    }
    let wanted = Wanted::of(
        arguments,
        limit.packets,
        if let Rate::Of(pps) = rate { pps } else { RATE },
    )?;
    let interrupted = |packets: u64, done: &str| {
        let sink = arguments.sink.as_output();
        match limit.packets {
            u64::MAX => say(&format!(
                "{sink}: interrupted: {packets} packets were {done}"
            )),
            all => say(&format!(
                "{sink}: interrupted: {packets} of {all} packets were {done}"
            )),
        }
    };
    if !to_port {
        walls.raise(&[])?;
    }
    // Preparing millions of flows takes seconds.
    let mut maker = unless_stopped(&stop, &Slow::default(), move || wanted.prepare())
        .transpose()
        .context("the profile")?;
    if let (Some(Maker::Mix(frames)), Some(table)) = (&maker, &arguments.table)
        && let Err(error) = write_table(frames.table(), Path::new(table))
    {
        say(&format!(
            "{table}: {}",
            create_words(&error, walls::advice(Path::new(table), Access::Write))
        ));
        return Ok(Outcome::Failed);
    }
    if to_port {
        let Some(maker) = &mut maker else {
            interrupted(0, "sent");
            return Ok(Outcome::Done);
        };
        let (outcome, whole) = send(arguments, limit, maker, rate, &walls, &stop)?;
        let failed = whole && tell(arguments, maker) == Outcome::Failed;
        return Ok(if failed { Outcome::Failed } else { outcome });
    }
    let format = format_for(&arguments.sink)?;
    if arguments.sink.is_dash() {
        refuse_terminal()?;
    }
    let reserve = arguments.reserve.map_or(Reserve::Usual, Reserve::Bytes);
    match write(maker.as_mut(), &arguments.sink, (format, reserve), &stop) {
        Ok(packets) => {
            if packets < limit.packets {
                interrupted(packets, "written");
            }
            Ok(maker.map_or(Outcome::Done, |maker| tell(arguments, &maker)))
        }
        Err(error) if is_closed_pipe(&error) => Ok(Outcome::Done),
        Err(OutputError::Io { error, packets, .. }) => {
            say(&format!(
                "{}: {}; {packets} packets were written",
                arguments.sink.as_output(),
                io_words(&error)
            ));
            Ok(Outcome::Failed)
        }
        Err(OutputError::Create { path, error }) => {
            say(&format!(
                "{}: {}",
                Name::from(&path),
                create_words(&error, walls::advice(&path, Access::Write))
            ));
            Ok(Outcome::Failed)
        }
        Err(error) => {
            say(&error.to_string());
            Ok(Outcome::Failed)
        }
    }
}

/// Sends the packets, each at its time or as fast as possible, and prints a summary. The `bool` is whether all generated
/// packets were sent.
fn send(
    arguments: &GenerateArgs,
    limit: Limit,
    maker: &mut Maker,
    rate: Rate,
    walls: &Walls,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<(Outcome, bool)> {
    let mut port = port::open(&arguments.sink, &arguments.sending.yes_send)?;
    port.check(LinkType::ETHERNET)
        .map_err(|fault| anyhow::anyhow!(port::fault_line(&fault)))?;
    if let Some(sender) = port::sender(&arguments.sink) {
        let (name, frames) = (arguments.sink.text(), between(LINK_ADDRESSES));
        say_plain(&sending_line(
            &name,
            &sender,
            &frames,
            &rate_words(rate),
            &limit.words(),
        ));
    }
    walls.raise(&[])?;
    let mut pace = Pace::begin(stop, limit.time);
    let sent = send_all(&mut port, maker, rate, &mut pace).and_then(|()| port.finish());
    let counts = port.counts();
    let name = arguments.sink.text();
    let mut faults: Vec<String> = port
        .lost()
        .iter()
        .map(|lost| port::lost_line(&name, lost))
        .collect();
    faults.extend(sent.err().map(|fault| port::fault_line(&fault)));
    let not_sent = (limit.packets - maker.remaining()).saturating_sub(counts.sent);
    if not_sent > 0 && (arguments.truth || arguments.talkers.is_some()) {
        let (sink, not_sent) = (arguments.sink.text(), packets(not_sent));
        faults.push(format!(
            "{sink}: --truth and --talkers are left out: they would count {not_sent} not sent"
        ));
    }
    pace.clear();
    faults.iter().for_each(|line| say(line));
    let done = if port.is_null() {
        "thrown away"
    } else {
        "sent"
    };
    say_plain(&pace.summary(
        Tally {
            packets: counts.sent,
            bytes: counts.bytes,
            refused: counts.refused(),
        },
        done,
    ));
    Ok((
        if faults.is_empty() {
            Outcome::Done
        } else {
            Outcome::Failed
        },
        not_sent == 0,
    ))
}

fn send_all(
    port: &mut Port,
    maker: &mut Maker,
    rate: Rate,
    pace: &mut Pace,
) -> Result<(), PortFault> {
    let mut buffer = [0u8; FRAME_MAX];
    let mut first = None;
    let ends = pace.ends();
    while !pace.is_over()
        && let Some(made) = maker.next(&mut buffer)
    {
        if rate != Rate::Max {
            let due = made.time_ns - *first.get_or_insert(made.time_ns);
            let due = Duration::from_nanos(due.unsigned_abs());
            // Frames in the port's buffer are due earlier.
            if !pace.is_due(due) {
                port.flush()?;
                // Even if stopped in the meantime, the frame is sent, because the known answers
                // count it already.
                pace.wait(due);
            }
        }
        port.take(&buffer[..made.len], false)?;
        // A port that is slower than the rate never waits, and would not see the end.
        if maker.remaining().is_multiple_of(BURST) && ends {
            pace.now();
        }
        if maker.remaining().is_multiple_of(1024) || rate != Rate::Max {
            pace.show(port.counts().sent);
        }
    }
    Ok(())
}

/// Prints the known answers about the packets: a table on a terminal, else rows with tabs.
fn tell(arguments: &GenerateArgs, maker: &Maker) -> Outcome {
    // If packets go to standard output, the answers go to standard error.
    let to_error = arguments.sink.is_dash();
    let width = if to_error {
        terminal::width(io::stderr())
    } else {
        terminal::width(io::stdout())
    };
    let text = match (arguments.talkers, width) {
        (Some(n), None) => maker.top(n).iter().map(talker).collect(),
        (Some(n), Some(_)) => grid(&talkers(&maker.top(n)), width),
        (None, None) if arguments.truth => {
            let rows = maker.rows().into_iter();
            rows.map(|(expression, packets, bytes)| format!("{packets}\t{bytes}\t{expression}\n"))
                .collect()
        }
        (None, Some(_)) if arguments.truth => {
            let rows = maker.rows();
            let columns = [
                Column::right("packets", rows.iter().map(|row| row.1.to_string())),
                Column::right("bytes", rows.iter().map(|row| row.2.to_string())),
                Column::left(maker.rows_of(), rows.iter().map(|row| row.0.clone())),
            ];
            grid(&columns, width)
        }
        (None, _) => String::new(),
    };
    if !text.is_empty() {
        if !to_error {
            return answer(&text);
        }
        outcome::show(&text);
    }
    Outcome::Done
}

/// A row for one of the largest flows.
fn talker(flow: &FlowCount) -> String {
    let FlowCount {
        source,
        destination,
        protocol,
        source_port,
        destination_port,
        packets,
        bytes,
        ..
    } = flow;
    format!(
        "{packets}\t{bytes}\t{protocol}\t{source}\t{source_port}\t{destination}\t{destination_port}\n"
    )
}

/// A table of the largest flows.
fn talkers(flows: &[FlowCount]) -> [Column; 5] {
    [
        Column::right("packets", flows.iter().map(|flow| flow.packets.to_string())),
        Column::right("bytes", flows.iter().map(|flow| flow.bytes.to_string())),
        Column::left(
            "protocol",
            flows.iter().map(|flow| flow.protocol.to_string()),
        ),
        Column::left(
            "source port",
            flows
                .iter()
                .map(|flow| format!("{} {}", flow.source, flow.source_port)),
        ),
        Column {
            narrow: Narrow::Below,
            ..Column::left(
                "destination port",
                flows
                    .iter()
                    .map(|flow| format!("{} {}", flow.destination, flow.destination_port)),
            )
        },
    ]
}

/// Writes the lines of a permission table.
fn write_table(lines: impl Iterator<Item = String>, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(Writer::create(path, Reserve::default())?);
    for line in lines {
        file.write_all(line.as_bytes())?;
    }
    file.flush()
}

/// Writes the packets until `stop` is set, and returns their number. Without a maker the file has no packets.
fn write(
    mut maker: Option<&mut Maker>,
    sink: &Name,
    (format, reserve): (Format, Reserve),
    stop: &AtomicBool,
) -> Result<u64, OutputError> {
    let output = if sink.is_dash() {
        Output::stdout(format, 0, false)?
    } else {
        let path = Path::new(sink).to_owned();
        Output::files(
            Box::new(move |_, _| Ok(path.clone())),
            format,
            0,
            false,
            Rotation::default(),
            reserve,
        )?
    };
    let mut output = output.keeping(reserve);
    let resolution = if format == Format::Pcap {
        Resolution::MICROSECOND
    } else {
        Resolution::NANOSECOND
    };
    let interface = Interface::plain(LinkType::ETHERNET, FRAME_MAX as u32, resolution);
    let id = output.interface(&interface)?;
    let mut buffer = [0u8; FRAME_MAX];
    while !stop.load(Ordering::Relaxed)
        && let Some(made) = maker.as_mut().and_then(|maker| maker.next(&mut buffer))
    {
        let data = &buffer[..made.len];
        output.packet(
            id,
            Some(made.time_ns),
            &Frame {
                data,
                wire_len: made.len as u32,
                interface: 0,
            },
        )?;
    }
    output.finish()
}
