//! Finds the words of an expression that libpcap would send to a resolver.
//!
//! libpcap looks a name up as soon as its parser has read it. So the expression is read here first,
//! with the tokens of `scanner.l` and the part of `grammar.y` that decides the kind of a name. The
//! kind follows from the qualifiers before it (`port http`, `proto ospf`, `host a`), or the
//! qualifiers of the previous name (`port http or https`), through parentheses. A name that no
//! qualifier reaches is a syntax error, and is not looked up.

use std::net::Ipv6Addr;
use std::ops::Range;

use crate::Error;
use weir_packet::flow::Keep;

/// Refuses an expression in which a name would be looked up. Names of ports, protocols and kinds of frames are local, and
/// are allowed.
///
/// Returns the first word that is not a keyword and has no qualifier: the likely cause if libpcap
/// finds a syntax error.
///
/// **Cost**: linear in the expression except for runs of hexadecimal digits and colons. **Errors**: [`Error::Name`].
pub(crate) fn check(expression: &str) -> Result<Option<&str>, Error> {
    let Words {
        unexplained,
        refused,
        ..
    } = read(expression);
    refused.map_or(Ok(unexplained), Err)
}

/// Returns the sets of addresses that an expression names.
pub(crate) fn sets(expression: &str) -> Vec<SetWord<'_>> {
    read(expression).sets
}

/// The headers at which an expression looks itself. Such headers stay where they are if packets are judged without the headers
/// around them.
///
/// `vlan`, `mpls`, `pppoed` and `pppoes` look at tags, as bytes of `ether` and `link` do; `ah`, `protochain`, `ip6 proto`, `proto`
/// alone, and bytes of `ip6` look at extension headers.
pub fn keep(expression: &str) -> Keep {
    let mut keep = Keep::default();
    let (mut before, mut at) = ("", 0);
    while at < expression.len() {
        let (token, length) = token(&expression[at..]);
        let text = &expression[at..at + length];
        at += length;
        if token == Token::Space {
            continue;
        }
        keep.tags |= matches!(text, "vlan" | "mpls" | "pppoed" | "pppoes")
            || text == "[" && matches!(before, "ether" | "link");
        keep.extensions |= matches!(text, "ah" | "protochain")
            || text == "[" && before == "ip6"
            || text == "proto"
                && (before == "ip6" || !matches!(keyword(before), Some(Keyword::Protocol(_))));
        before = text;
    }
    keep
}

/// A set of addresses named in an expression, `@NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetWord<'a> {
    /// Name without the `@`.
    pub(crate) name: &'a str,
    /// Place of the word, in bytes of the expression.
    pub(crate) span: Range<usize>,
    /// Kind of the word, according to its qualifiers.
    pub(crate) qualifier: Qualifier,
    /// Protocol among its qualifiers.
    pub(crate) protocol: Option<Protocol>,
    /// Whether a parenthesis opens right before it. libpcap allows no second one there.
    pub(crate) begins_parenthesis: bool,
    /// Whether a prefix length or a mask follows.
    pub(crate) has_mask: bool,
}

/// Words of an expression.
struct Words<'a> {
    /// The first word that is not a keyword and has no qualifier.
    unexplained: Option<&'a str>,
    /// The first name that would be looked up.
    refused: Option<Error>,
    sets: Vec<SetWord<'a>>,
}

fn read(expression: &str) -> Words<'_> {
    let mut reader = Reader {
        inherited: Inherited::default(),
        head: Head::default(),
        open: Vec::new(),
        word: false,
    };
    let mut words = Words {
        unexplained: None,
        refused: None,
        sets: Vec::new(),
    };
    let mut previous = Token::End;
    let mut at = 0;
    while at < expression.len() {
        let (token, length) = token(&expression[at..]);
        let span = at..at + length;
        at = span.end;
        if token == Token::Space {
            continue;
        }
        let text = &expression[span.clone()];
        let qualifier = reader.read(token, previous);
        match (token, qualifier) {
            (Token::Set, qualifier) => words.sets.push(SetWord {
                name: &text[1..],
                span,
                qualifier: qualifier.unwrap_or(Qualifier::None),
                protocol: reader.inherited.protocol,
                begins_parenthesis: previous == Token::Symbol(b'('),
                has_mask: false,
            }),
            (Token::Symbol(b'/') | Token::Keyword(Keyword::Mask), _) if previous == Token::Set => {
                words
                    .sets
                    .iter_mut()
                    .next_back()
                    .expect("the previous word is a set")
                    .has_mask = true;
            }
            (_, Some(Qualifier::Name(what))) => {
                words.refused = words.refused.or_else(|| Some(refuse(text, what, span)));
            }
            (_, Some(Qualifier::None)) => words.unexplained = words.unexplained.or(Some(text)),
            (_, Some(Qualifier::Local) | None) => {}
        }
        previous = token;
    }
    words
}

