//! `weir generate`: packets with known answers, in a capture file or sent by a port.

mod inject;
mod limit;
mod maker;
mod pace;
mod profiles;
mod receive;
mod reflect;
mod search;
mod sender;
mod steer;
mod workers;

use crate::cli::{self, GenerateArgs};
use crate::ctl;
use crate::emit::refuse_terminal;
use crate::links::SenderLinks;
use crate::numbers::packets;
use crate::outcome::{self, Outcome, answer, io_words, say, say_plain, stop_on_signals};
use crate::outputs::{absent_directory, refuse_bare_interface, refuse_record};
use crate::port::{self, Port, PortFault};
use crate::rate;
use crate::table::{Column, Narrow, grid};
use crate::terminal;
use crate::walls;
use crate::walls::Walls;
use anyhow::{Context, bail};
use limit::Limit;
use maker::{Maker, Wanted};
use pace::{Pace, Tally};
use sender::Sender;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use steer::Steered;
use weir_engine::file::is_closed_pipe;
use weir_engine::name::Name;
use weir_engine::port::Digest;
use weir_generator::streams::Rate;
use weir_generator::{FlowCount, LINK_ADDRESSES};
use weir_io::output::{Output, OutputError, Rotation};
use weir_io::reserve::Reserve;
use weir_io::sys::Access;
use weir_io::sys::writer::Writer;
use weir_messages::errors::create_words;
use weir_messages::guards::{between, injecting_line, sending_line};
use weir_messages::sources::format_for;
use weir_packet::savefile::{Format, Interface, Resolution};
use weir_packet::{Frame, LinkType};
use weir_pipeline::{Slow, unless_stopped};

/// Rate of a file whose packets have none, in packets per second.
const RATE: f64 = 1e6;

/// Rate up to which packets are made one by one, so that few are made that do not leave.
const SLOW: f64 = 20_000.0;

/// Number of packets by which the size of a file is estimated, and least size for a line about it, bytes.
const TRIED: u64 = 1000;
const LARGE: u64 = 500_000_000;

