//! Services: the port of a packet that is the service, and names of services.
//!
//! **Source**: IANA, Service Name and Transport Protocol Port Number Registry (RFC 6335), entries as distributed in 2024. The table
//! has the services that Debian's `/etc/services` lists under their registered names, and some that are common in captures.

use weir_packet::flow::FlowKey;

const TCP: u8 = 1;
const UDP: u8 = 1 << 1;
const SCTP: u8 = 1 << 2;
/// Numbers of these protocols, in the order of their bits.
const PROTOCOLS: [u8; 3] = [6, 17, 132];

/// First port of the range from which Linux chooses the ports of clients; IANA's range begins at 49152 (RFC 6335, section 6).
const EPHEMERAL: u16 = 32_768;

/// First port after the well-known ports (RFC 6335, section 6).
const REGISTERED: u16 = 1024;

/// Returns the port of a packet that is its service, and whether it is the source port. `None` if the packet has no ports, or if
/// both are [ephemeral](EPHEMERAL).
///
/// The rule looks at one packet alone, so that all packets of a flow agree, in any worker: the port of the better class is the
/// service, of two ports of one class the lower. Classes, the best first: well-known ports; ports with a name; other ports below
/// the ephemeral range.
pub(crate) fn service_of(flow: &FlowKey) -> Option<(u16, bool)> {
    let (sport, dport) = flow.ports()?;
    let named = PROTOCOLS
        .iter()
        .position(|proto| *proto == flow.proto)
        .map(|place| &NAMED[place]);
    let is_named = |port: u16| {
        named.is_some_and(|named| named[usize::from(port / 64)] >> (port % 64) & 1 == 1)
    };
    let class = |port: u16| match port {
        ..REGISTERED => 0,
        EPHEMERAL.. => 3,
        _ if is_named(port) => 1,
        _ => 2,
    };
    let (source, destination) = ((class(sport), sport), (class(dport), dport));
    match source.0.min(destination.0) {
        3 => None,
        // The directions between two equal ports differ by their addresses.
        _ if source == destination => Some((sport, flow.is_reversed())),
        _ => Some((source.min(destination).1, source < destination)),
    }
}

/// Returns the name of a service.
pub fn service_name(port: u16, proto: u8) -> Option<&'static str> {
    index_of(port, proto).map(|index| SERVICES[index].2)
}

/// Returns the number of the name of a service, for [`name_of`]. Services of one name have one number.
pub(crate) fn number_of(port: u16, proto: u8) -> Option<u16> {
    let name = service_name(port, proto)?;
    let first = SERVICES.iter().position(|(_, _, other)| *other == name)?;
    u16::try_from(first).ok()
}

/// Returns the name of a [number](number_of).
pub fn name_of(number: u16) -> Option<&'static str> {
    SERVICES.get(usize::from(number)).map(|(_, _, name)| *name)
}

/// Returns the place of a service in the table. Several names may share a port in different protocols.
fn index_of(port: u16, proto: u8) -> Option<usize> {
    let bit = 1 << PROTOCOLS.iter().position(|known| *known == proto)?;
    let first = SERVICES.partition_point(|(other, ..)| *other < port);
    let mut here = (first..).zip(&SERVICES[first..]);
    here.find(|(_, (other, protos, _))| *other != port || protos & bit != 0)
        .filter(|(_, (other, ..))| *other == port)
        .map(|(place, _)| place)
}

/// Ports below the ephemeral range that have a name, a bit for each, by protocol. Packets look here, because a search takes longer.
static NAMED: [[u64; EPHEMERAL as usize / 64]; PROTOCOLS.len()] = {
    let mut named = [[0; EPHEMERAL as usize / 64]; PROTOCOLS.len()];
    let mut place = 0;
    while place < SERVICES.len() {
        let (port, protos, _) = SERVICES[place];
        let mut proto = 0;
        while proto < PROTOCOLS.len() && port < EPHEMERAL {
            named[proto][port as usize / 64] |= (protos as u64 >> proto & 1) << (port % 64);
            proto += 1;
        }
        place += 1;
    }
    named
};

