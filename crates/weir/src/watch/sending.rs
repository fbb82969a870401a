//! The screen of a sender: its keys give the orders of its control socket.

use super::messages::{Lines, Messages};
use super::session::{REFRESH, Terminal};
use super::settings::Settings;
use super::{chosen_look, terminal};
use crate::outcome::{answer, io_words, show};
use crate::terminal::printable;
use anyhow::anyhow;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use weir_engine::socket::Reply;
use weir_engine::steering::Remote;
use weir_screen::sender::{Arrived, Effect, Moment, PortState, SenderUi, Sending, draw_sender};
use weir_screen::{Key, Keys, Look};

/// Most moments for the graph.
const MOST: usize = 1200;

/// A screen that is not drawn yet.
pub struct Screen {
    keyboard: File,
    look: Look,
    asks_background: bool,
    sending: Sending,
}

impl Screen {
    /// Takes the terminal for a sender. **Errors**: there is none.
    pub fn new(
        (command, port, traffic): (&str, String, String),
        reads_stdin: bool,
    ) -> anyhow::Result<Self> {
        let instead = "weir ctl --control PATH status prints the same figures";
        let settings = Settings::read()?;
        let (look, asks_background) = chosen_look(&settings);
        Ok(Self {
            keyboard: terminal((&format!("{command} --watch"), instead), reads_stdin)?,
            look,
            asks_background,
            sending: Sending {
                port,
                traffic,
                is_replay: command == "weir replay",
                ..Sending::default()
            },
        })
    }

    /// Begins to draw.
    pub fn start(self, remote: Arc<Remote>) -> anyhow::Result<Running> {
        let failed = |error: io::Error| anyhow!("the terminal: {}", io_words(&error));
        let shares = io::stderr().is_terminal();
        let messages = shares.then(Messages::take).transpose().map_err(failed)?;
        let terminal = Terminal::take(self.keyboard, self.asks_background).map_err(failed)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                sending: self.sending,
                ..State::default()
            }),
            printed: Arc::default(),
            is_over: AtomicBool::new(false),
            stop: Arc::clone(&remote.stop),
            begun: Instant::now(),
        });
        let (ask, asked) = channel();
        let asker = Arc::clone(&shared);
        let asker = Builder::new()
            .name("orders".to_owned())
            .spawn(move || asker.ask(&remote, &asked));
        let drawer = Arc::clone(&shared);
        let look = self.look;
        let drawer = Builder::new()
            .name("screen".to_owned())
            .spawn(move || drawer.draw(terminal, look, &ask));
        Ok(Running {
            shared,
            asker: Some(asker.map_err(failed)?),
            drawer: Some(drawer.map_err(failed)?),
            messages,
        })
    }
}

/// State that the threads of a screen share.
struct Shared {
    state: Mutex<State>,
    /// Lines that a script printed.
    printed: Arc<Lines>,
    is_over: AtomicBool,
    /// Ends the sender once it is set.
    stop: Arc<AtomicBool>,
    begun: Instant,
}

#[derive(Default)]
struct State {
    sending: Sending,
    /// An answer to the user.
    answer: Option<String>,
    /// Number of the keys' orders that wait. Until they are obeyed, `sending` has their rate and state, so that each of several quick keys counts.
    waiting: usize,
}

/// Ends the sender with the screen, however it ends, unless the sender has ended first.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if !self.0.is_over.load(Ordering::Relaxed) {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives orders, and asks for the counts twice a second. An order may wait for a port that takes nothing, and the keys do not.
    fn ask(&self, remote: &Remote, orders: &Receiver<Value>) {
        loop {
            match remote.answer(&json!({ "request": "status" })) {
                Reply::Done(status) => {
                    let at_s = self.begun.elapsed().as_secs_f64();
                    self.state().note(&status, at_s);
                }
                Reply::Refused(_) if remote.steering.is_over() => {}
                Reply::Refused(why) => self.state().answer = Some(why),
                _ => {}
            }
            let first = match orders.recv_timeout(REFRESH) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for order in first.into_iter().chain(orders.try_iter()) {
                let reply = remote.answer(&order);
                let mut state = self.state();
                state.waiting -= 1;
                if let Reply::Refused(why) = reply {
                    state.answer = Some(why);
                }
            }
        }
    }

    /// Draws until the sender or the user ends it.
    fn draw(&self, mut terminal: Terminal, mut look: Look, ask: &Sender<Value>) -> io::Result<()> {
        let _ends = Ends(self);
        let (mut keys, mut ui) = (Keys::default(), SenderUi::default());
        while !self.is_over.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
            terminal.look_around()?;
            let sending = {
                let mut state = self.state();
                if let Some(answer) = state.answer.take() {
                    ui.say(answer);
                }
                state.sending.clone()
            };
            ui.printed = self.printed.latest();
            let picture = draw_sender(&sending, &ui, (look, Terminal::area()));
            match terminal.show(picture) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(()),
                shown => shown?,
            }
            let Some(pressed) = terminal.pressed(&mut keys, REFRESH / 4)? else {
                return Ok(());
            };
            for key in pressed {
                if let Key::Background { light } = key {
                    look.light = light;
                }
                let effect = {
                    let state = self.state();
                    ui.press(key, &state.sending)
                };
                let order = match effect {
                    Effect::None => continue,
                    Effect::End => return Ok(()),
                    Effect::Suspend => {
                        terminal.suspend()?;
                        continue;
                    }
                    Effect::Redraw => {
                        terminal.forget();
                        continue;
                    }
                    Effect::Stop => json!({ "request": "stop" }),
                    Effect::Start => json!({ "request": "start" }),
                    Effect::Port(name, stops) => {
                        let request = if stops { "stop" } else { "start" };
                        json!({ "request": request, "port": name })
                    }
                    Effect::Set("speed", text) => match text.trim_end_matches('x').parse::<f64>() {
                        Ok(times) => json!({ "request": "set", "what": "speed", "value": times }),
                        Err(_) => {
                            ui.say(format!("'{text}' is not a speed: write 2 or 0.5"));
                            continue;
                        }
                    },
                    Effect::Set(what, text) => {
                        json!({ "request": "set", "what": what, "value": text })
                    }
                };
                self.state().expect(&order);
                let _ = ask.send(order);
            }
        }
        Ok(())
    }
}

