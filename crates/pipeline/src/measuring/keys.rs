//! Changes of the keys, the sketch or the memory by which a measurement counts.
//!
//! A thread that controls the run makes the tables, gives the change a number, and leaves the change here. Workers begin with the
//! new tables before the first batch of that number, and hand over their counts so far. The merger gives these out once every
//! worker has begun with the new tables.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_measure::{Aggregate, Config, Error, Setting, Spares, Unfit};

/// Other settings of the tables, and tables for them.
#[derive(Debug)]
pub struct KeyChange {
    number: u64,
    config: Arc<Config>,
    spares: Arc<Spares>,
    /// New tables, one set for each worker.
    aggregates: Mutex<Vec<Aggregate>>,
    /// Channel to the caller: sends a message once the counts of the earlier keys are delivered.
    /// Dropped if they never will be.
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

    /// Returns the tables for one more worker. **Errors**: memory for a worker beyond the earlier number cannot be allocated.
    pub(super) fn aggregate(&self) -> Result<Aggregate, Error> {
        let made = lock(&self.aggregates).pop();
        made.map_or_else(
            || Aggregate::new(Arc::clone(&self.config), Arc::clone(&self.spares)),
            Ok,
        )
    }

    /// Reports that the counts of the earlier keys are delivered.
    pub(super) fn done(&self) {
        if let Some(done) = lock(&self.done).take() {
            // A caller that no longer waits has dropped its end of the channel.
            let _ = done.send(());
        }
        // Workers that ended before the change leave theirs.
        lock(&self.aggregates).clear();
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

/// Reason for which the tables are not replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysRefused {
    /// The tables cannot be allocated.
    #[error(transparent)]
    Tables(Error),
    /// The figure that ranks the keys does not go with the setting.
    #[error(transparent)]
    Unfit(Unfit),
    /// Workers share the tables, and the sketch cannot be shared.
    #[error("workers share their tables, and this sketch cannot be shared")]
    Shared,
    /// An earlier change is under way.
    #[error("an earlier change of the tables is under way")]
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
        let waits = self
            .change
            .as_ref()
            .is_some_and(|change| lock(&change.done).is_some());
        match () {
            () if self.over => Err(KeysRefused::Over),
            () if waits => Err(KeysRefused::Earlier),
            () => Ok(()),
        }
    }
}

impl Keys {
    pub(super) fn new(config: &Arc<Config>, workers: usize) -> Self {
        Self(Mutex::new(Now {
            config: Arc::clone(config),
            workers,
            over: false,
            change: None,
        }))
    }

    /// Sets the number of workers of the measurement.
    pub(super) fn begin(&self, workers: usize) {
        lock(&self.0).workers = workers;
    }

    /// Replaces a setting of the tables. Batches from the change on are counted in new tables;
    /// `number` gives the change its number. The receiver gets a message once the earlier counts
    /// are delivered, in [windows](weir_measure::Window::change).
    ///
    /// **Cost**: makes the tables, in this thread. **Errors**: the keys stay unchanged.
    pub fn replace(
        &self,
        setting: Setting,
        number: impl FnOnce() -> u64,
    ) -> Result<(u64, Receiver<()>), KeysRefused> {
        let (config, workers) = {
            let now = lock(&self.0);
            now.check()?;
            {
                let config = now.config.with(setting).map_err(KeysRefused::Unfit)?;
                (Arc::new(config), now.workers)
            }
        };
        if config.shared.is_some() && !config.sketch.can_be_shared() {
            return Err(KeysRefused::Shared);
        }
        let spares = Arc::new(Spares::default());
        let aggregate = |_| Aggregate::new(Arc::clone(&config), Arc::clone(&spares));
        let aggregates = (0..workers)
            .map(aggregate)
            .collect::<Result<_, _>>()
            .map_err(KeysRefused::Tables)?;
        let (done, hears) = channel();
        let mut now = lock(&self.0);
        now.check()?;
        let number = number();
        let (aggregates, done) = (Mutex::new(aggregates), Mutex::new(Some(done)));
        now.config = Arc::clone(&config);
        now.change = Some(Arc::new(KeyChange {
            number,
            config,
            spares,
            aggregates,
            done,
        }));
        Ok((number, hears))
    }

    /// Returns the change to apply before a batch of change `reached`, for a worker that has reached change `before`.
    #[cold]
    pub(super) fn take(&self, before: u64, reached: u64) -> Option<Arc<KeyChange>> {
        let now = lock(&self.0);
        now.change
            .as_ref()
            .filter(|change| change.number > before && change.number <= reached)
            .cloned()
    }

    /// Ends the changes with the measurement. If a caller waits for a change, its channel closes.
    pub fn end(&self) {
        let mut now = lock(&self.0);
        now.over = true;
        if let Some(change) = &now.change {
            lock(&change.done).take();
        }
    }
}
