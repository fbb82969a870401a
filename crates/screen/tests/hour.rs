//! An hour at a screen, by the clock of its windows: a key each few seconds, on each tab in turn.

mod planted;

use planted::{BEGIN, Planted, SECOND, Traffic};
use std::ops::RangeInclusive;
use weir_screen::{About, Effect, Key, Look, Rect, Save, Scene, Status, Ui, draw, points};
use weir_view::{Ask, Snapshot, Span};

const AREA: Rect = Rect {
    x: 0,
    y: 0,
    width: 120,
    height: 30,
};

/// Packets of a second.
fn packets(second: i64) -> i64 {
    20 + second % 61
}

/// A user at the screen.
struct User {
    planted: Planted,
    ui: Ui,
    /// Seconds so far.
    now: i64,
}

impl User {
    fn snapshot(&self) -> Option<Snapshot> {
        let (span, at) = self.ui.asks();
        self.planted.view.snapshot(&Ask {
            span,
            at,
            rows: 200,
            changes: 0,
            points: 20,
            history: 1,
        })
    }

    /// A second passes.
    fn wait(&mut self) {
        let mut traffic = Traffic::default();
        for number in 0..packets(self.now) {
            let from = 2 + (number % 7) as u32;
            traffic.udp((from, 1000), (1, 53), 100);
        }
        self.planted.add(&traffic);
        self.now += 1;
    }

    /// Presses a key, and looks at the next picture.
    fn press(&mut self, key: Key) -> (Effect, Picture) {
        let snapshot = self.snapshot();
        self.ui.arrange(snapshot.as_ref(), points(AREA).0);
        let effect = self.ui.press(key, snapshot.as_ref());
        (effect, self.look())
    }

    fn look(&mut self) -> Picture {
        let snapshot = self.snapshot();
        self.ui.arrange(snapshot.as_ref(), points(AREA).0);
        let about = About {
            has_sides: true,
            is_live: true,
            status: Status::Running,
            ..About::default()
        };
        let scene = Scene {
            snapshot: snapshot.as_ref(),
            about: &about,
            ui: &self.ui,
            look: Look::default(),
        };
        let text = weir_screen::text::lines(&draw(&scene, AREA));
        Picture(text.lines().map(str::to_owned).collect())
    }

    /// The picture has the packets of these seconds.
    #[track_caller]
    fn expects(&self, picture: &Picture, seconds: RangeInclusive<i64>) {
        let length = seconds.end() - seconds.start() + 1;
        let sum: i64 = seconds.map(packets).sum();
        let rate = format!(" {:.0} pps", sum as f64 / length as f64);
        picture.has(&rate);
    }
}

/// Lines of a picture.
struct Picture(Vec<String>);

impl Picture {
    #[track_caller]
    fn has(&self, words: &str) {
        assert!(self.shows(words), "no {words:?} in\n{}", self.0.join("\n"));
    }

    fn shows(&self, words: &str) -> bool {
        self.0.iter().any(|line| line.contains(words))
    }

    /// Order of the rows.
    fn order(&self) -> String {
        let line = self.0.iter().find(|line| line.contains("  by ")).cloned();
        line.unwrap_or_default()
    }
}

fn clock(second: i64) -> String {
    // The begin is at 22:13:20.
    let of_day = 22 * 3600 + 13 * 60 + 20 + second;
    let (hours, minutes) = (of_day / 3600 % 24, of_day / 60 % 60);
    format!("at {hours:02}:{minutes:02}:{:02}", of_day % 60)
}

