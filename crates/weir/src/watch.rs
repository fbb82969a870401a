//! `weir watch`: a measurement on the whole screen.
//!
//! A screen is a run of `weir measure` whose windows go to a [`View`](weir_view::View) instead of standard output. One thread reads keys and
//! draws; a terminal that takes nothing holds up this thread and no other.

mod attached;
mod figures;
pub mod messages;
#[cfg(test)]
mod panics;
mod past;
mod save;
pub mod sending;
mod serve;
mod session;
mod settings;
mod shared;
mod subject;

use crate::cli::{ByArg, HealthArg, MeasureArgs, WatchArgs};
use crate::measure;
use crate::outcome::{Outcome, directory_words, io_words, say_plain, stop_on_signals};
use crate::query::defaults;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use attached::Attached;
use figures::Figures;
pub use past::{Part, Past, span};
pub use serve::{Serving, Waiting, bind};
pub use session::Running;
use settings::Settings;
pub use shared::{About, Links, Shared, link_speed};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_engine::control::Control;
use weir_engine::name::Name;
use weir_engine::records::{self, CheckError};
use weir_engine::zone::Zone;
use weir_io::network::Network;
use weir_measure::health::Parts;
use weir_measure::names::Names;
use weir_measure::{By, Geo, KeyKind};
use weir_messages::captures::interface;
use weir_messages::measurement::Options;
use weir_messages::viewing::Lacks;
use weir_packet::addresses::Addresses;
use weir_screen::{Look, Tab};

/// Most rows of a table of health.
const ROWS: usize = 100;

/// Runs the command.
pub fn run(mut arguments: WatchArgs) -> anyhow::Result<Outcome> {
    let instead = "weir measure prints the same figures as lines, weir measure --json for programs";
    let reads_stdin = arguments.sources.iter().any(Name::is_dash);
    let keyboard = terminal(("weir watch", instead), reads_stdin)?;
    if let Some(socket) = &arguments.attach {
        return attach(socket, &arguments, keyboard);
    }
    if arguments.sources.is_empty() {
        let name = default_interface()?;
        say_plain(&format!("{name}: the interface of the default route"));
        arguments.sources.push(name);
    }
    let mut watch = Watch::new(&arguments, keyboard)?;
    let query = watch.past.first_query(
        &arguments.filter,
        arguments.inside.inner || arguments.names.resolve,
        arguments.follow,
    )?;
    measure::run_watched(measured(arguments, &watch), &watch, query)
}

/// Shows the figures of another process.
fn attach(socket: &Name, arguments: &WatchArgs, keyboard: File) -> anyhow::Result<Outcome> {
    let (attached, asker) = Attached::connect(Path::new(socket))?;
    let settings = Settings::read()?;
    let (look, asks_background) = chosen_look(&settings);
    check_directories(arguments, false)?;
    let directory = Path::new(&arguments.save_dir);
    let start = session::Start {
        filter: String::new(),
        is_live: attached.facts().is_live,
        look,
        asks_background,
        settings,
        at: None,
        notice: None,
        can_read_again: false,
        saves: save::Settings {
            directory: directory.to_owned(),
            origin: Err(
                "a viewer sees no packets: weir query has them for those who may read the record, weir watch --history \
                 for those who may capture",
            ),
            inner: None,
            utc: arguments.utc,
        },
    };
    let opened = session::Opened {
        names: arguments.names.names().clone(),
        geo: None,
        zone: Zone::new(arguments.utc),
        keyboard,
    };
    let mut walls = Walls::of_viewer(&arguments.walls)?;
    walls.saves(directory, None);
    let stop = stop_on_signals();
    walls.raise(&[])?;
    let asking = asker.start()?;
    let running = session::start(&start, opened, attached, (None, &stop))?;
    let shown = running.finish();
    drop(asking);
    match shown {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => bail!("the screen: {}", io_words(&error)),
    }
}

/// The terminal that gives the keys: standard input, or the terminal of the session if standard input is a pipe, which may be a source.
/// Refuses to run where no screen can be drawn.
fn terminal((command, instead): (&str, &str), reads_stdin: bool) -> anyhow::Result<File> {
    let none = || anyhow!("{command} draws on a terminal, and this is none: {instead}");
    if !io::stdout().is_terminal() {
        return Err(none());
    }
    let kind = std::env::var("TERM").unwrap_or_default();
    if kind.is_empty() || kind == "dumb" {
        bail!("TERM={kind}: {command} needs a terminal that can move its cursor: {instead}");
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return File::open("/dev/tty").map_err(|_| none());
    }
    if reads_stdin {
        bail!("-: standard input is the terminal, which gives the keys: name a file");
    }
    let keys = stdin.as_fd().try_clone_to_owned();
    keys.map(File::from).map_err(|_| none())
}

