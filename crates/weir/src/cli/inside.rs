//! Whether the innermost packets of frames are judged.

use super::SELECT;
use clap::Args;
use weir_messages::Refusal;
use weir_packet::flow::{MOST_VXLAN_PORTS, Tunnels};

/// Whether the innermost packets are judged, and what leads to them.
#[derive(Args, Clone, Debug, Default)]
pub struct InnerArgs {
    /// Look after tags and into tunnels.
    ///
    /// Expressions, rules, addresses and ports are about the innermost packet: after VLAN tags, MPLS,
    /// PPPoE and IPv6 extension headers, and in GRE, ERSPAN, IP in IP, VXLAN, GENEVE, GTP-U and MPLS
    /// over IP. Whole packets are printed, written and counted.
    #[arg(help_heading = SELECT, long)]
    pub inner: bool,
    /// Take UDP packets to port N for VXLAN as well.
    ///
    /// 4789 and 8472 are in any case. Repeat it for several ports.
    #[arg(hide_short_help = true, help_heading = SELECT, long, value_name = "N", requires = "inner",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub vxlan_port: Vec<u16>,
}

impl InnerArgs {
    /// Returns the tunnels into which is looked, if at all. **Errors**: too many ports.
    pub fn tunnels(&self) -> Result<Option<Tunnels>, Refusal> {
        if !self.inner {
            return Ok(None);
        }
        match Tunnels::with_vxlan(&self.vxlan_port) {
            Some(tunnels) => Ok(Some(tunnels)),
            None => Err(Refusal(format!(
                "--vxlan-port: {} ports; {MOST_VXLAN_PORTS} are the most",
                self.vxlan_port.len()
            ))),
        }
    }
}