fn refuse(text: &str, what: &'static str, span: Range<usize>) -> Error {
    Error::Name {
        name: text.strip_prefix('\\').unwrap_or(text).to_owned(),
        what,
        span,
    }
}

/// Kind of a name, according to its qualifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Qualifier {
    /// No kind: libpcap refuses a name here.
    #[default]
    None,
    /// A port, a protocol or another name in this machine's own tables.
    Local,
    /// A name that would be looked up, and its kind.
    Name(&'static str),
}

/// Protocol in front of a name, as far as its kind and the family of its addresses depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// A link layer.
    Link,
    /// IPv4, ARP or RARP.
    V4,
    /// IPv6.
    V6,
    Other,
}

/// Kind and protocol that a name without qualifiers takes from the name before it.
#[derive(Clone, Copy, Default)]
struct Inherited {
    qualifier: Qualifier,
    protocol: Option<Protocol>,
}

/// The qualifiers in front of a name, so far.
#[derive(Clone, Copy, Default)]
struct Head {
    protocol: Option<Protocol>,
    direction: bool,
    address: Option<Qualifier>,
}

impl Head {
    fn qualifier(self) -> Option<Qualifier> {
        let host = || match self.protocol {
            Some(Protocol::Link) => Qualifier::Name("link-layer host"),
            _ => Qualifier::Name("host"),
        };
        match self.address {
            Some(Qualifier::Name("host")) => Some(host()),
            None if self.direction => Some(host()),
            None if self.protocol.is_some() => Some(Qualifier::None),
            address => address,
        }
    }
}

struct Reader {
    inherited: Inherited,
    head: Head,
    /// Inheritance at each open parenthesis.
    open: Vec<Inherited>,
    /// Whether the next name belongs to the keyword before it.
    word: bool,
}

impl Reader {
    /// Reads a token. Returns the kind of a name, `None` for other tokens.
    fn read(&mut self, token: Token, previous: Token) -> Option<Qualifier> {
        let word = std::mem::take(&mut self.word);
        match token {
            Token::Name | Token::Set if word => return Some(Qualifier::Local),
            Token::Name | Token::Set => return Some(self.identifier()),
            Token::Address | Token::Number => {
                self.identifier();
            }
            Token::Keyword(keyword) => self.keyword(keyword),
            Token::Symbol(b'(') => {
                self.identifier();
                self.open.push(self.inherited);
            }
            Token::Symbol(b')') => {
                self.term();
                self.inherited = self.open.pop().unwrap_or_default();
            }
            // The slash begins a prefix length, not a division.
            Token::Symbol(b'/') if previous == Token::Address => {}
            Token::Symbol(b'!') | Token::Space | Token::End => {}
            Token::Symbol(_) => self.term(),
        }
        None
    }

    /// Reads an operand at a place of a name: its kind is the kind of the head, or is inherited.
    fn identifier(&mut self) -> Qualifier {
        let head = std::mem::take(&mut self.head);
        if let Some(qualifier) = head.qualifier() {
            self.inherited = Inherited {
                qualifier,
                protocol: head.protocol,
            };
        }
        self.inherited.qualifier
    }

    /// Reads a primitive after which no kind is inherited.
    fn term(&mut self) {
        self.head = Head::default();
        self.inherited = Inherited::default();
    }

    fn keyword(&mut self, keyword: Keyword) {
        match keyword {
            Keyword::Protocol(protocol) => {
                self.head = Head {
                    protocol: Some(protocol),
                    ..Head::default()
                }
            }
            Keyword::Direction => self.head.direction = true,
            Keyword::Address(qualifier) => self.head.address = Some(qualifier),
            Keyword::Joint => self.joint(),
            Keyword::Not | Keyword::Mask => {}
            Keyword::Word => {
                self.term();
                self.word = true;
            }
            Keyword::Other => self.term(),
        }
    }

