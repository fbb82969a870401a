//! Rulesets as routers have them, written in the style of public ones.

/// Rulesets that are translated whole: what they show, whether they ask for states, and the text.
pub const WHOLE: [(&str, bool, &str); 14] = [
    (
        "a router by states and address sets",
        true,
        "table inet t {
  set lan4 { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }
  set lan6 { type ipv6_addr; flags interval; elements = { 2001:db8::/32, fe80::/10 }; }
  chain forward { type filter hook forward priority filter; policy drop;
    ct state invalid drop comment \"early\"
    ct state { established, related } accept
    ip saddr @lan4 accept
    ip6 saddr @lan6 accept
    ip protocol icmp accept
    meta l4proto ipv6-icmp accept
  }
}",
    ),
    (
        "rejects by protocol at the end",
        false,
        "table inet f {
  chain f { type filter hook forward priority 0; policy drop;
    tcp dport 22 accept
    meta l4proto tcp reject with tcp reset
    reject with icmpx port-unreachable
  }
}",
    ),
    (
        "chains as ufw has them, and a reject without a name",
        true,
        "table ip filter {
  chain before { ct state related,established counter accept
    ip protocol icmp icmp type destination-unreachable counter accept
    ip protocol icmp icmp type echo-request counter accept
    counter jump user
  }
  chain user { ip daddr 192.168.0.0/16 tcp dport 80 counter accept
  }
  chain refuse { counter reject
  }
  chain FORWARD { type filter hook forward priority filter; policy drop;
    counter jump before
    counter jump refuse
  }
}",
    ),
    (
        "a map of protocols and ports together",
        false,
        "table inet filter {
  chain forward { type filter hook forward priority filter; policy drop;
    icmpv6 type { router-renumbering, 139, 140 } drop
    icmpv6 type != { router-renumbering, 139, 140 } accept
    iifname vmap { in0 : jump lan, in1 : jump wan }
  }
  chain lan { ip saddr . tcp dport { 10.0.0.1 . 22, 10.0.0.0/16 . 80 } drop
    accept
  }
  chain wan { ip6 daddr 2001:db8::1 meta l4proto . th dport vmap { tcp . 80 : accept, udp . 443 : accept, tcp . 5000-6000 : drop }
    ip daddr . ip saddr @pairs accept
  }
  set pairs { type ipv4_addr . ipv4_addr; elements = { 10.0.0.1 . 1.1.1.1, 192.168.1.1 . 10.0.0.2 }; }
}",
    ),
    (
        "a log of what the policy drops",
        false,
        "table inet filter { chain forward { type filter hook forward priority 0; policy drop;
    iifname \"in0\" tcp dport { 22, 80 } accept
    limit rate 5/minute log prefix \"FORWARD DROP: \"
    log prefix \"all\" counter drop
};
}",
    ),
    (
        "two tables, one behind the other",
        true,
        "table inet b { chain f { type filter hook forward priority 5; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    ip saddr 10.0.0.0/8 jump out
    ip6 saddr 2001:db8::/32 ct state new accept
    udp dport 33434-33534 accept
  }
  chain out { ip daddr 198.51.100.7 return
    tcp dport 81 return
    ct state new accept
  }
}
table inet a { chain f { type filter hook forward priority -5; policy accept;
    ip daddr 192.168.5.0/24 accept
    ip saddr 10.0.0.2 drop
    tcp dport 23 reject with tcp reset
  }
}
table ip c { chain f { type filter hook forward priority 0; policy accept; ip protocol 200 ip saddr 10.20.0.0/16 drop; }; }",
    ),
    (
        "chains that are left under conditions",
        false,
        "table inet b {
  chain f { type filter hook forward priority 5; policy drop;
    iifname vmap { \"in0\" : jump out, \"in1\" : jump into }
    meta l4proto icmp accept
    meta l4proto ipv6-icmp accept
    udp dport vmap { 53 : accept, 443 : drop, 1000-9000 : goto last }
  }
  chain out { ip daddr 198.51.100.7 return
    ip daddr { 10.0.0.0/8, 172.16.0.0/12, 192.168.1.0/25 } drop
    tcp flags & (syn | ack) == syn tcp dport 22 return
    icmp type echo-request goto last
    meta l4proto { tcp, udp } th dport { 22, 53, 80, 443 } accept
    ip6 daddr 2001:db8:5::/48 goto last
  }
  chain into { tcp sport 80 tcp flags & (fin|syn|rst|ack) != syn accept
    ip saddr vmap { 10.0.0.1 : drop, 1.1.1.1 : accept, 198.51.100.0/24 : jump last }
  }
  chain last { meta l4proto esp accept
    tcp dport >= 1024 accept
    icmp type echo-request accept
  }
}",
    ),
    (
        "other answers, and states that are not",
        true,
        "table inet t { chain f { type filter hook forward priority 0; policy accept;
    ct state untracked accept
    ct state != { new, established } drop
    ip daddr 10.0.0.0/16 tcp dport 80 reject with icmp host-prohibited
    ip6 daddr 2001:db8::/48 reject with icmpv6 addr-unreachable
    udp dport 53 reject with icmpx admin-prohibited
};
}",
    ),
    (
        "a list of blocked addresses, and flags",
        false,
        "table ip f4 {
  set blocked { type ipv4_addr; flags interval; auto-merge; elements = { 192.168.1.0/24, 10.0.5.0-10.0.5.5 }; }
  chain f { type filter hook forward priority filter; policy accept;
    ip saddr @blocked counter drop
    ip daddr @blocked counter reject with icmp net-unreachable
    tcp flags & (fin|syn|rst|psh|ack|urg) == 0x0 drop
    tcp flags & (fin|syn) == fin|syn drop
    tcp flags syn / fin,syn,rst,ack tcp dport 25 drop
    tcp flags != syn tcp dport 80 drop
    icmp type { echo-request, timestamp-request } drop
  }
}
table ip6 f6 { chain f { type filter hook forward priority 0; policy accept; ip6 saddr { 2001:db8::/48 } drop; }; }",
    ),
    (
        "zones of a home router, with rates and a chain for each way out",
        true,
        "table inet fw4 {
  chain forward { type filter hook forward priority filter; policy drop;
    ct state vmap { established : accept, related : accept } comment \"forwarded flows\"
    iifname \"in0\" jump forward_lan comment \"from inside\"
    iifname { \"in1\", \"phy1-sta0\" } jump forward_wan
    jump handle_reject
  }
  chain forward_lan { jump accept_to_wan
    jump accept_to_lan
  }
  chain forward_wan {
    icmpv6 type { destination-unreachable, time-exceeded, echo-request, echo-reply } limit rate 1000/second counter accept
    icmpv6 type . icmpv6 code { packet-too-big . no-route, parameter-problem . no-route, parameter-problem . admin-prohibited } limit rate 1000/second counter accept
    meta l4proto esp counter jump accept_to_lan
    udp dport 53 counter jump accept_to_lan
    jump reject_to_wan
  }
  chain accept_to_wan { meta nfproto ipv4 oifname \"wan0\" ct state invalid counter drop
    oifname \"wan0\" counter accept
  }
  chain accept_to_lan { oifname \"out\" counter accept
  }
  chain reject_to_wan { oifname \"wan0\" counter jump handle_reject
  }
  chain handle_reject { meta l4proto tcp reject with tcp reset
    reject with icmpx port-unreachable
  }
}",
    ),
    (
        "a bridge of containers, isolated from others",
        true,
        "table ip filter {
  chain DOCKER { iifname != \"out\" oifname \"out\" ip daddr 10.0.0.1 tcp dport 80 counter accept
    iifname != \"out\" oifname \"out\" counter drop
  }
  chain DOCKER-USER { counter return
  }
  chain ISOLATION-1 { iifname \"in1\" oifname != \"in1\" counter jump ISOLATION-2
    counter return
  }
  chain ISOLATION-2 { oifname \"wan0\" counter drop
    counter return
  }
  chain FORWARD { type filter hook forward priority filter; policy drop;
    counter jump DOCKER-USER
    counter jump ISOLATION-1
    oifname \"out\" ct state related,established counter accept
    oifname \"out\" counter jump DOCKER
    iifname \"in1\" oifname != \"in1\" counter accept
    iifname \"out\" oifname \"out\" counter accept
  }
}",
    ),
    (
        "a shared connection",
        true,
        "table ip shared {
  chain filter_forward { type filter hook forward priority filter; policy accept;
    ip daddr 10.0.0.0/24 oifname \"out\" ct state { established, related } accept
    ip saddr 10.0.0.0/24 iifname \"in0\" accept
    iifname \"out\" oifname \"out\" accept
    iifname \"in0\" reject
    oifname \"out\" reject
  }
}",
    ),
    (
        "zones that are left for good, and packets with translated addresses",
        true,
        "table inet firewalld {
  chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname \"lo\" accept
    ct state invalid drop
    ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24 } reject with icmpv6 addr-unreachable
    jump filter_FORWARD_ZONES
    reject with icmpx admin-prohibited
  }
  chain filter_FORWARD_ZONES { iifname \"in1\" goto filter_FWD_trusted
    goto filter_FWD_public
  }
  chain filter_FWD_trusted { accept
  }
  chain filter_FWD_public { meta l4proto { icmp, ipv6-icmp } accept
  }
}",
    ),
    (
        "fragments, small segments and extension headers",
        false,
        "table ip6 f6 { chain f { type filter hook forward priority 0; policy accept;
    ip6 saddr { 2001:db8:5::/48 } drop; tcp flags & (syn|ack) == syn drop
    exthdr rt exists drop; exthdr hbh exists drop; exthdr frag exists drop; rt type 0 drop
}; }
table ip f4 {
  set blocked { type ipv4_addr; flags interval; auto-merge; elements = { 192.168.1.0/24, 10.0.5.0-10.0.5.5 }; }
  chain f { type filter hook forward priority filter; policy accept;
    ip saddr @blocked counter drop
    ip daddr @blocked counter reject with icmp host-prohibited
    ip frag-off & 0x1fff != 0 drop
    tcp flags & (fin|syn|rst|psh|ack|urg) == 0x0 drop
    tcp flags & (fin|syn) == fin|syn drop
    tcp flags syn tcp option maxseg size 1-535 drop
  }
}",
    ),
];

