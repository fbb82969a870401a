//! `--control` and `--script`: orders of `weir ctl` and of a program to a sender.

use super::maker::{Changeable, Wanted};
use crate::cli::GenerateArgs;
use crate::ctl::{self, Fronts};
use crate::script::Script;
use crate::watch::sending::Screen;
use crate::{port, rate, walls::Walls};
use anyhow::bail;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use weir_engine::pairing::Pairs;
use weir_engine::socket::Bound;
use weir_engine::steering::{MakeTraffic, ReadRate, Remote, Steering};

/// Orders to a sender, if it takes any.
pub struct Steered(Option<Parts>);

struct Parts {
    bound: Mutex<Option<Bound>>,
    script: Option<Script>,
    screen: Mutex<Option<Screen>>,
    streams: Vec<String>,
    steering: Arc<Steering>,
    /// Speed of the link, bit/s.
    link: Option<f64>,
    traffic: Arc<Mutex<Changeable>>,
}

impl Steered {
    /// Makes the control socket, if there is to be one. **Errors**: a sink or options for which there is none.
    pub fn new(arguments: &GenerateArgs, wanted: &Wanted, walls: &Walls) -> anyhow::Result<Self> {
        let steer = &arguments.steer;
        let Some(flag) = steer.named() else {
            return Ok(Self(None));
        };
        if !port::is_port(&arguments.sink) {
            bail!("{flag}: a file is written at once: name a port that sends");
        }
        if arguments.workers > 1 {
            bail!("{flag}: one sender takes orders: leave --workers out");
        }
        let traffic = arguments.profile.as_deref().unwrap_or("default");
        let screen = steer.watch.then(|| {
            let names = ("weir generate", arguments.sink.text(), traffic.to_owned());
            Screen::new(names, false)
        });
        Ok(Self(Some(Parts {
            script: steer.script.as_ref().map(Script::read).transpose()?,
            screen: Mutex::new(screen.transpose()?),
            streams: wanted.stream_names(),
            bound: Mutex::new(ctl::bind(steer.control.as_ref(), walls)?),
            steering: Arc::default(),
            link: rate::share_of_link(&arguments.sink, 1.0).ok(),
            traffic: Arc::new(Mutex::new(Changeable::new(wanted, arguments.truth))),
        })))
    }

    /// Whether the script had an error.
    pub fn has_failed(&self) -> bool {
        let script = self.0.as_ref().and_then(|parts| parts.script.as_ref());
        script.is_some_and(Script::has_failed)
    }

    /// The orders.
    pub fn steering(&self) -> Option<&Steering> {
        self.0.as_ref().map(|parts| &*parts.steering)
    }

    /// Takes orders until the value is dropped. `pairs` has the packets that arrive at the other end.
    pub fn serve(
        &self,
        stop: &Arc<AtomicBool>,
        pairs: Option<Arc<Mutex<Pairs>>>,
    ) -> anyhow::Result<Option<Fronts>> {
        let Some(parts) = &self.0 else {
            return Ok(None);
        };
        fn taken<T>(place: &Mutex<Option<T>>) -> Option<T> {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            place.take()
        }
        let (link, traffic) = (parts.link, Arc::clone(&parts.traffic));
        let read: ReadRate = Box::new(move |text| ctl::read_rate(text, link, false));
        let make: MakeTraffic = Box::new(move |what, value| {
            let mut wanted = traffic.lock().unwrap_or_else(PoisonError::into_inner);
            wanted.with(what, value)
        });
        let remote = Remote {
            steering: Arc::clone(&parts.steering),
            stop: Arc::clone(stop),
            rate: read,
            traffic: Some(make),
            making: Mutex::default(),
            pairs,
            streams: parts.streams.clone(),
            ports: Vec::new(),
        };
        let (bound, screen) = (taken(&parts.bound), taken(&parts.screen));
        ctl::serve_sender(bound, (parts.script.clone(), screen), remote).map(Some)
    }
}
