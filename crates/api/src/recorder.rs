//! Recordings: packets kept in RAM and on disk, and saved around triggers, as by `weir record`.

use crate::error::Error;
use crate::heard::{Heard, locked, wait_for};
use crate::opening::{Opening, Running, names_of};
use crate::options::Options;
use crate::queue::{Feed, Queue, Taken, queue};
use crate::reading::Reading;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::capture::CaptureRequest;
use weir_engine::event::Event;
use weir_engine::name::Name;
use weir_engine::record::trigger::Span;
use weir_engine::record::{self, NewDirectory, Recording};
use weir_engine::run::{Run, Setup};
use weir_engine::session::Order;
use weir_io::sys;
use weir_messages::errors::io_words;
use weir_messages::events::{Line, end_lines};
use weir_messages::json::line;
use weir_messages::recording::{
    Listeners, Options as RecordOptions, disk_line, end_json, expressions, incomplete_line,
    listen_refusal, opened_lines, saved_json, saved_lines, unkept_line,
};
use weir_messages::refusals::Terms;
use weir_store::disk::FreeBytes;

/// Most saved files about which the caller was not told yet; of further ones the oldest are forgotten.
const MOST_SAVED: usize = 1024;

/// Result of [`Recorder::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextSaved {
    /// A file that a trigger saved, or failed to save: a JSON object in one line, as `weir record --json` prints it.
    Saved(String),
    /// No file was saved in that time.
    Nothing,
    /// The recording has ended, and all saved files were reported.
    End,
}

/// A recording of sources into a directory, in threads of its own. Every method may be called from any thread.
pub struct Recorder {
    recording: record::Handle,
    saved: Queue<String>,
    heard: Arc<Mutex<Heard>>,
    /// Place that drops packets for lack of room.
    place: &'static str,
    directory: Name,
    state: Mutex<State>,
    /// No sink may empty the files that are recorded.
    _files: Reading,
}

struct State {
    run: Running,
    /// The recording, until it is completed.
    recorder: Option<record::Recorder>,
    /// The totals at the end, a JSON object in one line.
    end: String,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("saved", &self.saved)
            .finish_non_exhaustive()
    }
}

/// Tells what happens in a recording.
fn listeners(heard: &Arc<Mutex<Heard>>, feed: Feed<String>) -> Listeners {
    let (saves, writes) = (Arc::clone(heard), Arc::clone(heard));
    Listeners {
        on_disk: Box::new(move |event| locked(&writes).add([disk_line(&event)])),
        on_saved: Box::new(move |saved| {
            locked(&saves).add(saved_lines(saved));
            feed.add_or_forget(line("saved", &saved_json(saved)));
        }),
    }
}

impl Recorder {
    /// Begins to record sources into a directory, which is made if it is missing. Sources are named as for the command.
    ///
    /// Of `options`, the filter and the settings of the capture are used; `splits`, `invert`,
    /// `inner`, `limit`, `rules` and another [`order`](Options::order) than the given one are not a
    /// part of a recording and are refused. The directory gets a control socket, so that
    /// `weir query` and `weir record --status` find what is only in RAM. Waits until the capture
    /// has begun.
    ///
    /// **Cost**: the memory of [`RecordOptions::ram`], which is obtained now.
    pub fn open<N: Clone + Into<Name>>(
        names: &[N],
        directory: impl Into<Name>,
        options: &Options,
        record: &RecordOptions,
    ) -> Result<Self, Error> {
        let (names, directory) = (names_of(names, options)?, &directory.into());
        options.check_no_batches("a recording")?;
        let chooses = options.times != [None; 2] || options.dedup.is_some();
        if options.inner || options.order != Order::OneByOne || chooses {
            return Err(Error::refused(
                "a recording has no inner packets, other orders, times and duplicates: leave them out",
            ));
        }
        record.check(&names, directory).map_err(Error::refused)?;
        let path = Path::new(directory);
        let (feed, saved) = queue(MOST_SAVED);
        let expressions = expressions(&record.triggers, &record.trigger.keep);
        let mut opening = Opening::new(names, options, expressions)?;
        let (meaning, heard) = (opening.meaning.clone(), Arc::clone(&opening.heard));
        let is_live = opening.session.is_live();
        let record = &RecordOptions {
            sets: meaning.sets.clone(),
            ..record.clone()
        };
        let selection = options.selection(&meaning);
        let settings = record.settings(
            directory,
            (is_live, &selection),
            Vec::new(),
            listeners(&heard, feed),
        );
        let (mut recording, sink) =
            Recording::new(settings.map_err(Error::refused)?).map_err(Error::refused)?;
        let words = |error: io::Error| Error::refused(format!("{directory}: {}", io_words(&error)));
        let mut made = NewDirectory::make(path, record.mode).map_err(words)?;
        let free_bytes = FreeBytes(Arc::new(|path: &Path| sys::free_bytes(path)));
        if let Some(opened) = recording.open_disk(free_bytes).map_err(Error::refused)? {
            locked(&heard).add(opened_lines(&opened));
        }
        recording
            .listen()
            .map_err(|error| Error::refused(listen_refusal(directory, error)))?;
        let run = Run::new(Setup {
            selection,
            main: (directory.as_output(), Some(Box::new(sink))),
            workers: options.workers(),
            stop: Arc::clone(&opening.stop),
            ..Setup::default()
        });
        opening.capture(&CaptureRequest {
            settings: options.capture,
            expression: &options.filter,
            names: &meaning,
            yes_take: &options.yes_take,
            ..CaptureRequest::default()
        })?;
        let Opening {
            session,
            files,
            is_quick,
            ..
        } = opening;
        let place = session.place();
        match recording.recover_saved() {
            Ok(found) => locked(&heard).add(found.iter().map(incomplete_line)),
            Err(error) => {
                let line = format!("files that an earlier recording left: {}", io_words(&error));
                locked(&heard).add([Line::Fault(line)]);
            }
        }
        let handle = recording.handle().clone();
        handle.set_place(place);
        let recorder = recording.start().map_err(Error::failed)?;
        let hears = Arc::clone(&heard);
        let on = move |event: Event<'_>| locked(&hears).event(&event);
        let run = match Running::start(run, session, Terms::LIBRARY, on) {
            Ok(run) => run,
            Err(error) => {
                recorder.finish();
                return Err(error);
            }
        };
        let state = State {
            run,
            recorder: Some(recorder),
            end: String::new(),
        };
        let (directory, state) = (directory.clone(), Mutex::new(state));
        let recorder = Self {
            recording: handle,
            saved,
            heard,
            place,
            directory,
            state,
            _files: files,
        };
        recorder.begin(is_live, is_quick)?;
        made.keep();
        Ok(recorder)
    }

