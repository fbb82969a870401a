//! Names of packets and files that try to steer the terminal.

#[path = "bodies/names.rs"]
mod body;
mod planted;

use weir_testkit::Random;

/// Pieces of texts that terminals, shells or readers take for something else.
const PIECES: [&str; 24] = [
    "\u{1b}[2J",
    "\u{1b}]0;owned\u{7}",
    "\u{1b}P",
    "\u{9b}31m",
    "\u{202e}",
    "\u{2066}",
    "\u{200b}",
    "\u{feff}",
    "\u{300}",
    "\u{e0001}",
    "\r",
    "\t",
    "\u{8}",
    "\u{7f}",
    "\u{85}",
    "[red]x[/]",
    "<b>",
    "漢字",
    "ä",
    "é",
    "\u{1f468}\u{200d}\u{1f469}",
    "www.example.com",
    "\u{fdfd}",
    "क्षि",
];

#[test]
fn nothing_of_a_name_steers_the_terminal() {
    let view = planted::view(3, |_, traffic| traffic.usual());
    let seed = std::env::var("WEIR_SEED").ok();
    let first: u64 = seed.map_or(0, |seed| seed.parse().expect("WEIR_SEED is a number"));
    for seed in first..first + 400 {
        println!("WEIR_SEED={seed}");
        let mut random = Random(seed);
        let mut data = random.bytes(1);
        for _ in 0..random.below(12) {
            match random.below(4) {
                0 => data.push(b'\n'),
                1 => {
                    let len = random.below(12);
                    data.extend(random.bytes(len));
                }
                _ => data.extend(PIECES[random.below(PIECES.len())].as_bytes()),
            }
        }
        body::names(&view, &data);
    }
}
