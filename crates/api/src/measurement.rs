//! Measurements: the answers of `weir measure`, one after another.

use crate::error::Error;
use crate::heard::{Heard, locked, wait_for};
use crate::opening::{Opening, Running, names_of};
use crate::options::Options;
use crate::queue::{Feed, Queue, Taken, queue};
use crate::reading::Reading;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::capture::CaptureRequest;
use weir_engine::control::Control;
use weir_engine::event::Event;
use weir_engine::name::Name;
use weir_engine::outputs::Outputs;
use weir_engine::run::{Ended, Run, Setup};
use weir_engine::session::{End, Order};
use weir_measure::{Geo, Window, health};
use weir_messages::events::{Line, end_lines};
use weir_messages::geo;
use weir_messages::json::line;
use weir_messages::measured::{
    Answers, Beside, LeftOut, MOST_WAITING, time_lines, too_many_findings, total,
};
use weir_messages::measurement::{Options as MeasureOptions, check_queues, snaplen};
use weir_pipeline::select::Selection;
use weir_view::{Finding, View};

/// An answer of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether this is the summary, the last answer.
    pub is_summary: bool,
    /// The answer: a JSON object in one line, as `weir measure --json` prints it.
    pub json: String,
    /// Health of the traffic of the answer, with the parts that [`MeasureOptions::health`] names; `None` if it names none.
    pub health: Option<Arc<health::Report>>,
    /// Findings that began or ended since the answer before, if [`MeasureOptions::findings`] is set; the summary also has open findings.
    pub findings: Vec<Finding>,
}

/// Reads databases of autonomous systems and countries, for [`MeasureOptions::geo`]; `None` without files.
///
/// **Cost**: some tenths of a second for 10 MB. **Errors**: a file that cannot be read, is damaged, or tells neither.
pub fn read_geo<N: Clone + Into<Name>>(files: &[N]) -> Result<Option<Arc<Geo>>, Error> {
    let files: Vec<Name> = files.iter().cloned().map(Into::into).collect();
    geo::read_geo(&files).map_err(Error::refused)
}

/// Returns the JSON object of a finding in one line, as `weir measure --findings --json` prints it.
pub fn finding_json(finding: &Finding) -> String {
    line("finding", &weir_messages::view::finding(finding))
}

/// Result of [`Measurement::next`].
#[derive(Clone, Debug, PartialEq)]
pub enum NextAnswer {
    /// An answer.
    Answer(Answer),
    /// No answer came in that time.
    Nothing,
    /// The summary was taken.
    End,
}

/// A measurement of sources, in threads of its own. Every method may be called from any thread.
///
/// ```no_run
/// use std::time::Duration;
/// use weir_api::{MeasureOptions, Measurement, NextAnswer, Options};
///
/// let measure = MeasureOptions { window: Some(Duration::from_secs(1)), ..MeasureOptions::default() };
/// let measurement = Measurement::open(&["trace.pcap"], &Options::default(), &measure)?;
/// while let NextAnswer::Answer(answer) = measurement.next(Duration::MAX)? {
///     println!("{}", answer.json);
/// }
/// # Ok::<(), weir_api::Error>(())
/// ```
#[derive(Debug)]
pub struct Measurement {
    answers: Queue<Answer>,
    control: Arc<Control>,
    heard: Arc<Mutex<Heard>>,
    /// Contents of the answers; the windows left out.
    shape: Answers,
    left_out: Arc<Mutex<LeftOut>>,
    findings: Arc<Mutex<Findings>>,
    options: MeasureOptions,
    is_live: bool,
    state: Mutex<State>,
    /// No sink may empty the files of the measurement.
    _files: Reading,
}

#[derive(Debug)]
struct State {
    run: Running,
    /// The summary, until a call has returned it.
    summary: Option<Answer>,
}

/// The side of a measurement that gives windows out, in the thread of the run.
struct Giver {
    feed: Feed<Answer>,
    heard: Arc<Mutex<Heard>>,
    shape: Answers,
    left_out: Arc<Mutex<LeftOut>>,
    findings: Arc<Mutex<Findings>>,
    is_live: bool,
}

fn health_of(window: &Window<'_>) -> Option<Arc<health::Report>> {
    let report = window.health.filter(|report| report.has_parts());
    report.map(|report| Arc::new(report.clone()))
}

/// Findings that no answer has yet.
#[derive(Debug, Default)]
struct Findings {
    /// `None`: findings are not wanted.
    view: Option<View>,
    waiting: Vec<Finding>,
    left_out: u64,
}

impl Findings {
    /// Most findings that wait for an answer.
    const MOST: usize = 1024;

