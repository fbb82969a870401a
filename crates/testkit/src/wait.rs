//! Waits for an event in another thread, in another process or in the kernel. A test waits for the event, never for a time.

use std::fmt::Display;
use std::fs::read_to_string;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Longest wait for an event that comes at once on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until a condition holds. **Panics** with the name of the condition after a minute.
#[track_caller]
pub fn until(what: impl Display, mut holds: impl FnMut() -> bool) {
    assert!(within(PATIENCE, &mut holds), "waited a minute for {what}");
}

/// Repeats an attempt until it succeeds. **Panics** with its last error after a minute.
#[track_caller]
pub fn until_ok<T, E: Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let mut last = None;
    within(PATIENCE, || {
        let result = attempt();
        let ended = result.is_ok();
        last = Some(result);
        ended
    });
    match last {
        Some(Ok(value)) => value,
        Some(Err(error)) => panic!("waited a minute: {error}"),
        None => unreachable!("there is at least one attempt"),
    }
}

/// Waits at most `most` until a condition holds, and returns whether it does.
pub fn within(most: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if begun.elapsed() > most {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Asserts that a condition holds at each look during `span`: for what must not happen.
#[track_caller]
pub fn throughout(span: Duration, what: impl Display, mut holds: impl FnMut() -> bool) {
    let broken = within(span, || !holds());
    assert!(!broken, "it should hold for {span:?}: {what}");
}

/// Waits until all threads of a process whose names satisfy `is_meant` sleep, at several looks one after the other: then they have used
/// all that came, and wait for more. At least one thread must have such a name.
#[track_caller]
pub fn until_asleep(process: u32, is_meant: impl Fn(&str) -> bool) {
    /// A thread that looks at something a thousand times a second may be seen asleep between two looks.
    const LOOKS: u32 = 5;
    let mut looks = 0;
    until(format_args!("process {process} to sleep"), || {
        looks = if are_asleep(process, &is_meant) {
            looks + 1
        } else {
            0
        };
        looks == LOOKS
    });
}

/// Whether there are such threads, and all of them sleep. **Source**: proc_pid_stat(5).
fn are_asleep(process: u32, is_meant: &impl Fn(&str) -> bool) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    let mut count = 0;
    for task in tasks.flatten() {
        // A thread may have ended since the list was read.
        let Ok(stat) = read_to_string(task.path().join("stat")) else {
            continue;
        };
        let Some((head, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        if is_meant(head.split_once('(').map_or("", |(_, name)| name)) {
            if !rest.starts_with('S') {
                return false;
            }
            count += 1;
        }
    }
    count > 0
}

/// Thread id of the caller, as `/proc/self/task` lists it.
pub fn thread_id() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").expect("procfs is mounted");
    let name = link.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok())
        .expect("its last part is the thread id")
}

/// Waits until a thread of this process sleeps.
#[track_caller]
pub fn until_thread_sleeps(thread: u32) {
    until(format_args!("thread {thread} to sleep"), || {
        read_to_string(format!("/proc/self/task/{thread}/stat")).is_ok_and(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    });
}

/// Bytes that wait in a pipe or in a socket for its reader. A pipe may be given by either end. **Source**: FIONREAD in pipe(7), unix(7).
#[allow(unsafe_code)]
pub fn unread(file: &impl AsFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives through the call.
    let done = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::FIONREAD, &mut bytes) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
    bytes as usize
}

/// Waits until the kernel has handed on all packets that were sent before by interfaces of this machine.
///
/// A virtual interface puts a packet into the queue of the processor that sends, and a software
/// interrupt of that processor hands it on, on a busy machine some time after. These queues are
/// first in, first out, and all interfaces share them: so for each processor, a datagram over
/// loopback that has arrived says that all before it were handed on. An interface with an XDP
/// program has a ring of 256 packets of its own, of which each round of the interrupt takes up to
/// 64: several rounds empty it. **Source**: `enqueue_to_backlog` and `net_rx_action` in
/// net/core/dev.c, `veth_poll` in drivers/net/veth.c.
pub fn until_handed_on() {
    // In a thread of its own, because it moves from processor to processor.
    std::thread::scope(|scope| {
        scope.spawn(hand_on);
    });
}

/// Sends the datagrams from each processor, and returns their number.
fn hand_on() -> u64 {
    const ROUNDS: usize = 8;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("there is loopback");
    socket
        .connect(socket.local_addr().expect("it is bound"))
        .expect("a socket may talk to itself");
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("it is not zero");
    let mut sent = 0;
    for _ in processors().into_iter().filter(|&number| move_to(number)) {
        for _ in 0..ROUNDS {
            let mut byte = [0];
            socket.send(&byte).expect("loopback takes it");
            socket.recv(&mut byte).expect("loopback hands it on");
            sent += 1;
        }
    }
    sent
}

/// Processors of this machine that are online, by number.
fn processors() -> Vec<usize> {
    let list = read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let numbers = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    numbers.flatten().collect()
}

/// Has this thread run on one processor. Returns `false` if it may not, and then none of this test's packets were sent there either.
#[allow(unsafe_code)]
fn move_to(processor: usize) -> bool {
    // SAFETY: the set is plain bits, of which zeros are valid, and the kernel reads it during the call; CPU_SET checks its index.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::ip;
    use std::io::Write;

    #[test]
    fn unread_bytes_and_sleeping_threads_are_seen() {
        let (mut reads, mut writes) = io::pipe().unwrap();
        writes.write_all(b"four").unwrap();
        assert_eq!((unread(&reads), unread(&writes)), (4, 4));
        let (tell, told) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            io::Read::read_to_end(&mut reads, &mut Vec::new()).unwrap()
        });
        let thread = told.recv().unwrap();
        until("the reader", || unread(&writes) == 0);
        until_thread_sleeps(thread);
        assert!(!within(Duration::ZERO, || reader.is_finished()));
        drop(writes);
        assert_eq!(reader.join().unwrap(), 4);
    }

    #[test]
    fn a_process_that_computes_is_not_asleep() {
        let mut spins = std::process::Command::new("sh");
        let mut spins = spins.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut waits = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        until_asleep(waits.id(), |name| name == "sleep");
        assert!(!are_asleep(waits.id(), &|name| name == "other"));
        throughout(Duration::from_millis(50), "it computes", || {
            !are_asleep(spins.id(), &|_| true)
        });
        for child in [&mut spins, &mut waits] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn the_last_error_is_told() {
        let mut attempts = 0;
        let value = until_ok(|| {
            attempts += 1;
            if attempts < 3 {
                Err("not yet")
            } else {
                Ok(attempts)
            }
        });
        assert_eq!(value, 3);
    }

    /// The kernel counts what the near end's IP was given, and the datagrams over loopback with it.
    #[test]
    fn all_that_was_sent_before_is_handed_on() {
        if !crate::net::cable("all_that_was_sent_before_is_handed_on", "") {
            return;
        }
        let near = ip("-br link show near");
        let mac = near.split_whitespace().nth(2).unwrap();
        ip("addr add 10.9.9.1/24 dev far");
        ip(&format!("neigh add 10.9.9.2 lladdr {mac} dev far"));
        let socket = UdpSocket::bind("10.9.9.1:0").unwrap();
        for _ in 0..20 {
            let before = received();
            for _ in 0..200 {
                socket.send_to(b"x", "10.9.9.2:9").unwrap();
            }
            let own = std::thread::scope(|scope| scope.spawn(hand_on).join().unwrap());
            assert_eq!(received() - before, 200 + own);
        }
    }

    /// Packets that IP of this network was given.
    fn received() -> u64 {
        let text = read_to_string("/proc/thread-self/net/snmp").unwrap();
        let mut rows = text.lines().filter(|line| line.starts_with("Ip: "));
        let names = rows.next().unwrap().split(' ');
        let column = names.into_iter().position(|name| name == "InReceives");
        let value = rows.next().unwrap().split(' ').nth(column.unwrap());
        value.unwrap().parse().unwrap()
    }
}
