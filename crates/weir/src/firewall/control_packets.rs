//! Control packets: the keys and the port of a firewall that obeys them, and the command that sends one.

use crate::cli::firewall::{CtlArgs, FirewallArgs};
use crate::numbers::counted;
use crate::outcome::{Outcome, answer, io_words, say};
use crate::terminal;
use anyhow::{Context, anyhow, bail};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_engine::firewall::control_port::{ControlPort, StateFault};
use weir_engine::name::Name;
use weir_firewall::control::{Keys, seal};

/// Largest size of a key file, bytes.
const MOST: u64 = 1 << 20;

/// Reads a key file, which only its user may read.
pub fn keys(name: &Name) -> anyhow::Result<Keys> {
    let read = || {
        let file = File::open(name)?;
        let about = file.metadata()?;
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text)?;
        Ok((about, text))
    };
    let (about, text) =
        read().map_err(|error: std::io::Error| anyhow!("{name}: {}", io_words(&error)))?;
    if about.mode() & 0o077 != 0 {
        bail!(
            "{name}: others may use the keys (mode {:03o}): chmod 600 {name}",
            about.mode() & 0o777
        );
    }
    Keys::parse(&text).map_err(|error| anyhow!("{name}: {error}"))
}

/// Makes the control port, if there is one, and a line about it. Between interfaces sequence
/// numbers are `kept` in any case, in addition to the keys if no other place is given.
pub fn port(
    arguments: &FirewallArgs,
    kept: bool,
) -> anyhow::Result<Option<(Arc<ControlPort>, String)>> {
    let (Some(port), Some(file)) = (arguments.control_port, &arguments.control_key) else {
        return Ok(None);
    };
    let keys = keys(file)?;
    let mut about = format!(
        "control packets: to UDP port {port}, by {}",
        counted(keys.iter().len() as u64, "key")
    );
    let beside = || PathBuf::from(format!("{}.state", file.utf8()));
    let state = match &arguments.control_state {
        Some(state) => Some(Path::new(state).to_owned()),
        None => kept.then(beside),
    };
    let Some(state) = state else {
        return Ok(Some((ControlPort::new(port, keys), about)));
    };
    let made = ControlPort::keeping(port, keys, &state).map_err(|error| match error {
        StateFault::Io(error) => anyhow!(
            "{}: {}: --control-state PATH places it",
            state.display(),
            io_words(&error)
        ),
        StateFault::Unsafe(error) => anyhow!("{error}: --control-state PATH places it"),
        error => anyhow!("{}: {error}", state.display()),
    })?;
    about.push_str(&format!(", sequence numbers in {}", state.display()));
    Ok(Some((made, about)))
}

/// Sends a request as one datagram, and waits for nothing.
pub fn send(
    arguments: &CtlArgs,
    to: &str,
    lines: &[String],
    time: Option<Duration>,
) -> anyhow::Result<Outcome> {
    let Ok(to) = to.parse::<SocketAddr>() else {
        bail!(
            "--udp {to}: no address with a port, as 192.0.2.1:6633 or [2001:db8::1]:6633; names are not looked up"
        );
    };
    let Some(file) = &arguments.key else {
        bail!("--udp takes the key: --key FILE")
    };
    let keys = keys(file)?;
    let key = match arguments.id {
        Some(id) => {
            keys.find(id)
                .with_context(|| format!("{file}: there is no key {id}"))?
                .1
        }
        None if keys.iter().len() == 1 => keys.iter().next().expect("there is one"),
        None => bail!(
            "{file} has {} keys: --id NUMBER names one",
            keys.iter().len()
        ),
    };
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .context("the clock is before 1970")?;
    // The time rises too, and needs no file.
    let now = now.as_nanos() as u64;
    let bytes = seal(key, now, now, time, &lines.join("\n"))?;
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    if let Err(error) = UdpSocket::bind(any).and_then(|socket| socket.send_to(&bytes, to)) {
        say(&format!("{to}: {}", io_words(&error)));
        return Ok(Outcome::Failed);
    }
    if arguments.json {
        return Ok(answer(&format!(
            "{}\n",
            terminal::json("sent", &json!({ "sent": bytes.len(), "sequence": now }))
        )));
    }
    say(&format!(
        "{} bytes sent to {to}; nothing acknowledges them",
        bytes.len()
    ));
    Ok(Outcome::Done)
}