    /// Waits until the recording has begun. **Errors**: it ended before that.
    fn begin(&self, is_live: bool, is_quick: bool) -> Result<(), Error> {
        let mut state = locked(&self.state);
        let mut is_over = false;
        wait_for(|| {
            is_over = state.run.handle.threads().is_empty();
            let heard = locked(&self.heard);
            is_over
                || if is_quick {
                    heard.has_read
                } else {
                    !is_live || heard.begun
                }
        });
        // It is over, and no packet was read.
        if is_over && !locked(&self.heard).has_read {
            self.end(&mut state);
        }
        state.run.take_failure()
    }

    /// Fires the trigger `name`, or all triggers without a name: the packets from before and after now are saved. A `span` stands for the
    /// times of the triggers. Returns the triggers as JSON: `{"type":"trigger","fired":[...],"refused":{NAME: WHY}}`.
    ///
    /// By default a recording has the trigger `signal`, for requests. If files are recorded, "now"
    /// is the timestamp of the latest recorded packet, and the call waits up to a second for the
    /// first packet. Waits for the trigger thread, seconds at most. **Errors**: none fired.
    pub fn trigger(&self, name: Option<&str>, span: Option<Span>) -> Result<String, Error> {
        if span.is_some_and(|span| span.before.is_zero() && span.after.is_zero()) {
            return Err(Error::refused("before 0 and after 0 would save nothing"));
        }
        let asked = self
            .recording
            .fire_span(name, "a request of the program", span)
            .map_err(Error::refused)?;
        asked
            .json()
            .map(|json| line("trigger", &json))
            .map_err(Error::Refused)
    }

    /// Returns the state of the recording as JSON, as `weir record --status` prints it. **Cost**: a look at each chunk of the ring.
    pub fn status(&self) -> String {
        line("status", &self.recording.status().json())
    }

    /// Waits at most `most` for the next file that a trigger saves. When files were recorded to
    /// their end, the recording is completed, and [`NextSaved::End`] comes after the last file.
    ///
    /// Of more than 1024 files that nobody asked about, the oldest are forgotten here.
    pub fn next(&self, most: Duration) -> NextSaved {
        /// Interval of checks whether the run has ended.
        const LOOK: Duration = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        loop {
            let wait = LOOK.min(most.saturating_sub(waited));
            match self.saved.next(wait) {
                Taken::Some(saved) => return NextSaved::Saved(saved),
                Taken::End => return NextSaved::End,
                Taken::Nothing => {}
            }
            waited += wait;
            let mut state = locked(&self.state);
            if state.run.handle.threads().is_empty() {
                self.end(&mut state);
            } else if waited >= most {
                return NextSaved::Nothing;
            }
        }
    }

    /// Ends the recording: what the sources received is recorded, and what triggers are saving is completed with it.
    pub fn stop(&self) {
        locked(&self.state).run.stop();
    }

    /// Completes the recording, once.
    fn end(&self, state: &mut State) {
        let Some(recorder) = state.recorder.take() else {
            return;
        };
        let ended = state.run.end();
        // All packets are in the ring now.
        let (status, have_ended) = recorder.finish();
        let mut heard = locked(&self.heard);
        let lines = heard.listener.end_of_capture();
        heard.add(lines);
        let Some((ended, outputs)) = ended else {
            return;
        };
        heard.add(end_lines(&outputs, &ended));
        if !have_ended {
            let line = "a thread of the recording panicked: this is a mistake in it";
            heard.add([Line::Fault(line.to_owned())]);
        }
        heard.add(unkept_line(&self.directory, &status).map(Line::Fault));
        let fault = heard.faults.first().map(String::as_str);
        state.end = line(
            "summary",
            &end_json(&ended.ledger, &status, self.place, fault),
        );
        state.run.failure = heard.failure();
    }

    /// Returns what the user should know although nothing failed, a line each, since the last call.
    pub fn remarks(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.heard).remarks)
    }

    /// Ends and completes the recording, and returns its account: a JSON object in one line, as `weir record --json` prints it at the
    /// end; with the error if the sources or files failed. Waits for the threads and the disk.
    pub fn close(&self) -> (String, Result<(), Error>) {
        let mut state = locked(&self.state);
        state.run.stop();
        self.end(&mut state);
        state.run.wait_for_threads();
        (state.end.clone(), state.run.take_failure())
    }
}

impl Drop for Recorder {
    /// Completes the recording, so that no thread of it stays.
    fn drop(&mut self) {
        let _ = self.close();
    }
}