/// The interface of the default route, of IPv4 first.
fn default_interface() -> anyhow::Result<Name> {
    let network = Network::read().unwrap_or_default();
    let mut routes: Vec<_> = network.defaults.iter().collect();
    routes.sort_by_key(|route| route.is_ipv6);
    let name = routes
        .first()
        .and_then(|route| network.numbered(route.interface))
        .map(|interface| Name::from(interface.name.as_str()));
    let Some(name) = name else {
        bail!(
            "no source, and no default route that names one: weir watch eth0, or weir watch FILE"
        );
    };
    Ok(name)
}

/// The key of the sixth table; `None` for keys that another table has. Names are in the table of hosts.
fn further_of(arguments: &WatchArgs) -> Option<KeyKind> {
    let has_table =
        |key: &KeyKind| *key == KeyKind::Name || Tab::kinds().any(|other| other == *key);
    arguments.key.filter(|key| !has_table(key))
}

/// The run of `weir measure` that a screen is.
fn measured(arguments: WatchArgs, watch: &Watch) -> MeasureArgs {
    MeasureArgs {
        sources: arguments.sources,
        filter: arguments.filter,
        inside: arguments.inside,
        names: arguments.names,
        key: Tab::kinds().chain(watch.start.settings.key).collect(),
        places: arguments.places,
        by: ByArg::Bytes,
        top: Some(ROWS),
        health: vec![HealthArg::Tcp, HealthArg::Dns],
        findings: true,
        window: Some(Duration::from_secs(1)),
        utc: arguments.utc,
        link: arguments.link,
        local: arguments.local,
        // A recorder hands on what comes.
        follow: arguments.follow && watch.past.directory().is_none(),
        live: arguments.live,
        workers: arguments.workers,
        viewers: arguments.viewers,
        walls: arguments.walls,
        ..defaults(&["-"])
    }
}

/// The measurement of a run that viewers see and that has no answer of its own: all that a screen shows, in one thread.
pub fn measurement() -> Options {
    let second = Some(Duration::from_secs(1));
    Options {
        keys: Tab::kinds().collect(),
        by: By::Bytes,
        rows: ROWS,
        window: second,
        late: second,
        health: Parts {
            tcp: true,
            dns: true,
            path: false,
        },
        findings: true,
        reads_names: true,
        workers: 1,
        ..Options::default()
    }
}

/// The screen of a run.
#[derive(Debug)]
pub struct Watch {
    /// The terminal that gives the keys.
    keyboard: File,
    /// Where packets of the past are read.
    pub past: Past,
    shared: Arc<Shared>,
    start: session::Start,
    /// The record directory of packets from before the capture.
    history: Option<Name>,
}

impl Watch {
    fn new(arguments: &WatchArgs, keyboard: File) -> anyhow::Result<Self> {
        let names: Vec<String> = arguments.sources.iter().map(Name::text).collect();
        let is_live = arguments
            .sources
            .iter()
            .any(|name| interface(name).is_some());
        let local = (!arguments.local.is_empty())
            .then(|| Arc::new(Addresses::new(arguments.local.iter().copied())));
        let about = About {
            sources: names.join(" "),
            filter: arguments.filter.clone(),
            is_live,
            local,
            lacks: Lacks::default(),
        };
        let at = past::place(arguments.at.as_ref(), arguments.utc)?;
        let mut past = Past::of(&arguments.sources, is_live, (at, arguments.utc))?;
        past.can_read_again &= !arguments.follow;
        let mut settings = Settings::read()?;
        settings.key = further_of(arguments).or(settings.key);
        let (look, asks_background) = chosen_look(&settings);
        check_directories(arguments, is_live)?;
        let (origin, notice) = origin(arguments, &past, is_live);
        let saves = save::Settings {
            directory: Path::new(&arguments.save_dir).to_owned(),
            origin,
            inner: arguments.inside.tunnels()?,
            utc: arguments.utc,
        };
        Ok(Self {
            history: arguments.history.clone(),
            keyboard,
            shared: Arc::new(Shared::new(about, &past)),
            start: session::Start {
                filter: arguments.filter.clone(),
                is_live,
                look,
                asks_background,
                settings,
                at,
                notice,
                can_read_again: past.can_read_again,
                saves,
            },
            past,
        })
    }

    /// The directory of files that keys write, and the record directory of packets from before.
    pub fn files(&self) -> (&Path, Option<&Name>) {
        (&self.start.saves.directory, self.history.as_ref())
    }

    /// Begins to read a part of the past, and forgets earlier parts.
    pub fn begin_part(&self, part: &Part) {
        self.shared.begin(part.times(), &part.filter);
    }

