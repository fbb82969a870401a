//! Measurements: the answers of `weir measure`, as JSON, which `weir._measure` makes tables of.

use crate::error::{Refused, raised};
use crate::process::Owned;
use crate::source::{LOOK, Settings, opened, waited};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::time::{Duration, Instant};
use weir_api::{By, HealthParts, MeasureOptions, NextAnswer, Sketch, read_geo};

/// Settings of measurements, by the names that they have in `weir.measure`.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Questions {
    keys: Vec<String>,
    by: String,
    top: usize,
    changers: usize,
    window_ns: Option<u64>,
    late_ns: Option<u64>,
    sketch: String,
    memory: Option<u64>,
    seed: Option<u64>,
    merge: Option<bool>,
    geo: Vec<OsString>,
    health: Vec<String>,
    findings: bool,
}

impl Questions {
    fn options(self) -> PyResult<MeasureOptions> {
        let defaults = MeasureOptions::default();
        Ok(MeasureOptions {
            keys: self
                .keys
                .iter()
                .map(|key| key.parse().map_err(words))
                .collect::<PyResult<_>>()?,
            by: figure(&self.by)?,
            rows: self.top,
            changers: self.changers,
            window: self.window_ns.map(Duration::from_nanos),
            late: self.late_ns.map(Duration::from_nanos),
            sketch: match Sketch::NAMES.iter().find(|(name, _)| *name == self.sketch) {
                Some((_, sketch)) => *sketch,
                None => {
                    let [others @ .., last] = &Sketch::NAMES.map(|(name, _)| name);
                    return Err(Refused::new_err(format!(
                        "sketch '{}': it is {} or {last}",
                        self.sketch,
                        others.join(", ")
                    )));
                }
            },
            memory: self.memory,
            seed: self.seed,
            merge: self.merge,
            geo: read_geo(&self.geo).map_err(raised)?,
            health: parts(&self.health)?,
            findings: self.findings,
            ..defaults
        })
    }
}

/// Returns the parts of the health by their names.
fn parts(names: &[String]) -> PyResult<HealthParts> {
    let mut parts = HealthParts::default();
    for name in names {
        match &name[..] {
            "tcp" => parts.tcp = true,
            "dns" => parts.dns = true,
            "mtu" => parts.path = true,
            other => {
                return Err(Refused::new_err(format!(
                    "health '{other}': it is tcp, dns or mtu"
                )));
            }
        }
    }
    Ok(parts)
}

/// Returns the figure of a name.
fn figure(name: &str) -> PyResult<By> {
    let known = By::NAMES.into_iter().find(|(known, _)| *known == name);
    known.map(|(_, by)| by).ok_or_else(|| {
        Refused::new_err(format!(
            "by '{name}': it is packets, bytes, peers, ports or contacts"
        ))
    })
}

fn words(error: impl ToString) -> PyErr {
    Refused::new_err(error.to_string())
}

/// A measurement of sources, in threads of its own.
#[pyclass(frozen, module = "weir")]
#[derive(Debug)]
pub struct Measurement {
    measurement: Owned<weir_api::Measurement>,
}

#[pymethods]
impl Measurement {
    /// `weir.measure` has the documentation of the settings.
    #[new]
    fn new(
        py: Python<'_>,
        names: Vec<OsString>,
        settings: Settings,
        questions: Questions,
    ) -> PyResult<Self> {
        let until = settings.duration();
        let (options, questions) = (settings.options()?, questions.options()?);
        let (waits, stop) = (options.capture.wait, options.stop.clone());
        let work = move || weir_api::Measurement::open(&names, &options, &questions);
        let opened = opened(py, waits, until, stop.as_ref(), work)?;
        Ok(Self {
            measurement: Owned::new(opened),
        })
    }

    /// Waits at most `timeout` seconds for the next answer: whether it is the summary, its JSON,
    /// and the JSON of its findings. Returns None if none came; raises StopIteration after the summary.
    fn next(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<(bool, String, Vec<String>)>> {
        let timeout = waited(timeout)?;
        let measurement = self.measurement.get()?;
        let begun = Instant::now();
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            match py
                .detach(|| measurement.next(left.min(LOOK)))
                .map_err(raised)?
            {
                NextAnswer::Answer(answer) => {
                    let findings = answer.findings.iter().map(weir_api::finding_json);
                    return Ok(Some((answer.is_summary, answer.json, findings.collect())));
                }
                NextAnswer::End => return Err(pyo3::exceptions::PyStopIteration::new_err(())),
                NextAnswer::Nothing => py.check_signals()?,
            }
            if begun.elapsed() >= timeout {
                return Ok(None);
            }
        }
    }

    /// Ends the measurement early. What was read is measured, and the answers can still be taken.
    fn stop(&self) -> PyResult<()> {
        self.measurement.get()?.stop();
        Ok(())
    }

    /// Remarks for the user although nothing failed, a line each, since the last call.
    fn remarks(&self) -> PyResult<Vec<String>> {
        Ok(self.measurement.get()?.remarks())
    }

    /// Ends the measurement. Answers that wait are dropped.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let measurement = self.measurement.get()?;
        py.detach(|| measurement.close());
        Ok(())
    }
}
