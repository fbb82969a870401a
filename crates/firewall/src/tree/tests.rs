use super::*;
use crate::fields::{Content, IpFields, Ports, TcpFlags};
use crate::rules::RuleList;
use weir_testkit::Random;

const WHOLE: IpFields = IpFields {
    is_v6: false,
    src: 0,
    dst: 0,
    proto: Some(6),
    ports: Ports::Known(7, 65535),
    flags: TcpFlags::NotTcp,
};

/// A rule over few networks, hosts and ports, so that most of them overlap; and some over nearly all.
fn line(random: &mut Random, sets: usize) -> String {
    let action = ["pass", "drop", "reject", "count"][random.below(4)];
    let mut text = format!(
        "{action} {}",
        ["tcp", "udp", "proto 6,17,132"][random.below(3)]
    );
    for end in ["src", "dst"] {
        let (a, b, c) = (random.below(4), random.below(256), random.below(256));
        text += &match random.below(5) {
            // The last set is for one end alone, so that there are three.
            0 if sets > 0 && (sets == 1 || end == "src") => {
                format!(" {end} $s{}", random.below(sets))
            }
            0 => String::new(),
            1 => format!(" {end} 10.{a}.0.0/16"),
            2 => format!(" {end} 10.{a}.{b}.0/24"),
            3 => format!(" {end} 10.{a}.{b}.{c}"),
            _ => format!(" {end} 10.{a}.{b}.{c}-10.{}.{c}.{b},255.255.255.255", a + 1),
        };
    }
    if random.below(3) > 0 {
        let port = random.below(60);
        text += &format!(" dport {port},{}-65535", port + 1 + random.below(60_000));
    }
    text + "\n"
}

fn holds(rule: &Rule, fields: &Fields) -> bool {
    let has = |set: &Option<Arc<Addresses>>, address: u128| {
        set.as_ref().is_none_or(|set| {
            set.v4()
                .iter()
                .any(|&(a, b)| (a..=b).contains(&(address as u32)))
        })
    };
    let proto = fields.proto().unwrap();
    let dport = |ranges: &Vec<(u16, u16)>| {
        ranges
            .iter()
            .any(|&(a, b)| (a..=b).contains(&fields.ports().unwrap().1))
    };
    has(&rule.src, fields.src())
        && has(&rule.dst, fields.dst())
        && rule
            .proto
            .is_none_or(|set| set[usize::from(proto / 64)] >> (proto % 64) & 1 == 1)
        && rule.dport.as_ref().is_none_or(dport)
}

