//! `weir generate`: a capture file whose answers are known.

use crate::cli::GenerateArgs;
use crate::emit::{create_words, format_for, refuse_terminal};
use crate::outcome::{Outcome, io_words, is_closed_pipe, say};
use anyhow::Context;
use std::io::{self, Write};
use std::path::PathBuf;
use weir_generator::{FRAME_MAX, Generator, Profile};
use weir_io::output::{Output, OutputError, Rotation};
use weir_packet::savefile::{Format, Interface, Resolution};
use weir_packet::{Frame, LinkType};

/// Runs the command.
pub fn run(arguments: &GenerateArgs) -> anyhow::Result<Outcome> {
    let profile = Profile {
        seed: arguments.seed,
        packets: arguments.packets,
        sizes: arguments.sizes,
        flows: arguments.flows,
        zipf: arguments.zipf,
        rate_pps: arguments.rate,
        ..Profile::default()
    };
    let mut generator = Generator::new(&profile).context("the profile")?;
    let format = format_for(&arguments.sink)?;
    if arguments.sink == "-" {
        refuse_terminal()?;
    }
    match write(&mut generator, &arguments.sink, format) {
        Ok(()) => {}
        Err(error) if is_closed_pipe(&error) => return Ok(Outcome::Done),
        Err(OutputError::Io { error, packets }) => {
            say(&format!("{}: {}; {packets} packets were written", arguments.sink, io_words(&error)));
            return Ok(Outcome::Failed);
        }
        Err(OutputError::Create { path, error }) => {
            say(&format!("{}: {}", path.display(), create_words(&error)));
            return Ok(Outcome::Failed);
        }
        Err(error) => {
            say(&error.to_string());
            return Ok(Outcome::Failed);
        }
    }
    if arguments.truth {
        let rows = generator.truth().rows();
        let text: String =
            rows.map(|(expression, packets, bytes)| format!("{packets}\t{bytes}\t{expression}\n")).collect();
        // With the packets on standard output, the truth goes where a summary goes.
        let written = match arguments.sink.as_str() {
            "-" => io::stderr().write_all(text.as_bytes()),
            _ => io::stdout().write_all(text.as_bytes()),
        };
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            say(&format!("standard output: {}", io_words(&error)));
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Done)
}

fn write(generator: &mut Generator, sink: &str, format: Format) -> Result<(), OutputError> {
    let mut output = if sink == "-" {
        Output::stdout(format, 0, false)?
    } else {
        let path = PathBuf::from(sink);
        Output::files(Box::new(move |_, _| path.clone()), format, 0, false, Rotation::default())?
    };
    let resolution = if format == Format::Pcap { Resolution::MICROSECOND } else { Resolution::NANOSECOND };
    let interface = Interface::plain(LinkType::ETHERNET, FRAME_MAX as u32, resolution);
    let id = output.interface(&interface)?;
    let mut buffer = [0u8; FRAME_MAX];
    while let Some(made) = generator.next(&mut buffer) {
        let data = &buffer[..made.len];
        output.packet(id, Some(made.time_ns), &Frame { data, wire_len: made.len as u32, interface: 0 })?;
    }
    output.finish()?;
    Ok(())
}
