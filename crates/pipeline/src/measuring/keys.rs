//! Changes of the keys that a measurement counts by.
//!
//! A thread that controls the run makes the tables, gives the change a number, and leaves it here. Workers begin with the new tables
//! before the first batch of that number, and give away what they counted before: the merging side gives that out once every worker
//! has begun with the new tables.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_measure::{Aggregate, Config, Error, KeyKind, Spares};

/// Other keys, and tables for them.
#[derive(Debug)]
pub struct KeyChange {
    number: u64,
    config: Arc<Config>,
    spares: Arc<Spares>,
    /// One for each worker.
    aggregates: Mutex<Vec<Aggregate>>,
    /// Hears that what was counted before is given out; is dropped where that will never be.
    done: Mutex<Option<Sender<()>>>,
}

impl KeyChange {
    /// Number of the change.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(super) fn spares(&self) -> &Arc<Spares> {
        &self.spares
    }

    /// Tables for one more worker. **Errors**: there are more workers than there were, and memory cannot be had.
    pub(super) fn aggregate(&self) -> Result<Aggregate, Error> {
        let made = lock(&self.aggregates).pop();
        made.map_or_else(|| Aggregate::new(Arc::clone(&self.config), Arc::clone(&self.spares)), Ok)
    }

    /// What was counted before is given out.
    pub(super) fn done(&self) {
        if let Some(done) = lock(&self.done).take() {
            // Who waits no longer has dropped its end.
            let _ = done.send(());
        }
    }
}

/// The keys of a measurement, for threads that control it.
#[derive(Debug)]
pub struct Keys(Mutex<Now>);

#[derive(Debug)]
struct Now {
    config: Arc<Config>,
    workers: usize,
    over: bool,
    /// The latest change.
    change: Option<Arc<KeyChange>>,
}

/// Why keys are not replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysRefused {
    /// The tables cannot be had.
    #[error(transparent)]
    Tables(Error),
    /// An earlier change is under way.
    #[error("an earlier change of the keys is under way")]
    Earlier,
    /// The measurement is over.
    #[error("the measurement is over")]
    Over,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Now {
    fn check(&self) -> Result<(), KeysRefused> {
        let waits = self.change.as_ref().is_some_and(|change| lock(&change.done).is_some());
        match () {
            () if self.over => Err(KeysRefused::Over),
            () if waits => Err(KeysRefused::Earlier),
            () => Ok(()),
        }
    }
}

impl Keys {
    pub(super) fn new(config: &Arc<Config>, workers: usize) -> Self {
        Self(Mutex::new(Now { config: Arc::clone(config), workers, over: false, change: None }))
    }

    /// The measurement has so many workers.
    pub(super) fn begin(&self, workers: usize) {
        lock(&self.0).workers = workers;
    }

    /// Replaces the keys: batches from the change on that `number` numbers are counted by them. What is returned hears once what was
    /// counted before is given out, in [windows](weir_measure::Window::change).
    ///
    /// **Cost**: makes the tables, in this thread. **Errors**: nothing has changed.
    pub fn replace(
        &self,
        keys: Vec<KeyKind>,
        number: impl FnOnce() -> u64,
    ) -> Result<(u64, Receiver<()>), KeysRefused> {
        let (config, workers) = {
            let now = lock(&self.0);
            now.check()?;
            (Arc::new(now.config.with_keys(keys)), now.workers)
        };
        let spares = Arc::new(Spares::default());
        let aggregate = |_| Aggregate::new(Arc::clone(&config), Arc::clone(&spares));
        let aggregates = (0..workers).map(aggregate).collect::<Result<_, _>>().map_err(KeysRefused::Tables)?;
        let (done, hears) = channel();
        let mut now = lock(&self.0);
        now.check()?;
        let number = number();
        let (aggregates, done) = (Mutex::new(aggregates), Mutex::new(Some(done)));
        now.change = Some(Arc::new(KeyChange { number, config, spares, aggregates, done }));
        Ok((number, hears))
    }

    /// The change that a worker is to take up before a batch of change `reached`, if it has come to change `before` until now.
    #[cold]
    pub(super) fn take(&self, before: u64, reached: u64) -> Option<Arc<KeyChange>> {
        let now = lock(&self.0);
        now.change.as_ref().filter(|change| change.number > before && change.number <= reached).cloned()
    }

    /// The measurement is over: who waits for a change hears that it will not be.
    pub fn end(&self) {
        let mut now = lock(&self.0);
        now.over = true;
        if let Some(change) = &now.change {
            lock(&change.done).take();
        }
    }
}
