//! `--control`: orders of `weir ctl` to a sender.

use super::maker::{Changeable, Wanted};
use crate::cli::GenerateArgs;
use crate::{ctl, port, rate, walls::Walls};
use anyhow::bail;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use weir_engine::socket::{Bound, Server};
use weir_engine::steering::{MakeTraffic, ReadRate, Remote, Steering};

/// Orders to a sender, if it takes any.
pub struct Steered(Option<Parts>);

struct Parts {
    bound: Mutex<Option<Bound>>,
    steering: Arc<Steering>,
    /// Speed of the link, bit/s.
    link: Option<f64>,
    traffic: Arc<Mutex<Changeable>>,
}

impl Steered {
    /// Makes the control socket, if there is to be one. **Errors**: a sink or options for which there is none.
    pub fn new(arguments: &GenerateArgs, wanted: &Wanted, walls: &Walls) -> anyhow::Result<Self> {
        let Some(path) = &arguments.steer.control else {
            return Ok(Self(None));
        };
        if !port::is_port(&arguments.sink) {
            bail!("--control {path}: a file is written at once: name a port that sends");
        }
        if arguments.workers > 1 {
            bail!("--control {path}: one sender takes orders: leave --workers out");
        }
        Ok(Self(ctl::bind(Some(path), walls)?.map(|bound| Parts {
            bound: Mutex::new(Some(bound)),
            steering: Arc::default(),
            link: rate::share_of_link(&arguments.sink, 1.0).ok(),
            traffic: Arc::new(Mutex::new(Changeable::new(wanted, arguments.truth))),
        })))
    }

    /// The orders.
    pub fn steering(&self) -> Option<&Steering> {
        self.0.as_ref().map(|parts| &*parts.steering)
    }

    /// Takes requests until the server is dropped.
    pub fn serve(&self, stop: &Arc<AtomicBool>) -> anyhow::Result<Option<Server>> {
        let Some(parts) = &self.0 else {
            return Ok(None);
        };
        let bound = parts.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let (link, traffic) = (parts.link, Arc::clone(&parts.traffic));
        let read: ReadRate = Box::new(move |text| ctl::read_rate(text, link, false));
        let make: MakeTraffic = Box::new(move |what, value| {
            let mut wanted = traffic.lock().unwrap_or_else(PoisonError::into_inner);
            wanted.with(what, value)
        });
        ctl::serve_sender(
            { bound }.take(),
            Remote {
                steering: Arc::clone(&parts.steering),
                stop: Arc::clone(stop),
                rate: read,
                traffic: Some(make),
                making: Mutex::default(),
            },
        )
    }
}
