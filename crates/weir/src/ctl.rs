//! `--control` of a run, and `weir ctl`: requests to it.

use crate::cli::SketchArg;
use crate::cli::ctl::{CtlArgs, CtlCommand, Setting};
use crate::firewall::{self, control_socket};
use crate::numbers::grouped;
use crate::outcome::{Outcome, answer, say, say_plain};
use crate::outputs::Maker;
use crate::port;
use crate::terminal;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use weir_engine::control::Control;
use weir_engine::control::remote::{MakeRules, MakeSink, Remote};
use weir_engine::name::Name;
use weir_engine::provenance::Chosen;
use weir_engine::socket::{self, Bound, Client, Error, LONGEST_REQUEST, Server};

/// Runs the command.
pub fn run(arguments: &CtlArgs) -> anyhow::Result<Outcome> {
    let path = Path::new(&arguments.control);
    let refused = |error: Error| match error {
        Error::NotListening { .. } => anyhow!("{}: no run of weir listens there", path.display()),
        error => error.into(),
    };
    let request = match &arguments.command {
        CtlCommand::Set { setting } => request(setting)?,
        CtlCommand::Rotate { split } => {
            let mut request = json!({ "request": "rotate" });
            if let Some(split) = split {
                request["of"] = split.text().into();
            }
            request
        }
    };
    let asked = Client::connect(path).and_then(|mut client| client.ask(&request));
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

fn request(setting: &Setting) -> anyhow::Result<Value> {
    let set = |what: &str, value: Value| json!({ "request": "set", "what": what, "value": value });
    Ok(match setting {
        Setting::Filter { expression } => set("filter", expression.as_str().into()),
        Setting::Key { keys } => {
            let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
            set("key", names.into())
        }
        Setting::Sketch { sketch } => set("sketch", sketch_name(*sketch).into()),
        Setting::Memory { bytes } => set("memory", (*bytes).into()),
        Setting::Rules { file } => rules_request(file)?,
        Setting::Output { file, split } => {
            let mut request = set("output", absolute(file).into());
            if let Some(split) = split {
                request["of"] = split.text().into();
            }
            request
        }
    })
}

/// Request for the rules of a file. They travel with the addresses of their sets: the run may not read the files.
fn rules_request(file: &Name) -> anyhow::Result<Value> {
    let (text, name) = (firewall::rules_for_request(file)?, file.as_source());
    let request = json!({ "request": "set", "what": "rules", "value": text, "name": name });
    let bytes = request.to_string().len();
    if bytes > LONGEST_REQUEST {
        bail!(
            "{name}: the rules and the addresses of their sets are {} bytes, and a request takes {}: start the run with \
             them; a firewall reads its own file again (weir firewall ctl reload)",
            grouped(bytes as u64),
            grouped(LONGEST_REQUEST as u64)
        );
    }
    Ok(request)
}

fn sketch_name(sketch: SketchArg) -> &'static str {
    match sketch {
        SketchArg::Heavy => "heavy",
        SketchArg::Exact => "exact",
        SketchArg::Cms => "cms",
        SketchArg::CmsConservative => "cms-conservative",
        SketchArg::Sht => "sht",
        SketchArg::Mv => "mv",
        SketchArg::Rs => "rs",
        SketchArg::RsSet => "rs-set",
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

/// Takes requests to a run at its socket, if there is one. `sinks` makes other outputs of a run that has these splits, and `rules` reads
/// other rules.
pub fn serve(
    bound: Option<Bound>,
    control: &Arc<Control>,
    (splits, sinks): (Vec<String>, Option<Maker>),
    rules: Option<MakeRules>,
) -> anyhow::Result<Option<Server>> {
    let Some(bound) = bound else { return Ok(None) };
    let sinks = sinks.map(|maker| -> MakeSink {
        Box::new(move |slot, name| maker.other(slot, name).map_err(|error| error.to_string()))
    });
    let remote = Remote {
        control: Arc::clone(control),
        splits,
        sinks,
        rules,
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
