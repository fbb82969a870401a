//! Changes of permissions that the packets of a train ask for.

use weir_firewall::permissions::{Change, Span};
use weir_generator::trains::Config;

pub fn change(config: &Config) -> Change<u32> {
    let Config {
        address,
        persona_non_grata,
        accepting,
        begin,
        end,
    } = *config;
    let accepts = Span::half_open(begin, Some(end)).map(|sources| (sources, accepting));
    Change {
        address,
        persona_non_grata: Some(persona_non_grata),
        accepts,
    }
}
