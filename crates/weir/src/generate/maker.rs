//! The two makers of packets: a profile's, and a mix's.

use crate::cli::GenerateArgs;
use weir_generator::trains::MIXES;
use weir_generator::{Error, FRAME_MAX, FlowCount, Generated, Generator, MixFrames, Profile, Sizes};

/// Packets that are asked for.
#[derive(Clone)]
pub enum Wanted {
    Profile(Profile),
    Mix { number: u8, seed: u64, packets: u64, rate_pps: u64 },
}

/// A maker of packets.
pub enum Maker {
    Profile(Box<Generator>),
    Mix(Box<MixFrames>),
}

impl Wanted {
    /// Reads the options.
    pub fn of(arguments: &GenerateArgs, rate_pps: u64) -> Self {
        let GenerateArgs { seed, packets, flows, zipf, .. } = *arguments;
        match arguments.mix {
            Some(number) => Self::Mix { number, seed, packets, rate_pps },
            None => {
                let sizes = arguments.sizes.unwrap_or(Sizes::Mwn);
                Self::Profile(Profile { seed, packets, sizes, flows, zipf, rate_pps, ..Profile::default() })
            }
        }
    }

    /// Prepares the maker. **Cost**: seconds for millions of flows, and for the warm-up of a mix.
    pub fn prepare(&self) -> Result<Maker, Error> {
        Ok(match self {
            Self::Profile(profile) => Maker::Profile(Box::new(Generator::new(profile)?)),
            Self::Mix { number, seed, packets, rate_pps } => {
                let (mix, start_ns) = (&MIXES[usize::from(*number) - 1], Profile::default().start_ns);
                Maker::Mix(Box::new(MixFrames::new(mix, *seed, *packets, start_ns, *rate_pps)))
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
