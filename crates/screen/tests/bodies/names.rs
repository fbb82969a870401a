//! Any bytes as names and messages of a picture: what reaches the terminal is read by a strict reader, and by a terminal.

use std::collections::HashMap;
use weir_screen::{About, Buffer, Key, Look, Rect, Save, Scene, Status, Ui, ansi, draw, points};
use weir_view::{Ask, View};

/// Draws a picture with texts of `data`, and checks what is sent.
pub fn names(view: &View, data: &[u8]) {
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    let look = Look {
        colour: first & 1 != 0,
        light: first & 2 != 0,
        ascii: first & 4 != 0,
    };
    let sizes = [(60, 20), (80, 24), (120, 40), (56, 12)];
    let (width, height) = sizes[usize::from(first >> 4) % 4];
    let area = Rect::new(0, 0, width, height);
    let texts: Vec<String> = rest
        .split(|byte| *byte == b'\n')
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect();
    let text = |number: usize| texts.get(number % texts.len()).cloned().unwrap_or_default();
    let snapshot = view.snapshot(&Ask {
        rows: 200,
        ..Ask::default()
    });
    let mut ui = Ui::new(look);
    ui.arrange(snapshot.as_ref(), points(area).0);
    let names: HashMap<_, _> = ui
        .addresses()
        .enumerate()
        .map(|(i, it)| (it, text(i)))
        .collect();
    ui.set_names(names);
    ui.set_filter(&text(1));
    match first >> 6 {
        0 => text(2).chars().for_each(|c| {
            ui.press(Key::Char(c), snapshot.as_ref());
        }),
        1 => {
            ui.press(Key::Char('/'), snapshot.as_ref());
            text(2).chars().for_each(|c| {
                ui.press(Key::Char(c), snapshot.as_ref());
            });
        }
        2 => ui.offer(Save::Packets { all: true }, &[text(2), text(3)]),
        _ => ui.say(text(2)),
    }
    ui.arrange(snapshot.as_ref(), points(area).0);
    let about = About {
        sources: text(0),
        status: match first & 8 {
            0 => Status::Running,
            _ => Status::Gone(text(4)),
        },
        filter: text(1),
        message: Some(text(3)),
        losses: vec![(text(5), 7)],
        ..About::default()
    };
    let scene = Scene {
        snapshot: snapshot.as_ref(),
        about: &about,
        ui: &ui,
        look,
    };
    let picture = draw(&scene, area);
    let sent = ansi::changes(&Buffer::empty(area), &picture);
    assert_harmless(&sent, look.ascii);
    assert_shown(&picture, &sent);
}

/// Reads sequences of CUP and SGR, and characters that move nothing but the cursor.
fn assert_harmless(sent: &str, ascii: bool) {
    let mut rest = sent;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c == '\u{1b}' {
            let body = rest.strip_prefix('[').expect("only CSI is sent");
            let end = body
                .find(|c: char| !c.is_ascii_digit() && c != ';')
                .expect("the sequence ends");
            assert!(matches!(body.as_bytes()[end], b'H' | b'm'), "{body:?}");
            rest = &body[end + 1..];
            continue;
        }
        let is_drawn = matches!(c, '\u{2580}'..='\u{259f}' | '\u{2800}'..='\u{28ff}');
        let is_text = c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() || is_drawn;
        assert!(is_text && (!ascii || c.is_ascii()), "{c:?} in {sent:?}");
    }
}

/// Compares the characters of ASCII, which are all columns of figures, with those that a terminal shows.
fn assert_shown(picture: &Buffer, sent: &str) {
    let (width, height) = (picture.area.width, picture.area.height);
    let size = |size: u16| std::num::NonZero::new(size).expect("it is not 0");
    let mut terminal = vt100::Parser::new(size(height), size(width), 0);
    terminal.process(sent.as_bytes());
    for y in 0..height {
        for x in 0..width {
            let symbol = picture[(x, y)].symbol();
            if symbol.is_ascii() && symbol != " " {
                let cell = terminal.screen().cell(y, x).expect("it is on the screen");
                assert_eq!(cell.contents(), symbol, "{x} {y} of {sent:?}");
            }
        }
    }
}
