//! Long lists of hosts in an expression, as sets.
//!
//! ```text
//! host A or host B or host C ...  ->  host A or host @set of B, C, ...
//! ```
//!
//! libpcap's time for a list grows with the square of its length, and its program compares one host after another.
//!
//! The first host stays, so that the verdict is the same for packets that end within an address.
//! The tests of all hosts read the same fields: if the first comparison neither matches nor ends
//! the program, the packet has these fields whole. Then no other test ends the program, and the
//! list matches if any of its tests does, in any order.
//!
//! A list begins after `or`, after a parenthesis or at the start, because `and` and `or` bind
//! equally, from the left: `X and host A or host B or host C` is
//! `((X and host A) or host B) or host C`, so a list begins with B.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use weir_packet::addresses::Addresses;

use super::Sets;
use crate::names::{Keyword, Qualifier, Token, token};

/// Smallest number of hosts that become a set. Shorter lists are judged without branches, which is faster
/// (`native::decision::MAX_TESTS`).
const SHORTEST: usize = 32;

/// Replaces long lists of IPv4 hosts, and adds their sets to `sets`; `None` if there are none.
pub(crate) fn as_sets(expression: &str, sets: &mut Sets) -> Option<String> {
    if expression.len() < SHORTEST * "0.0.0.0 or ".len() {
        return None;
    }
    let tokens = tokens(expression);
    let mut text = String::new();
    let (mut at, mut copied) = (0, 0);
    while at < tokens.len() {
        let Some(run) = Run::starting(expression, &tokens, at) else {
            at += 1;
            continue;
        };
        at = run.next;
        if run.hosts.len() < SHORTEST {
            continue;
        }
        let name = (0..)
            .map(|number| format!("list.{number}"))
            .find(|name| sets.get(name).is_none() && !expression.contains(&**name))?;
        let others = run.hosts[1..]
            .iter()
            .map(|&host| (IpAddr::V4(host), IpAddr::V4(host)));
        sets.add(&name, Addresses::new(others)).ok()?;
        text.push_str(&expression[copied..run.others.start]);
        text.push_str(run.side);
        text.push_str("host @");
        text.push_str(&name);
        copied = run.others.end;
    }
    text.push_str(&expression[copied..]);
    (copied > 0).then_some(text)
}

type Tokens = Vec<(Token, Range<usize>)>;

/// The tokens of an expression, without blanks.
fn tokens(expression: &str) -> Tokens {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < expression.len() {
        let (token, length) = token(&expression[at..]);
        if token != Token::Space {
            tokens.push((token, at..at + length));
        }
        at += length;
    }
    tokens
}

/// A list of hosts.
struct Run {
    /// `src `, `dst ` or nothing.
    side: &'static str,
    hosts: Vec<Ipv4Addr>,
    /// Place of all hosts but the first, in bytes of the expression.
    others: Range<usize>,
    /// The token after the list.
    next: usize,
}

/// A host, with its qualifiers.
struct Item {
    side: Option<&'static str>,
    host: Ipv4Addr,
    next: usize,
}

impl Run {
    /// The list that begins with a token, if one does.
    fn starting(expression: &str, tokens: &Tokens, at: usize) -> Option<Self> {
        let word = |at: usize| &expression[tokens[at].1.clone()];
        let begins = match at.checked_sub(1).map(|before| tokens[before].0) {
            None | Some(Token::Symbol(b'(')) => true,
            // After a qualifier, as in `src or dst host A`, `or` joins qualifiers.
            Some(Token::Keyword(Keyword::Joint)) => {
                let operand = at.checked_sub(2).map(|before| tokens[before].0);
                matches!(
                    operand,
                    Some(Token::Address | Token::Number | Token::Name | Token::Symbol(b')'))
                ) && is_or(word(at - 1))
            }
            Some(_) => false,
        };
        let first = begins
            .then(|| Item::starting(expression, tokens, at))
            .flatten()?;
        let side = first.side?;
        let mut run = Self {
            side,
            hosts: vec![first.host],
            others: 0..0,
            next: first.next,
        };
        while run.next + 1 < tokens.len() && is_or(word(run.next)) {
            let Some(item) = Item::starting(expression, tokens, run.next + 1) else {
                break;
            };
            if item.side.is_some_and(|other| other != side) {
                break;
            }
            if run.hosts.len() == 1 {
                run.others.start = tokens[run.next + 1].1.start;
            }
            run.others.end = tokens[item.next - 1].1.end;
            run.hosts.push(item.host);
            run.next = item.next;
        }
        Some(run)
    }
}