impl State {
    /// Takes the effect of an order for done.
    fn expect(&mut self, order: &Value) {
        self.waiting += 1;
        let sending = &mut self.sending;
        let stops = order["request"] == "stop";
        match order["request"].as_str() {
            _ if order["port"].is_string() => {
                let mut ports = sending.ports.iter_mut();
                if let Some(port) = ports.find(|port| order["port"] == *port.name) {
                    port.is_stopped = stops;
                }
            }
            Some("stop") => sending.is_stopped = true,
            Some("start") => sending.is_stopped = false,
            _ => match (&order["what"], &order["value"]) {
                (Value::String(what), Value::String(rate)) if what == "rate" => {
                    sending.rate = Some(rate.clone());
                }
                (_, Value::Number(times)) => sending.rate = Some(format!("{times}x")),
                _ => {}
            },
        }
    }

    /// Takes the counts of an answer, `at_s` after the begin.
    fn note(&mut self, status: &Value, at_s: f64) {
        if self.waiting == 0 {
            self.sending.ports = ports(status);
            self.sending.rate = status["rate"].as_str().map(str::to_owned);
            self.sending.is_stopped = status["stopped"].as_bool().unwrap_or_default();
        }
        count(&mut self.sending, status, at_s);
    }
}

/// The ports of an answer.
fn ports(status: &Value) -> Vec<PortState> {
    let ports = status["ports"].as_array().into_iter().flatten();
    let port = |port: &Value| {
        let number = |name: &str| port[name].as_u64().unwrap_or_default();
        PortState {
            name: port["name"].as_str().unwrap_or_default().to_owned(),
            sent: number("sent"),
            refused: number("refused"),
            late_ns: number("late_ns"),
            is_stopped: port["stopped"].as_bool().unwrap_or_default(),
            left_out: number("left_out"),
        }
    };
    ports.map(port).collect()
}

fn count(sending: &mut Sending, status: &Value, at_s: f64) {
    let number = |name: &str| status[name].as_u64().unwrap_or_default();
    sending.refused = number("refused");
    sending.late_ns = number("late_ns");
    sending.arrived = status.get("received").map(|_| Arrived {
        received: number("received"),
        duplicated: number("duplicated"),
        reordered: number("reordered"),
        after_the_last: number("under_way"),
        is_down: status["link_down"].as_bool().unwrap_or_default(),
    });
    let streams = status["streams"].as_array().into_iter().flatten();
    sending.streams = streams
        .filter_map(|it| Some((it["name"].as_str()?.to_owned(), it["sent"].as_u64()?)))
        .collect();
    if sending.past.len() >= MOST {
        sending.past.remove(0);
    }
    sending.past.push(Moment {
        at_s,
        sent: number("sent"),
        bytes: number("bytes"),
    });
}

/// A screen that is drawn. If the value is dropped, the terminal is as before, and shows the messages of the meantime.
pub struct Running {
    shared: Arc<Shared>,
    asker: Option<JoinHandle<()>>,
    drawer: Option<JoinHandle<io::Result<()>>>,
    messages: Option<Messages>,
}

impl Running {
    /// Takes lines that a script prints: standard output is the screen.
    pub fn printed(&self) -> Arc<Lines> {
        Arc::clone(&self.shared.printed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let drawn = self.drawer.take().map(JoinHandle::join);
        let _ = self.asker.take().map(JoinHandle::join);
        for line in self.messages.iter_mut().flat_map(Messages::end) {
            show(&format!("{}\n", printable(&line)));
        }
        let (left_out, lines) = self.shared.printed.take();
        let before = (left_out > 0).then(|| format!("weir: {left_out} earlier lines"));
        for line in before.into_iter().chain(lines) {
            answer(&format!("{}\n", printable(&line)));
        }
        if let Some(Ok(Err(error))) = drawn {
            crate::outcome::say(&format!("the terminal: {}", io_words(&error)));
        }
    }
}