/// Ports in ascending order, the protocols as a mask, and the registered name.
#[rustfmt::skip]
const SERVICES: &[(u16, u8, &str)] = &[
    (1, TCP, "tcpmux"),
    (7, TCP | UDP, "echo"),
    (9, TCP | UDP, "discard"),
    (11, TCP, "systat"),
    (13, TCP | UDP, "daytime"),
    (17, TCP, "qotd"),
    (19, TCP | UDP, "chargen"),
    (20, TCP, "ftp-data"),
    (21, TCP | UDP | SCTP, "ftp"),
    (22, TCP | UDP | SCTP, "ssh"),
    (23, TCP | UDP, "telnet"),
    (25, TCP | UDP, "smtp"),
    (37, TCP | UDP, "time"),
    (43, TCP | UDP, "nicname"),
    (49, TCP | UDP, "tacacs"),
    (53, TCP | UDP, "domain"),
    (67, TCP | UDP, "bootps"),
    (68, TCP | UDP, "bootpc"),
    (69, TCP | UDP, "tftp"),
    (70, TCP | UDP, "gopher"),
    (79, TCP | UDP, "finger"),
    (80, TCP | UDP | SCTP, "http"),
    (88, TCP | UDP, "kerberos"),
    (102, TCP, "iso-tsap"),
    (104, TCP, "acr-nema"),
    (110, TCP | UDP, "pop3"),
    (111, TCP | UDP, "sunrpc"),
    (113, UDP, "auth"),
    (113, TCP, "ident"),
    (119, TCP | UDP, "nntp"),
    (123, TCP | UDP, "ntp"),
    (135, TCP | UDP, "epmap"),
    (137, TCP | UDP, "netbios-ns"),
    (138, TCP | UDP, "netbios-dgm"),
    (139, TCP | UDP, "netbios-ssn"),
    (143, TCP, "imap"),
    (161, TCP | UDP, "snmp"),
    (162, TCP | UDP, "snmptrap"),
    (163, TCP | UDP, "cmip-man"),
    (164, TCP | UDP, "cmip-agent"),
    (174, TCP, "mailq"),
    (177, UDP, "xdmcp"),
    (179, TCP | UDP | SCTP, "bgp"),
    (199, TCP, "smux"),
    (209, TCP, "qmtp"),
    (213, UDP, "ipx"),
    (319, TCP | UDP, "ptp-event"),
    (320, TCP | UDP, "ptp-general"),
    (345, TCP, "pawserv"),
    (346, TCP, "zserv"),
    (369, TCP | UDP, "rpc2portmap"),
    (370, TCP | UDP, "codaauth2"),
    (371, UDP, "clearcase"),
    (389, TCP | UDP, "ldap"),
    (427, TCP | UDP, "svrloc"),
    (443, TCP | UDP | SCTP, "https"),
    (444, TCP, "snpp"),
    (445, TCP | UDP, "microsoft-ds"),
    (464, TCP | UDP, "kpasswd"),
    (465, UDP, "igmpv3lite"),
    (465, TCP, "urd"),
    (487, TCP, "saft"),
    (500, TCP | UDP, "isakmp"),
    (512, TCP, "exec"),
    (513, TCP, "login"),
    (513, UDP, "who"),
    (514, TCP, "shell"),
    (514, UDP, "syslog"),
    (515, TCP | UDP, "printer"),
    (517, UDP, "talk"),
    (518, UDP, "ntalk"),
    (520, TCP, "efs"),
    (520, UDP, "router"),
    (538, TCP | UDP, "gdomap"),
    (540, TCP, "uucp"),
    (543, TCP, "klogin"),
    (544, TCP, "kshell"),
    (546, TCP | UDP, "dhcpv6-client"),
    (547, TCP | UDP, "dhcpv6-server"),
    (548, TCP, "afpovertcp"),
    (554, TCP | UDP, "rtsp"),
    (563, TCP, "nntps"),
    (587, TCP, "submission"),
    (607, TCP, "nqs"),
    (623, UDP, "asf-rmcp"),
    (628, TCP, "qmqp"),
    (631, TCP | UDP, "ipp"),
    (636, TCP | UDP, "ldaps"),
    (646, TCP | UDP, "ldp"),
    (655, TCP | UDP, "tinc"),
    (706, TCP, "silc"),
    (749, TCP, "kerberos-adm"),
    (853, TCP | UDP, "domain-s"),
    (873, TCP | UDP, "rsync"),
    (902, TCP | UDP, "ideafarm-door"),
    (989, TCP | UDP, "ftps-data"),
    (990, TCP | UDP, "ftps"),
    (992, TCP, "telnets"),
    (993, TCP, "imaps"),
    (995, TCP | UDP, "pop3s"),
    (1080, TCP | UDP, "socks"),
    (1093, TCP, "proofd"),
    (1094, TCP, "rootd"),
    (1099, TCP, "rmiregistry"),
    (1194, TCP | UDP, "openvpn"),
    (1352, TCP, "lotusnote"),
    (1433, TCP | UDP, "ms-sql-s"),
    (1434, UDP, "ms-sql-m"),
    (1521, TCP | UDP, "ncube-lm"),
    (1524, TCP, "ingreslock"),
    (1646, TCP | UDP, "sa-msg-port"),
    (1649, TCP, "kermit"),
    (1677, TCP, "groupwise"),
    (1701, TCP | UDP, "l2f"),
    (1723, TCP | UDP, "pptp"),
    (1812, TCP | UDP, "radius"),
    (1813, TCP | UDP, "radius-acct"),
    (1883, TCP | UDP, "mqtt"),
    (1900, TCP | UDP, "ssdp"),
    (1935, TCP | UDP, "macromedia-fcs"),
    (2000, TCP, "cisco-sccp"),
    (2049, TCP | UDP | SCTP, "nfs"),
    (2055, TCP | UDP, "iop"),
    (2086, TCP | UDP, "gnunet"),
    (2101, TCP | UDP, "rtcm-sc104"),
    (2102, UDP, "zephyr-srv"),
    (2103, UDP, "zephyr-clt"),
    (2104, UDP, "zephyr-hm"),
    (2119, TCP, "gsigatekeeper"),
    (2123, TCP | UDP, "gtp-control"),
    (2135, TCP, "gris"),
    (2152, TCP | UDP, "gtp-user"),
    (2375, TCP, "docker"),
    (2376, TCP, "docker-s"),
    (2379, TCP, "etcd-client"),
    (2380, TCP, "etcd-server"),
    (2401, TCP, "cvspserver"),
    (2427, TCP | UDP, "mgcp-gateway"),
    (2430, TCP | UDP, "venus"),
    (2431, TCP | UDP, "venus-se"),
    (2432, TCP | UDP, "codasrv"),
    (2433, TCP | UDP, "codasrv-se"),
    (2583, TCP | UDP, "mon"),
    (2628, TCP, "dict"),
    (2727, TCP | UDP, "mgcp-callagent"),
    (2792, TCP, "f5-globalsite"),
    (2811, TCP, "gsiftp"),
    (2905, TCP | SCTP, "m3ua"),
    (2944, TCP | UDP | SCTP, "megaco-h248"),
    (2945, TCP | UDP | SCTP, "h248-binary"),
    (2947, TCP, "gpsd"),
    (3000, TCP | UDP, "hbci"),
    (3050, TCP, "gds-db"),
    (3130, UDP, "icpv2"),
    (3205, TCP | UDP, "isns"),
    (3260, TCP | UDP, "iscsi-target"),
    (3306, TCP | UDP, "mysql"),
    (3389, TCP | UDP, "ms-wbt-server"),
    (3478, TCP | UDP, "stun"),
    (3493, TCP | UDP, "nut"),
    (3544, TCP | UDP, "teredo"),
    (3632, TCP, "distcc"),
    (3689, TCP, "daap"),
    (3690, TCP, "svn"),
    (3702, TCP | UDP, "ws-discovery"),
    (3784, TCP | UDP, "bfd-control"),
    (3799, TCP | UDP, "radius-dynauth"),
    (3868, TCP | SCTP, "diameter"),
    (4031, TCP, "suucp"),
    (4094, TCP, "sysrqd"),
    (4190, TCP, "sieve"),
    (4353, TCP, "f5-iquery"),
    (4369, TCP, "epmd"),
    (4373, TCP, "remctl"),
    (4433, TCP, "vop"),
    (4460, TCP, "ntske"),
    (4500, TCP | UDP, "ipsec-nat-t"),
    (4559, TCP, "hylafax"),
    (4569, UDP, "iax"),
    (4691, TCP, "mtn"),
    (4739, TCP | UDP | SCTP, "ipfix"),
    (4789, UDP, "vxlan"),
    (4899, TCP, "radmin-port"),
    (4949, TCP, "munin"),
    (5004, TCP | UDP, "avt-profile-1"),
    (5005, TCP | UDP, "avt-profile-2"),
    (5060, TCP | UDP | SCTP, "sip"),
    (5061, TCP | UDP | SCTP, "sips"),
    (5222, TCP, "xmpp-client"),
    (5269, TCP, "xmpp-server"),
    (5308, TCP, "cfengine"),
    (5349, TCP | UDP, "stuns"),
    (5350, UDP, "pcp-multicast"),
    (5351, UDP, "pcp"),
    (5353, TCP | UDP, "mdns"),
    (5355, TCP | UDP, "llmnr"),
    (5432, TCP | UDP, "postgresql"),
    (5556, TCP, "freeciv"),
    (5666, TCP, "nrpe"),
    (5671, TCP, "amqps"),
    (5672, TCP | UDP | SCTP, "amqp"),
    (5683, TCP | UDP, "coap"),
    (5684, TCP | UDP, "coaps"),
    (5900, TCP | UDP, "rfb"),
    (6000, TCP | UDP, "x11"),
    (6001, TCP | UDP, "x11"),
    (6081, UDP, "geneve"),
    (6343, TCP | UDP, "sflow"),
    (6346, TCP | UDP, "gnutella-svc"),
    (6347, TCP | UDP, "gnutella-rtr"),
    (6379, TCP, "redis"),
    (6443, TCP | UDP, "sun-sr-https"),
    (6444, TCP, "sge-qmaster"),
    (6445, TCP, "sge-execd"),
    (6446, TCP, "mysql-proxy"),
    (6514, TCP, "syslog-tls"),
    (6566, TCP, "sane-port"),
    (6653, TCP | UDP, "openflow"),
    (6666, TCP, "ircu"),
    (6696, UDP, "babel"),
    (6697, TCP, "ircs-u"),
    (7000, UDP, "afs3-fileserver"),
    (7001, TCP | UDP, "afs3-callback"),
    (7002, UDP, "afs3-prserver"),
    (7003, UDP, "afs3-vlserver"),
    (7004, UDP, "afs3-kaserver"),
    (7005, UDP, "afs3-volser"),
    (7007, UDP, "afs3-bos"),
    (7008, UDP, "afs3-update"),
    (7009, UDP, "afs3-rmtsys"),
    (7100, TCP, "font-service"),
    (8000, TCP | UDP, "irdmi"),
    (8008, TCP | UDP, "http-alt"),
    (8080, TCP | UDP, "http-alt"),
    (8086, TCP | UDP, "d-s-n"),
    (8140, TCP, "puppet"),
    (8443, TCP | UDP, "pcsync-https"),
    (8883, TCP | UDP, "secure-mqtt"),
    (8888, TCP, "ddi-tcp-1"),
    (8888, UDP, "ddi-udp-1"),
    (9100, TCP | UDP, "hp-pdl-datastr"),
    (9101, TCP, "bacula-dir"),
    (9102, TCP, "bacula-fd"),
    (9103, TCP, "bacula-sd"),
    (9200, TCP | UDP, "wap-wsp"),
    (9418, TCP | UDP, "git"),
    (9667, TCP, "xmms2"),
    (9899, UDP, "sctp-tunneling"),
    (9996, TCP | UDP, "palace-5"),
    (10050, TCP | UDP, "zabbix-agent"),
    (10051, TCP | UDP, "zabbix-trapper"),
    (10080, TCP, "amanda"),
    (10809, TCP, "nbd"),
    (11112, TCP, "dicom"),
    (11211, TCP | UDP, "memcache"),
    (11371, TCP, "hkp"),
    (17500, TCP, "db-lsp"),
    (22125, TCP, "dcap"),
    (22128, TCP, "gsidcap"),
    (22273, TCP, "wnn6"),
    (24554, TCP, "binkp"),
    (27017, TCP, "mongodb"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(sport: u16, dport: u16, proto: u8) -> FlowKey {
        FlowKey {
            src: [1; 16],
            dst: [2; 16],
            sport,
            dport,
            proto,
            family: 6,
            flags: FlowKey::HAS_PORTS,
            reserved: 0,
        }
    }

    #[test]
    fn the_better_port_is_the_service_in_both_directions() {
        for (a, b, service) in [
            (40_000, 443, Some(443)),
            (40_000, 5201, Some(5201)),
            // A name is better than a lower port without a name, and a well-known port is better than both.
            (3306, 1500, Some(3306)),
            (1023, 3306, Some(1023)),
            (21_001, 21_000, Some(21_000)),
            (53, 53, Some(53)),
            (40_000, 50_000, None),
        ] {
            let (there, back) = (flow(a, b, 6), flow(a, b, 6).turned());
            let found = [&there, &back].map(service_of);
            assert_eq!(found[0].map(|(port, _)| port), service, "{a} {b}");
            assert_eq!(found[1].map(|(port, _)| port), service, "{b} {a}");
            if let [Some((_, one)), Some((_, other))] = found {
                assert_ne!(one, other, "{a} {b}");
            }
        }
        let icmp = FlowKey {
            flags: 0,
            ..flow(0, 0, 1)
        };
        assert_eq!(service_of(&icmp), None);
    }

    #[test]
    fn each_port_with_a_name_has_its_bit() {
        for (proto, named) in PROTOCOLS.into_iter().zip(&NAMED) {
            for port in 0..EPHEMERAL {
                let bit = named[usize::from(port / 64)] >> (port % 64) & 1;
                assert_eq!(bit == 1, index_of(port, proto).is_some(), "{port} {proto}");
            }
        }
    }

    #[test]
    fn names_depend_on_the_protocol() {
        assert_eq!(service_name(514, 6), Some("shell"));
        assert_eq!(service_name(514, 17), Some("syslog"));
        assert_eq!(service_name(443, 17), Some("https"));
        assert_eq!(service_name(443, 1), None);
        assert_eq!(service_name(44_444, 6), None);
        assert_eq!(number_of(8080, 6), number_of(8008, 6));
        assert_eq!(number_of(8080, 6).and_then(name_of), Some("http-alt"));
        assert!(SERVICES.is_sorted_by_key(|(port, ..)| *port));
        assert!(SERVICES.iter().all(|(port, ..)| *port < EPHEMERAL));
    }
}