    /// Reads `and` or `or`. In `src or dst` they join two qualifiers; a protocol alone before them is a complete primitive.
    fn joint(&mut self) {
        if self.head.direction && self.head.address.is_none() {
            return;
        }
        if self.head.protocol.is_some() || self.head.address.is_some() {
            self.term();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Space,
    Name,
    /// A network or link-layer address.
    Address,
    Number,
    /// A set of addresses, `@NAME`.
    Set,
    Keyword(Keyword),
    Symbol(u8),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyword {
    Protocol(Protocol),
    Direction,
    Address(Qualifier),
    Joint,
    Not,
    Mask,
    /// Keyword after which a name belongs to the keyword.
    Word,
    Other,
}

/// The first token of a text that is not empty, and its length in bytes. As in a flex scanner, the longest token wins. Among
/// equally long ones, an address, a number or a keyword wins over a name.
pub(crate) fn token(text: &str) -> (Token, usize) {
    let bytes = text.as_bytes();
    let name = name(bytes);
    let best = [
        (Token::Address, mac(bytes)),
        (Token::Address, ipv6(text)),
        (Token::Address, dollar(bytes)),
    ];
    let (token, length) = best
        .into_iter()
        .max_by_key(|(_, length)| *length)
        .expect("three candidates");
    if length > 0 && length >= name {
        return (token, length);
    }
    if name > 0 {
        return (word(&text[..name]), name);
    }
    match bytes[0] {
        b' ' | b'\t' | b'\r' | b'\n' => (Token::Space, 1),
        b'\\' => match bytes[1..]
            .iter()
            .take_while(|byte| !b" !()\n\t".contains(byte))
            .count()
        {
            0 => (Token::Symbol(b'\\'), 1),
            length => (Token::Name, 1 + length),
        },
        b'@' => (Token::Set, 1 + set_name(&bytes[1..])),
        b'&' if bytes.get(1) == Some(&b'&') => (Token::Keyword(Keyword::Joint), 2),
        b'|' if bytes.get(1) == Some(&b'|') => (Token::Keyword(Keyword::Joint), 2),
        b'!' if bytes.get(1) == Some(&b'=') => (Token::Symbol(b'='), 2),
        symbol => (
            Token::Symbol(symbol),
            text.chars().next().map_or(1, char::len_utf8),
        ),
    }
}

/// Length of a name at the start: `[A-Za-z0-9]([-_.A-Za-z0-9]*[.A-Za-z0-9])?`.
fn name(bytes: &[u8]) -> usize {
    if !bytes[0].is_ascii_alphanumeric() {
        return 0;
    }
    let run = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        .count();
    let last = bytes[..run].iter().rposition(|byte| !b"-_".contains(byte));
    last.map_or(0, |last| last + 1)
}

/// Length of the name of a set: letters, digits, dots, dashes and underscores.
fn set_name(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        .count()
}

/// Whether a text can be the name of a set.
pub fn is_set_name(text: &str) -> bool {
    !text.is_empty() && set_name(text.as_bytes()) == text.len()
}

/// Token of a run of letters, digits, dots and dashes.
fn word(text: &str) -> Token {
    if is_number(text) {
        return Token::Number;
    }
    let parts = text.split('.');
    if (2..=4).contains(&parts.clone().count()) && parts.clone().all(is_number) {
        return Token::Address;
    }
    match keyword(text) {
        Some(keyword) => Token::Keyword(keyword),
        None if is_named_number(text) => Token::Number,
        None => Token::Name,
    }
}

fn is_number(text: &str) -> bool {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Length of a link-layer address: six pairs of digits between colons, dashes or dots, three quadruples between dots, or
/// twelve digits.
fn mac(bytes: &[u8]) -> usize {
    let pairs = [b':', b'-', b'.'].map(|separator| digit_groups(bytes, 6, 1..=2, Some(separator)));
    let others = [
        digit_groups(bytes, 3, 4..=4, Some(b'.')),
        digit_groups(bytes, 1, 12..=12, None),
    ];
    pairs.into_iter().chain(others).max().unwrap_or(0)
}

/// Length of `count` groups of hexadecimal digits, or 0.
fn digit_groups(
    bytes: &[u8],
    count: usize,
    size: std::ops::RangeInclusive<usize>,
    separator: Option<u8>,
) -> usize {
    let mut at = 0;
    for group in 0..count {
        if group > 0 {
            if bytes.get(at).copied() != separator {
                return 0;
            }
            at += 1;
        }
        let digits = bytes[at..]
            .iter()
            .take(*size.end())
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if !size.contains(&digits) {
            return 0;
        }
        at += digits;
    }
    at
}

/// Length of the longest IPv6 address at the start.
fn ipv6(text: &str) -> usize {
    let run = text
        .bytes()
        .take_while(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte))
        .take(64)
        .count();
    if !text[..run].contains(':') {
        return 0;
    }
    (2..=run)
        .rev()
        .find(|&length| text[..length].parse::<Ipv6Addr>().is_ok())
        .unwrap_or(0)
}

/// Length of an ARCNET address, `$` and one or two digits.
fn dollar(bytes: &[u8]) -> usize {
    match bytes[0] {
        b'$' => match digit_groups(&bytes[1..], 1, 1..=2, None) {
            0 => 0,
            digits => 1 + digits,
        },
        _ => 0,
    }
}

/// Whether libpcap's scanner takes this name for a number.
fn is_named_number(text: &str) -> bool {
    text == "tcpflags"
        || [
            "tcp-fin", "tcp-syn", "tcp-rst", "tcp-push", "tcp-ack", "tcp-urg", "tcp-ece", "tcp-cwr",
        ]
        .contains(&text)
        || ["icmptype", "icmpcode", "icmp6type", "icmp6code"].contains(&text)
        || ICMP.contains(&text.strip_prefix("icmp-").unwrap_or(""))
        || ICMP6.contains(&text.strip_prefix("icmp6-").unwrap_or(""))
}

const ICMP: [&str; 15] = [
    "echoreply",
    "unreach",
    "sourcequench",
    "redirect",
    "echo",
    "routeradvert",
    "routersolicit",
    "timxceed",
    "paramprob",
    "tstamp",
    "tstampreply",
    "ireq",
    "ireqreply",
    "maskreq",
    "maskreply",
];

const ICMP6: [&str; 26] = [
    "destinationunreach",
    "packettoobig",
    "timeexceeded",
    "parameterproblem",
    "echo",
    "echoreply",
    "multicastlistenerquery",
    "multicastlistenerreportv1",
    "multicastlistenerdone",
    "routersolicit",
    "routeradvert",
    "neighborsolicit",
    "neighboradvert",
    "redirect",
    "routerrenum",
    "nodeinformationquery",
    "nodeinformationresponse",
    "ineighbordiscoverysolicit",
    "ineighbordiscoveryadvert",
    "multicastlistenerreportv2",
    "homeagentdiscoveryrequest",
    "homeagentdiscoveryreply",
    "mobileprefixsolicit",
    "mobileprefixadvert",
    "certpathsolicit",
    "certpathadvert",
];

/// The keywords of libpcap 1.10. A keyword of a later version counts as a name. The error is
/// harmless, because such words are where no qualifier reaches.
fn keyword(text: &str) -> Option<Keyword> {
    Some(match text {
        "and" | "or" => Keyword::Joint,
        "not" => Keyword::Not,
        "mask" => Keyword::Mask,
        "src" | "dst" | "address1" | "addr1" | "address2" | "addr2" | "address3" | "addr3"
        | "address4" | "addr4" | "ra" | "ta" => Keyword::Direction,
        "host" | "gateway" => Keyword::Address(Qualifier::Name("host")),
        "net" => Keyword::Address(Qualifier::Name("network")),
        "port" | "portrange" | "proto" | "protochain" => Keyword::Address(Qualifier::Local),
        "link" | "ether" | "ppp" | "slip" | "fddi" | "tr" | "wlan" => {
            Keyword::Protocol(Protocol::Link)
        }
        "arp" | "rarp" | "ip" => Keyword::Protocol(Protocol::V4),
        "ip6" => Keyword::Protocol(Protocol::V6),
        "sctp" | "tcp" | "udp" | "icmp" | "igmp" | "igrp" | "pim" | "vrrp" | "carp" | "radio"
        | "icmp6" | "ah" | "esp" | "atalk" | "aarp" | "decnet" | "lat" | "sca" | "moprc"
        | "mopdl" | "iso" | "esis" | "es-is" | "isis" | "is-is" | "l1" | "l2" | "iih" | "lsp"
        | "snp" | "csnp" | "psnp" | "clnp" | "stp" | "ipx" | "netbeui" => {
            Keyword::Protocol(Protocol::Other)
        }
        "type" | "subtype" | "direction" | "dir" | "on" | "ifname" | "rset" | "ruleset"
        | "reason" | "action" | "llc" => Keyword::Word,
        "less" | "greater" | "byte" | "broadcast" | "multicast" | "len" | "length" | "inbound"
        | "outbound" | "ifindex" | "vlan" | "mpls" | "pppoed" | "pppoes" | "geneve" | "lane"
        | "metac" | "bcc" | "oam" | "oamf4" | "oamf4ec" | "oamf4sc" | "sc" | "ilmic" | "vpi"
        | "vci" | "connectmsg" | "metaconnect" | "rnr" | "rulenum" | "srnr" | "subrulenum"
        | "fisu" | "lssu" | "lsu" | "msu" | "hfisu" | "hlssu" | "hmsu" | "sio" | "opc" | "dpc"
        | "sls" | "hsio" | "hopc" | "hdpc" | "hsls" => Keyword::Other,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::Error;

    /// The name that would be looked up, and its kind.
    fn looked_up(expression: &str) -> Option<(String, &'static str)> {
        match check(expression) {
            Err(Error::Name { name, what, span }) => {
                assert!(expression[span].ends_with(&name), "the span is the name's");
                Some((name, what))
            }
            Ok(_) => None,
            Err(other) => panic!("{other}"),
        }
    }

    fn refused(expression: &str, name: &str, what: &'static str) {
        assert_eq!(
            looked_up(expression),
            Some((name.to_owned(), what)),
            "{expression}"
        );
    }

    #[test]
    fn names_of_hosts_and_networks_are_found() {
        refused("host a", "a", "host");
        refused("src a", "a", "host");
        refused("src or dst a", "a", "host");
        refused("src and dst host a", "a", "host");
        refused("tcp src a", "a", "host");
        refused("net a", "a", "network");
        refused("dst net a", "a", "network");
        refused("gateway a", "a", "host");
        refused("ether host a", "a", "link-layer host");
        refused("wlan addr1 a", "a", "link-layer host");
        refused("host \\tcp", "tcp", "host");
        refused("host 10.0.0.1.example", "10.0.0.1.example", "host");
        refused("host tcp-server", "tcp-server", "host");
    }

    #[test]
    fn an_expression_that_looks_at_a_header_itself_keeps_it() {
        for (expression, tags, extensions) in [
            ("tcp port 443", false, false),
            ("host vlan.example or port 7", false, false),
            ("vlan 7 and tcp", true, false),
            ("mpls or not (pppoes)", true, false),
            ("ether[12:2] = 0x8100", true, false),
            ("ether proto 0x88cc or ether host 2:0:0:0:0:1", false, false),
            ("ip6[6] = 44", false, true),
            ("ip6 proto 44", false, true),
            ("proto 51", false, true),
            ("ah and vlan", true, true),
            ("ip proto 6 and ip[9] = 6 and tcp[13] = 2", false, false),
            ("ip6 protochain 6", false, true),
        ] {
            let found = super::keep(expression);
            assert_eq!(
                (found.tags, found.extensions),
                (tags, extensions),
                "{expression}"
            );
        }
    }

    #[test]
    fn a_name_inherits_the_qualifier_before_it() {
        refused("host 10.0.0.1 or a", "a", "host");
        refused("src 10.0.0.1 && ! a", "a", "host");
        refused("host (10.0.0.1 or a)", "a", "host");
        refused("host (10.0.0.1 or 10.0.0.2) or a", "a", "host");
        refused("net 10.0.0.0/8 or a", "a", "network");
        refused("net 10.0.0.0 mask 255.0.0.0 or a", "a", "network");
        refused(
            "host ::1 or 10.0.0.1 or 00:11:22:33:44:55 or a",
            "a",
            "host",
        );
        refused("(port 80 or 443) and src host (10.0.0.1 or a)", "a", "host");
        refused("port 80 or (host 10.0.0.1 or a)", "a", "host");
    }

    #[test]
    fn names_that_this_machine_knows_pass() {
        for expression in [
            "port http",
            "port http or https",
            "not port (http or https)",
            "(host 10.0.0.1 or port http) and tcp",
            "port http or (host 10.0.0.1) or https",
            "portrange ftp-data-http",
            "ip proto ospf or igmp",
            "ether proto \\ip",
            "ip protochain \\tcp",
            "wlan type mgt subtype beacon",
            "type data or dir tods",
            "llc rr or llc rnr",
            "ifname en0 and reason match and action pass",
            "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
            "icmp6[icmp6type] == icmp6-echo",
            "host aa:bb:cc:dd:ee:ff or fe80::1 or aabb.ccdd.eeff or aabbccddeeff",
        ] {
            assert_eq!(looked_up(expression), None, "{expression}");
        }
    }

    #[test]
    fn a_word_that_nothing_explains_is_named() {
        for (expression, word) in [
            ("tpc port 80", Some("tpc")),
            ("tcp or a", Some("a")),
            ("host 10.0.0.1 and len > 5 or a", Some("a")),
            ("(host 10.0.0.1) or a", Some("a")),
            ("port 80 and b and c", None),
            ("", None),
        ] {
            assert_eq!(check(expression).ok(), Some(word), "{expression}");
        }
    }

    #[test]
    fn any_text_is_read_to_its_end() {
        for text in [
            "\\", "host \\", "é", "host é", "$", "$5", ":::", "1:2:3", "0x", "a-", "-a", "..",
            "\u{a0}x",
        ] {
            let _ = check(text);
        }
    }
}