fn is_or(word: &str) -> bool {
    matches!(word, "or" | "||")
}

impl Item {
    /// The host that begins with a token; `None` unless it is an IPv4 address alone or after `src`,
    /// `dst`, `host`.
    fn starting(expression: &str, tokens: &Tokens, mut at: usize) -> Option<Self> {
        let word = |at: usize| tokens.get(at).map(|(_, span)| &expression[span.clone()]);
        let mut side = None;
        if let (Token::Keyword(Keyword::Direction), Some(word @ ("src" | "dst"))) =
            (tokens.get(at)?.0, word(at))
        {
            side = Some(if word == "src" { "src " } else { "dst " });
            at += 1;
        }
        if tokens.get(at)?.0 == Token::Keyword(Keyword::Address(Qualifier::Name("host")))
            && word(at) == Some("host")
        {
            side = side.or(Some(""));
            at += 1;
        }
        let host = word(at)?.parse().ok()?;
        let is_prefix = matches!(
            tokens.get(at + 1),
            Some((Token::Symbol(b'/') | Token::Keyword(Keyword::Mask), _))
        );
        (!is_prefix).then_some(Self {
            side,
            host,
            next: at + 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{SHORTEST, as_sets};
    use crate::Sets;

    /// A list of hosts, each after `word`.
    fn list(word: &str, hosts: usize) -> String {
        (0..hosts)
            .map(|host| format!("{word}10.0.0.{host}"))
            .collect::<Vec<_>>()
            .join(" or ")
    }

    fn written(expression: &str) -> Option<String> {
        as_sets(expression, &mut Sets::default())
    }

    #[test]
    fn lists_become_sets_where_or_joins_them() {
        let hosts = list("host ", SHORTEST);
        assert_eq!(written(&hosts).unwrap(), "host 10.0.0.0 or host @list.0");
        assert_eq!(
            written(&format!("udp and ({hosts})")).unwrap(),
            "udp and (host 10.0.0.0 or host @list.0)"
        );
        assert_eq!(
            written(&format!("port 1 or {hosts} and udp")).unwrap(),
            "port 1 or host 10.0.0.0 or host @list.0 and udp"
        );
        let bare = list("", SHORTEST);
        assert_eq!(
            written(&format!("src host 9.9.9.9 or {bare} or tcp")).unwrap(),
            "src host 9.9.9.9 or src host @list.0 or tcp"
        );
        let both = format!(
            "({}) and not ({})",
            list("src ", SHORTEST),
            list("dst ", SHORTEST)
        );
        assert_eq!(
            written(&both).unwrap(),
            "(src 10.0.0.0 or src host @list.0) and not (dst 10.0.0.0 or dst host @list.1)"
        );
    }

    #[test]
    fn other_words_around_a_list_leave_it_or_its_first_host_alone() {
        let hosts = list("host ", SHORTEST);
        assert_eq!(written(&list("host ", SHORTEST - 1)), None);
        for before in ["not ", "udp and ", "src or dst ", "ip ", "tcp or not "] {
            assert_eq!(
                written(&format!("{before}{hosts}")),
                None,
                "{before}: the list is one shorter"
            );
        }
        for text in [
            list("net ", 40),
            list("ip host ", 40),
            list("", 40),
            list("port ", 40),
        ] {
            assert_eq!(written(&text), None, "{text}");
        }
        assert_eq!(written(&format!("{hosts}/8")), None);
        let longer = list("host ", SHORTEST + 1);
        assert_eq!(
            written(&format!("udp and {longer}")).unwrap(),
            "udp and host 10.0.0.0 or host 10.0.0.1 or host @list.0"
        );
    }
}
