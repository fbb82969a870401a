//! Arguments about interfaces, and about the rights of the process.

use super::*;

/// How to capture from an interface.
#[derive(Args, Clone, Debug)]
pub struct LiveArgs {
    /// Do not capture packets for other machines
    #[arg(help_heading = LIVE, short = 'p', long = "no-promiscuous-mode")]
    pub no_promiscuous: bool,
    /// Capture received packets, sent ones, or both
    #[arg(help_heading = LIVE, short = 'Q', long, default_value = "inout")]
    pub direction: DirectionArg,
    /// Use SIZE bytes for waiting packets, in all.
    ///
    /// Sizes take k, M and G (binary).
    #[arg(help_heading = LIVE, long, value_name = "SIZE", default_value = "32M", value_parser = parse_size)]
    pub ring: u64,
    /// Allow rings of more than half of the free memory.
    ///
    /// Ring memory is not accounted to any process: under memory pressure the kernel may kill other
    /// programs first.
    #[arg(help_heading = TUNING, long)]
    pub ring_force: bool,
    /// Set the size of the blocks of a ring.
    ///
    /// The kernel hands packets over in blocks. SIZE is a power of two, and is raised to the size
    /// of the largest packet [default: 1M, less in a small ring and in weir firewall].
    #[arg(help_heading = TUNING, long, value_name = "SIZE", value_parser = parse_size)]
    pub block: Option<u64>,
    /// Choose how the kernel shares packets among workers
    #[arg(help_heading = TUNING, long, default_value = "hash")]
    pub fanout: FanoutArg,
    /// Choose the clock of timestamps
    #[arg(hide_short_help = true, help_heading = LIVE, long, default_value = "software")]
    pub time_stamps: StampsArg,
    /// Match in weir alone, not in the kernel
    #[arg(help_heading = TUNING, long)]
    pub no_kernel_filter: bool,
    /// Wait until the interface is there and up
    #[arg(help_heading = LIVE, long)]
    pub wait: bool,
    /// Choose where the XDP program of af_xdp runs
    #[arg(hide_short_help = true, help_heading = LIVE, long, value_name = "MODE", default_value = "auto")]
    pub xdp_mode: XdpModeArg,
    /// Choose whether the card writes into weir's memory (af_xdp)
    #[arg(hide_short_help = true, help_heading = LIVE, long, value_name = "WHEN", default_value = "auto")]
    pub zero_copy: ZeroCopyArg,
    /// Choose pages for the packets of af_xdp.
    ///
    /// auto, hugetlb, hugetlb-1g, thp, virtual.
    #[arg(help_heading = TUNING, long, value_name = "POLICY", default_value = "auto")]
    pub ring_pages: Policy,
    /// Poll without sleeping (af_xdp, dpdk)
    #[arg(help_heading = TUNING, long)]
    pub busy_poll: bool,
    /// Whose packets may be taken.
    #[command(flatten)]
    pub taking: TakeArgs,
}

/// What confines the process before packets are parsed.
#[derive(Args, Clone, Debug)]
pub struct WallArgs {
    /// Become USER once interfaces are open.
    ///
    /// This holds for root: files are then written with the rights of USER. Without it, weir under
    /// sudo becomes the user who called sudo; root stays root.
    #[arg(help_heading = TUNING, short = 'Z', long = "user", value_name = "USER")]
    pub user: Option<String>,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum XdpModeArg {
    /// Native where the driver has it, else generic
    Auto,
    /// In the driver of the card
    Native,
    /// In the kernel, for any driver
    Generic,
}

/// Whether a card writes into our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ZeroCopyArg {
    /// The card does if it can
    Auto,
    /// The kernel copies packets
    Never,
    /// The card does, or the capture is refused
    Force,
}

/// Which packets of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectionArg {
    /// Received packets
    In,
    /// Sent packets
    Out,
    /// Both
    Inout,
}

/// Which worker gets a packet of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FanoutArg {
    /// By flow, both directions together
    Hash,
    /// By the processor that receives it
    Cpu,
    /// By the queue of the card
    Queue,
}

/// Whose clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StampsArg {
    /// The clock of the kernel
    Software,
    /// The clock of the card, if it has one for all packets
    Hardware,
}