#[test]
fn packets_come_to_the_rules_that_hold_for_them_in_order_up_to_the_first_that_decides() {
    let mut random = Random(23);
    let (mut matched, mut by_rows, mut deepest) = (0, 0, 0);
    for (rules, sets) in [
        (0, 0),
        (1, 0),
        (8, 0),
        (9, 0),
        (64, 0),
        (65, 0),
        (600, 0),
        (2000, 0),
        (20, 1),
        (90, 1),
        (60, 3),
    ] {
        let mut text = String::new();
        for set in 0..sets {
            let mut member = || {
                format!(
                    " 10.{}.{}.{}/28",
                    random.below(4),
                    random.below(256),
                    random.below(16) << 4
                )
            };
            let members: String = (0..3000).map(|_| member()).collect();
            text += &format!("set s{set}{members}\n");
        }
        text.extend((0..rules).map(|_| line(&mut random, sets)));
        let list = RuleList::parse(&text, &mut |_| unreachable!("no line names a file")).unwrap();
        let plain: Vec<_> = list.rules.iter().map(|rule| Some(rule.action)).collect();
        let tree = Tree::new(&list.rules, &plain, Verdict::Pass).unwrap();
        deepest = deepest.max(tree.levels);
        let packets: Vec<Fields> = (0..TOGETHER * 20)
            .map(|_| {
                let mut address = || match random.below(8) {
                    0 => [0, u128::from(u32::MAX), random.next() as u32 as u128][random.below(3)],
                    _ => 10 << 24 | (random.below(6) << 16 | random.below(1 << 16)) as u128,
                };
                let (src, dst) = (address(), address());
                let dport = if random.below(2) == 0 {
                    random.below(64)
                } else {
                    random.below(1 << 16)
                } as u16;
                let proto = Some([6, 6, 17, 132, 33][random.below(5)]);
                Fields::of_ip(IpFields {
                    src,
                    dst,
                    proto,
                    ports: Ports::Known(7, dport),
                    ..WHOLE
                })
            })
            .collect();
        for packets in packets.chunks(TOGETHER) {
            tree.first_of_each(packets, |i, first| {
                let key = tree.key(&packets[i]);
                let key = Key(&key);
                assert_eq!(first.entry, tree.first(key).entry);
                if first.is_by_rows() {
                    return by_rows += 1;
                }
                let mut first = first;
                let wanted = (0..rules).filter(|&rule| holds(&list.rules[rule], &packets[i]));
                for rule in wanted {
                    assert_eq!(
                        first.entry.rule(),
                        Some(rule as u32),
                        "{:?}\n{text}",
                        packets[i]
                    );
                    matched += 1;
                    if let Action::Decide(verdict) = list.rules[rule].action {
                        return assert_eq!(first.entry.end(), Some(verdict));
                    }
                    assert_eq!(first.entry.end(), None);
                    first = tree.next(key, first);
                }
                assert_eq!(
                    (first.entry.rule(), first.entry.end()),
                    (None, Some(Verdict::Pass)),
                    "{text}"
                );
            });
        }
    }
    println!("{matched} matched, {by_rows} left to the rows, {deepest} levels");
    assert!(
        matched > 1000 && by_rows < matched && deepest > 1,
        "{matched} {by_rows} {deepest}"
    );
}

#[test]
fn packets_without_all_fields_or_of_ipv6_have_no_key() {
    assert!(Fields::of_ip(WHOLE).has_key());
    let others = [
        IpFields {
            is_v6: true,
            ..WHOLE
        },
        IpFields {
            proto: None,
            ..WHOLE
        },
        IpFields {
            ports: Ports::Absent,
            ..WHOLE
        },
        IpFields {
            ports: Ports::None,
            ..WHOLE
        },
    ];
    let others = others.map(Fields::of_ip);
    others
        .iter()
        .for_each(|fields| assert!(!fields.has_key(), "{fields:?}"));
    let contents = [Content::Neighbors, Content::NonIp, Content::Malformed];
    let others = contents.map(|content| Fields::of_ip(WHOLE).with_content(content));
    others
        .iter()
        .for_each(|fields| assert!(!fields.has_key(), "{fields:?}"));
}

#[test]
fn a_list_of_four_large_sets_has_no_tree() {
    let has_tree = |sets: usize| {
        let addresses: String = (0..65).map(|i| format!(" 10.0.0.{}", 2 * i)).collect();
        let text: String = (0..sets)
            .map(|set| format!("set s{set} 10.1.0.{set}{addresses}\ndrop src $s{set}\n"))
            .collect();
        let list = RuleList::parse(&text, &mut |_| unreachable!("no line names a file")).unwrap();
        Tree::new(&list.rules, &vec![None; sets], Verdict::Pass).is_some()
    };
    assert!(has_tree(MOST_SETS) && !has_tree(MOST_SETS + 1));
}

#[test]
fn a_rule_of_many_ranges_has_no_tree() {
    let ports: Vec<String> = (0..65).map(|i| (i * 2).to_string()).collect();
    let list = |ports: &[String]| {
        let text = format!("drop tcp dport {}\n", ports.join(","));
        RuleList::parse(&text, &mut |_| unreachable!("no line names a file")).unwrap()
    };
    let has_tree = |ports| Tree::new(&list(ports).rules, &[None], Verdict::Pass).is_some();
    assert!(has_tree(&ports[..MOST_BOXES]) && !has_tree(&ports));
}
