//! The opening of sources, and the run over them: the same for each object of the library.

use crate::error::Error;
use crate::heard::{Heard, locked};
use crate::options::Options;
use crate::reading::Reading;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::capture::{CaptureRequest, Notice};
use weir_engine::event::Event;
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::outputs::Outputs;
use weir_engine::run::{Ended, Run};
use weir_engine::session::{Order, Session};
use weir_filter::Names;
use weir_io::input::comes_in_order;
use weir_messages::captures;
use weir_messages::refusals::Terms;

/// Sources that are about to be read.
pub(crate) struct Opening {
    pub session: Session,
    /// Meaning of the names in expressions.
    pub meaning: Names,
    pub heard: Arc<Mutex<Heard>>,
    /// No sink may empty the files that are read.
    pub files: Reading,
    /// Ends the opening and the run.
    pub stop: Arc<AtomicBool>,
    /// Whether files are read at once. The time of a pipe's first packet is unknown.
    pub is_quick: bool,
}

/// Returns the names of sources, as the command takes them. **Errors**: there is none.
pub(crate) fn names_of<N: Clone + Into<Name>>(
    names: &[N],
    options: &Options,
) -> Result<Vec<Name>, Error> {
    let mut names: Vec<Name> = names.iter().cloned().map(Into::into).collect();
    if names.is_empty() {
        return Err(Error::refused("there is no name of a source"));
    }
    options.check()?;
    if options.capture.wait {
        captures::name_awaited(&mut names);
    }
    Ok(names)
}

impl Opening {
    /// Prepares to read sources in an order. The expressions are the options' and `more`.
    pub fn new<'a>(
        names: Vec<Name>,
        options: &'a Options,
        more: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Error> {
        let files = Reading::note(&names);
        let heard = Heard::new();
        let meaning = options.names(more, |line| locked(&heard).remarks.push(line))?;
        let comes_at_once = |name: &Name| !name.is_dash() && !comes_in_order(name);
        let session = Session::new(names);
        Ok(Self {
            is_quick: !session.is_live() && session.names().iter().all(comes_at_once),
            session,
            meaning,
            heard,
            files,
            stop: options.stop.clone().unwrap_or_default(),
        })
    }

    /// Has files read in this order, and record directories asked for the packets that the options want.
    pub fn read(&mut self, order: Order, options: &Options) -> Result<(), Error> {
        let remark = |line| locked(&self.heard).remarks.push(line);
        let query = options.query(self.session.names(), &self.meaning.sets, remark)?;
        (self.session.order, self.session.query) = (order, query);
        Ok(())
    }

    /// Begins to capture, if the sources are interfaces. **Errors**: also if the opening was stopped while it waited for one.
    pub fn capture(&mut self, request: &CaptureRequest<'_>) -> Result<(), Error> {
        if !self.session.is_live() {
            return Ok(());
        }
        let hear = &mut |notice: Notice<'_>| {
            let line = captures::notice_line(notice).map(|(line, _)| line);
            locked(&self.heard).remarks.extend(line);
        };
        let opened = self.session.open(request, &self.stop, hear);
        opened.map_err(|error| Error::refused(captures::refusal(error)))?;
        if self.session.inputs().is_empty() {
            return Err(Error::failed(
                "the opening was stopped while it waited for an interface",
            ));
        }
        Ok(())
    }
}

/// A run of an object of the library.
#[derive(Debug)]
pub(crate) struct Running {
    pub handle: Handle,
    /// Whether the end of the run was handled.
    pub has_ended: bool,
    /// The failure of the run, until a call has returned it.
    pub failure: Option<Error>,
    terms: Terms,
}

impl Running {
    /// Starts the run in a thread, and has `on` called there with its events.
    pub fn start(
        run: Run,
        session: Session,
        terms: Terms,
        on: impl FnMut(Event<'_>) + Send + 'static,
    ) -> Result<Self, Error> {
        let handle = Handle::start(run, session, on)
            .map_err(|error| Error::failed(format!("a thread cannot be started: {error}")))?;
        Ok(Self {
            handle,
            has_ended: false,
            failure: None,
            terms,
        })
    }

    /// Takes up the end of the run, once. Returns nothing if the run could not begin, which is its failure.
    pub fn end(&mut self) -> Option<(Ended, Outputs)> {
        /// Longest wait for a thread that has nothing more to read.
        const LONGEST: Duration = Duration::from_secs(10);
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        let failure = match self.handle.join(LONGEST) {
            Ok(Ok(ended)) => return Some(ended),
            Ok(Err(error)) => Error::of_run(&error, &self.terms),
            Err(error) => Error::failed(error),
        };
        self.failure = Some(failure);
        None
    }

    /// Returns the failure of the run, once.
    pub fn take_failure(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Asks the run to end.
    pub fn stop(&self) {
        self.handle.control().stop();
    }

    /// Waits until the threads of a run that has ended have left; a moment at most.
    pub fn wait_for_threads(&self) {
        for _ in 0..100 {
            if self.handle.threads().is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
