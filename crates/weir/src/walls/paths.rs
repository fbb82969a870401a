//! Landlock: the files that a run may still open, and no network connections.
//!
//! A rule names a file, or a directory and everything beneath it. Files that are open already are not affected, nor are
//! pipes. **Platform**: Linux 5.13; networks 6.7, signals and abstract sockets 6.12. If the kernel supports only a part,
//! that part holds.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags, path_beneath_rules,
};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use weir_engine::claims::place;

/// Files read besides the sources: by libpcap for names of ports and protocols, and by the C library. Other files are for
/// time zones, memory, lines about interfaces, and backtraces.
const SYSTEM: [&str; 22] = [
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/etc/ethers",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/networks",
    "/etc/nsswitch.conf",
    "/etc/protocols",
    "/etc/services",
    "/lib",
    "/lib64",
    "/proc/meminfo",
    "/proc/self",
    "/proc/self/exe",
    "/proc/sys/vm",
    "/sys/class/net",
    "/sys/devices",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/usr",
];

/// Files that a resolver of host names also reads.
const RESOLVER: [&str; 8] = [
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/run/nscd",
    "/run/systemd/resolve",
    "/var/lib/misc",
    "/var/lib/sss",
];

/// Files that a run opens once the sandbox is in force.
#[derive(Debug, Default)]
pub struct Paths {
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
    /// Directories with files that are made, renamed and removed.
    kept: Vec<PathBuf>,
    /// Whether host names are looked up.
    pub resolves: bool,
}

impl Paths {
    /// Allows to read a file, or all files of a directory.
    pub fn reads(&mut self, path: &Path) {
        self.reads.push(path.to_owned());
    }

    /// Allows to read files that later get the name of `path`. Links may lead to them, and their directory may be replaced.
    /// Everything beneath the directory above is therefore readable, unless that is the root.
    pub fn reads_beside(&mut self, path: &Path) {
        let named =
            fs::canonicalize(Path::new(".").join(path.parent().unwrap_or(Path::new("")))).ok();
        let meant = place(path).and_then(|place| Some(place.parent()?.to_owned()));
        for folder in [named, meant].into_iter().flatten() {
            let above = folder
                .parent()
                .filter(|above| above.parent().is_some())
                .map(Path::to_owned);
            self.reads.push(above.unwrap_or(folder));
        }
    }

    /// Allows to write a file. If it exists, perhaps as a device, no other file may be written; else all files of its
    /// directory. If the directory is missing too, everything beneath the nearest directory above is writable, unless that
    /// is the root.
    pub fn writes(&mut self, path: &Path) {
        let folder = || place(path).and_then(|place| Some(place.parent()?.to_owned()));
        let above = || {
            let path = std::path::absolute(path).ok()?;
            let mut above = path.ancestors().skip(2);
            above
                .find(|above| above.is_dir())
                .filter(|above| above.parent().is_some())
                .map(Path::to_owned)
        };
        self.writes.extend(if path.exists() {
            Some(path.to_owned())
        } else {
            folder().or_else(above)
        });
    }

    /// Allows writing files with names made of `path` by rotation: the whole directory, or the last
    /// directory above without a field of time in its name.
    pub fn writes_rotated(&mut self, path: &Path) {
        let is_fixed = |part: &Component<'_>| !part.as_os_str().as_bytes().contains(&b'%');
        let folder = path.parent().unwrap_or(Path::new(""));
        let fixed = Path::new(".").join(
            folder
                .components()
                .take_while(is_fixed)
                .collect::<PathBuf>(),
        );
        // Existing names may be links to other places.
        let stem = path
            .file_name()
            .and_then(|name| name.as_bytes().split(|&byte| byte == b'%').next())
            .unwrap_or(b"");
        for entry in fs::read_dir(&fixed).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(stem)
                && entry.file_type().is_ok_and(|kind| kind.is_symlink())
            {
                self.writes(&entry.path());
            }
        }
        self.writes.push(fixed);
    }

    /// Allows to make temporary files in TMPDIR.
    pub fn makes_temporary_files(&mut self) {
        self.kept.push(std::env::temp_dir());
    }

    /// Allows to read, make, rename and remove files of a directory, which exists once the rules are made.
    pub fn keeps(&mut self, directory: &Path) {
        self.kept.push(directory.to_owned());
    }

    /// Allows the same in a directory that is made again under its name, and so in everything
    /// beneath the directory above it, unless that is the root.
    pub fn keeps_anew(&mut self, directory: &Path) {
        let whole = std::path::absolute(directory).ok();
        let above = whole
            .as_deref()
            .and_then(Path::parent)
            .filter(|above| above.parent().is_some());
        self.kept.extend(above.map(Path::to_owned));
    }

    /// The rules, whose directories are opened now. **Errors**: errors of the kernel. A kernel
    /// without Landlock gives none.
    pub fn rules(&self) -> Result<RulesetCreated, RulesetError> {
        let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
        let write = make_bitflags!(AccessFs::{WriteFile | MakeReg | Truncate});
        let kept = read | write | make_bitflags!(AccessFs::{RemoveFile | MakeSock});
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V5))?
            .scope(Scope::from_all(ABI::V6))?;
        if !self.resolves {
            rules = rules.handle_access(AccessNet::from_all(ABI::V4))?;
        }
        let mut rules = rules.create()?;
        let zone = std::env::var_os("TZ").map(zone_file);
        let system = SYSTEM
            .iter()
            .chain(RESOLVER.iter().filter(|_| self.resolves))
            .map(Path::new);
        let reads = system
            .chain(self.reads.iter().map(PathBuf::as_path))
            .chain(zone.iter().map(PathBuf::as_path));
        allow(&mut rules, reads, read);
        allow(&mut rules, self.writes.iter().map(PathBuf::as_path), write);
        allow(&mut rules, self.kept.iter().map(PathBuf::as_path), kept);
        Ok(rules)
    }
}

/// Adds a rule for each path that exists. A pipe needs no rule, and can have none.
fn allow<'a>(
    rules: &mut RulesetCreated,
    paths: impl Iterator<Item = &'a Path>,
    access: BitFlags<AccessFs>,
) {
    for rule in path_beneath_rules(paths, access).flatten() {
        let _ = rules.add_rule(rule);
    }
}

/// File that TZ names, if it names one.
fn zone_file(zone: OsString) -> PathBuf {
    let path = PathBuf::from(zone);
    path.to_str()
        .and_then(|text| text.strip_prefix(':'))
        .map(PathBuf::from)
        .unwrap_or(path)
}

/// Applies the rules to this thread and to threads that it starts.
pub fn restrict(rules: RulesetCreated) -> Result<RestrictionStatus, RulesetError> {
    rules.restrict_self()
}
