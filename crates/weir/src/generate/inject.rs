//! Injection: an interface receives the packets, for load tests.

use super::limit::Limit;
use super::pace::{Pace, Tally};
use crate::cli::GenerateArgs;
use crate::outcome::{Outcome, io_words, say, say_plain};
use crate::port::{dropping_line, gone_words, not_permitted, refusal, sender};
use crate::rate;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_engine::port::injection_mode;
use weir_generator::LINK_ADDRESSES;
use weir_generator::streams::{Rate, Sizes};
use weir_io::sys::bpf;
use weir_io::sys::inject::{Error, Fields, HEADERS, Injector, Mode};
use weir_io::sys::privilege::Capability;
use weir_messages::guards::{between, injecting_line};

/// Default number of flows.
const FLOWS: u64 = 100_000;

/// Default length of a frame in bytes.
const LEN: u16 = 60;

/// Most copies per call of the kernel; clock and signals are checked in between.
const AT_ONCE: u64 = 1 << 14;

/// Port of the discard protocol (RFC 863).
const DISCARD: u16 = 9;

/// Injects into `interface`, until `stop` is set.
pub fn run(
    arguments: &GenerateArgs,
    interface: &str,
    (limit, wanted): (Limit, Option<Rate>),
    walls: &Walls,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Outcome> {
    let name = arguments.sink.utf8();
    let len = match &arguments.sizes {
        None => LEN,
        Some(Sizes::Uniform(len, last)) if len == last && *len <= 1514 => *len,
        Some(sizes) => {
            bail!("{name} repeats one frame: --sizes takes a number of bytes, and not {sizes}")
        }
    };
    if arguments.truth || arguments.talkers.is_some() {
        bail!(
            "--truth and --talkers know the packets of profiles: {name} repeats one frame, all flows alike: add --profile default"
        );
    }
    if arguments.digest {
        bail!("--digest: {name} repeats one frame, into which the kernel writes: add --profile 64");
    }
    if arguments.gaps.is_some() || arguments.workers > 1 {
        bail!(
            "{name} repeats one frame without --profile: --gaps and --workers are for other packets"
        );
    }
    if let Some(flag) = arguments.steer.named() {
        bail!("{flag}: {name} repeats one frame: add --profile 64, whose packets can be changed");
    }
    let flows = arguments.flows.unwrap_or(FLOWS);
    let Some(flows) = u32::try_from(flows).ok().filter(|&flows| flows > 0) else {
        bail!("--flows {flows}: want 1 to {}", u32::MAX);
    };
    // Packets of one length: bits are packets.
    let pps = wanted.map(|rate| match rate {
        Rate::Packets(pps) => pps,
        Rate::Bits(bits) => bits / (8.0 * f64::from(len)),
    });
    let mode = injection_mode(interface, arguments.inject.to_stack)
        .map_err(|error| refusal(&arguments.sink, error))?;
    let fields = Fields {
        counter: Some(HEADERS),
        time: Some(HEADERS + 8),
        flows,
        ..Fields::default()
    };
    let mut injector =
        Injector::open(interface, &template(len), &fields, mode).map_err(|error| match error {
            Error::Bpf(bpf::Error::NotPermitted(_)) => not_permitted(
                &arguments.sink,
                "injecting needs CAP_BPF and CAP_NET_ADMIN",
                "cap_bpf,cap_net_admin",
            )
            .into(),
            error => anyhow!("{name}: {error}"),
        })?;
    if let Some(sender) = sender(&arguments.sink) {
        let (frames, rate) = (between(LINK_ADDRESSES), rate::words(wanted));
        say_plain(&injecting_line(
            name,
            &sender,
            &frames,
            &rate,
            &limit.words(),
        ));
    }
    if mode == Mode::Drop {
        say_plain(&dropping_line(&arguments.sink));
    }
    // A program in the kernel injects the frames, and is called for each batch.
    walls.raise(&[Capability::Bpf, Capability::NetAdmin])?;
    let mut pace = Pace::begin(&arguments.sink, stop, limit.time);
    let failed = inject(&mut injector, limit.packets, pps, &mut pace).err();
    pace.clear();
    let packets = injector.injected();
    if let Some(error) = &failed {
        let why = gone_words(interface).unwrap_or_else(|| match error.raw_os_error() {
            // EINVAL, EOPNOTSUPP.
            Some(22 | 95) => "the kernel does not inject: Linux 5.18 is needed".to_owned(),
            _ => io_words(error),
        });
        say(&format!(
            "{name}: {why}; {packets} packets were injected before that"
        ));
    }
    let is_held = pace.late().is_held();
    if !is_held {
        say(&super::not_held(name, &pace));
    }
    say_plain(&pace.summary(
        Tally {
            packets,
            bytes: packets * u64::from(len),
            refused: 0,
        },
        "injected",
    ));
    let is_done = failed.is_none() && (is_held || !arguments.strict);
    Ok(Outcome::of(is_done))
}

fn inject(
    injector: &mut Injector,
    packets: u64,
    pps: Option<f64>,
    pace: &mut Pace,
) -> std::io::Result<()> {
    let mut done = 0;
    while done < packets && !pace.is_over() {
        let left = packets - done;
        let now = match pps {
            None => {
                pace.now();
                left.min(AT_ONCE)
            }
            Some(pps) => {
                // Packet number n is due at n / pps.
                pace.now();
                pace.leaves(Duration::try_from_secs_f64(done as f64 / pps).unwrap_or_default());
                let due = (pace.now().as_secs_f64() * pps) as u64 + 1;
                let now = due.saturating_sub(done).min(left).min(AT_ONCE);
                if now == 0 {
                    let due = Duration::try_from_secs_f64(done as f64 / pps);
                    pace.wait(due.unwrap_or(Duration::MAX));
                    continue;
                }
                now
            }
        };
        done += injector.inject(now)?;
        pace.show(done);
    }
    Ok(())
}

/// An Ethernet frame with IPv4 and UDP. The program in the kernel fills in flow, number and time.
fn template(len: u16) -> Vec<u8> {
    let mut frame = [&LINK_ADDRESSES[1][..], &LINK_ADDRESSES[0], &[8, 0, 0x45, 0]].concat();
    frame.extend((len - 14).to_be_bytes());
    // Identification, don't fragment, 64 hops, UDP, a checksum to be filled in, addresses.
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 0, 198, 18, 0, 1]);
    for field in [0, DISCARD, len - 34, 0] {
        frame.extend(field.to_be_bytes());
    }
    frame.resize(len.into(), 0);
    frame
}
