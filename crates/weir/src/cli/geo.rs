//! Databases of addresses.

use super::*;
use std::sync::Arc;
use weir_measure::Geo;
use weir_messages::geo::read_geo;

/// Databases of networks, autonomous systems and countries.
#[derive(Args, Clone, Debug, Default)]
pub struct GeoArgs {
    /// Read AS numbers and countries from FILE.
    ///
    /// For --key asn, country and network. FILE is in the MaxMind DB format (.mmdb), such as
    /// GeoLite2-ASN.mmdb and GeoLite2-Country.mmdb; repeat it for both. It is read into memory at
    /// the start.
    #[arg(hide_short_help = true, help_heading = ANSWER, long, value_name = "FILE")]
    pub geo: Vec<Name>,
}

impl GeoArgs {
    /// Reads the databases for these keys, which `may_change` later. **Errors**: a file that cannot be used; no key needs one.
    pub fn read(&self, keys: &[KeyKind], may_change: bool) -> Result<Option<Arc<Geo>>, Refusal> {
        read_geo(&self.geo, keys, may_change)
    }
}
