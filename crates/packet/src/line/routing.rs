//! Routing and redundancy protocols directly above IP, by name and kind of message.

use super::text::{Line, Printed, array, put};

/// OSPF (RFC 2328, RFC 5340).
pub(super) fn ospf(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let [version, kind] = array::<2>(data, 0)?;
    put!(line, "OSPFv{version}");
    named(
        line,
        kind,
        &[
            "Hello",
            "Database Description",
            "LS-Request",
            "LS-Update",
            "LS-Ack",
        ],
        1,
    );
    line.length(wire);
    Some(())
}

/// PIM (RFC 7761).
pub(super) fn pim(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    const KINDS: [&str; 12] = [
        "Hello",
        "Register",
        "Register Stop",
        "Join / Prune",
        "Bootstrap",
        "Assert",
        "Graft",
        "Graft Acknowledgement",
        "Candidate RP Advertisement",
        "Prune Refresh",
        "DF Election",
        "ECMP Redirect",
    ];
    let &first = data.first()?;
    put!(line, "PIMv{}", first >> 4);
    match KINDS.get(usize::from(first & 15)) {
        Some(name) => put!(line, ", {name}"),
        None => line.text(", Unknown Type"),
    }
    line.length(wire);
    Some(())
}

/// EIGRP (RFC 7868).
pub(super) fn eigrp(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let [version, opcode] = array::<2>(data, 0)?;
    data.get(19)?;
    if version != 2 {
        put!(line, "EIGRP version {version} packet not supported");
        return Some(());
    }
    line.text("EIGRP");
    match opcode {
        1 => line.text(" Update"),
        3 => line.text(" Query"),
        4 => line.text(" Reply"),
        5 => line.text(" Hello"),
        6 => line.text(" IPX SAP"),
        8 => line.text(" Ack"),
        other => put!(line, " unknown ({other})"),
    }
    put!(line, ", length: {wire}");
    Some(())
}

/// VRRP (RFC 5798) and CARP, which has the same number.
pub(super) fn vrrp(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let [first, id, priority] = array::<3>(data, 0)?;
    put!(line, "VRRPv{}, ", first >> 4);
    match first & 15 {
        1 => put!(line, "Advertisement, vrid {id}, prio {priority}"),
        other => put!(line, "[type {other}]"),
    }
    line.length(wire);
    Some(())
}

/// Prints `, NAME`, or the number if the table does not hold it; the table starts at `first`.
fn named(line: &mut Line<'_>, kind: u8, names: &[&str], first: u8) {
    match kind
        .checked_sub(first)
        .and_then(|at| names.get(usize::from(at)))
    {
        Some(name) => put!(line, ", {name}"),
        None => put!(line, ", type {kind}"),
    }
}
