//! `--filter-file`: the expression is read from a file, and read again at SIGHUP.

use crate::outcome::{io_words, say};
use crate::walls;
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;
use weir_engine::control::{ChangeError, Control};
use weir_engine::name::Name;
pub use weir_io::sys::Hangups;
use weir_io::sys::privilege::Capability;
use weir_io::sys::{self, Access};
use weir_pipeline::select::shortened;

/// Capability to load a changed filter into the kernel.
pub const KEEPS: [Capability; 1] = [Capability::Bpf];

/// Longest wait for batches that were begun under the previous filter.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest size of the file with its comments, in bytes. An expression of more than 32 KiB is refused.
const MOST: u64 = 256 << 10;

/// Expression in `file`: its text without comments, which go from # to the end of the line, as in tcpdump -F.
pub fn read(file: &Name) -> anyhow::Result<String> {
    let open = if file.is_dash() { File::open("/dev/stdin") } else { File::open(file) };
    expression(file, open)
}

/// Expression in the file that has the name now. Only a regular file is read again: a pipe is used up, and a new one may
/// never get a writer.
fn read_again(file: &Name) -> anyhow::Result<String> {
    let is_dash = file.is_dash().then(|| io::Error::other("standard input is read once"));
    let open = is_dash.map_or_else(|| File::options().read(true).custom_flags(libc::O_NONBLOCK).open(file), Err);
    let regular = |open: File| match open.metadata()?.is_file() {
        true => Ok(open),
        false => Err(io::Error::other("it is no regular file, which alone is read again")),
    };
    expression(file, open.and_then(regular))
}

fn expression(file: &Name, open: io::Result<File>) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = open.and_then(|open| open.take(MOST + 1).read_to_end(&mut bytes));
    read.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow!("--filter-file {file}: {}{}", io_words(&error), walls::advice(Path::new(file), Access::Read))
        }
        _ => anyhow!("--filter-file {file}: {}", io_words(&error)),
    })?;
    if bytes.len() as u64 > MOST {
        return Err(anyhow!("--filter-file {file}: larger than {} KiB", MOST >> 10));
    }
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("--filter-file {file}: it is no text (UTF-8)"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" "))
}

/// Makes SIGHUP request a new reading of `file` instead of ending the process. Does nothing without a file.
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

/// Reads the file again. If that fails, prints why and keeps the filter.
fn reload(file: &Name, control: &Control) {
    let expression = match read_again(file) {
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
