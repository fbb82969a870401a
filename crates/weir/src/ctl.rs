//! `--control` of a run, and `weir ctl`: requests to it.

use crate::cli::SketchArg;
use crate::cli::ctl::{CtlArgs, CtlCommand, Setting};
use crate::firewall::control_socket;
use crate::outcome::{Outcome, answer, say, say_plain};
use crate::outputs::Maker;
use crate::port;
use crate::terminal;
use crate::walls::Walls;
use anyhow::anyhow;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use weir_engine::control::Control;
use weir_engine::control::remote::{MakeSink, Remote};
use weir_engine::name::Name;
use weir_engine::provenance::Chosen;
use weir_engine::socket::{self, Bound, Client, Error, Server};

/// Runs the command.
pub fn run(arguments: &CtlArgs) -> anyhow::Result<Outcome> {
    let CtlCommand::Set { setting } = &arguments.command;
    let path = Path::new(&arguments.control);
    let refused = |error: Error| match error {
        Error::NotListening { .. } => anyhow!("{}: no run of weir listens there", path.display()),
        error => error.into(),
    };
    let asked = Client::connect(path).and_then(|mut client| client.ask(&request(setting)));
    match asked {
        Ok(value) if arguments.json => {
            Ok(answer(&format!("{}\n", terminal::json("change", &value))))
        }
        Ok(value) => Ok(answer(&format!("in force: change {}\n", value["change"]))),
        Err(Error::Refused(why)) => {
            say(&why);
            Ok(Outcome::Failed)
        }
        Err(error) => Err(refused(error)),
    }
}

fn request(setting: &Setting) -> Value {
    let set = |what: &str, value: Value| json!({ "request": "set", "what": what, "value": value });
    match setting {
        Setting::Filter { expression } => set("filter", expression.as_str().into()),
        Setting::Key { keys } => {
            let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
            set("key", names.into())
        }
        Setting::Sketch { sketch } => set("sketch", sketch_name(*sketch).into()),
        Setting::Memory { bytes } => set("memory", (*bytes).into()),
        Setting::Output { file, split } => {
            let mut request = set("output", absolute(file).into());
            if let Some(split) = split {
                request["of"] = split.text().into();
            }
            request
        }
    }
}

fn sketch_name(sketch: SketchArg) -> &'static str {
    match sketch {
        SketchArg::Heavy => "heavy",
        SketchArg::Exact => "exact",
        SketchArg::Cms => "cms",
        SketchArg::CmsConservative => "cms-conservative",
    }
}

/// Name of a file for a process that may have another working directory.
fn absolute(file: &Name) -> String {
    let is_file = !file.is_dash() && !port::is_port(file);
    let path = is_file.then(|| std::path::absolute(Path::new(file)).ok());
    path.flatten()
        .map_or_else(|| file.text(), |path| path.to_string_lossy().into_owned())
}

/// Makes the control socket of a run, if there is to be one.
pub fn bind(path: Option<&Name>, walls: &Walls) -> anyhow::Result<Option<Bound>> {
    path.map(|path| control_socket::bind(Path::new(path), "run of weir", walls))
        .transpose()
}

/// Takes requests to a run at its socket, if there is one. `sinks` makes other outputs of a run that has these splits.
pub fn serve(
    bound: Option<Bound>,
    control: &Arc<Control>,
    (splits, sinks): (Vec<String>, Option<Maker>),
) -> anyhow::Result<Option<Server>> {
    let Some(bound) = bound else { return Ok(None) };
    let sinks = sinks.map(|maker| -> MakeSink {
        Box::new(move |slot, name| maker.other(slot, name).map_err(|error| error.to_string()))
    });
    let remote = Remote {
        control: Arc::clone(control),
        splits,
        sinks,
    };
    let line = format!("control socket: {}", bound.path().display());
    let server = bound.serve(socket::Settings::default(), move |request| {
        remote.answer(&request)
    })?;
    say_plain(&line);
    Ok(Some(server))
}

/// Choice of the packets of a run whose filter requests may replace.
pub fn chosen() -> Chosen {
    Chosen::default().only(
        "packets that match the expression of their run, which requests may replace".to_owned(),
    )
}
