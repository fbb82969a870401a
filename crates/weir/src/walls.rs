//! The sandbox: confinement of the process before it parses packets from strangers.
//!
//! The command sets it up between assembling a run and starting it, when the process has one thread; see
//! docs/adr/0004-walls.md.

mod calls;
mod paths;

use crate::capture;
use crate::cli::ctl::SteerArgs;
use crate::cli::diff::DiffArgs;
use crate::cli::names::NameArgs;
use crate::cli::record::RecordArgs;
use crate::cli::replay::ReplayArgs;
use crate::cli::{FilterArgs, GenerateArgs, InfoArgs, MeasureArgs, OutputArgs, WallArgs};
use crate::outcome::io_words;
use crate::port;
use anyhow::{anyhow, bail};
use calls::Needs;
use landlock::RestrictionStatus;
use paths::Paths;
use std::io;
use std::path::Path;
use std::time::Duration;
use weir_engine::event::On;
use weir_engine::firewall::forwarding;
use weir_engine::name::Name;
use weir_engine::run::Run;
use weir_engine::session::{self, Session};
use weir_io::state::StateFile;
use weir_io::sys::privilege::{self, Capability, User};
use weir_io::sys::{self, Access};
use weir_memory::Policy;
use weir_messages::absent::directory_of;
use weir_messages::refusals::{Terms, refused};

/// Needs of a run from the system once its sandbox is in force.
#[derive(Debug)]
pub struct Walls {
    /// User that root becomes.
    user: Option<User>,
    /// User from the command line. If this process cannot become that user, the run is refused.
    named: Option<String>,
    /// Capabilities kept for files, also by another user, because sources are opened one after another.
    kept: Vec<Capability>,
    /// Files opened later.
    paths: Paths,
    /// System calls made later.
    needs: Needs,
    /// Whether files are made, perhaps in directories of other users.
    makes_files: bool,
    /// Whether an output exists and is a pipe or a device, which another user may not be allowed to
    /// open.
    opens_others: bool,
    /// Whether files are made while packets arrive.
    rotates: bool,
    /// Whether there are ports or interfaces of DPDK, whose threads and devices the sandbox cannot
    /// confine.
    dpdk: bool,
}

impl Walls {
    /// Sandbox of `weir filter`.
    pub fn of_filter(arguments: &FilterArgs, session: &Session) -> anyhow::Result<Self> {
        let mut walls = Self::of(&arguments.walls, session)?;
        walls.outputs(&arguments.output, !arguments.count);
        walls.filters(arguments.filter_file.as_ref(), &arguments.names);
        let splits: Vec<Name> = arguments.output.split_files(!arguments.count).collect();
        let outputs = arguments.output.write.iter().chain(&splits);
        walls.controlled(arguments.remote.control.as_ref(), outputs);
        walls.checked()
    }

    /// Sandbox of `weir measure`.
    pub fn of_measure(arguments: &MeasureArgs, session: &Session) -> anyhow::Result<Self> {
        let mut walls = Self::of(&arguments.walls, session)?;
        walls.outputs(&arguments.output, true);
        walls.filters(arguments.filter_file.as_ref(), &arguments.names);
        let splits: Vec<Name> = arguments.output.split_files(true).collect();
        let outputs = arguments.output.write.iter().chain(&splits);
        walls.controlled(arguments.remote.control.as_ref(), outputs);
        walls.shows(arguments.viewers.view.as_ref());
        walls.needs.programs |=
            arguments.on_finding.is_some() || arguments.key.iter().any(|key| key.needs_owners());
        // Without this capability the kernel hides where pages lie.
        walls
            .kept
            .extend((arguments.pages == Policy::Contiguous).then_some(Capability::SysAdmin));
        walls.checked()
    }

    /// Sandbox of `weir diff`, for the sessions of both sides.
    pub fn of_diff(arguments: &DiffArgs, sessions: &[Session]) -> anyhow::Result<Self> {
        let mut walls = Self::of(&arguments.walls, &Session::default())?;
        sessions
            .iter()
            .for_each(|session| walls.reads(session.needs()));
        walls.filters(None, &arguments.names);
        walls.checked()
    }

