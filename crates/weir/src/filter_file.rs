//! `--filter-file`: the expression stands in a file, which SIGHUP has read again.

use crate::outcome::{io_words, say};
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;
use weir_engine::control::{ChangeError, Control};
use weir_engine::name::Name;
use weir_io::sys;
pub use weir_io::sys::Hangups;
use weir_io::sys::privilege::Capability;
use weir_pipeline::select::shortened;

/// Rights that putting another program into the kernel takes.
pub const KEEPS: [Capability; 1] = [Capability::Bpf];

/// How long to wait for batches that were begun under the filter before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of the file at most. libpcap takes minutes for less.
const MOST: u64 = 4 << 20;

/// The expression in `file`: all of it but for comments, from # to the end of the line, as tcpdump -F reads it.
pub fn read(file: &Name) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|open| open.take(MOST + 1).read_to_end(&mut bytes));
    read.map_err(|error| anyhow!("--filter-file {file}: {}", io_words(&error)))?;
    if bytes.len() as u64 > MOST {
        return Err(anyhow!("--filter-file {file}: larger than {} MiB, which no expression is", MOST >> 20));
    }
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("--filter-file {file}: it is no text (UTF-8)"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" "))
}

/// SIGHUP does not end the process from now on, if there is a file to be read again.
pub fn hangups(file: Option<&Name>) -> anyhow::Result<Option<Hangups>> {
    file.map(|_| sys::hangups()).transpose().context("SIGHUP")
}

/// Starts the thread that reads the file again at each SIGHUP, and replaces the filter.
pub fn reload_on_hangup(hangups: Option<Hangups>, file: Option<&Name>, control: &Arc<Control>) -> anyhow::Result<()> {
    let (Some(hangups), Some(file)) = (hangups, file.cloned()) else { return Ok(()) };
    let control = Arc::clone(control);
    let thread = Builder::new().name("reload".to_owned()).spawn(move || {
        while hangups.wait().is_ok() {
            reload(&file, &control);
        }
    });
    thread.map(drop).context("a thread that waits for SIGHUP")
}

/// Reads the file again. What is wrong with it is said, and the filter stays as it is.
fn reload(file: &Name, control: &Control) {
    let expression = match read(file) {
        Ok(expression) => expression,
        Err(error) => return say(&format!("{error}; the filter stays as it is")),
    };
    match control.set_filter(&expression, PATIENCE) {
        Ok(change) => {
            let filter = match expression.as_str() {
                "" => "all packets match".to_owned(),
                expression => format!("the filter is '{}'", shortened(expression)),
            };
            say(&format!("{file}: from now on {filter} (change {change})"));
        }
        Err(error @ ChangeError::UnderWay { .. }) => say(&format!("{file}: {error}")),
        Err(error) => say(&format!("{file}: {error}; the filter stays as it is")),
    }
}
