//! The flag of runs that show their figures to viewers.

use super::TUNING;
use clap::Args;
use weir_engine::name::Name;

/// View socket of a run.
#[derive(Args, Clone, Debug, Default)]
pub struct ViewersArgs {
    /// Show the figures to weir watch --attach at the socket PATH.
    ///
    /// Viewers only look, and have no packets. Users of the group weir may look, if there is this group and the run's user is in it; else
    /// the run's user alone. Figures are of windows: of --window, or of 1 s on interfaces.
    #[arg(hide_short_help = true, help_heading = TUNING, long, value_name = "PATH")]
    pub view: Option<Name>,
}