    /// Sandbox of `weir record`.
    pub fn of_record(
        arguments: &RecordArgs,
        session: &Session,
        directory: &Name,
    ) -> anyhow::Result<Self> {
        let mut walls = Self::of(&arguments.walls, session)?;
        walls.needs.renames = true;
        walls.needs.controls = true;
        walls.needs.programs = arguments.on_trigger.is_some();
        walls.makes_files = true;
        walls.rotates = true;
        walls.paths.keeps(Path::new(directory));
        if arguments.reopen {
            walls.paths.keeps_anew(Path::new(directory));
        }
        walls.compiles(arguments.meaning.resolve);
        walls.controlled(arguments.remote.control.as_ref(), []);
        walls.shows(arguments.viewers.view.as_ref());
        walls.checked()
    }

    /// User that root becomes, if there is one: number and group.
    pub fn user(&self) -> Option<(u32, u32)> {
        self.user.as_ref().map(|user| (user.id(), user.group()))
    }

    /// Gives a new file or directory to the user whose rights files are written with.
    pub fn give_away(&self, path: &Path) -> io::Result<()> {
        match &self.user {
            // The directory may belong to that user, who can put a link to any file there.
            Some(user) => std::os::unix::fs::lchown(path, Some(user.id()), Some(user.group())),
            None => Ok(()),
        }
    }

    /// Sandbox of `weir replay`.
    pub fn of_replay(
        arguments: &ReplayArgs,
        session: &Session,
        ports: &[Name],
    ) -> anyhow::Result<Self> {
        let mut walls = Self::of(&arguments.walls, session)?;
        ports.iter().for_each(|port| walls.output(port, false));
        let received = arguments.receive.iter().chain(&arguments.receive2);
        let received = received.cloned().collect();
        walls.reads(Session::new(received).needs());
        walls.steered(&arguments.steer);
        walls.compiles(false);
        walls.checked()
    }

    /// Sandbox of a viewer, whose connection is open.
    pub fn of_viewer(arguments: &WallArgs) -> anyhow::Result<Self> {
        Self::of(arguments, &Session::default())
    }

    /// Allows to answer viewers at a socket, and to remove its file.
    pub fn shows(&mut self, socket: Option<&Name>) {
        if let Some(socket) = socket {
            self.listens(Path::new(socket));
        }
    }

    /// Sandbox of `weir info`.
    pub fn of_info(arguments: &InfoArgs) -> anyhow::Result<Self> {
        Self::of(&arguments.walls, &Session::new(arguments.files.clone()))
    }

    /// Sandbox of `weir firewall` from file to file.
    pub fn of_firewall(
        arguments: &WallArgs,
        session: &Session,
        written: &[Name],
    ) -> anyhow::Result<Self> {
        let mut walls = Self::of(arguments, session)?;
        written
            .iter()
            .for_each(|output| walls.output(output, false));
        walls.compiles(false);
        walls.checked()
    }

    /// Sandbox of `weir firewall` between interfaces: the rules are read again, and a control socket takes requests.
    pub fn of_firewall_between(
        arguments: &WallArgs,
        needs: &forwarding::Needs<'_>,
        (files, replaces): (&[Name], bool),
        rules: Option<&Name>,
        socket: &Path,
    ) -> anyhow::Result<Self> {
        let mut walls = Self::of(arguments, needs.sources)?;
        needs
            .sinks
            .iter()
            .for_each(|sink| walls.output(sink, false));
        files.iter().for_each(|output| walls.output(output, false));
        walls.compiles(false);
        if let Some(rules) = rules {
            walls.kept.push(Capability::DacReadSearch);
            walls.paths.reads_beside(Path::new(rules));
        }
        walls.listens(socket);
        if replaces {
            walls.replaces(files);
        }
        walls.checked()
    }

    /// Allows to take requests at a socket, and to replace its file.
    fn listens(&mut self, socket: &Path) {
        self.needs.controls = true;
        self.paths.keeps(directory_of(socket));
    }

