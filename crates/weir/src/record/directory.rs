//! Work of `weir record` on a directory, without sources: questions to its recorder, and new indexes.

use super::report::Report;
use crate::cli::record::RecordArgs;
use crate::numbers::{bytes, counted};
use crate::outcome::{Outcome, answer, directory_words, io_words, say, say_plain};
use crate::terminal;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use std::path::Path;
use weir_engine::name::Name;
use weir_engine::record::{NewDirectory, SOCKET};
use weir_engine::session::Session;
use weir_engine::socket::{self, Client};
use weir_pipeline::steps::SystemClock;
use weir_store::disk::{self, Now};

/// Does the work that the arguments ask for without a source; `None` if they ask for a recording.
pub(super) fn run(arguments: &RecordArgs) -> anyhow::Result<Option<Outcome>> {
    let asks = [
        arguments.status,
        arguments.fire.is_some(),
        arguments.reindex,
    ];
    if asks == [false; 3] {
        return Ok(None);
    }
    let [directory] = &arguments.names[..] else {
        bail!("--status, --fire and --reindex are about one directory: name it, and no source");
    };
    let request = match &arguments.fire {
        Some(name) if name == "all" => json!({ "request": "trigger" }),
        Some(name) => json!({ "request": "trigger", "name": name }),
        None if arguments.status => json!({ "request": "status" }),
        None => return reindex(arguments, directory).map(Some),
    };
    if let Some(name) = &arguments.fire {
        return fire(directory, name, &request).map(Some);
    }
    let value = ask(directory, &request)?;
    Ok(Some(if arguments.status {
        answer(&format!("{}\n", terminal::json("status", &value)))
    } else {
        Outcome::Done
    }))
}

/// Has the recorder of a directory fire, and tells which triggers did not.
fn fire(directory: &Name, name: &str, request: &Value) -> anyhow::Result<Outcome> {
    match connect(directory)?.ask(request) {
        Ok(done) => {
            for (name, why) in done["refused"].as_object().into_iter().flatten() {
                say(&format!(
                    "{directory}: trigger {name} does not fire: {}",
                    why.as_str().unwrap_or_default()
                ));
            }
            let left = done["refused"].as_object().map_or(0, serde_json::Map::len);
            if left == 0 {
                say_plain(&format!(
                    "{directory}: fired {name}; the recorder names the files"
                ));
            }
            Ok(Outcome::Done)
        }
        Err(socket::Error::Refused(why)) => {
            let status = ask(directory, &json!({ "request": "status" }))?;
            let mut triggers = status["triggers"].as_array().into_iter().flatten();
            if name != "all" && triggers.all(|trigger| trigger["name"] != name) {
                bail!("{directory}: {why}");
            }
            say(&format!("{directory}: {why}"));
            Ok(Outcome::Failed)
        }
        Err(error) => Err(error.into()),
    }
}

fn connect(directory: &Name) -> anyhow::Result<Client> {
    Client::connect(Path::new(directory).join(SOCKET)).map_err(|error| match error {
        socket::Error::NotListening { .. } => {
            anyhow!("{directory}: no recorder runs on this directory: sudo weir record eth0 {directory} starts one")
        }
        error => error.into(),
    })
}

/// Asks the recorder of a directory.
fn ask(directory: &Name, request: &Value) -> anyhow::Result<Value> {
    connect(directory)?
        .ask(request)
        .map_err(|error| match error {
            socket::Error::Refused(why) => anyhow!("{directory}: {why}"),
            error => error.into(),
        })
}

/// Makes the indexes of a directory again.
fn reindex(arguments: &RecordArgs, directory: &Name) -> anyhow::Result<Outcome> {
    let path = Path::new(directory);
    if path.is_dir() {
        NewDirectory::make(path, arguments.mode)
            .map_err(|error| anyhow!("{directory}: {}", io_words(&error)))?;
    }
    Walls::of_record(arguments, &Session::default(), directory)?.raise(&[])?;
    let wall_ns = SystemClock::default().now().wall_ns;
    let settings = disk::Settings {
        file_mode: arguments.mode,
        ..disk::Settings::default()
    };
    let opened = match disk::reindex(
        Path::new(directory),
        settings,
        Now {
            steady_ns: 0,
            wall_ns,
        },
    ) {
        Ok(opened) => opened,
        Err(error @ disk::Error::Locked { .. }) => bail!(error),
        Err(disk::Error::File {
            path,
            source,
            offset: None,
            ..
        }) if path == Path::new(directory) => {
            say(&format!("{directory}: {}", directory_words(&source)));
            return Ok(Outcome::Failed);
        }
        Err(error) => {
            say(&error.to_string());
            return Ok(Outcome::Failed);
        }
    };
    Report::new(false, false).opened(&opened);
    let segments = opened
        .recovered
        .iter()
        .filter(|found| found.kept_bytes > 0)
        .count();
    let packets: u64 = opened
        .recovered
        .iter()
        .map(|found| found.kept_packets)
        .sum();
    say_plain(&format!(
        "{directory}: indexes of {} made anew, {}, {}",
        counted(segments as u64, "segment"),
        counted(packets, "packet"),
        bytes(opened.bytes)
    ));
    Ok(if opened.strange.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}