    /// Notes the end of the part, with the names of its packets, and why it could not be read.
    pub fn end_part(&self, names: Option<&Names>, fault: Option<String>) {
        self.shared.end(names, fault);
    }

    /// The view, and facts about the sources.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Begins the screen, once the sources are open. **Errors**: the terminal cannot be used.
    pub fn start(
        &self,
        control: &Arc<Control>,
        stop: &Arc<AtomicBool>,
        (names, geo): (&weir_filter::Names, Option<Arc<Geo>>),
    ) -> anyhow::Result<Running> {
        let opened = session::Opened {
            names: names.clone(),
            geo,
            zone: Zone::new(self.start.saves.utc),
            keyboard: self.keyboard.try_clone()?,
        };
        let figures = Arc::clone(&self.shared);
        session::start(&self.start, opened, figures, (Some(control), stop))
    }
}

/// Refuses directories that cannot be used.
fn check_directories(arguments: &WatchArgs, is_live: bool) -> anyhow::Result<()> {
    let directory = &arguments.save_dir;
    if !Path::new(directory).is_dir() {
        bail!("--save-dir {directory} is not a directory: mkdir -p {directory}, or name another");
    }
    for name in &arguments.sources {
        if !name.is_dash() && Path::new(name).is_dir() {
            is_record(name, "")?;
        }
    }
    let Some(history) = &arguments.history else {
        return Ok(());
    };
    if !is_live {
        bail!("--history is for interfaces: packets of files and records are read there again");
    }
    is_record(history, "--history ")
}

/// Refuses a directory without a record; `option` is before its name in the message.
fn is_record(directory: &Name, option: &str) -> anyhow::Result<()> {
    match records::check(directory.as_ref()) {
        Ok(()) => Ok(()),
        Err(CheckError::Io(error)) => bail!("{option}{directory}: {}", directory_words(&error)),
        Err(error) => bail!("{option}{error}"),
    }
}

/// Where packets from before are, and a message about a record without a recorder.
fn origin(
    arguments: &WatchArgs,
    past: &Past,
    is_live: bool,
) -> (Result<save::Origin, &'static str>, Option<String>) {
    let directory = arguments.history.as_ref().or_else(|| past.directory());
    let (recorder, notice) = match directory.map(|it| (it, past::connect(it))) {
        Some((history, Ok(None))) if is_live => (
            None,
            Some(format!(
                "{history}: no recorder is running there, so w has no packets from now on: weir record IF {history} --disk 10G"
            )),
        ),
        Some((history, Err(error))) => (None, Some(past::left_out(history, &error))),
        Some((_, Ok(Some(recorder)))) if !is_live && !arguments.follow => (
            Some(recorder),
            Some("recording goes on: --follow shows what is recorded from now on".to_owned()),
        ),
        Some((_, Ok(recorder))) => (recorder, None),
        None => (None, None),
    };
    let sources = match (is_live, &arguments.history) {
        (true, Some(history)) => Ok(vec![history.clone()]),
        (true, None) => Err(
            "interfaces keep no packets: start weir watch with --history DIR, a record of weir record",
        ),
        (false, _) if past.can_read_again || directory.is_some() => Ok(arguments.sources.clone()),
        (false, _) => Err("this source cannot be read a second time"),
    };
    let origin = sources.map(|sources| save::Origin {
        sources,
        is_record: directory.is_some(),
        recorder,
    });
    (origin, notice)
}

/// Colours and characters of this terminal as the user wants them, and whether to ask the terminal for its background.
fn chosen_look(settings: &Settings) -> (Look, bool) {
    let usual = look();
    let is_told = settings.light.is_some() || std::env::var_os("COLORFGBG").is_some();
    // The console of Linux prints parts of the question.
    let is_console = std::env::var("TERM").is_ok_and(|kind| kind == "linux");
    let look = Look {
        light: settings.light.unwrap_or(usual.light),
        ascii: settings.ascii.unwrap_or(usual.ascii),
        ..usual
    };
    (look, look.colour && !is_told && !is_console)
}

/// Colours and characters of this terminal.
pub fn look() -> Look {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(variable);
    let locale = locale.unwrap_or_default().to_lowercase();
    let is_unicode = locale.contains("utf-8") || locale.contains("utf8");
    let kind = std::env::var("TERM").unwrap_or_default();
    // Colours of the background as several terminals give them: `15;0` is white on black.
    let background = variable("COLORFGBG");
    let background = background
        .as_deref()
        .and_then(|both| both.rsplit(';').next());
    Look {
        colour: variable("NO_COLOR").is_none() && !kind.starts_with("vt"),
        light: matches!(background, Some("7" | "15")),
        // The console of Linux has no braille in its usual fonts.
        ascii: !is_unicode || kind == "linux",
    }
}
