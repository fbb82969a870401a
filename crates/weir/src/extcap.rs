//! `weir extcap`: interfaces and records of weir in Wireshark's list of interfaces.
//!
//! Wireshark runs the programs in its directories of capture programs, asks them for interfaces, and lets them write to a pipe.
//! **Source**: Wireshark's extcap(4).

use crate::cli::extcap::ExtcapArgs;
use crate::outcome::{self, Outcome, io_words};
use anyhow::{anyhow, bail};
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_engine::name::Name;
use weir_io::network::Network;

/// Variable with Wireshark's directory of capture programs.
const DIRECTORY: &str = "WIRESHARK_EXTCAP_DIR";

/// Prefix of the names of captured interfaces.
const LIVE: &str = "weir:";

/// Name of the interface that stands for records.
const RECORD: &str = "weir-record";

/// Answers a question of Wireshark, or captures.
pub fn run(arguments: &ExtcapArgs) -> anyhow::Result<Outcome> {
    if arguments.install {
        return install();
    }
    if arguments.extcap_interfaces {
        return Ok(outcome::answer(&interfaces()?));
    }
    let Some(name) = &arguments.extcap_interface else {
        bail!(
            "name what to do: weir extcap --install, or a question of Wireshark, as --extcap-interfaces"
        );
    };
    let source = match name.strip_prefix(LIVE) {
        Some(interface) => Some(interface),
        None if name == RECORD => None,
        None => bail!("{name}: no interface of weir extcap: --extcap-interfaces lists them"),
    };
    if arguments.extcap_dlts {
        return Ok(outcome::answer(
            "dlt {number=1}{name=EN10MB}{display=Ethernet}\n",
        ));
    }
    if arguments.extcap_config {
        return Ok(outcome::answer(match source {
            Some(_) => "",
            None => SETTINGS,
        }));
    }
    let Some(fifo) = arguments.fifo.as_ref().filter(|_| arguments.capture) else {
        bail!("{name}: --extcap-dlts, --extcap-config, or --capture with --fifo PIPE");
    };
    capture(source, arguments, fifo)
}

/// Settings of the interface that stands for records.
const SETTINGS: &str = "\
arg {number=0}{call=--directory}{display=Directory of the record}{type=string}{required=true}{tooltip=As weir record made it}
arg {number=1}{call=--last}{display=Last}{type=string}{tooltip=Such as 5m: this time before the last packet. Empty: all}
arg {number=2}{call=--follow}{display=Follow}{type=boolean}{default=false}{tooltip=Go on with the packets of a running weir record}
";

/// The list of interfaces.
fn interfaces() -> anyhow::Result<String> {
    let network = Network::read().map_err(|error| anyhow!("{}", io_words(&error)))?;
    let mut text = format!(
        "extcap {{version={}}}{{display=weir}}\n",
        env!("CARGO_PKG_VERSION")
    );
    // Wireshark cuts at braces, and names may have them.
    let is_plain = |name: &&str| !name.contains(['{', '}', '=']);
    let names = network.interfaces.iter().map(|interface| &*interface.name);
    for name in names.filter(is_plain).chain(["any"]) {
        let _ = writeln!(
            text,
            "interface {{value={LIVE}{name}}}{{display=weir on {name}}}"
        );
    }
    let _ = writeln!(
        text,
        "interface {{value={RECORD}}}{{display=record of weir}}"
    );
    Ok(text)
}

/// Becomes the command that writes packets to the pipe.
fn capture(
    interface: Option<&str>,
    arguments: &ExtcapArgs,
    fifo: &Path,
) -> anyhow::Result<Outcome> {
    let filter = arguments.extcap_capture_filter.clone().unwrap_or_default();
    let mut words: Vec<OsString> = match (interface, &arguments.directory) {
        (Some(interface), _) => {
            let source = format!("af_packet:{interface}");
            vec!["filter".into(), filter.into(), source.into(), "-U".into()]
        }
        (None, Some(directory)) => vec!["query".into(), directory.into(), filter.into()],
        (None, None) => bail!("{RECORD}: name the directory of the record: --directory DIR"),
    };
    if interface.is_none() {
        let last = arguments.last.as_ref().filter(|last| !last.is_empty());
        words.extend(
            last.into_iter()
                .flat_map(|last| ["--last".into(), last.into()]),
        );
        words.extend(arguments.follow.then(|| "--follow".into()));
    }
    words.extend(["-w".into(), "-".into()]);
    let failed = |error: io::Error| {
        let name = Name::from(fifo.as_os_str().to_owned());
        anyhow!("{name}: {}", io_words(&error))
    };
    let pipe = File::options().write(true).open(fifo).map_err(failed)?;
    let weir = std::env::current_exe().map_err(|error| anyhow!("{}", io_words(&error)))?;
    let error = Command::new(weir)
        .args(words)
        .stdout(Stdio::from(pipe))
        .exec();
    bail!("weir: {}", io_words(&error));
}

/// Puts a program that runs `weir extcap` into Wireshark's personal directory.
fn install() -> anyhow::Result<Outcome> {
    let set = |name| std::env::var_os(name).filter(|path| !path.is_empty());
    let home = || Some(Path::new(&set("HOME")?).join(".local/lib/wireshark/extcap"));
    let Some(directory) = set(DIRECTORY).map(PathBuf::from).or_else(home) else {
        bail!("no HOME in the environment, below which Wireshark has its directory");
    };
    let path = directory.join("weir");
    let weir = std::env::current_exe().map_err(|error| anyhow!("{}", io_words(&error)))?;
    // The shell takes everything between single quotes as it is, but for these.
    let quoted = weir.to_string_lossy().replace('\'', "'\\''");
    let made = std::fs::create_dir_all(&directory).and_then(|()| {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o755);
        let mut file = options.open(&path)?;
        io::Write::write_all(
            &mut file,
            format!("#!/bin/sh\nexec '{quoted}' extcap \"$@\"\n").as_bytes(),
        )
    });
    let name = Name::from(path.into_os_string());
    made.map_err(|error| anyhow!("{name}: {}", io_words(&error)))?;
    Ok(outcome::answer(&format!("{name}\n")))
}