/// Runs the command.
pub fn run(arguments: &GenerateArgs) -> anyhow::Result<Outcome> {
    if arguments.sink.utf8() == "profiles" {
        return profiles::run(arguments.name.as_deref());
    }
    if let Some(name) = &arguments.name {
        bail!("unexpected argument '{name}': one file or port at a time: weir generate demo.pcap");
    }
    port::check_scheme(&arguments.sink)?;
    if let Some(name) = &arguments.reflect {
        return reflect::run(arguments, name);
    }
    let mut wanted = Wanted::of(arguments)?;
    let profile = arguments.profile.as_deref().unwrap_or_default();
    if arguments.talkers.is_some() && !wanted.has_flows() {
        bail!(
            "--talkers: the traffic of --profile {profile} has no table of flows: leave --talkers out, and ask weir measure; the profile \
             default has one"
        );
    }
    let limit = Limit::of(arguments, wanted.packets())?;
    port::check_guard(&arguments.sink, &arguments.sending.yes_send)?;
    let stop = stop_on_signals();
    let walls = Walls::of_generate(arguments)?;
    let named = rate_of(arguments)?;
    if arguments.gaps.is_some()
        && named.is_none()
        && wanted.has_times()
        && wanted.stream_names().is_empty()
    {
        bail!("--gaps: connections have times of their own: leave it out, or name --rate too");
    }
    let is_template = arguments.profile.is_none() && arguments.mix.is_none();
    if let Some(interface) = port::injected(&arguments.sink).filter(|_| is_template) {
        let rate = named.flatten();
        return inject::run(arguments, interface, (limit, rate), &walls, &stop);
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
    if named == Some(None) && !to_port {
        bail!("--rate max is for ports: a file has times, and its packets a rate");
    }
    // Whether packets wait for their times, and how they are spaced.
    let is_paced = match named {
        Some(rate) => {
            wanted.set_rate(rate);
            rate.is_some()
        }
        None if port::is_null(&arguments.sink) => false,
        None => wanted.has_times() || wanted.rate().is_some(),
    };
    if wanted.rate().is_none() && !to_port && !wanted.has_times() {
        wanted.set_rate(Some(Rate::Packets(RATE)));
    }
    if !is_paced && wanted.can_be_shared() {
        wanted.set_rate(None);
    }
    if arguments.workers > 1 {
        check_workers(arguments, &wanted)?;
    }
    if arguments.table.as_ref().is_some_and(Name::is_dash) {
        bail!("--table - would mix with other output: name a file");
    }
    wanted.set_packets(limit.packets);
    receive::check(arguments, &mut wanted)?;
    if arguments.truth {
        let remedy = match arguments.field.is_empty() && arguments.sizes.is_none() {
            true => "",
            false => {
                ": an option changed it: leave --truth out, or put the change and its matches into a profile of your own"
            }
        };
        wanted
            .check_claims()
            .map_err(|why| anyhow::anyhow!("--truth: {why}{remedy}"))?;
    }
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
    if !arguments.search.is_empty() {
        let max = search::highest(named)?;
        return search::run(arguments, (&wanted, max), &walls, &stop);
    }
    if arguments.digest && !to_port {
        bail!("--digest is of the packets that a port takes: sha256sum tells about a file");
    }
    let steered = Steered::new(arguments, &wanted, &walls)?;
    if !to_port {
        walls.raise(&[])?;
    }
    let sending = Sending {
        frames: frames_words(&wanted),
        rate: is_paced.then(|| wanted.rate()).flatten(),
        is_paced,
        streams: wanted.stream_names(),
        has_end: wanted.has_times(),
    };
    if arguments.workers > 1 {
        return shared(arguments, limit, (&wanted, &sending), &walls, &stop);
    }
    let longest = wanted.longest();
    // Preparing millions of flows takes seconds.
    let mut maker = unless_stopped(&stop, &Slow::default(), move || wanted.prepare())
        .transpose()
        .map_err(|why| anyhow::anyhow!(why))
        .context("the profile")?;
    if let (Some(lines), Some(table)) = (maker.as_ref().and_then(Maker::table), &arguments.table)
        && let Err(error) = write_table(lines, Path::new(table))
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
        maker.has_answers = arguments.truth || arguments.talkers.is_some();
        let sending = (&sending, steered);
        let (outcome, whole) = send(arguments, limit, maker, sending, &walls, &stop)?;
        let failed = whole && tell(arguments, maker) == Outcome::Failed;
        return Ok(if failed { Outcome::Failed } else { outcome });
    }
    let format = format_for(&arguments.sink)?;
    if arguments.sink.is_dash() {
        refuse_terminal()?;
    }
    let reserve = arguments.reserve.map_or(Reserve::Usual, Reserve::Bytes);
    let kind = (format, reserve, longest);
    match write(
        (maker.as_mut(), limit.packets),
        &arguments.sink,
        kind,
        &stop,
    ) {
        Ok(packets) => {
            if packets < limit.packets && stop.load(Ordering::Relaxed) {
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

/// The rate that was named, if one was; `Some(None)` is as fast as possible.
fn rate_of(arguments: &GenerateArgs) -> anyhow::Result<Option<Option<Rate>>> {
    Ok(match arguments.rate {
        None => None,
        Some(cli::Rate::Max) => Some(None),
        Some(cli::Rate::Packets(per_s)) => Some(Some(Rate::Packets(per_s))),
        Some(cli::Rate::Bits(per_s)) => Some(Some(Rate::Bits(per_s))),
        Some(cli::Rate::Share(share)) => {
            let bits = rate::share_of_link(&arguments.sink, share)?;
            Some(Some(Rate::Bits(bits)))
        }
        Some(cli::Rate::Original) => {
            bail!(
                "--rate original is for weir replay: generated packets have no times of their own"
            )
        }
    })
}

/// Refuses workers that cannot share the packets.
fn check_workers(arguments: &GenerateArgs, wanted: &Wanted) -> anyhow::Result<()> {
    let workers = arguments.workers;
    if !port::is_port(&arguments.sink) {
        bail!("--workers {workers}: a file has one order of packets: name null or af_packet:IF");
    }
    if !wanted.can_be_shared() {
        bail!(
            "--workers {workers} share the packets of streams: name a --profile that has streams alone"
        );
    }
    Ok(())
}

/// Words for the link addresses of the frames.
fn frames_words(wanted: &Wanted) -> String {
    match wanted.has_link_addresses() {
        true => "frames with the link addresses of the profile".to_owned(),
        false => between(LINK_ADDRESSES),
    }
}

/// Frames and their rate.
struct Sending {
    /// Words for the frames.
    frames: String,
    rate: Option<Rate>,
    /// Whether packets wait for their times.
    is_paced: bool,
    /// Names of the streams.
    streams: Vec<String>,
    /// Whether the packets have an end of their own.
    has_end: bool,
}

impl Sending {
    /// The rate, and whether packets wait for their times.
    fn pace(&self) -> (Option<Rate>, bool) {
        (self.rate, self.is_paced)
    }

    fn rate_words(&self) -> String {
        match (self.is_paced, self.rate) {
            (true, None) => "at times of their own".to_owned(),
            (_, rate) => rate::words(rate),
        }
    }
}

/// Outcome of a port.
struct Sent {
    done: Result<(), PortFault>,
    port: Port,
    rows: Vec<(String, u64, u64)>,
    made: u64,
}

/// Tells what is sent, before the first packet.
fn tell_begin(arguments: &GenerateArgs, limit: Limit, sending: &Sending) {
    if let Some(sender) = port::sender(&arguments.sink) {
        let name = arguments.sink.text();
        let line = match port::injected(&arguments.sink) {
            Some(_) => injecting_line,
            None => sending_line,
        };
        say_plain(&line(
            &name,
            &sender,
            &sending.frames,
            &sending.rate_words(),
            &match (limit.packets, limit.time) {
                (u64::MAX, None) if sending.has_end => "until its packets end".to_owned(),
                _ => limit.words(),
            },
        ));
    }
}

/// Sends the packets, each at its time or as fast as possible, and prints a summary. The `bool` is whether all generated
/// packets were sent.
fn send(
    arguments: &GenerateArgs,
    limit: Limit,
    maker: &mut Maker,
    (sending, steered): (&Sending, Steered),
    walls: &Walls,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<(Outcome, bool)> {
    let mut port = open(arguments, sending.is_paced)?;
    port.check(LinkType::ETHERNET)
        .map_err(|fault| anyhow::anyhow!(port::fault_line(&fault)))?;
    let receiver = receive::open(arguments, &sending.streams)?;
    let links = SenderLinks::open(std::slice::from_ref(&arguments.sink));
    tell_begin(arguments, limit, sending);
    if matches!(sending.rate, Some(Rate::Packets(per_s)) if per_s <= SLOW) {
        maker.hurries_not();
    }
    if let Some(receiver) = receiver {
        let (sent, (received, streams), mut pace) = receive::exchange(
            (receiver, links),
            walls,
            (port, maker),
            (sending.pace(), &steered),
            (stop, limit.time),
        )?;
        let counts = sent.port.counts();
        let fate = (counts.sent, counts.refused());
        let (outcome, _) = ended(arguments, vec![sent], &mut pace, false);
        let streams: Vec<(u64, u64)> = streams.into_iter().map(|count| (count, 0)).collect();
        let told = received.tell((arguments.json, arguments.strict), fate, &streams);
        let is_done = told == Outcome::Done && outcome == Outcome::Done && !steered.has_failed();
        return Ok((Outcome::of(is_done), false));
    }
    walls.raise(&[])?;
    let fronts = steered.serve(stop, None)?;
    let links = links.watch()?;
    let mut pace = Pace::begin(&arguments.sink, stop, limit.time);
    let mut sender = Sender::new(&mut port, maker, &mut pace, sending.pace());
    sender.steering = steered.steering();
    let done = sender.send();
    drop(fronts);
    let lost_link = links.end().times > 0;
    ctl::tell_lost(&arguments.sink, steered.steering());
    let sent = Sent {
        done,
        port,
        rows: Vec::new(),
        made: maker.made,
    };
    let (outcome, whole) = ended(arguments, vec![sent], &mut pace, lost_link);
    let is_done = outcome == Outcome::Done && !steered.has_failed();
    Ok((Outcome::of(is_done), whole))
}

/// Sends the packets by several workers.
fn shared(
    arguments: &GenerateArgs,
    limit: Limit,
    (wanted, sending): (&Wanted, &Sending),
    walls: &Walls,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Outcome> {
    let ports = workers::open(arguments)?;
    for port in &ports {
        port.check(LinkType::ETHERNET)
            .map_err(|fault| anyhow::anyhow!(port::fault_line(&fault)))?;
    }
    let links = SenderLinks::open(std::slice::from_ref(&arguments.sink));
    tell_begin(arguments, limit, sending);
    walls.raise(&[])?;
    let links = links.watch()?;
    let begin = || Pace::begin(&arguments.sink, stop, limit.time);
    let (all, mut pace) = workers::run(wanted, ports, sending.pace(), begin)?;
    let lost_link = links.end().times > 0;
    let mut rows = all[0].rows.clone();
    for sent in &all[1..] {
        for (sum, row) in rows.iter_mut().zip(&sent.rows) {
            (sum.1, sum.2) = (sum.1 + row.1, sum.2 + row.2);
        }
    }
    let (outcome, whole) = ended(arguments, all, &mut pace, lost_link);
    if whole && arguments.truth {
        let told = tell_rows(arguments, &rows, "expression");
        return Ok(Outcome::of(
            told == Outcome::Done && outcome == Outcome::Done,
        ));
    }
    Ok(outcome)
}

/// Opens the port.
fn open(arguments: &GenerateArgs, is_paced: bool) -> anyhow::Result<Port> {
    let GenerateArgs { sink, sending, .. } = arguments;
    let way = port::Injecting {
        to_stack: arguments.inject.to_stack,
        is_paced,
    };
    let port = port::open_or_inject(sink, &sending.yes_send, way)?;
    if port.drops_injected() {
        say_plain(&port::dropping_line(sink));
    }
    Ok(match arguments.digest {
        true => port.digesting(),
        false => port,
    })
}

/// Tells what was not sent, and the summary. A link that was lost, and packets that an interface dropped, are errors with `--strict`.
fn ended(
    arguments: &GenerateArgs,
    all: Vec<Sent>,
    pace: &mut Pace,
    lost_link: bool,
) -> (Outcome, bool) {
    let name = arguments.sink.text();
    let (mut faults, mut made, mut tally) = (Vec::new(), 0, Tally::default());
    let mut is_null = false;
    // All of them have the same interface.
    let dropped = Port::dropped_by_all(all.iter().map(|sent| &sent.port));
    let mut digest: Option<Digest> = None;
    for sent in all {
        let counts = sent.port.counts();
        let lost = sent.port.lost();
        faults.extend(lost.iter().map(|lost| port::lost_line(&name, lost)));
        faults.extend(sent.done.err().map(|fault| port::fault_line(&fault)));
        made += sent.made;
        tally.packets += counts.sent;
        tally.bytes += counts.bytes;
        tally.refused += counts.refused();
        if let Some(other) = sent.port.digest() {
            digest.get_or_insert_default().merge(other);
        }
        is_null = sent.port.is_null();
    }
    let not_sent = made.saturating_sub(tally.packets);
    if not_sent > 0 && (arguments.truth || arguments.talkers.is_some()) {
        let not_sent = packets(not_sent);
        faults.push(format!(
            "{name}: --truth and --talkers are left out: they would count {not_sent} not sent"
        ));
    }
    pace.clear();
    let is_held = pace.late().is_held();
    if !is_held {
        say(&not_held(&name, pace));
    }
    faults.iter().for_each(|line| say(line));
    if dropped > 0 {
        say(&port::dropped_line(&name, dropped));
    }
    let done = if is_null { "thrown away" } else { "sent" };
    let digest = digest.map_or_else(String::new, |digest| format!(", digest {digest}"));
    say_plain(&format!("{}{digest}", pace.summary(tally, done)));
    let is_whole = is_held && !lost_link && dropped == 0;
    let outcome = Outcome::of(faults.is_empty() && (is_whole || !arguments.strict));
    (outcome, not_sent == 0)
}

/// A line about a rate that was not held.
fn not_held(name: &str, pace: &Pace) -> String {
    let why = rate::why_not_held(pace.halted(), pace.late());
    let last = crate::numbers::latency(pace.late().last().as_nanos() as i64);
    format!("{name}: the rate was not held: {why}, the last {last}")
}

/// Prints the known answers about the packets.
fn tell(arguments: &GenerateArgs, maker: &Maker) -> Outcome {
    match arguments.talkers {
        Some(n) => tell_talkers(arguments, &maker.top(n)),
        None if arguments.truth => tell_rows(arguments, &maker.rows(), maker.rows_of()),
        None => Outcome::Done,
    }
}

/// Prints rows of packets and bytes: a table on a terminal, else with tabs.
fn tell_rows(
    arguments: &GenerateArgs,
    rows: &[(String, u64, u64)],
    rows_of: &'static str,
) -> Outcome {
    let columns = [
        Column::right("packets", rows.iter().map(|row| row.1.to_string())),
        Column::right("bytes", rows.iter().map(|row| row.2.to_string())),
        Column::left(rows_of, rows.iter().map(|row| row.0.clone())),
    ];
    let plain = || {
        let rows = rows.iter();
        rows.map(|(what, packets, bytes)| format!("{packets}\t{bytes}\t{what}\n"))
            .collect()
    };
    print_table(arguments, &columns, plain)
}

fn tell_talkers(arguments: &GenerateArgs, flows: &[FlowCount]) -> Outcome {
    print_table(arguments, &talkers(flows), || {
        flows.iter().map(talker).collect()
    })
}

fn print_table(
    arguments: &GenerateArgs,
    columns: &[Column],
    plain: impl FnOnce() -> String,
) -> Outcome {
    // If packets go to standard output, the answers go to standard error.
    let to_error = arguments.sink.is_dash();
    let width = if to_error {
        terminal::width(io::stderr())
    } else {
        terminal::width(io::stdout())
    };
    let text = match width {
        Some(_) => grid(columns, width),
        None => plain(),
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

/// Says before most of a large file is written how large it becomes.
fn tell_size(sink: &Name, all: u64, bytes: u64) {
    if bytes >= LARGE && !sink.is_dash() {
        say_plain(&format!(
            "{sink}: {}, some {}; --packets N makes fewer",
            packets(all),
            crate::numbers::bytes(bytes)
        ));
    }
}

/// Writes the packets until `stop` is set, and returns their number. Without a maker the file has no packets.
fn write(
    (mut maker, all): (Option<&mut Maker>, u64),
    sink: &Name,
    (format, reserve, longest): (Format, Reserve, usize),
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
    let interface = Interface::plain(LinkType::ETHERNET, longest as u32, resolution);
    let id = output.interface(&interface)?;
    let (mut packets, mut written) = (0, 0);
    while !stop.load(Ordering::Relaxed)
        && let Some((time_ns, data)) = maker.as_mut().and_then(|maker| maker.next())
    {
        output.packet(
            id,
            Some(time_ns),
            &Frame {
                data,
                wire_len: data.len() as u32,
                interface: 0,
            },
        )?;
        (packets, written) = (packets + 1, written + data.len() as u64);
        // Of a profile that ends by itself, nobody knows the size.
        if packets == TRIED && all < u64::MAX {
            tell_size(sink, all, (written / TRIED).saturating_mul(all));
        }
    }
    output.finish()
}