    fn new(options: &MeasureOptions) -> Self {
        let settings = || weir_view::Settings {
            local: options.local.clone(),
            ..weir_view::Settings::default()
        };
        Self {
            view: options.findings.then(|| View::new(settings())),
            ..Self::default()
        }
    }

    fn add(&mut self, window: &Window<'_>) {
        if let Some(view) = &mut self.view {
            view.add(window);
            self.note();
        }
    }

    fn note(&mut self) {
        let notices = self
            .view
            .as_mut()
            .map(|view| view.findings().take_notices());
        for finding in notices.unwrap_or_default() {
            match self.waiting.len() < Self::MOST {
                true => self.waiting.push(finding),
                false => self.left_out += 1,
            }
        }
    }

    fn take(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.waiting)
    }

    /// Ends the search for findings. Returns a line on findings that were left out.
    fn finish(&mut self) -> Option<String> {
        let view = self.view.as_mut()?;
        view.findings().finish();
        self.left_out += view.findings().left_out();
        self.note();
        (self.left_out > 0).then(|| too_many_findings(self.left_out))
    }
}

impl Giver {
    fn event(&self, event: Event<'_>) {
        let Event::Window(window) = event else {
            return locked(&self.heard).event(&event);
        };
        locked(&self.findings).add(&window);
        // A file waits until there is room. A capture must not.
        let has_room = !self.is_live || self.feed.has_room();
        let window = locked(&self.left_out).admit(window, has_room);
        if let Some(window) = window {
            self.feed.add(Answer {
                is_summary: false,
                json: line("window", &self.shape.window(&window)),
                health: health_of(&window),
                findings: locked(&self.findings).take(),
            });
        }
    }
}

impl Measurement {
    /// Begins to measure sources, named as for the command: capture files, "-" for standard input, record directories, or interfaces.
    ///
    /// Of `options`, `workers` is the number of threads that measure, and `inner` has keys read
    /// from the innermost packets, which the filter also judges. `splits`, `invert`, `limit`
    /// and `rules` are not a part of a measurement and are refused. Files in the given
    /// [`order`](Options::order) are merged in time order if there are windows, or if repeated
    /// packets are left out, unless [`MeasureOptions::merge`] says otherwise. Of `measure`, `workers`, `cpus`, `inner`, `sort`,
    /// `follow` and `timing` are not used.
    ///
    /// Waits until the first packets of a file are there, or the capture has begun; not for packets of a pipe.
    pub fn open<N: Clone + Into<Name>>(
        names: &[N],
        options: &Options,
        measure: &MeasureOptions,
    ) -> Result<Self, Error> {
        let names = names_of(names, options)?;
        options.check_no_batches("a measurement")?;
        if measure.keys.is_empty() {
            return Err(Error::refused("there is no key to count by"));
        }
        let measure = MeasureOptions {
            workers: options.workers(),
            cpus: Vec::new(),
            inner: options.tunnels(),
            timing: false,
            follow: false,
            sort: options.order == Order::Sorted,
            merge: if options.order == Order::Merged {
                Some(true)
            } else {
                measure.merge
            },
            dedup: options.dedup.is_some(),
            ..measure.clone()
        };
        let settings = measure.settings(&names).map_err(Error::refused)?;
        let order = measure.order(&names);
        let mut opening = Opening::new(names, options, [])?;
        let is_live = opening.session.is_live();
        let run = Run::new(Setup {
            selection: Selection {
                // Windows are delivered as soon as they are complete.
                at_once: measure.window.is_some(),
                ..options.selection(&opening.meaning)
            },
            dedup: options.dedup,
            measure: Some(settings),
            workers: 1,
            stop: Arc::clone(&opening.stop),
            ..Setup::default()
        });
        let mut shape = measure.answers().map_err(Error::refused)?;
        opening.read(order, options)?;
        let names = opening.session.names();
        let shares = if is_live {
            measure.shares(&run, names)
        } else {
            Ok(1)
        };
        let filters = !options.filter.trim().is_empty();
        opening.capture(&CaptureRequest {
            settings: options.capture,
            // The kernel's filter sees the frame and not the packet inside.
            expression: if options.inner { "" } else { &options.filter },
            replaces_filter: false,
            names: &opening.meaning.clone(),
            snaplen: snaplen(filters || options.inner || measure.reads_names(), 0),
            shares: shares.map_err(Error::refused)?,
            yes_take: &options.yes_take,
        })?;
        let inputs = opening.session.inputs();
        check_queues(&run, inputs).map_err(Error::refused)?;
        measure
            .check_health(opening.session.names(), inputs.len(), true)
            .map_err(Error::refused)?;
        shape.captures(opening.session.inputs());
        let Opening {
            session,
            heard,
            files,
            is_quick,
            ..
        } = opening;
        let (feed, answers) = queue(MOST_WAITING);
        let left_out = Arc::<Mutex<LeftOut>>::default();
        let findings = Arc::new(Mutex::new(Findings::new(&measure)));
        let giver = Giver {
            feed,
            heard: Arc::clone(&heard),
            shape: shape.clone(),
            left_out: Arc::clone(&left_out),
            findings: Arc::clone(&findings),
            is_live,
        };
        let control = Arc::clone(run.control());
        let on = move |event: Event<'_>| giver.event(event);
        let state = State {
            run: Running::start(run, session, measure.terms(), on)?,
            summary: None,
        };
        let measurement = Self {
            answers,
            control,
            heard,
            shape,
            left_out,
            findings,
            options: measure,
            is_live,
            state: Mutex::new(state),
            _files: files,
        };
        measurement.begin(is_quick)?;
        Ok(measurement)
    }

