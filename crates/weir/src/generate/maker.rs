//! The two makers of packets: a profile's, and a mix's.

use crate::cli::{GenerateArgs, MixDefault};
use crate::firewall::keys;
use std::sync::Arc;
use weir_firewall::control::{Keys, seal};
use weir_generator::trains::MIXES;
use weir_generator::{
    Error, FRAME_MAX, FlowCount, Generated, Generator, MixFrames, Profile, Sizes,
};

/// Requested number of packets.
#[derive(Clone)]
pub enum Wanted {
    Profile(Profile),
    Mix {
        number: u8,
        seed: u64,
        packets: u64,
        rate_pps: u64,
        accepts: bool,
        keys: Option<Arc<Keys>>,
    },
}

/// A maker of packets.
pub enum Maker {
    Profile(Box<Generator>),
    Mix(Box<MixFrames>),
}

impl Wanted {
    /// Reads the options for `packets` packets, and the key of control packets. **Errors**: the key file cannot be used.
    pub fn of(arguments: &GenerateArgs, packets: u64, rate_pps: u64) -> anyhow::Result<Self> {
        let GenerateArgs {
            seed, flows, zipf, ..
        } = *arguments;
        let keys = arguments
            .control_key
            .as_ref()
            .map(keys)
            .transpose()?
            .map(Arc::new);
        Ok(match arguments.mix {
            Some(number) => {
                let accepts = arguments.mix_default == MixDefault::Accept;
                Self::Mix {
                    number,
                    seed,
                    packets,
                    rate_pps,
                    accepts,
                    keys,
                }
            }
            None => {
                let sizes = arguments.sizes.unwrap_or(Sizes::Mwn);
                Self::Profile(Profile {
                    seed,
                    packets,
                    sizes,
                    flows,
                    zipf,
                    rate_pps,
                    ..Profile::default()
                })
            }
        })
    }

    /// Prepares the maker. **Cost**: seconds for millions of flows, and for the warm-up of a mix.
    pub fn prepare(&self) -> Result<Maker, Error> {
        Ok(match self {
            Self::Profile(profile) => Maker::Profile(Box::new(Generator::new(profile)?)),
            Self::Mix {
                number,
                seed,
                packets,
                rate_pps,
                accepts,
                keys,
            } => {
                let (mix, start_ns) = (
                    &MIXES[usize::from(*number) - 1],
                    Profile::default().start_ns,
                );
                let mut frames =
                    MixFrames::new(mix, *seed, *packets, start_ns, *rate_pps, *accepts);
                if let Some(keys) = keys.clone() {
                    frames.sign(Box::new(move |sequence, time_ns, lines| {
                        let key = keys.iter().next().expect("a key file has a key");
                        seal(key, sequence, time_ns as u64, None, lines)
                            .expect("two lines of a table fit a packet")
                    }));
                }
                Maker::Mix(Box::new(frames))
            }
        })
    }
}

impl Maker {
    /// Writes the next frame to the start of `buffer`; `None` if all have been made.
    #[inline]
    pub fn next(&mut self, buffer: &mut [u8; FRAME_MAX]) -> Option<Generated> {
        match self {
            Self::Profile(generator) => generator.next(buffer),
            Self::Mix(frames) => frames.next(buffer),
        }
    }

    /// Number of packets still to be made.
    pub fn remaining(&self) -> u64 {
        match self {
            Self::Profile(generator) => generator.remaining(),
            Self::Mix(frames) => frames.remaining(),
        }
    }

    /// The known answers: expression or fate, packets and bytes.
    pub fn rows(&self) -> Vec<(String, u64, u64)> {
        match self {
            Self::Profile(generator) => generator.truth().rows().collect(),
            Self::Mix(frames) => frames.rows().collect(),
        }
    }

    /// Name of what [`Self::rows`] tell about.
    pub fn rows_of(&self) -> &'static str {
        match self {
            Self::Profile(_) => "expression",
            Self::Mix(_) => "fate",
        }
    }

    /// The flows with most packets; a mix has none.
    pub fn top(&self, n: usize) -> Vec<FlowCount> {
        match self {
            Self::Profile(generator) => generator.top(n),
            Self::Mix(_) => Vec::new(),
        }
    }
}
