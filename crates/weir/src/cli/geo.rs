//! Databases of addresses.

use super::*;
use std::sync::Arc;
use weir_measure::{Geo, Places};
use weir_messages::geo::{check, of_columns, read_geo};

/// Databases of networks, autonomous systems and countries.
#[derive(Args, Clone, Debug, Default)]
pub struct GeoArgs {
    /// Read AS numbers and countries from FILE.
    ///
    /// For --key asn, country and network, and columns named after them. FILE is in the MaxMind DB
    /// format (.mmdb), such as GeoLite2-ASN.mmdb and GeoLite2-Country.mmdb; repeat it for both. It is
    /// read into memory at the start.
    #[arg(hide_short_help = true, help_heading = ANSWER, long, value_name = "FILE")]
    pub geo: Vec<Name>,
}

impl GeoArgs {
    /// Reads the databases for these keys, which `may_change` later, and columns. **Errors**: a file that cannot be used; no key or column
    /// needs one.
    pub fn read(
        &self,
        keys: &[KeyKind],
        columns: Option<&str>,
        may_change: bool,
    ) -> Result<Option<Arc<Geo>>, Refusal> {
        let has_column = of_columns(columns).next().is_some();
        let is_needed = may_change || has_column || keys.iter().any(|key| key.needs_geo());
        if !self.geo.is_empty() && !is_needed {
            return Err(Refusal(
                "--geo is for the keys asn, country and network, and for columns such as src_country: add --key asn"
                    .to_owned(),
            ));
        }
        read_geo(&self.geo)
    }

    /// Refuses databases that no column of packets needs.
    pub fn check_columns(&self, columns: Option<&str>) -> Result<(), Refusal> {
        if !self.geo.is_empty() && of_columns(columns).next().is_none() {
            return Err(Refusal(
                "--geo is for columns such as src_country and dst_asn: add --columns time,src,src_country,dst,dst_country"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Reads the databases for columns of packets. **Errors**: a file that cannot be used; a column that no file has.
    pub fn places(&self, columns: Option<&str>) -> Result<Option<Places>, Refusal> {
        let geo = read_geo(&self.geo)?;
        for (column, kind) in of_columns(columns) {
            check(geo.as_deref(), &format!("--columns: {column}"), kind)?;
        }
        Ok(geo.map(Places::new))
    }
}
