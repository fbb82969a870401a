//! Parts of the past: which times of a file or a record directory are read for the screen.

use crate::outcome::{io_words, say};
use crate::times::Clock;
use anyhow::bail;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_engine::name::Name;
use weir_engine::records::{Query, Recorder, Selection};
use weir_engine::socket::Error;
use weir_measure::KeyKind;
use weir_messages::moment::Moment;
use weir_messages::records::covered_ns;
use weir_pipeline::select;
use weir_store::disk;
use weir_view::Span;

/// The time of `--at`, ns since 1970. **Errors**: a time that clocks never showed.
pub fn place(at: Option<&Moment>, utc: bool) -> anyhow::Result<Option<i64>> {
    let meaning = Clock::new(utc).meaning("--at", at)?;
    Ok(meaning.map(|meaning| meaning.first_ns))
}

/// A part of the past that the screen asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Time in its middle, ns since 1970.
    pub at_ns: i64,
    /// Length of its steps.
    pub span: Span,
    /// Expression of its packets.
    pub filter: String,
    /// Further key of the measurement.
    pub further: Option<KeyKind>,
}

impl Part {
    /// Length of a part with steps of this length, ns: as much as a view keeps.
    pub fn length_ns(span: Span) -> i64 {
        span.seconds() * span.steps() as i64 * 1_000_000_000
    }

    /// First and last time of the part.
    pub fn times(&self) -> (i64, i64) {
        let half = Self::length_ns(self.span) / 2;
        let (from, after) = (
            self.at_ns.saturating_sub(half),
            self.at_ns.saturating_add(half),
        );
        (from, after - 1)
    }
}

/// Where the packets of a screen come from, if they are not captured.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The record directory, if it is one.
    directory: Option<Name>,
    /// Whether parts can be read again, because all sources are files.
    pub can_read_again: bool,
    /// Times of the first and the last packet of a record, ns since 1970.
    pub covered: Option<(i64, i64)>,
    /// Times that are read first; `None`: all.
    pub first: Option<(i64, i64)>,
    /// The recorder that writes the record, if one runs.
    recorder: Option<Arc<Recorder>>,
}

impl Past {
    /// Looks at the sources. **Errors**: `--at` with an interface, or outside a record; several record directories.
    pub fn of(
        sources: &[Name],
        is_live: bool,
        (at, utc): (Option<i64>, bool),
    ) -> anyhow::Result<Self> {
        if is_live {
            if at.is_some() {
                bail!(
                    "--at is a time of a file or a record directory: an interface has no past before its capture"
                );
            }
            return Ok(Self::default());
        }
        let is_directory = |name: &&Name| !name.is_dash() && Path::new(name).is_dir();
        let mut directories = sources.iter().filter(is_directory);
        let directory = directories.next().cloned();
        if directory.is_some() && sources.len() > 1 {
            bail!("one record directory is watched at a time, without other sources");
        }
        let covered = directory.as_ref().and_then(|name| covered(Path::new(name)));
        let part = |at_ns| Part {
            at_ns,
            span: Span::Second,
            filter: String::new(),
            further: None,
        };
        if let (Some(at), Some((first, last))) = (at, covered)
            && !(first..=last).contains(&at)
        {
            let clock = Clock::new(utc);
            bail!(
                "--at: the record has packets from {} to {}",
                clock.text(first),
                clock.text(last)
            );
        }
        let end = covered.map(|(_, last)| last);
        Ok(Self {
            can_read_again: sources.iter().all(|name| {
                let about = std::fs::metadata(name);
                about.is_ok_and(|about| about.is_file() || about.is_dir())
            }),
            first: at.or(end).map(|at| part(at).times()),
            directory,
            covered,
            recorder: None,
        })
    }

    /// The record directory, if the source is one.
    pub fn directory(&self) -> Option<&Name> {
        self.directory.as_ref()
    }