    /// Waits until the measurement has begun. **Errors**: it ended before that.
    fn begin(&self, is_quick: bool) -> Result<(), Error> {
        wait_for(|| {
            let heard = locked(&self.heard);
            // A capture has begun once its expression is compiled.
            let begun = if is_quick {
                heard.has_read
            } else {
                !self.is_live || heard.begun
            };
            begun || self.answers.is_ready()
        });
        if !self.answers.is_over() {
            return Ok(());
        }
        let mut state = locked(&self.state);
        self.end(&mut state);
        let has_begun = locked(&self.heard).begun && state.summary.is_some();
        match has_begun {
            true => Ok(()),
            false => state.run.take_failure(),
        }
    }

    /// Waits at most `most` for the next answer: each complete window, if the options name one, and
    /// at the end the summary.
    ///
    /// If a source failed, the summary has the error as `fault`, and the next call returns it,
    /// once. While 64 windows wait to be taken, files are not read, and the windows of interfaces
    /// are left out: the next answer counts them as `left_out`. **Cost**: a lock and some
    /// allocations of the text; a wait is a system call.
    pub fn next(&self, most: Duration) -> Result<NextAnswer, Error> {
        match self.answers.next(most) {
            Taken::Some(answer) => Ok(NextAnswer::Answer(answer)),
            Taken::Nothing => Ok(NextAnswer::Nothing),
            Taken::End => {
                let mut state = locked(&self.state);
                self.end(&mut state);
                if let Some(summary) = state.summary.take() {
                    return Ok(NextAnswer::Answer(summary));
                }
                state.run.take_failure().map(|()| NextAnswer::End)
            }
        }
    }

    /// Takes up the end of the run, once.
    fn end(&self, state: &mut State) {
        if let Some((ended, outputs)) = state.run.end() {
            state.summary = self.summary(&ended, &outputs);
            state.run.failure = locked(&self.heard).failure();
        }
    }

    /// The summary, if packets could be measured to the end, and messages on the end.
    fn summary(&self, ended: &Ended, outputs: &Outputs) -> Option<Answer> {
        let mut heard = locked(&self.heard);
        let lines = heard.listener.end_of_capture();
        heard.add(lines);
        heard.add(
            ended
                .failure
                .iter()
                .map(|failure| Line::Fault(failure.to_string())),
        );
        let finished = ended.measured.as_ref()?;
        heard.add(end_lines(outputs, ended));
        let total = total(finished, *locked(&self.left_out));
        let beside = Beside {
            fault: heard.faults.first().map(String::as_str),
            ledger: &ended.ledger,
            holds_only: &ended.holds_only,
            // A capture has no other end.
            interrupted: !self.is_live && ended.by == End::Signal,
            splits: Vec::new(),
            counted_before: finished.counted_before,
        };
        let json = line("summary", &self.shape.summary(&total, &beside));
        let lines = time_lines(&total, finished, self.options.window.is_some(), "");
        heard.remarks.extend(lines);
        let mut findings = locked(&self.findings);
        heard.remarks.extend(findings.finish());
        Some(Answer {
            is_summary: true,
            json,
            health: health_of(&total),
            findings: findings.take(),
        })
    }

    /// Ends the measurement early. Packets that were read are measured, and the answers can still
    /// be taken.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Returns what the user should know although nothing failed, a line each, since the last call.
    pub fn remarks(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.heard).remarks)
    }

    /// Ends the measurement. Answers that wait are dropped. Waits for its threads, seconds at most.
    pub fn close(&self) {
        self.stop();
        self.answers.leave();
        let mut state = locked(&self.state);
        self.end(&mut state);
        (state.summary, state.run.failure) = (None, None);
        state.run.wait_for_threads();
    }
}

impl Drop for Measurement {
    /// Nobody takes answers any more, so that the run need not wait for room.
    fn drop(&mut self) {
        self.stop();
        self.answers.leave();
    }
}
