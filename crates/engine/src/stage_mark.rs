//! Mark of the stage that the run's thread is in: a panic there ends the run with an error that names it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A stage of the run's thread behind the reader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    Measurement,
    Events,
    /// An output by its number, the main one first.
    Output(usize),
}

/// The stage that the run's thread is in: the reader, unless it calls another. **Cost**: a store for each call of a stage.
#[derive(Debug, Default)]
pub(crate) struct StageMark(AtomicUsize);

impl StageMark {
    /// Calls `work` of a stage.
    #[inline]
    pub fn during<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let number = match stage {
            Stage::Measurement => 1,
            Stage::Events => 2,
            Stage::Output(number) => 3 + number,
        };
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(number, Ordering::Relaxed);
        let result = work();
        self.0.store(before, Ordering::Relaxed);
        result
    }

    /// Name of the stage.
    pub fn name(&self) -> String {
        match self.0.load(Ordering::Relaxed) {
            0 => "reader".to_owned(),
            1 => "measurement".to_owned(),
            2 => "function that hears events".to_owned(),
            3 => "main output".to_owned(),
            number => format!("output of split {}", number - 3),
        }
    }
}