    /// The question to the record directory for a time, if there is one, and its recorder's memory; and whether that is left out.
    /// **Errors**: nothing is on disk, and the recorder does not answer.
    pub fn query_again(
        &self,
        times: (i64, i64),
        filter: &str,
        resolve: bool,
    ) -> anyhow::Result<(Option<Query>, bool)> {
        let Some((mut query, directory)) = self
            .query(Some(times), filter, resolve)
            .zip(self.directory.as_ref())
        else {
            return Ok((None, false));
        };
        let asked = self
            .recorder
            .as_ref()
            .map(|recorder| query.ask(recorder, false));
        let is_left_out = match asked {
            Some(Err(error)) => {
                check_disk(directory, &error)?;
                true
            }
            _ => false,
        };
        Ok((Some(query), is_left_out))
    }

    /// The question to the record directory for a time, if there is one.
    fn query(&self, times: Option<(i64, i64)>, filter: &str, resolve: bool) -> Option<Query> {
        self.directory.as_ref()?;
        let is_plain = !resolve;
        Some(Query::new(Selection {
            from_ns: times.map(|(from, _)| from),
            to_ns: times.map(|(_, to)| to),
            expression: if is_plain {
                filter.to_owned()
            } else {
                String::new()
            },
            ..Selection::default()
        }))
    }

    /// The question of the first reading, with the packets that a recorder has in memory; with `follow`, also with those to come.
    /// **Errors**: no recorder runs whose packets could be followed.
    pub fn first_query(
        &mut self,
        filter: &str,
        resolve: bool,
        follow: bool,
    ) -> anyhow::Result<Option<Arc<Query>>> {
        let (Some(directory), Some(mut query)) =
            (&self.directory, self.query(self.first, filter, resolve))
        else {
            return Ok(None);
        };
        if follow {
            query.selection.to_ns = None;
        }
        let asked = match connect(directory) {
            Ok(None) if follow => bail!(
                "{directory}: no recorder is running there whose packets could be followed: leave --follow out"
            ),
            Ok(recorder) => {
                self.recorder = recorder.clone().filter(|_| !follow);
                recorder.map_or(Ok(()), |recorder| query.ask(&recorder, follow))
            }
            Err(error) => Err(error),
        };
        match asked {
            Err(error) if follow => bail!(said(directory, &error)),
            Err(error) => say(&left_out(directory, &error)),
            Ok(()) => {}
        }
        Ok(Some(Arc::new(query)))
    }
}

/// Longest wait for the answer of a recorder.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connects to the recorder of a directory; `None` if none runs there.
pub fn connect(directory: &Name) -> Result<Option<Arc<Recorder>>, Error> {
    let recorder = Recorder::connect(directory.as_ref())?;
    Ok(recorder.map(|it| Arc::new(it.patience(PATIENCE))))
}

/// Says that a recorder's memory is left out. **Errors**: no packet is on disk either.
pub fn check_disk(directory: &Name, error: &Error) -> anyhow::Result<()> {
    match covered(directory.as_ref()) {
        Some(_) => say(&left_out(directory, error)),
        None => bail!("{}, and no packet is on disk", said(directory, error)),
    }
    Ok(())
}

/// Message about a recorder that gives no packets.
fn said(directory: &Name, error: &Error) -> String {
    match error {
        Error::Io { error, .. } => format!("{directory}: the recorder: {}", io_words(error)),
        error => format!("{directory}: the recorder: {error}"),
    }
}

/// Says that a recorder gives no packets of its memory.
pub fn left_out(directory: &Name, error: &Error) -> String {
    let why = said(directory, error);
    format!("{why}: packets that are not on disk yet are left out")
}

/// The times of a selection of packets.
pub fn span(times: Option<(i64, i64)>) -> select::Span {
    select::Span {
        from_ns: times.map(|(from, _)| from),
        to_ns: times.map(|(_, to)| to),
        last_ns: None,
    }
}

/// Times of the first and the last packet of a record. **Cost**: its indexes are read, and no packet.
pub fn covered(directory: &Path) -> Option<(i64, i64)> {
    let nothing = Selection {
        from_ns: Some(i64::MAX),
        ..Selection::default()
    };
    let mut reader = disk::Reader::open(directory, nothing, None).ok()?;
    while let Ok(Some(_)) = reader.next_bytes() {}
    covered_ns(reader.counts())
}
