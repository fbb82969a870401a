//! Names in expressions: names of hosts, and of sets of addresses.

use super::SELECT;
use crate::outcome::say;
use clap::Args;
use weir_filter::Names;
use weir_messages::Refusal;
use weir_messages::sets::{SetFile, check_sets, parse_set, read_sets};

/// Names in expressions.
#[derive(Args, Clone, Debug, Default)]
pub struct NameArgs {
    /// Let libpcap look up host names in expressions
    #[arg(hide_short_help = true, help_heading = SELECT, long)]
    pub resolve: bool,
    /// Define a set of addresses for expressions.
    ///
    /// In expressions: src @NAME, host @NAME, net @NAME. FILE has an address, a prefix or a range a
    /// line; text after # is a comment. Repeat it for several sets.
    #[arg(hide_short_help = true, help_heading = SELECT, long, value_name = "NAME=FILE", value_parser = parse_set)]
    pub set: Vec<SetFile>,
    /// The names, once the files of the sets were read.
    #[arg(skip)]
    read: Names,
}

impl NameArgs {
    /// Reads the files of the sets. **Errors**: a file that cannot be read, a line that is not an address; no one of the expressions names a set,
    /// unless there may be `more` of them later.
    pub fn read<'a>(
        &mut self,
        expressions: impl IntoIterator<Item = &'a str>,
        more: bool,
    ) -> Result<(), Refusal> {
        if !more {
            check_sets(&self.set, expressions)?;
        }
        let read = read_sets(&self.set)?;
        read.remarks.iter().for_each(|line| say(line));
        self.read = Names {
            resolve: self.resolve,
            sets: read.sets,
        };
        Ok(())
    }

    /// Returns the meaning of the names, once [`Self::read`] was called.
    pub fn names(&self) -> &Names {
        &self.read
    }
}
