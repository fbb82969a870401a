//! Files of settings in TOML.

use anyhow::anyhow;
use toml::Table;

/// Reads a table. **Errors**: the line that is not TOML, and why.
pub fn table(text: &str) -> anyhow::Result<Table> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error
            .span()
            .map_or("", |span| text.get(..span.start).unwrap_or(""));
        let why = error.message().lines().collect::<Vec<_>>().join(", ");
        anyhow!("line {}: {why}", before.matches('\n').count() + 1)
    })
}
