//! Pictures of the screen, compared with those in `tests/screens`. `WEIR_SCREENS=write cargo test -p weir-screen` writes them anew.

mod planted;

use planted::{BEGIN, SECOND, view};
use ratatui_core::backend::{Backend, TestBackend};
use ratatui_core::style::{Color, Modifier};
use std::fmt::Write as _;
use std::path::Path;
use weir_screen::sender::{Arrived, Moment, SenderUi, Sending, draw_sender};
use weir_screen::{About, Buffer, Effect, Key, Look, Rect, Scene, Status, Ui, draw, points};
use weir_view::{Ask, Snapshot, View};

const COLOUR: Look = Look {
    colour: true,
    light: false,
    ascii: false,
};

/// A screen over a view.
struct Screen<'a> {
    view: &'a View,
    ui: Ui,
    about: About,
    look: Look,
    area: Rect,
}

/// A view of 70 s.
fn usual() -> View {
    view(70, |_, traffic| traffic.usual())
}

impl<'a> Screen<'a> {
    fn new(view: &'a View, (width, height): (u16, u16), look: Look) -> Self {
        Self {
            view,
            ui: Ui::new(look),
            about: About {
                sources: "eth0".to_owned(),
                link_bits_per_s: Some(1e8),
                has_sides: true,
                status: Status::Running,
                now_ns: BEGIN + 70 * SECOND,
                up_s: Some(70),
                ..About::default()
            },
            look,
            area: Rect::new(0, 0, width, height),
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let (span, at) = self.ui.asks();
        let (_, points) = points(self.area);
        let ask = Ask {
            span,
            at,
            rows: 200,
            changes: 0,
            points,
            history: 10,
        };
        self.view.snapshot(&ask)
    }

    fn press(&mut self, keys: &str) -> Vec<Effect> {
        let named = |c| match c {
            '\n' => Key::Enter,
            '\x1b' => Key::Esc,
            '↓' => Key::Down,
            '↑' => Key::Up,
            c => Key::Char(c),
        };
        let mut effects = Vec::new();
        for key in keys.chars().map(named) {
            let snapshot = self.snapshot();
            let (room, _) = points(self.area);
            self.ui.arrange(snapshot.as_ref(), room);
            effects.push(self.ui.press(key, snapshot.as_ref()));
        }
        effects
    }

    fn picture(&mut self) -> Buffer {
        let snapshot = self.snapshot();
        let (room, _) = points(self.area);
        self.ui.fit(self.area);
        self.ui.arrange(snapshot.as_ref(), room);
        let scene = Scene {
            snapshot: snapshot.as_ref(),
            about: &self.about,
            ui: &self.ui,
            look: self.look,
        };
        draw(&scene, self.area)
    }
}

/// Lines of a buffer, as a terminal of the same size shows them.
fn text(picture: &Buffer) -> String {
    let mut terminal = TestBackend::new(picture.area.width, picture.area.height);
    let before = Buffer::empty(picture.area);
    terminal.draw(before.diff(picture).into_iter()).unwrap();
    let shown = terminal.buffer();
    let mut text = String::new();
    for y in 0..shown.area.height {
        let line: String = (0..shown.area.width)
            .map(|x| shown[(x, y)].symbol())
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Coloured and reversed texts of a buffer.
fn colours(picture: &Buffer) -> String {
    let mut out = String::new();
    let mut last = None;
    for cell in &picture.content {
        let style = (cell.fg, cell.modifier.contains(Modifier::REVERSED));
        if last != Some(style) && last.is_some() && !out.ends_with('\n') {
            out.push('\n');
        }
        if style != (Color::Reset, false) {
            if last != Some(style) {
                let _ = write!(out, "{:?} ", style.0);
            }
            out.push_str(cell.symbol());
        }
        last = Some(style);
    }
    out
}

fn check(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/screens/{name}.txt"));
    if std::env::var_os("WEIR_SCREENS").is_some_and(|it| it == "write") {
        std::fs::write(&path, shown).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == shown,
        "{name} differs from {}:\n{shown}",
        path.display()
    );
}

/// A sender that slowed down after a while.
fn sender() -> Sending {
    let past = (0..120_u32).map(|half| Moment {
        at_s: f64::from(half) / 2.0,
        sent: u64::from(half.min(80)) * 50_000 + u64::from(half.max(80) - 80) * 40_000,
        bytes: u64::from(half) * 4_000_000,
    });
    Sending {
        port: "af_packet:eth1".to_owned(),
        traffic: "imix".to_owned(),
        rate: Some("100000pps".to_owned()),
        late_ns: 35_200,
        streams: vec![
            ("small".to_owned(), 3_266_666),
            ("\u{1b}[31mmiddle".to_owned(), 1_866_666),
            ("large".to_owned(), 466_667),
        ],
        past: past.collect(),
        ..Sending::default()
    }
}

#[test]
fn senders_at_each_size() {
    for (width, height) in [(60, 20), (80, 24), (120, 40)] {
        let area = Rect::new(0, 0, width, height);
        let (mut sending, mut ui) = (sender(), SenderUi::default());
        let mut shown = text(&draw_sender(&sending, &ui, (COLOUR, area)));
        sending.arrived = Some(Arrived {
            received: 5_559_990,
            duplicated: 3,
            reordered: 12,
            after_the_last: 7,
            is_down: width > 100,
        });
        (sending.refused, sending.late_ns) = (1234, 12_000_000);
        sending.is_stopped = true;
        for key in "fipv4.ttl=9".chars() {
            ui.press(Key::Char(key), &sending);
        }
        let look = Look {
            ascii: true,
            ..Look::default()
        };
        let plain = text(&draw_sender(&sending, &ui, (look, area)));
        assert!(plain.is_ascii(), "{plain}");
        shown += &plain;
        ui.press(Key::Esc, &sending);
        sending.streams = (0..40).map(|n| (format!("stream {n}"), n)).collect();
        ui.say("'fast' is not a rate: write 1000, 100kpps or 2Gbit/s".to_owned());
        shown += &text(&draw_sender(&sending, &ui, (COLOUR, area)));
        ui.press(Key::Char('?'), &sending);
        shown += &text(&draw_sender(&sending, &ui, (COLOUR, area)));
        sending = Sending {
            port: "null".to_owned(),
            traffic: "a.pcap b.pcap".to_owned(),
            is_replay: true,
            ..Sending::default()
        };
        shown += &text(&draw_sender(&sending, &SenderUi::default(), (COLOUR, area)));
        check(&format!("sender-{width}x{height}"), &shown);
    }
}

const SIZES: [(u16, u16); 4] = [(60, 20), (80, 24), (120, 40), (200, 60)];

#[test]
fn the_first_screen_at_each_size() {
    let view = usual();
    for size in SIZES {
        let mut screen = Screen::new(&view, size, COLOUR);
        let picture = screen.picture();
        check(&format!("hosts-{}x{}", size.0, size.1), &text(&picture));
        // Without colours the characters are the same.
        let mut plain = Screen::new(&view, size, Look::default());
        let plain = plain.picture();
        assert_eq!(text(&picture), text(&plain));
        assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset));
    }
}

#[test]
fn ascii_has_nothing_else() {
    let view = usual();
    for size in SIZES {
        let look = Look {
            ascii: true,
            ..Look::default()
        };
        let mut screen = Screen::new(&view, size, look);
        let shown = text(&screen.picture());
        assert!(shown.is_ascii(), "{shown}");
        check(&format!("ascii-{}x{}", size.0, size.1), &shown);
    }
}

#[test]
fn colours_are_for_findings_losses_fullness_and_titles() {
    let view = usual();
    let mut screen = Screen::new(&view, (80, 24), COLOUR);
    screen.about.losses = vec![("kernel".to_owned(), 1234)];
    screen.about.link_bits_per_s = Some(3e6);
    check("colours", &colours(&screen.picture()));
    // Without colours a loss is reversed.
    screen.look = Look::default();
    check("reversed", &colours(&screen.picture()));
}

#[test]
fn a_loss_that_no_one_counted_is_no_loss_of_zero() {
    let view = usual();
    let mut screen = Screen::new(&view, (80, 24), COLOUR);
    screen.about.is_loss_unknown = true;
    assert!(text(&screen.picture()).contains("loss unknown"));
    screen.about.losses = vec![("kernel".to_owned(), 1234)];
    assert!(text(&screen.picture()).contains("lost 1 234: kernel"));
}

#[test]
fn each_tab() {
    let view = usual();
    for (key, name) in [
        ("2", "conversations"),
        ("3", "services"),
        ("4", "dns"),
        ("5", "tcp"),
    ] {
        for size in [(60, 20), (80, 24), (120, 40)] {
            let mut screen = Screen::new(&view, size, COLOUR);
            screen.press(key);
            check(
                &format!("{name}-{}x{}", size.0, size.1),
                &text(&screen.picture()),
            );
        }
    }
}

#[test]
fn each_page_of_a_row_and_of_help() {
    let view = usual();
    let mut screen = Screen::new(&view, (80, 24), COLOUR);
    screen.press("↓\n↓\n");
    check("detail", &text(&screen.picture()));
    screen.press("?");
    check("help-80x24", &text(&screen.picture()));
    screen.area = Rect::new(0, 0, 60, 20);
    check("help-60x20", &text(&screen.picture()));
    // A smaller terminal needs more pages, each of which has other keys.
    screen.area = Rect::new(0, 0, 56, 12);
    let mut pages = String::new();
    for is_last in [false, false, true] {
        let page = text(&screen.picture());
        assert_eq!(page.contains("? more"), !is_last, "{page}");
        pages.push_str(&page);
        screen.press("?");
    }
    for key in ["arrows", "^L, ^Z", "q, ^C", " w ", " B "] {
        assert_eq!(pages.matches(key).count(), 1, "{key}: {pages}");
    }
    assert!(
        !text(&screen.picture()).contains("go back"),
        "the help ends"
    );
}

#[test]
fn starting_idle_down_and_gone_are_four_lines() {
    let (none, view) = (view(0, |_, _| {}), view(5, |_, traffic| traffic.usual()));
    let mut lines = Vec::new();
    for (view, status) in [
        (&none, Status::Starting),
        (&view, Status::Idle(12)),
        (&view, Status::LinkDown("eth0".to_owned())),
        (
            &view,
            Status::Gone("eth0: the interface was removed".to_owned()),
        ),
    ] {
        let mut screen = Screen::new(view, (80, 24), COLOUR);
        screen.about.status = status;
        let picture = screen.picture();
        let shown = text(&picture);
        lines.push(shown.lines().nth(22).unwrap().to_owned());
    }
    check("states", &(lines.join("\n") + "\n"));
    // An answer to a key hides none that somebody should look at.
    let mut screen = Screen::new(&view, (120, 24), COLOUR);
    screen.about.status = Status::LinkDown("eth0".to_owned());
    screen.ui.say("written: a.pcapng");
    let shown = text(&screen.picture());
    let both = "link down: eth0 has no carrier; written: a.pcapng";
    assert!(shown.contains(both), "{shown}");
    lines.dedup();
    assert_eq!(lines.len(), 4);
}

#[test]
fn a_small_terminal_says_what_is_needed() {
    let view = view(2, |_, traffic| traffic.usual());
    for (width, height) in [(1, 1), (20, 5), (55, 24), (80, 11)] {
        let mut screen = Screen::new(&view, (width, height), COLOUR);
        let shown = text(&screen.picture());
        assert!(
            "weir needs 56 x 12 characters".starts_with(shown.trim()),
            "{shown}"
        );
    }
}

#[test]
fn every_size_has_its_columns_and_no_row_is_wrapped() {
    let view = view(2, |_, traffic| traffic.usual());
    let mut screen = Screen::new(&view, (80, 24), COLOUR);
    for width in [1, 55, 56, 57, 71, 72, 75, 76, 77, 109, 110, 149, 150, 230] {
        for height in [1, 12, 13, 20, 36, 61] {
            screen.area = Rect::new(0, 0, width, height);
            for key in ["1", "2", "5"] {
                screen.press(key);
                screen.picture();
            }
        }
    }
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let view = view(2, |_, traffic| traffic.usual());
    let mut screen = Screen::new(&view, (120, 40), COLOUR);
    let hostile = "\u{1b}]0;owned\u{7}\u{202e}evil\u{9b}31m\r\n";
    screen.about.sources = hostile.to_owned();
    screen.about.filter = hostile.to_owned();
    screen.about.message = Some(hostile.to_owned());
    screen.about.status = Status::Gone(hostile.to_owned());
    screen.ui.say(hostile);
    for keys in ["4", "f", &format!("x{}", hostile.replace('\r', ""))] {
        screen.press(keys);
        let picture = screen.picture();
        for cell in &picture.content {
            let is_plain = |c: char| {
                c == ' '
                    || c.is_ascii_graphic()
                    || !c.is_ascii() && !weir_packet::text::is_control(c)
            };
            assert!(cell.symbol().chars().all(is_plain), "{:?}", cell.symbol());
        }
    }
}
