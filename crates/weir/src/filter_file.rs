//! `--filter-file` and `--set`: the expression and its sets are read from files, and read again at SIGHUP.

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
use weir_io::sys::{self, Access};
use weir_messages::sets::{ReadSets, SetFile, read_sets_again};
use weir_pipeline::select::shortened;

/// Longest wait for batches that were begun under the previous filter.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest size of the file with its comments, in bytes. An expression of more than 32 KiB is refused.
const MOST: u64 = 256 << 10;

/// Expression in `file`: its text without comments, which go from # to the end of the line, as in tcpdump -F.
pub fn read(file: &Name) -> anyhow::Result<String> {
    let open = if file.is_dash() {
        File::open("/dev/stdin")
    } else {
        File::open(file)
    };
    expression(file, open)
}

/// Expression in the file that has the name now. Only a regular file is read again: a pipe is used up, and a new one may
/// never get a writer.
fn read_again(file: &Name) -> anyhow::Result<String> {
    let is_dash = file
        .is_dash()
        .then(|| io::Error::other("standard input is read once"));
    let open = is_dash.map_or_else(
        || {
            File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(file)
        },
        Err,
    );
    let regular = |open: File| match open.metadata()?.is_file() {
        true => Ok(open),
        false => Err(io::Error::other(
            "it is not a regular file, which alone is read again",
        )),
    };
    expression(file, open.and_then(regular))
}

fn expression(file: &Name, open: io::Result<File>) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = open.and_then(|open| open.take(MOST + 1).read_to_end(&mut bytes));
    read.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow!(
                "--filter-file {file}: {}{}",
                io_words(&error),
                walls::advice(Path::new(file), Access::Read)
            )
        }
        _ => anyhow!("--filter-file {file}: {}", io_words(&error)),
    })?;
    if bytes.len() as u64 > MOST {
        return Err(anyhow!(
            "--filter-file {file}: larger than {} KiB",
            MOST >> 10
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| anyhow!("--filter-file {file}: it is not text (UTF-8)"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" "))
}

/// Files of a filter and of its sets, which are read again at each SIGHUP instead of its end of the process.
pub struct Reload {
    hangups: Hangups,
    /// File of the expression, if it has one.
    file: Option<Name>,
    expression: String,
    sets: Vec<SetFile>,
}

impl Reload {
    /// Expects SIGHUP for a filter that is from a file or names sets; `None` for others.
    pub fn new(
        file: Option<&Name>,
        expression: &str,
        sets: &[SetFile],
    ) -> anyhow::Result<Option<Self>> {
        if file.is_none() && sets.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            hangups: sys::hangups().context("SIGHUP")?,
            file: file.cloned(),
            expression: expression.to_owned(),
            sets: sets.to_vec(),
        }))
    }

    /// Starts the thread that reads the files again at each SIGHUP, and replaces the filter and its sets. It `tells` that it did, unless the
    /// events of the run do.
    pub fn start(self, control: &Arc<Control>, tells: bool) -> anyhow::Result<()> {
        let control = Arc::clone(control);
        let work = move || {
            while self.hangups.wait().is_ok() {
                reload(&self, &control, tells);
            }
        };
        let thread = Builder::new().name("reload".to_owned()).spawn(work);
        thread.map(drop).context("a thread that waits for SIGHUP")
    }
}

/// Reads the files again. If that fails, prints why and keeps the filter and the sets.
fn reload(filter: &Reload, control: &Control, tells: bool) {
    let expression = match &filter.file {
        Some(file) => read_again(file),
        None => Ok(filter.expression.clone()),
    };
    let read = expression.and_then(|expression| Ok((expression, read_sets_again(&filter.sets)?)));
    let (
        expression,
        ReadSets {
            sets: read,
            remarks,
        },
    ) = match read {
        Ok(read) => read,
        Err(error) => return say(&format!("{error}; the filter stays as it is")),
    };
    remarks.iter().for_each(|line| say(line));
    let files: Vec<_> = filter
        .file
        .iter()
        .chain(filter.sets.iter().map(|set| &set.file))
        .map(Name::to_string)
        .collect();
    let files = files.join(", ");
    match control.set_filter_and_sets(&expression, read, PATIENCE) {
        Ok(_) if !tells => {}
        Ok(change) => {
            let filter = match expression.as_str() {
                "" => "all packets match".to_owned(),
                expression => format!("the filter is '{}'", shortened(expression)),
            };
            say(&format!("{files}: from now on {filter} (change {change})"));
        }
        Err(error @ ChangeError::UnderWay { .. }) => say(&format!("{files}: {error}")),
        Err(error) => say(&format!("{files}: {error}; the filter stays as it is")),
    }
}
