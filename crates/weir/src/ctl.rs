//! `--control` of a run, and `weir ctl`: requests to it.

use crate::cli::ctl::{CtlArgs, CtlCommand, Setting};
use crate::cli::{self, SketchArg};
use crate::firewall::{self, control_socket};
use crate::numbers::{grouped, latency};
use crate::outcome::{Outcome, answer, say, say_plain, stop_on_signals};
use crate::outputs::Maker;
use crate::port;
use crate::script::{Running, Script};
use crate::terminal;
use crate::walls::Walls;
use crate::watch::sending;
use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_engine::control::Control;
use weir_engine::control::remote::{MakeRules, MakeSink, Remote};
use weir_engine::name::Name;
use weir_engine::provenance::Chosen;
use weir_engine::replay::Rate;
use weir_engine::socket::{self, Bound, Client, Error, LONGEST_REQUEST, Server};
use weir_engine::steering::{self, Steering};

/// Runs the command.
pub fn run(arguments: &CtlArgs) -> anyhow::Result<Outcome> {
    let path = Path::new(&arguments.control);
    let refused = |error: Error| match error {
        Error::NotListening { .. } => {
            Err(anyhow!("{}: no run of weir listens there", path.display()))
        }
        Error::Refused(why) => {
            say(&why);
            Ok(Outcome::Failed)
        }
        error => Err(error.into()),
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
        CtlCommand::Stop { port } => of_port(json!({ "request": "stop" }), port.as_ref()),
        CtlCommand::Start { port } => of_port(json!({ "request": "start" }), port.as_ref()),
        CtlCommand::Status => json!({ "request": "status" }),
        CtlCommand::Hold => return hold(path).or_else(refused),
    };
    let asked = Client::connect(path).and_then(|mut client| client.ask(&request));
    match asked {
        Ok(value) if arguments.json => {
            let kind = match arguments.command {
                CtlCommand::Status => "sender",
                _ => "change",
            };
            Ok(answer(&format!("{}\n", terminal::json(kind, &value))))
        }
        Ok(value) if matches!(arguments.command, CtlCommand::Status) => {
            Ok(answer(&status_lines(&value)))
        }
        Ok(value) => Ok(answer(&format!("in force: change {}\n", value["change"]))),
        Err(error) => refused(error),
    }
}

/// Waits for the end of a sender, which ends with this connection.
fn hold(path: &Path) -> Result<Outcome, Error> {
    let (_, mut frames) = Client::connect(path)?.stream(&json!({ "request": "hold" }))?;
    say_plain("the sender ends when this command ends");
    let stop = stop_on_signals();
    let mut rest = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        match frames.read(&mut rest) {
            Ok(0) => break,
            // The wait for bytes is interrupted from time to time.
            Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    Ok(Outcome::Done)
}

/// A request about one of several ports, if one is named.
fn of_port(mut request: Value, port: Option<&Name>) -> Value {
    if let Some(port) = port {
        request["port"] = port.text().into();
    }
    request
}

/// Progress of a sender in a line, and a line for each of several ports.
fn status_lines(value: &Value) -> String {
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap_or_default();
    // No port sends while the whole sender is stopped.
    let state = |of: &Value| match [of, value].map(|it| it["stopped"] == true) {
        [false, false] => "sending",
        _ => "stopped",
    };
    let counts = |value: &Value| {
        let [sent, bytes, refused] =
            ["sent", "bytes", "refused"].map(|name| grouped(number(value, name)));
        format!(
            "{sent} sent, {bytes} bytes, {refused} refused, {}",
            state(value)
        )
    };
    let rate = value["rate"].as_str().unwrap_or("times of its own");
    let mut text = format!("{}, rate {}\n", counts(value), terminal::printable(rate));
    for port in value["ports"].as_array().into_iter().flatten() {
        text += &format!(
            "  {}: {}, {} left out, the last {} late\n",
            terminal::printable(port["name"].as_str().unwrap_or_default()),
            counts(port),
            grouped(number(port, "left_out")),
            latency(i64::try_from(number(port, "late_ns")).unwrap_or(i64::MAX)),
        );
    }
    text
}

/// Reads the rate of a request to a sender whose link has this speed, bit/s. **Errors**: the reason of a refusal.
pub fn read_rate(text: &str, link: Option<f64>, is_replay: bool) -> Result<Rate, String> {
    Ok(match cli::rate(text)? {
        cli::Rate::Max => Rate::Max,
        cli::Rate::Packets(per_s) => Rate::Packets(per_s),
        cli::Rate::Bits(per_s) => Rate::Bits(per_s),
        cli::Rate::Share(share) => {
            let link =
                link.ok_or("the port does not tell the speed of its link: name a rate in bit/s")?;
            Rate::Bits(share * link)
        }
        cli::Rate::Original if is_replay => Rate::Original(1.0),
        cli::Rate::Original => {
            return Err(
                "generated packets have no times of their own: original is for a replay".to_owned(),
            );
        }
    })
}

/// Tells that the connection which held a sender was lost, if so.
pub fn tell_lost(name: &Name, steering: Option<&Steering>) {
    if steering.is_some_and(Steering::is_lost) {
        say(&format!(
            "{}: the connection that held the sender was lost",
            name.text()
        ));
    }
}

/// Front ends that steer a sender. If the value is dropped, they end.
pub struct Fronts {
    _server: Option<Server>,
    _script: Option<Running>,
    _screen: Option<sending::Running>,
}

/// Takes requests to a sender at its socket, if there is one, from its script and from its screen.
pub fn serve_sender(
    bound: Option<Bound>,
    (script, screen): (Option<Script>, Option<sending::Screen>),
    remote: steering::Remote,
) -> anyhow::Result<Fronts> {
    let remote = Arc::new(remote);
    let asked = Arc::clone(&remote);
    let serve = |bound: Bound| -> anyhow::Result<Server> {
        let line = format!("control socket: {}", bound.path().display());
        let server = bound.serve(socket::Settings::default(), move |request| {
            asked.answer(&request)
        })?;
        say_plain(&line);
        Ok(server)
    };
    let server = bound.map(serve).transpose()?;
    let drawn = Arc::clone(&remote);
    let screen = screen.map(|screen| screen.start(drawn)).transpose()?;
    let printed = screen.as_ref().map(sending::Running::printed);
    Ok(Fronts {
        _server: server,
        _script: script.map(|script| script.start(remote, printed)),
        _screen: screen,
    })
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
        Setting::Rate { rate, port } => of_port(set("rate", rate.as_str().into()), port.as_ref()),
        Setting::Speed { speed } => set("speed", (*speed).into()),
        Setting::Sizes { sizes } => set("sizes", sizes.as_str().into()),
        Setting::Field { field } => set("field", field.as_str().into()),
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