    /// Allows to take requests that replace the filter and these outputs, if there is a control socket.
    fn controlled<'a>(
        &mut self,
        socket: Option<&Name>,
        outputs: impl IntoIterator<Item = &'a Name>,
    ) {
        let Some(socket) = socket else { return };
        self.listens(Path::new(socket));
        self.needs.loads = true;
        self.replaces(outputs);
    }

    /// Allows to take requests to a sender, if there is a control socket.
    fn steered(&mut self, arguments: &SteerArgs) {
        if let Some(socket) = &arguments.control {
            self.listens(Path::new(socket));
        }
    }

    /// Allows to make files in a directory, and to read a record once more.
    pub fn saves(&mut self, directory: &Path, history: Option<&Name>) {
        self.makes_files = true;
        self.paths.keeps(directory);
        if let Some(history) = history {
            self.kept.push(Capability::DacReadSearch);
            self.paths.reads(Path::new(history));
        }
    }

    /// Allows to replace the filter.
    pub fn changes_filter(&mut self) {
        self.needs.loads = true;
        self.compiles(self.needs.resolves);
    }

    /// Allows to make other files in the directories of these outputs.
    fn replaces<'a>(&mut self, outputs: impl IntoIterator<Item = &'a Name>) {
        for output in outputs {
            if !port::is_port(output) && !output.is_dash() {
                self.paths.keeps(directory_of(Path::new(output)));
            }
        }
    }

    /// Allows to replace a file of state, also as another user than the owner of its directory.
    pub fn keeps_state(&mut self, file: &StateFile) {
        self.needs.renames = true;
        self.paths
            .keeps(file.path().parent().unwrap_or(Path::new("/")));
        let is_own = |user: &User| file.directory_owner().is_ok_and(|owner| owner == user.id());
        if self.user.as_ref().is_some_and(|user| !is_own(user)) {
            self.kept.push(Capability::DacOverride);
        }
    }

    /// Sandbox of `weir generate`.
    pub fn of_generate(arguments: &GenerateArgs) -> anyhow::Result<Self> {
        let reflected = arguments.reflect.as_ref().map(|_| &arguments.sink);
        let received = arguments.receive.iter().chain(reflected);
        let received = received.cloned().collect();
        let mut walls = Self::of(&arguments.walls, &Session::new(received))?;
        walls.output(&arguments.sink, false);
        if let Some(table) = &arguments.table {
            walls.output(table, false);
        }
        walls.steered(&arguments.steer);
        walls.checked()
    }

    /// Walls that change the user, and let the sources of a session be read. **Errors**: there is no such user, or this process
    /// cannot become that user.
    fn of(arguments: &WallArgs, session: &Session) -> anyhow::Result<Self> {
        let own = privilege::user_id();
        let user = match &arguments.user {
            None if own == 0 => invoking(),
            None => None,
            Some(name) => {
                let found = User::named(name)
                    .map_err(|error| anyhow!("-Z {name}: {}", io_words(&error)))?;
                let Some(user) = found else {
                    bail!("-Z {name}: there is no such user")
                };
                if own != 0 && user.id() != own {
                    bail!("-Z {name}: only root can become another user");
                }
                Some(user)
            }
        };
        let user = user.filter(|user| user.id() != own);
        let named = arguments.user.clone();
        let mut walls = Self {
            user,
            named,
            kept: Vec::new(),
            paths: Paths::default(),
            needs: Needs::default(),
            makes_files: false,
            opens_others: false,
            rotates: false,
            dpdk: false,
        };
        walls.reads(session.needs());
        Ok(walls)
    }

    /// Allows to read the sources of a session.
    fn reads(&mut self, needs: session::Needs<'_>) {
        self.dpdk |= needs.dpdk;
        self.needs.packets |= needs.sockets;
        for file in needs.files {
            self.kept.push(Capability::DacReadSearch);
            self.paths.reads(file);
            if needs.follows {
                self.paths.reads_beside(file);
            }
        }
        if needs.temporary_files {
            self.makes_files = true;
            self.paths.makes_temporary_files();
        }
    }

    fn outputs(&mut self, outputs: &OutputArgs, written: bool) {
        let rotates = outputs.rotates();
        self.rotates = rotates;
        self.needs.programs |= outputs.program.is_some();
        let is_many = rotates || outputs.split_by.is_some();
        if let Some(output) = &outputs.write {
            self.output(output, is_many);
        }
        for output in outputs.split_files(written) {
            self.output(&output, rotates);
        }
    }

    fn output(&mut self, output: &Name, rotates: bool) {
        self.dpdk |= port::is_dpdk(output);
        self.needs.packets |= port::is_port(output);
        self.needs.sends |= port::is_port(output);
        if port::injected(output).is_some() {
            self.kept.extend([Capability::Bpf, Capability::NetAdmin]);
        }
        if !port::is_port(output) && !output.is_dash() {
            self.makes_files = true;
            self.opens_others |= Path::new(output)
                .metadata()
                .is_ok_and(|about| !about.is_file());
            match rotates {
                true => self.paths.writes_rotated(Path::new(output)),
                false => self.paths.writes(Path::new(output)),
            }
        }
    }

    /// Allows to compile expressions, to read their files again, also other files of their names, and to load another program
    /// into the kernel.
    fn filters(&mut self, filter_file: Option<&Name>, names: &NameArgs) {
        for file in filter_file
            .into_iter()
            .chain(names.set.iter().map(|set| &set.file))
        {
            self.kept.push(Capability::DacReadSearch);
            self.needs.loads = true;
            self.paths.reads_beside(Path::new(file));
        }
        self.compiles(names.resolve);
    }

    /// Allows to compile expressions, by libpcap and to native code, and to look up host names in them if `resolves`.
    fn compiles(&mut self, resolves: bool) {
        self.needs.native = true;
        if let Some(map) = weir_filter::native::perf_map() {
            self.paths.writes(&map);
        }
        (self.needs.resolves, self.paths.resolves) = (resolves, resolves);
    }

    /// Refuses another user with DPDK.
    fn checked(self) -> anyhow::Result<Self> {
        match &self.named {
            Some(name) if self.dpdk && self.user.is_some() => {
                bail!("-Z {name}: the devices and threads of DPDK stay root's: leave -Z out")
            }
            None if self.dpdk => Ok(Self { user: None, ..self }),
            _ => Ok(self),
        }
    }

    /// Begins a session behind the walls, once its captures are open. Returns `false` if the run was stopped before that.
    /// **Errors**: those of [`raise`](Self::raise); the run cannot begin, in these `terms`.
    pub fn begin(
        &self,
        session: &Session,
        run: &mut Run,
        terms: &Terms,
        on: On<'_>,
    ) -> anyhow::Result<bool> {
        if session.is_live() && session.inputs().is_empty() {
            // A thread that compiles an expression may have been left behind.
            return Ok(false);
        }
        let mut kept = session.rights();
        let loads = session.is_live() && self.needs.loads;
        kept.extend(loads.then_some(Capability::Bpf));
        self.raise(&kept)?;
        let has_begun = session
            .begin(run, on)
            .map_err(|error| refused(&error, terms))?;
        if session.is_live() {
            self.opened(&kept);
        }
        Ok(has_begun)
    }

    /// Begins a session as [`begin`](Self::begin) does, calls `begun`, and reads the session to its end. **Errors**: those of
    /// `begun` too; the run cannot go on.
    pub fn read(
        &self,
        session: &mut Session,
        run: &mut Run,
        terms: &Terms,
        on: On<'_>,
        begun: impl FnOnce(&Run) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if !self.begin(session, run, terms, on)? {
            return Ok(());
        }
        begun(run)?;
        let read = session.read(run, on);
        Ok(read.map_err(|error| refused(&error, terms))?)
    }

    /// Raises the walls, once interfaces and ports are open. Backends name the capabilities that are `kept`; those for
    /// files opened later are kept too.
    ///
    /// **Errors**: a user from the command line that this process cannot become. All other walls are best effort;
    /// `weir doctor` reports which of them hold.
    pub fn raise(&self, kept: &[Capability]) -> anyhow::Result<()> {
        debug_assert!(
            self.dpdk || is_one_thread(),
            "a thread that runs already keeps its rights"
        );
        // The rules open their directories while this process still has its rights.
        let rules = if self.dpdk {
            None
        } else {
            self.paths.rules().ok()
        };
        self.drop_rights(kept)?;
        let _ = rules.map(paths::restrict);
        if !self.dpdk {
            let bpf = kept
                .iter()
                .chain(&self.kept)
                .any(|it| *it == Capability::Bpf);
            let _ = calls::restrict(Needs { bpf, ..self.needs });
        }
        Ok(())
    }

    /// Gives up capabilities that only opening the outputs took, once a capture has opened them. Rotated files are still
    /// made as packets come.
    pub fn opened(&self, kept: &[Capability]) {
        let rotation = self.rotates.then_some(Capability::DacOverride);
        let kept: Vec<Capability> = kept
            .iter()
            .chain(&self.kept)
            .copied()
            .chain(rotation)
            .collect();
        capture::give_up_privileges(&kept);
    }

    fn drop_rights(&self, kept: &[Capability]) -> anyhow::Result<()> {
        let mut kept: Vec<Capability> = kept.iter().chain(&self.kept).copied().collect();
        if let Some(user) = &self.user {
            // A shell of root makes pipes like those of `>(...)` for root alone.
            kept.extend(self.opens_others.then_some(Capability::DacOverride));
            match (privilege::become_user(user, &kept), &self.named) {
                (Ok(()), _) => return Ok(()),
                (Err(error), Some(name)) if error.kind() == io::ErrorKind::PermissionDenied => {
                    bail!(
                        "-Z {name}: this process may not become another user (CAP_SETUID and CAP_SETGID)"
                    )
                }
                (Err(error), Some(name)) => bail!("-Z {name}: {}", io_words(&error)),
                // The user was not named: root goes on as root.
                (Err(_), None) => {}
            }
        }
        if self.makes_files {
            kept.push(Capability::DacOverride);
        }
        capture::give_up_privileges(&kept);
        Ok(())
    }
}

