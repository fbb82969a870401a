//! Giving up of privileges: capabilities, into which the rights of root are divided, and the user of the process.
//!
//! **Platform**: Linux, linux/capability.h, capabilities(7), credentials(7).

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// Capabilities that may be needed after all interfaces are open, with their numbers of linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Creation of files in directories of other users.
    DacOverride = 1,
    /// Reading of files of other users.
    DacReadSearch = 2,
    /// Sight of what other processes have open.
    SysPtrace = 19,
    /// Injection of packets into an interface.
    NetAdmin = 12,
    /// Queries of physical addresses of memory.
    SysAdmin = 21,
    /// Changes of maps of programs in the kernel.
    Bpf = 39,
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`; the calls take two, for capabilities 0 to 31 and from 32 on.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up all capabilities but `kept`, for this thread and all threads it starts. A capability
/// that the thread does not have is not an error. No program that this process starts can regain
/// the capabilities.
pub fn give_up(kept: &[Capability]) -> io::Result<()> {
    limit(kept, |data| data.effective)
}

/// Gives up all capabilities of this thread for good, including capabilities that a program of root
/// or with capabilities of its file would get. **Errors**: errors of the system; the bounding set
/// is left as it is without CAP_SETPCAP, since without new privileges (`PR_SET_NO_NEW_PRIVS`) a
/// program gets no capability that this thread lacks.
pub fn give_up_for_programs() -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: takes numbers only. The kernel refuses numbers that it does not know.
        let _ = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    check(
        // SAFETY: as above.
        unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_CLEAR_ALL,
                0,
                0,
                0,
            )
        }
        .into(),
    )?;
    limit(&[], |_| 0)
}

/// Keeps only the capabilities `kept`, as far as they are permitted. Effective are those among them that `wanted` returns.
fn limit(kept: &[Capability], wanted: impl Fn(&Data) -> u32) -> io::Result<()> {
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: the header asks for version 3, whose answer is two structures; both are live locals.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    let bits = kept
        .iter()
        .fold(0u64, |bits, &capability| bits | 1 << capability as u32);
    for (data, kept) in data.iter_mut().zip([bits as u32, (bits >> 32) as u32]) {
        data.effective = wanted(data) & kept;
        data.permitted &= kept;
        data.inheritable = 0;
    }
    // SAFETY: as above; the kernel reads the two structures.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Returns the number of the effective user of this process.
pub fn user_id() -> u32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() }
}

/// User that root can become, with the groups of the system's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl User {
    /// Returns the user `name`; `None` if there is no such user. **Errors**: a name with a NUL; errors of the tables.
    pub fn named(name: &str) -> io::Result<Option<Self>> {
        let name = CString::new(name)?;
        let found = look_up(|entry, buffer, len, found| {
            // SAFETY: the name ends with NUL; the other pointers are to live memory, the buffer of `len` bytes.
            unsafe { libc::getpwnam_r(name.as_ptr(), entry, buffer, len, found) }
        })?;
        Ok(found.map(|(_, uid, gid)| Self {
            uid,
            gid,
            groups: groups_of(&name, gid),
        }))
    }

    /// Returns the user of these numbers; the user need not be in the system's tables.
    pub fn numbered(uid: u32, gid: u32) -> Self {
        let found = look_up(|entry, buffer, len, found| {
            // SAFETY: the pointers are to live memory, the buffer of `len` bytes.
            unsafe { libc::getpwuid_r(uid, entry, buffer, len, found) }
        });
        let name = found.ok().flatten().map(|(name, ..)| name);
        Self {
            uid,
            gid,
            groups: name.map_or_else(|| vec![gid], |name| groups_of(&name, gid)),
        }
    }

    /// Returns the number of the user.
    pub fn id(&self) -> u32 {
        self.uid
    }

    /// Returns the number of the user's main group.
    pub fn group(&self) -> u32 {
        self.gid
    }
}

/// Returns the number of a group of the system's table; `None` if there is none of this name. **Errors**: a name with a NUL; errors of
/// the table.
pub fn group_named(name: &str) -> io::Result<Option<u32>> {
    /// Upper limit of the bytes of an entry.
    const MOST: usize = 1 << 20;
    let name = CString::new(name)?;
    let mut buffer: Vec<libc::c_char> = vec![0; 4096];
    loop {
        let mut entry = MaybeUninit::<libc::group>::zeroed();
        let mut found = ptr::null_mut();
        // SAFETY: the name ends with NUL; the other pointers are to live memory, the buffer of the length that is given.
        let result = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        match result {
            0 if found.is_null() => return Ok(None),
            // SAFETY: the call succeeded and found an entry, so it has filled `entry`.
            0 => return Ok(Some(unsafe { entry.assume_init() }.gr_gid)),
            libc::ERANGE if buffer.len() < MOST => buffer.resize(buffer.len() * 4, 0),
            // Systems without the table say so in different ways.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Returns name, user and group of an entry of the users' table; `ask` takes the arguments of `getpwnam_r` after the name.
fn look_up(
    ask: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<(CString, libc::uid_t, libc::gid_t)>> {
    /// Upper limit of the bytes of an entry.
    const MOST: usize = 1 << 20;
    let mut buffer: Vec<libc::c_char> = vec![0; 4096];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::zeroed();
        let mut found = ptr::null_mut();
        match ask(
            entry.as_mut_ptr(),
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        ) {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: the call succeeded and found an entry, so it has filled `entry`, whose name lies in the buffer.
                let (entry, name) = unsafe {
                    let entry = entry.assume_init();
                    (entry, std::ffi::CStr::from_ptr(entry.pw_name).to_owned())
                };
                return Ok(Some((name, entry.pw_uid, entry.pw_gid)));
            }
            libc::ERANGE if buffer.len() < MOST => buffer.resize(2 * buffer.len(), 0),
            libc::EINTR => {}
            // Without a table there is no user; glibc reports this in several ways, see getpwnam(3).
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Returns the groups of user `name`, whose primary group is `gid`.
fn groups_of(name: &CString, gid: libc::gid_t) -> Vec<libc::gid_t> {
    /// NGROUPS_MAX of linux/limits.h.
    const MOST: usize = 65_536;
    let mut groups = vec![gid; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name ends with NUL, and `count` is the length of the list.
        let told =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if told >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or(0));
            return groups;
        }
        if groups.len() >= MOST {
            return vec![gid];
        }
        groups.resize(2 * groups.len(), gid);
    }
}

/// Makes this process, with all its threads, run as `user`. The calling thread keeps the capabilities `kept`, as far as it had
/// them. The former user cannot be regained. **Errors**: errors of the system; without root's rights, nothing is changed.
pub fn become_user(user: &User, kept: &[Capability]) -> io::Result<()> {
    let User { uid, gid, groups } = user;
    // SAFETY: the list is live and has the length given; the other calls take numbers only.
    unsafe {
        check(libc::setgroups(groups.len(), groups.as_ptr()).into())?;
        // Without this flag, the change of the user would remove all capabilities.
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0).into())?;
        check(libc::setresgid(*gid, *gid, *gid).into())?;
        check(libc::setresuid(*uid, *uid, *uid).into())?;
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0, 0).into())?;
    }
    // After the change of the user, the capabilities are permitted but not effective.
    limit(kept, |data| data.permitted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use weir_testkit::skipped;

    /// Number of a user that is not in the tables, but that a process can have.
    const STRANGER: u32 = 61_234;

    #[test]
    #[ignore = "run by `the_rights_of_root_cannot_be_had_back`, in a process of its own"]
    fn without_rights() {
        let user = User::numbered(STRANGER, STRANGER);
        assert_eq!(
            user,
            User {
                uid: STRANGER,
                gid: STRANGER,
                groups: vec![STRANGER]
            }
        );
        become_user(&user, &[Capability::NetAdmin]).unwrap();
        assert_eq!(user_id(), STRANGER);
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        for line in [
            "CapPrm:\t0000000000001000",
            "CapEff:\t0000000000001000",
            "NoNewPrivs:\t1",
            "Groups:\t61234 ",
        ] {
            assert!(status.contains(&format!("\n{line}\n")), "{line}: {status}");
        }
        // SAFETY: the calls take numbers only, and the list is empty.
        unsafe {
            assert_eq!(
                [libc::setuid(0), libc::setgid(0), libc::setresuid(0, 0, 0)],
                [-1; 3]
            );
            assert_eq!(libc::setgroups(0, ptr::null()), -1);
        }
        // The remaining capability can be given up and cannot be regained.
        give_up(&[]).unwrap();
        assert!(limit(&[], |_| u32::MAX).is_ok());
        let (header, sets) = ([VERSION, 0], [1u32 << 12, 1 << 12, 0, 0, 0, 0]);
        // SAFETY: both have the lengths of version 3.
        unsafe {
            assert_eq!(
                libc::syscall(libc::SYS_capset, &raw const header, &raw const sets),
                -1
            )
        };
        assert_eq!(
            std::fs::File::open("/proc/1/environ").unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        println!("nothing came back");
    }

    #[test]
    fn the_rights_of_root_cannot_be_had_back() {
        if user_id() != 0 {
            skipped(
                "the_rights_of_root_cannot_be_had_back",
                "only root can become another user",
            );
            return;
        }
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args([
            "sys::privilege::tests::without_rights",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        let done = command.output().expect("it can be run");
        let (out, err) = (
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr),
        );
        assert!(
            done.status.success() && out.contains("nothing came back"),
            "{out}{err}"
        );
    }

    #[test]
    fn users_are_those_of_the_tables() {
        let table = std::fs::read_to_string("/etc/passwd").unwrap();
        let root = User::named("root").unwrap().expect("there is root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(table.starts_with("root:") && root.groups.contains(&0));
        assert_eq!(User::numbered(0, 0), root);
        assert_eq!(User::named("no-such-user").unwrap(), None);
        assert!(User::named("a\0b").is_err());
    }
}