/// Presses each key once on a tab; some seconds pass before each.
fn each_key(user: &mut User, tab: char) {
    let mut press = |key: Key| {
        (0..4).for_each(|_| user.wait());
        user.press(key)
    };
    let key = Key::Char;
    press(key(tab)).1.has(&format!("[{tab} "));
    let has_rows = tab != '4';
    if has_rows {
        press(Key::Down).1.has(" > ");
        let (_, opened) = press(Key::Enter);
        assert!(
            opened.shows("all > ") || opened.shows("Esc back  p pause"),
            "{tab}: {:?}",
            opened.0
        );
        let (_, back) = press(Key::Esc);
        back.has(&format!("[{tab} "));
        back.has(" > ");
        press(Key::End).1.has(" > ");
        press(Key::Home).1.has(" > ");
        press(Key::PageDown).1.has(" > ");
        press(Key::PageUp).1.has(" > ");
        press(Key::Up);
        let (_, none) = press(Key::Esc);
        assert!(!none.shows("all > "));
        let (_, before) = press(Key::Redraw);
        assert_ne!(press(key('s')).1.order(), before.order());
    }
    press(key('/')).1.has("rows /");
    press(key('~')).1.has("rows /~");
    press(Key::Enter).1.has("no row has this text");
    assert!(!press(Key::Esc).1.shows("rows /"));
    press(key('f')).1.has("capture: ");
    assert_eq!(press(key('u')).0, Effect::CheckFilter("u".to_owned()));
    assert!(!press(Key::Esc).1.shows("capture: "));
    press(key('k')).1.has("key: ");
    press(key('x')).1.has("key: x");
    press(Key::Esc);
    press(key('n')).1.has("hosts have no names");
    press(key('n')).1.has("hosts have names");
    press(key('?')).1.has("any key goes back");
    assert!(!press(key('x')).1.shows("any key goes back"));
    let all = Effect::Offer(Save::Packets { all: true });
    assert_eq!(press(key('w')).0, all);
    let bundle = Effect::Offer(Save::Bundle { payload: false });
    assert_eq!(press(key('B')).0, bundle);
    assert_eq!(press(Key::Redraw).0, Effect::Redraw);
    assert_eq!(press(Key::Suspend).0, Effect::Suspend);
    assert_eq!(press(key('q')).0, Effect::Quit);
    press(Key::Tab);
    press(Key::BackTab).1.has(&format!("[{tab} "));
    in_time(user);
}

/// Walks in time. What is shown is the planted traffic of that time.
fn in_time(user: &mut User) {
    let key = Key::Char;
    user.wait();
    let last = user.now - 1;
    let (_, picture) = user.press(key('p'));
    picture.has(&clock(last));
    (0..3).for_each(|_| user.wait());
    let picture = user.look();
    picture.has("paused at");
    user.expects(&picture, last..=last);
    let (_, picture) = user.press(key('<'));
    picture.has(&clock(last - 1));
    user.expects(&picture, last - 1..=last - 1);
    let (_, picture) = user.press(Key::Right);
    picture.has(&clock(last));
    user.wait();
    let (_, picture) = user.press(key('.'));
    picture.has("last 1 s");
    user.expects(&picture, user.now - 1..=user.now - 1);
    let (_, picture) = user.press(key('t'));
    assert_eq!(user.ui.asks().0, Span::TenSeconds);
    assert!(picture.shows("last 10 s") || picture.shows("last 1 s"));
    let (_, picture) = user.press(key('<'));
    let begin = (user.now - 1).div_euclid(10) * 10 - 10;
    picture.has(&clock(begin));
    user.expects(&picture, begin..=begin + 9);
    user.press(key('t'));
    assert_eq!(user.ui.asks().0, Span::Minute);
    user.press(key('t'));
    let (_, picture) = user.press(key('p'));
    picture.has("last 1 s");
}

#[test]
fn each_key_on_each_tab_shows_its_effect_for_an_hour() {
    let mut user = User {
        planted: Planted::new(),
        ui: Ui::new(Look::default()),
        now: 0,
    };
    // A pause needs a second before it.
    (0..40).for_each(|_| user.wait());
    let mut rounds = 0;
    while user.now < 3600 {
        for tab in "12345".chars() {
            each_key(&mut user, tab);
        }
        rounds += 1;
    }
    assert!(rounds > 2, "{rounds}");
    // The first seconds have left the steps of a second; the minutes have them all.
    let at = Some(BEGIN + 30 * SECOND);
    let ask = |span| Ask {
        span,
        at,
        points: 1440,
        ..Ask::default()
    };
    let seconds = user
        .planted
        .view
        .snapshot(&ask(Span::Second))
        .expect("it is kept");
    assert!(seconds.from_ns > BEGIN + 2000 * SECOND);
    let last = Ask {
        at: None,
        ..ask(Span::Minute)
    };
    let minutes = user.planted.view.snapshot(&last).expect("it is kept");
    let sum: u64 = minutes
        .points
        .iter()
        .map(|it| it.totals.measured.packets)
        .sum();
    let all: i64 = (0..user.now).map(packets).sum();
    assert_eq!(sum, all as u64);
}
