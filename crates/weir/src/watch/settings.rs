//! The file of settings of the screen.

use crate::outcome::io_words;
use crate::toml_file::table;
use anyhow::{anyhow, bail};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use toml::Value;
use weir_measure::KeyKind;
use weir_screen::Tab;

/// Settings of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether the background of the terminal is light; `None`: the terminal says it.
    pub light: Option<bool>,
    /// Whether only ASCII is drawn; `None`: the locale says it.
    pub ascii: Option<bool>,
    /// The further key that is counted from the begin on.
    pub key: Option<KeyKind>,
    /// The order of the rows at the begin.
    pub order: Option<String>,
}

/// Names of the settings.
const NAMES: [&str; 4] = ["background", "ascii", "key", "order"];

impl Settings {
    /// Reads the file of this user, if there is one. **Errors**: the file cannot be read, or it has a wrong setting.
    pub fn read() -> anyhow::Result<Self> {
        let Some(path) = place() else {
            return Ok(Self::default());
        };
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => bail!("{}: {}", path.display(), io_words(&error)),
            Ok(text) => Self::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display())),
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let table = table(text)?;
        let mut settings = Self::default();
        for (name, value) in &table {
            match (name.as_str(), value) {
                ("background", Value::String(word)) if word == "light" || word == "dark" => {
                    settings.light = Some(word == "light");
                }
                ("background", _) => bail!("background is \"light\" or \"dark\""),
                ("ascii", Value::Boolean(ascii)) => settings.ascii = Some(*ascii),
                ("ascii", _) => bail!("ascii is true or false"),
                ("key", Value::String(key)) => {
                    let kind: KeyKind = key.parse().map_err(|error| anyhow!("key: {error}"))?;
                    settings.key = Some(further(kind)?);
                }
                ("order", Value::String(order))
                    if Tab::Hosts.orders().contains(&order.as_str()) =>
                {
                    settings.order = Some(order.clone());
                }
                ("order", _) => bail!("order is one of {}", Tab::Hosts.orders().join(", ")),
                _ if NAMES.contains(&name.as_str()) => bail!("{name} is a text in quotation marks"),
                _ => bail!("unknown setting '{name}': {} are known", NAMES.join(", ")),
            }
        }
        Ok(settings)
    }
}

/// Checks a further key.
fn further(kind: KeyKind) -> anyhow::Result<KeyKind> {
    match kind {
        KeyKind::Name => bail!("key: hosts have their names in any case"),
        KeyKind::Process
        | KeyKind::Container
        | KeyKind::Asn
        | KeyKind::Country
        | KeyKind::Network => {
            bail!("key: {kind} needs options of weir measure")
        }
        kind if Tab::kinds().any(|own| own == kind) => bail!("key: {kind} has a table in any case"),
        kind => Ok(kind),
    }
}

/// Path of the file.
fn place() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let directory = match variable("XDG_CONFIG_HOME") {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(&variable("HOME")?).join(".config"),
    };
    Some(directory.join("weir/watch.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_are_refused_by_name() {
        let text = "background = \"light\"\nascii = true\nkey = \"dport\"\norder = \"packets\"\n";
        let settings = Settings {
            light: Some(true),
            ascii: Some(true),
            key: Some(KeyKind::Dport),
            order: Some("packets".to_owned()),
        };
        assert_eq!(Settings::parse(text).unwrap(), settings);
        let wrong = [
            ("background = \"red\"", "background is"),
            ("\ncolour = 1", "unknown setting 'colour'"),
            ("ascii = 1", "ascii is true or false"),
            ("key = \"src,\"", "key: "),
            ("key = \"host\"", "key: host has a table"),
            ("key = \"process\"", "key: process needs options"),
            ("key = 7", "key is a text"),
            ("order = \"size\"", "order is one of rate, sent"),
            ("\n\nascii =", "line 3: "),
        ];
        for (text, why) in wrong {
            let error = Settings::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
