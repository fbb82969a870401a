//! Files that a firewall writes: OUT, if it is a file, and the file of `-w`.

use super::{check_outputs, chosen_by};
use crate::cli::firewall::{FirewallArgs, What};
use crate::port;
use anyhow::bail;
use std::sync::Arc;
use weir_engine::claims::Claims;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::firewall::remote::Output;
use weir_engine::name::Name;
use weir_engine::output_changes::OutputSlot;
use weir_engine::outputs::Target;
use weir_engine::provenance::{Chosen, Provenance};
use weir_engine::rewrite::Rewrite;
use weir_engine::sink::{Sink, Wanted};
use weir_io::reserve::Reserve;

/// Maker of the files of a firewall.
pub struct FileMaker {
    /// OUT, if it is a file.
    file: Option<Name>,
    /// The file of `-w`, and its packets.
    written: Option<(Name, Wanted)>,
    /// Sources and other files that are read.
    read: Vec<Name>,
    claims: Arc<Claims>,
    reserve: Reserve,
    /// Name of the rules, for the files.
    by: Option<String>,
    /// Changes of the packets in the file of `-w`.
    rewrite: Rewrite,
}

impl FileMaker {
    /// Makes the maker. Requests may replace the rules of a firewall that is live. **Errors**: a file would overwrite what is read, or the
    /// other file.
    pub fn new(
        arguments: &FirewallArgs,
        source: &Name,
        sink: &Name,
        is_live: bool,
    ) -> anyhow::Result<Self> {
        let FirewallArgs { judging, write, .. } = arguments;
        let rules = arguments.rules_file();
        let written: Vec<Name> = std::iter::once(sink).chain(write).cloned().collect();
        if judging.json && written.iter().any(Name::is_dash) {
            bail!("standard output has the answer of --json: give OUT and -w names of files");
        }
        let rules_file = rules.iter().map(|rules| &rules.name);
        let read: Vec<Name> = std::iter::once(source)
            .chain(rules_file.filter(|name| !name.is_dash()))
            .chain(&judging.table)
            .chain(&arguments.control_key)
            .chain(&arguments.control_state)
            .cloned()
            .collect();
        check_outputs(&written, &read)?;
        if let Some(port) = write.iter().find(|name| port::is_port(name)) {
            bail!("{port} is a port: -w writes a file");
        }
        if arguments.anonymize.key.is_some() && write.is_none() {
            bail!(
                "--anonymize changes addresses in the file of -w, and there is none: packets are forwarded as they are"
            );
        }
        let rules = rules.map(|rules| chosen_by(&rules.called(), is_live));
        let wanted = match arguments.what {
            Some(What::Denied) => Wanted::Rejected,
            _ => Wanted::Matching,
        };
        Ok(Self {
            file: Some(sink.clone()).filter(|sink| !port::is_port(sink)),
            written: write.clone().map(|name| (name, wanted)),
            claims: Arc::new(Claims::of(std::slice::from_ref(source))),
            reserve: arguments.reserve.map_or(Reserve::Usual, Reserve::Bytes),
            rewrite: Rewrite {
                anonymizer: arguments.anonymize.anonymizer()?,
                ..Rewrite::default()
            },
            by: rules.or_else(|| judging.table.as_ref().map(Name::as_source)),
            read,
        })
    }

    /// Makes the outputs in files: OUT, if it is a file, and the file of `-w`.
    pub fn outputs(&self) -> anyhow::Result<(Option<Target>, Option<Target>)> {
        let target = |name: &Name, wanted, is_output| -> anyhow::Result<Target> {
            Ok((name.as_output(), Some(self.sink(name, wanted, is_output)?)))
        };
        let file = self.file.as_ref();
        let written = self.written.as_ref();
        Ok((
            file.map(|name| target(name, Wanted::Matching, true))
                .transpose()?,
            written
                .map(|(name, wanted)| target(name, *wanted, false))
                .transpose()?,
        ))
    }

    /// Returns the output that requests replace: the file of `-w`, or else OUT; `None` if there is no file.
    pub fn replaced(self) -> Option<Output> {
        let (slot, wanted) = match (&self.written, &self.file) {
            (Some((_, wanted)), _) => (OutputSlot::Split(0), *wanted),
            (None, Some(_)) => (OutputSlot::Main, Wanted::Matching),
            (None, None) => return None,
        };
        let make = move |name: &Name| self.other(name, wanted).map_err(|error| error.to_string());
        Some(Output {
            slot,
            make: Box::new(make),
        })
    }

    /// Makes the sink for another file, while the firewall runs.
    fn other(&self, name: &Name, wanted: Wanted) -> anyhow::Result<Box<dyn Sink>> {
        if port::is_port(name) || name.is_dash() {
            bail!("{name} is not a file, and only a file takes the place of an output");
        }
        check_outputs(std::slice::from_ref(name), &self.read)?;
        self.sink(name, wanted, self.written.is_none())
    }

    /// Makes a sink for OUT, whose packets stay as they are, or for the file of `-w`.
    fn sink(&self, name: &Name, wanted: Wanted, is_output: bool) -> anyhow::Result<Box<dyn Sink>> {
        let settings = FileSettings {
            format: weir_messages::sources::format_for(name)?,
            wanted,
            reserve: self.reserve,
            ..FileSettings::default()
        };
        let passed = wanted == Wanted::Matching;
        let chosen = Chosen::default().by_firewall(passed, self.by.as_deref());
        let provenance = Provenance {
            chosen,
            ..Provenance::default()
        };
        let sink = FileSink::new(name, settings, &self.claims);
        Ok(match (is_output, &self.rewrite.anonymizer) {
            (false, Some(_)) => self.rewrite.before(Box::new(sink)),
            _ => Box::new(sink.telling(provenance)),
        })
    }
}
