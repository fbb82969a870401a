//! Verdicts of nftables, and answers to rejected packets.

use super::*;

/// Words for a rate. **Errors**: the reason for which it is not translated.
pub(super) fn rate(limit: &Value) -> Result<String, String> {
    let number = |key: &str| limit.get(key).and_then(Value::as_u64);
    let is_of_bytes = limit.get("rate_unit").is_some_and(|unit| unit != "packets");
    if is_of_bytes {
        return Err(
            "limit: bytes are those of the frame in weir, and those behind its header in nftables"
                .to_owned(),
        );
    }
    let period = match text(limit, "per") {
        "second" => "s",
        "minute" => "m",
        "hour" => "h",
        other => return Err(format!("limit: {} is not a period of weir's", plain(other))),
    };
    let word = if limit.get("inv").and_then(Value::as_bool) == Some(true) {
        "over"
    } else {
        "limit"
    };
    // Without a burst Linux takes NFT_LIMIT_PKT_BURST_DEFAULT: net/netfilter/nft_limit.c.
    let burst = number("burst").filter(|burst| *burst > 0).unwrap_or(5);
    let most = |number: &u64| (1..=u32::MAX.into()).contains(number);
    match (number("rate").filter(most), most(&burst)) {
        (Some(rate), true) => Ok(format!(" {word} {rate}/{period} burst {burst}")),
        _ => Err("limit: a rate of another form".to_owned()),
    }
}

/// Reason for which no packets are rejected with this answer by weir.
pub(super) fn answer_fault((verdict, reject): (&str, &Value)) -> Option<String> {
    let (kind, code) = (text(reject, "type"), text(reject, "expr"));
    let is_fault = verdict == "reject"
        && !reject.is_null()
        && kind != "tcp reset"
        && answer(kind, code).is_none();
    is_fault.then(|| format!("reject with {kind} {code}: weir has no such answer"))
}

/// The answer of weir's that is the same.
pub(super) fn answer(kind: &str, code: &str) -> Option<Answer> {
    match (kind, code) {
        ("icmp", "net-unreachable") | ("icmpv6" | "icmpx", "no-route") => Some(Answer::NoRoute),
        ("icmp" | "icmpx", "host-unreachable") | ("icmpv6", "addr-unreachable") => {
            Some(Answer::HostUnreachable)
        }
        ("icmp", "prot-unreachable") => Some(Answer::ProtocolUnreachable),
        ("icmp" | "icmpv6" | "icmpx", "port-unreachable") => Some(Answer::PortUnreachable),
        ("icmp", "net-prohibited") => Some(Answer::NetProhibited),
        ("icmp", "host-prohibited") => Some(Answer::HostProhibited),
        ("icmp" | "icmpv6" | "icmpx", "admin-prohibited") => Some(Answer::AdminProhibited),
        _ => None,
    }
}

/// Fate of a rule's packets, if packets of these conditions also leave the chain; `None` if the
/// others cannot be described.
pub(super) fn without(then: Then, entry: &Conditions, conditions: &Conditions) -> Option<Then> {
    let rest = match then {
        Then::Rest(rest) => rest,
        _ => vec![entry.clone()],
    };
    let parts = rest.iter().map(|part| {
        let both = part.and(conditions);
        if both.is_empty() {
            Some(vec![part.clone()])
        } else {
            part.without(&both)
        }
    });
    parts
        .collect::<Option<Vec<_>>>()
        .map(|parts| Then::Rest(parts.concat()))
}

/// Conditions of packets that a rule rejects, and the answer. **Errors**: the reason for which there is none.
pub(super) fn rejected(
    conditions: &Conditions,
    reject: &Value,
) -> Result<(Conditions, Answer), String> {
    if let Some(why) = answer_fault(("reject", reject)) {
        return Err(why);
    }
    let mut conditions = conditions.clone();
    let kind = text(reject, "type");
    match kind {
        "icmp" => conditions.restrict(Field::Family, &Ranges::of(4)),
        "icmpv6" => conditions.restrict(Field::Family, &Ranges::of(6)),
        _ => {}
    }
    let is_tcp_alone = conditions
        .get(Field::Protocol)
        .is_some_and(|protocols| protocols.is_within(&[TCP]));
    // Without a name nft rejects all packets as those of which the port is unreachable.
    let answer = answer(kind, text(reject, "expr")).unwrap_or(Answer::PortUnreachable);
    match kind {
        "tcp reset" if is_tcp_alone => Ok((conditions, Answer::Usual)),
        "tcp reset" => Err("reject with tcp reset: weir resets nothing but TCP".to_owned()),
        _ if answer == Answer::PortUnreachable && !conditions.may_be(Field::Protocol, TCP) => {
            Ok((conditions, Answer::Usual))
        }
        _ => Ok((conditions, answer)),
    }
}
