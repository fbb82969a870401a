//! `weir generate profiles`: the profiles that are built in.

use crate::outcome::{Outcome, answer};
use crate::table::{Column, grid};
use crate::terminal;
use anyhow::bail;
use std::io;
use weir_generator::streams::Profile;
use weir_packet::suggestions::did_you_mean;

/// Lists the profiles, or prints the text of one.
pub fn run(name: Option<&str>) -> anyhow::Result<Outcome> {
    let Some(name) = name else {
        let rows: Vec<(&str, String)> = Profile::names()
            .map(|name| {
                (
                    name,
                    Profile::built_in(name).map_or_else(String::new, |it| it.about),
                )
            })
            .collect();
        let width = terminal::width(io::stdout());
        let text = match width {
            None => rows
                .iter()
                .map(|(name, about)| format!("{name}\t{about}\n"))
                .collect(),
            Some(_) => grid(
                &[
                    Column::left("profile", rows.iter().map(|row| row.0.to_owned())),
                    Column::left("traffic", rows.iter().map(|row| row.1.clone())),
                ],
                width,
            ),
        };
        return Ok(answer(&text));
    };
    match Profile::text(name) {
        Some(text) => Ok(answer(text)),
        None => bail!(
            "no profile {name} is built in{}: weir generate profiles lists them",
            did_you_mean(name, Profile::names())
        ),
    }
}