/// Rulesets with parts that weir has no equal for, and the words that name each part.
pub const IN_PART: [(&str, &[&str]); 5] = [
    (
        "table inet t { chain f { type filter hook forward priority 0; ct status assured accept; meta day \"Monday\" drop; }; }",
        &[
            "ct status: weir knows of snat and dnat alone, which no packet has",
            "meta day: weir has no such condition",
        ],
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; tcp option maxseg exists drop; tcp option window exists drop; }; }",
        &[
            "tcp option maxseg: weir has no such condition",
            "tcp option window: weir has no such condition",
        ],
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; exthdr frag missing drop; exthdr rt exists accept; ether type arp drop; ip frag-off & 0x1fff == 0 drop; }; }",
        &[
            "exthdr: weir has no condition for headers that are missing, or that are there together",
            "exthdr: what passes by it would be more here than in the kernel",
            "ether type: weir has no such condition",
            "ip frag-off: weir has no condition for all but later fragments",
        ],
    ),
    (
        "table inet t { chain c { ip frag-off & 0x1fff != 0 return; accept; }; chain f { type filter hook forward priority 0; policy drop; jump c; udp dport 53 accept; }; }",
        &["ip frag-off: weir has no condition for all but later fragments"],
    ),
    (
        "table inet a { chain f { type filter hook forward priority 0; limit rate 5/second accept; drop; }; }; table inet b { chain f { type filter hook forward priority 1; drop; }; }",
        &["limit: one rate for the rules of the next chain at the hook"],
    ),
];