/// Confines this process and the programs that it starts: no capabilities, and none of the system calls that no program for a
/// file needs. **Errors**: a message; then no program must be started.
pub fn confine_programs() -> Result<(), String> {
    privilege::give_up_for_programs().map_err(|error| io_words(&error))?;
    calls::restrict_programs()
}

/// Confines the process that lists sockets: it sees the files of other processes, and makes no call that a run does not make. The
/// kernel shows these files to no process whose paths are confined.
pub fn confine_lists() -> Result<(), String> {
    privilege::give_up(&[Capability::SysPtrace, Capability::DacReadSearch])
        .map_err(|error| io_words(&error))?;
    calls::restrict(Needs {
        programs: true,
        ..Needs::default()
    })
}

/// Whether the process has no other thread. A thread that was joined may be listed for a moment longer.
fn is_one_thread() -> bool {
    let count = || std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    (0..100).any(|_| {
        let is_one = count() == 1;
        if !is_one {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_one
    })
}

/// User that called sudo.
pub fn invoking() -> Option<User> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    Some(User::numbered(number("SUDO_UID")?, number("SUDO_GID")?))
}

/// Result of raising each wall.
#[derive(Debug)]
pub struct Tried {
    pub rights: Result<(), String>,
    pub paths: Result<RestrictionStatus, String>,
    pub calls: Result<(), String>,
}

impl Tried {
    /// Raises the walls of a run without files or interfaces around this process.
    pub fn now() -> Self {
        let rules = Paths::default().rules();
        let rights = privilege::give_up(&[]).map_err(|error| io_words(&error));
        let paths = rules
            .and_then(paths::restrict)
            .map_err(|error| error.to_string());
        Self {
            rights,
            paths,
            calls: calls::restrict(Needs::default()),
        }
    }
}

/// Advice if this process may not access the file or directory at `path`; empty if walls are not the cause.
pub fn advice(path: &Path, access: Access) -> &'static str {
    // Landlock checks the opening of a file, but not faccessat(2), by which this function asks.
    if sys::may(path, access) {
        return "; weir's walls open only directories that existed when it began: start it again";
    }
    let was_root = std::env::var_os("SUDO_UID").is_some() && privilege::user_id() != 0;
    match access {
        Access::Write if was_root => {
            "; under sudo files are written with the rights of the user who called it: -Z root keeps root's"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests;
