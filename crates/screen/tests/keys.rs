//! What keys change.

mod planted;

use planted::{BEGIN, SECOND, Traffic, view};
use std::net::IpAddr;
use weir_measure::KeyKind;
use weir_screen::{About, Effect, Key, Look, Rect, Save, Scene, Status, Subject, Ui, draw, points};
use weir_view::{Ask, Snapshot, Span, View};

const AREA: Rect = Rect {
    x: 0,
    y: 0,
    width: 120,
    height: 40,
};

fn snapshot(view: &View, ui: &Ui) -> Option<Snapshot> {
    let (span, at) = ui.asks();
    view.snapshot(&Ask {
        span,
        at,
        rows: 200,
        changes: 0,
        points: 60,
        history: 4,
    })
}

fn press(view: &View, ui: &mut Ui, keys: &[Key]) -> Effect {
    let mut effect = Effect::Draw;
    for key in keys {
        let snapshot = snapshot(view, ui);
        ui.arrange(snapshot.as_ref(), points(AREA).0);
        effect = ui.press(*key, snapshot.as_ref());
    }
    effect
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

fn shown(view: &View, ui: &mut Ui) -> Vec<String> {
    let snapshot = snapshot(view, ui);
    ui.arrange(snapshot.as_ref(), points(AREA).0);
    let about = About {
        status: Status::Running,
        ..About::default()
    };
    let scene = Scene {
        snapshot: snapshot.as_ref(),
        about: &about,
        ui,
        look: Look::default(),
    };
    let picture = draw(&scene, AREA);
    let line = |y| {
        (0..AREA.width)
            .map(|x| picture[(x, y)].symbol())
            .collect::<String>()
    };
    (0..AREA.height)
        .map(|y| line(y).trim_end().to_owned())
        .collect()
}

/// Lines of the table.
fn rows(view: &View, ui: &mut Ui) -> Vec<String> {
    let lines = shown(view, ui);
    let title = lines
        .iter()
        .position(|line| line.contains("share"))
        .unwrap();
    let rows = lines[title + 1..38].iter().filter(|line| !line.is_empty());
    rows.cloned().collect()
}

#[test]
fn a_chosen_row_keeps_its_place_while_others_change_theirs() {
    let two = |second: i64, traffic: &mut Traffic| {
        // Every host is the largest in turn.
        for host in 1..=9u32 {
            let packets = 1 + (i64::from(host) * 7 + second * 5) % 11;
            (0..packets).for_each(|_| traffic.udp((host, 1000), (100, 53), 500));
        }
    };
    let mut ui = Ui::new(Look::default());
    press(
        &view(5, two),
        &mut ui,
        &[Key::Down, Key::Down, Key::Down, Key::Down],
    );
    let before = rows(&view(5, two), &mut ui);
    let place = before
        .iter()
        .position(|line| line.starts_with(" >"))
        .unwrap();
    let host = before[place].split_whitespace().nth(1).unwrap().to_owned();
    let mut others = Vec::new();
    for seconds in 6..30 {
        let now = rows(&view(seconds, two), &mut ui);
        assert!(
            now[place].starts_with(&format!(" > {host} ")),
            "{}",
            now[place]
        );
        others.push(now[1].split_whitespace().next().unwrap().to_owned());
    }
    others.dedup();
    assert!(others.len() > 3, "the others stay as well: {others:?}");
}

#[test]
fn a_chosen_row_stays_when_it_is_silent() {
    let once = |second: i64, traffic: &mut Traffic| {
        (0..9).for_each(|_| traffic.udp((1, 1000), (2, 53), 500));
        if second < 3 {
            traffic.udp((3, 1000), (2, 53), 100);
        }
    };
    let mut ui = Ui::new(Look::default());
    press(&view(3, once), &mut ui, &[Key::Down, Key::Down, Key::Down]);
    assert!(rows(&view(3, once), &mut ui)[2].starts_with(" > 10.0.0.3 "));
    let later = rows(&view(9, once), &mut ui);
    assert!(later[2].starts_with(" > 10.0.0.3 "), "{later:?}");
    press(&view(9, once), &mut ui, &[Key::Esc]);
    assert_eq!(rows(&view(9, once), &mut ui).len(), 2);
}

#[test]
fn enter_opens_and_escape_comes_back() {
    let view = view(12, |_, traffic| traffic.usual());
    let mut ui = Ui::new(Look::default());
    press(&view, &mut ui, &[Key::Down, Key::Enter]);
    let lines = shown(&view, &mut ui);
    let host = "10.0.0.1";
    assert!(
        lines[38].contains(&format!("all > {host}")),
        "{}",
        lines[38]
    );
    assert!(rows(&view, &mut ui).iter().all(|row| row.contains(host)));
    press(&view, &mut ui, &[Key::Down, Key::Enter]);
    assert!(
        shown(&view, &mut ui)
            .iter()
            .any(|line| line.contains("share of all bytes"))
    );
    press(&view, &mut ui, &[Key::Esc, Key::Esc]);
    let back = rows(&view, &mut ui);
    assert!(back[0].starts_with(&format!(" > {host} ")), "{}", back[0]);
    // A service has its conversations too.
    press(&view, &mut ui, &[Key::Char('3'), Key::Down, Key::Enter]);
    assert!(rows(&view, &mut ui).iter().all(|row| row.contains(":443")));
}

#[test]
fn a_finding_opens_its_host() {
    let view = view(12, |_, traffic| traffic.usual());
    let mut ui = Ui::new(Look::default());
    press(&view, &mut ui, &[Key::Up]);
    let lines = shown(&view, &mut ui);
    let marked = lines.iter().find(|line| line.starts_with(">!")).unwrap();
    assert!(marked.contains("scan 10.0.0.13"), "{marked}");
    press(&view, &mut ui, &[Key::Enter]);
    assert!(
        rows(&view, &mut ui)
            .iter()
            .all(|row| row.contains("10.0.0.13"))
    );
}

#[test]
fn an_ended_finding_opens_at_its_time_and_escape_comes_back() {
    let view = view(40, |second, traffic| {
        if second < 12 {
            traffic.usual();
        } else {
            traffic.udp((0x0a00_0001, 53), (0x0a00_0002, 53), 100);
        }
    });
    let mut ui = Ui::new(Look::default());
    press(&view, &mut ui, &[Key::Up]);
    let marked = |ui: &mut Ui| {
        let lines = shown(&view, ui);
        lines.into_iter().find(|line| line.starts_with(">!"))
    };
    for _ in 0..20 {
        if marked(&mut ui).is_some_and(|line| line.contains("scan 10.0.0.13 (ended)")) {
            break;
        }
        press(&view, &mut ui, &[Key::Up]);
    }
    assert!(marked(&mut ui).unwrap().contains("scan 10.0.0.13 (ended)"));
    assert!(matches!(ui.subject(), Subject::Finding(_)));
    press(&view, &mut ui, &[Key::Enter]);
    let found = rows(&view, &mut ui);
    assert!(!found.is_empty() && found.iter().all(|row| row.contains("10.0.0.13")));
    assert!(ui.is_past());
    press(&view, &mut ui, &[Key::Esc]);
    assert!(!ui.is_past());
}

#[test]
fn files_are_written_only_after_an_answer() {
    let view = view(3, |_, traffic| traffic.usual());
    let mut ui = Ui::new(Look::default());
    let steps = Save::Packets { all: true };
    let one = Save::Packets { all: false };
    assert_eq!(press(&view, &mut ui, &typed("w")), Effect::Offer(steps));
    let words = ["a.pcapng: about 3 kB\u{1b}[m", "host 10.0.0.1"].map(str::to_owned);
    ui.offer(steps, &words);
    let lines = shown(&view, &mut ui);
    assert!(
        lines[37].contains(r"a.pcapng: about 3 kB\x1b[m"),
        "{lines:?}"
    );
    assert!(lines[38].contains("host 10.0.0.1"), "{lines:?}");
    assert!(lines[39].contains("Enter writes"), "{lines:?}");
    assert_eq!(press(&view, &mut ui, &typed("t")), Effect::Offer(one));
    ui.offer(one, &words);
    assert_eq!(press(&view, &mut ui, &typed("q")), Effect::Draw);
    assert_eq!(press(&view, &mut ui, &[Key::Enter]), Effect::Draw);
    let bundle = Save::Bundle { payload: false };
    assert_eq!(press(&view, &mut ui, &typed("B")), Effect::Offer(bundle));
    ui.offer(bundle, &words);
    assert_eq!(press(&view, &mut ui, &[Key::Enter]), Effect::Write);
    assert_eq!(ui.subject(), Subject::All);
    press(&view, &mut ui, &[Key::Down]);
    assert!(matches!(ui.subject(), Subject::Row(_)));
    press(&view, &mut ui, &[Key::Enter]);
    assert!(matches!(ui.subject(), Subject::Host(_)));
}

#[test]
fn rows_are_chosen_by_their_text_while_it_is_typed() {
    let view = view(12, |_, traffic| traffic.usual());
    let mut ui = Ui::new(Look::default());
    let all = rows(&view, &mut ui).len();
    press(&view, &mut ui, &typed("/10.0.0.13"));
    assert_eq!(rows(&view, &mut ui).len(), 1);
    press(&view, &mut ui, &[Key::Clear]);
    press(&view, &mut ui, &typed("!10.0.0.13"));
    press(&view, &mut ui, &[Key::Enter]);
    assert_eq!(rows(&view, &mut ui).len(), all - 1);
    press(&view, &mut ui, &[Key::Esc]);
    assert_eq!(rows(&view, &mut ui).len(), all);
    // What is typed after / is no command.
    press(&view, &mut ui, &typed("/q"));
    assert_eq!(press(&view, &mut ui, &[Key::Esc]), Effect::Draw);
    assert_eq!(press(&view, &mut ui, &typed("q")), Effect::Quit);
}

#[test]
fn orders_turn() {
    let view = view(12, |_, traffic| traffic.usual());
    let mut ui = Ui::new(Look::default());
    let mut firsts = Vec::new();
    for _ in 0..5 {
        firsts.push(rows(&view, &mut ui)[0].clone());
        press(&view, &mut ui, &[Key::Char('s')]);
    }
    assert_eq!(rows(&view, &mut ui)[0], firsts[0]);
    firsts.sort();
    firsts.dedup();
    assert!(firsts.len() > 1);
}

#[test]
fn time_stands_still_and_is_walked() {
    let view = view(70, |_, traffic| traffic.usual());
    let mut ui = Ui::new(Look::default());
    press(&view, &mut ui, &[Key::Char('p')]);
    assert_eq!(ui.asks(), (Span::Second, Some(BEGIN + 69 * SECOND)));
    press(&view, &mut ui, &[Key::Char('<'), Key::Char('<')]);
    assert_eq!(ui.asks().1, Some(BEGIN + 67 * SECOND));
    press(&view, &mut ui, &[Key::Char('>')]);
    assert_eq!(ui.asks().1, Some(BEGIN + 68 * SECOND));
    press(&view, &mut ui, &[Key::Char('>'), Key::Char('>')]);
    assert_eq!(ui.asks().1, None);
    press(&view, &mut ui, &[Key::Char('t'), Key::Char('<')]);
    assert_eq!(ui.asks(), (Span::TenSeconds, Some(BEGIN + 50 * SECOND)));
    press(&view, &mut ui, &[Key::Char('.')]);
    assert_eq!(ui.asks().1, None);
}

#[test]
fn expressions_and_keys_are_asked_for() {
    let view = view(12, |_, traffic| traffic.usual());
    let mut ui = Ui::new(Look::default());
    ui.set_filter("udp");
    press(&view, &mut ui, &[Key::Char('f')]);
    let check = press(&view, &mut ui, &typed(" por"));
    assert_eq!(check, Effect::CheckFilter("udp por".to_owned()));
    ui.answer(Some("syntax error".to_owned()));
    assert!(shown(&view, &mut ui)[38].contains("syntax error"));
    assert_eq!(press(&view, &mut ui, &[Key::Enter]), Effect::Draw);
    press(&view, &mut ui, &typed("t 53"));
    ui.answer(None);
    let set = press(&view, &mut ui, &[Key::Enter]);
    assert_eq!(set, Effect::SetFilter("udp port 53".to_owned()));
    let set = |ui: &mut Ui, text: &str| {
        press(&view, ui, &[Key::Char('k')]);
        press(&view, ui, &typed(text));
        press(&view, ui, &[Key::Enter])
    };
    assert_eq!(set(&mut ui, "dst"), Effect::SetKey(Some(KeyKind::DST)));
    assert_eq!(set(&mut ui, ""), Effect::SetKey(None));
    // Of a key that is counted already, the tab is chosen.
    assert_eq!(set(&mut ui, "service"), Effect::Draw);
    assert!(
        shown(&view, &mut ui)
            .iter()
            .any(|line| line.contains("[3 services]"))
    );
    press(&view, &mut ui, &[Key::Char('k')]);
    press(&view, &mut ui, &typed("nonsense"));
    assert_eq!(press(&view, &mut ui, &[Key::Enter]), Effect::Draw);
    assert!(shown(&view, &mut ui)[38].contains("nonsense"));
}

#[test]
fn hosts_have_the_names_of_the_packets() {
    let view = view(3, |_, traffic| traffic.usual());
    let mut ui = Ui::new(Look::default());
    rows(&view, &mut ui);
    let addresses: Vec<IpAddr> = ui.addresses().collect();
    let first: IpAddr = "10.0.0.1".parse().unwrap();
    assert_eq!(addresses[0], first);
    ui.set_names([(first, "backup\u{1b}[31m.example".to_owned())].into());
    assert!(rows(&view, &mut ui)[0].starts_with("   10.0.0.1 backup\\x1b[31m.example "));
    press(&view, &mut ui, &typed("/backup"));
    assert_eq!(rows(&view, &mut ui).len(), 1);
    press(&view, &mut ui, &[Key::Enter, Key::Char('n')]);
    assert!(
        shown(&view, &mut ui)
            .iter()
            .all(|line| !line.contains("backup\\x1b"))
    );
}

/// Lines of a picture of any size.
fn lines_at(view: &View, ui: &mut Ui, (width, height): (u16, u16)) -> Vec<String> {
    let area = Rect::new(0, 0, width, height);
    let snapshot = snapshot(view, ui);
    ui.arrange(snapshot.as_ref(), points(area).0);
    let about = About::default();
    let scene = Scene {
        snapshot: snapshot.as_ref(),
        about: &about,
        ui,
        look: Look::default(),
    };
    let text = weir_screen::text::lines(&draw(&scene, area));
    text.lines().map(str::to_owned).collect()
}

/// The line of titles below the tabs.
fn titles(lines: &[String]) -> Option<&String> {
    let tabs = lines.iter().position(|line| line.contains("1 hosts"))?;
    lines.get(tabs + 1)
}

#[test]
fn no_key_on_any_tab_moves_a_column() {
    let view = view(12, |_, traffic| traffic.usual());
    let keys = [
        Key::Down,
        Key::Enter,
        Key::Esc,
        Key::Up,
        Key::PageDown,
        Key::PageUp,
        Key::End,
        Key::Home,
        Key::Left,
        Key::Right,
        Key::Redraw,
        Key::Char('s'),
        Key::Char('p'),
        Key::Char('<'),
        Key::Char('>'),
        Key::Char('.'),
        Key::Char('t'),
        Key::Char('n'),
        Key::Char('?'),
        Key::Char('x'),
        Key::Char('/'),
        Key::Char('1'),
        Key::Backspace,
        Key::Enter,
        Key::Char('f'),
        Key::Esc,
        Key::Char('k'),
        Key::Esc,
        Key::Char('w'),
        Key::Char('B'),
        Key::Esc,
    ];
    for size in [(60, 20), (80, 24), (120, 40), (200, 60)] {
        for tab in "12345".chars() {
            let mut ui = Ui::new(Look::default());
            press(&view, &mut ui, &[Key::Char(tab)]);
            let usual = titles(&lines_at(&view, &mut ui, size)).cloned();
            let mark = format!("[{tab} ");
            assert!(usual.is_some());
            for key in keys {
                press(&view, &mut ui, &[key]);
                let lines = lines_at(&view, &mut ui, size);
                let is_table = lines.iter().any(|line| line.contains(&mark));
                // Help and the figures of a row have no columns.
                let has_columns = lines[usize::from(size.1) - 1].contains("Enter open");
                if is_table && has_columns {
                    assert_eq!(
                        titles(&lines),
                        usual.as_ref(),
                        "{key:?} on {tab}: {lines:?}"
                    );
                }
            }
        }
    }
}
