//! Mark of the current stage of the run's thread: after a panic, the error of the run names the stage.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A stage of the run's thread after the reader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    Measurement,
    Events,
    /// An output by its number, the main output first.
    Output(usize),
}

/// Current stage of the run's thread: the reader, unless another stage is called. **Cost**: a store for each call of a stage.
#[derive(Debug, Default)]
pub(crate) struct StageMark(AtomicUsize);

impl StageMark {
    /// Calls `work`, which belongs to `stage`, and marks the stage during the call.
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

    /// Returns the name of the current stage.
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
