//! Graphs of characters.

/// Dots of the left and the right half of a braille character, from the lowest to the highest.
const DOTS: [[u32; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];
const BRAILLE: u32 = 0x2800;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 5] = [' ', '.', ':', '|', '#'];

/// Levels of a character of a graph.
const LEVELS: usize = 4;

/// Level of a value, 0 to `most`; a value above 0 has at least 1.
fn level(value: f64, largest: f64, most: usize) -> usize {
    if value <= 0.0 || largest <= 0.0 {
        return 0;
    }
    let scaled = (value / largest * most as f64).round();
    (scaled as usize).clamp(1, most)
}

/// Lines of a graph of the last values, as wide as `width` characters and `height` high, the highest line first. Two values share a
/// character. A graph that hangs grows downward. `largest` is the value that fills the height.
pub(crate) fn lines(
    values: &[f64],
    largest: f64,
    (width, height): (usize, usize),
    (hangs, ascii): (bool, bool),
) -> Vec<String> {
    let room = width * 2;
    let last = &values[values.len().saturating_sub(room)..];
    let mut levels = vec![0; room - last.len()];
    levels.extend(
        last.iter()
            .map(|value| level(*value, largest, height * LEVELS)),
    );
    let mut lines: Vec<String> = (0..height)
        .map(|line| {
            let part = |whole: usize| whole.saturating_sub(line * LEVELS).min(LEVELS);
            let pairs = levels.chunks_exact(2);
            pairs
                .map(|pair| match ascii {
                    true => ASCII[part(pair[0].max(pair[1]))],
                    false => braille([part(pair[0]), part(pair[1])], hangs),
                })
                .collect()
        })
        .collect();
    if !hangs {
        lines.reverse();
    }
    lines
}

fn braille(levels: [usize; 2], hangs: bool) -> char {
    let mut bits = 0;
    for (dots, level) in DOTS.iter().zip(levels) {
        for step in 0..level {
            bits |= dots[if hangs { LEVELS - 1 - step } else { step }];
        }
    }
    match bits {
        0 => ' ',
        bits => char::from_u32(BRAILLE | bits).unwrap_or(' '),
    }
}

/// A line of `width` characters with a value each, the last values at its end; a blank where there is none.
pub(crate) fn spark(values: &[Option<f64>], width: usize, ascii: bool) -> String {
    let last = &values[values.len().saturating_sub(width)..];
    let largest = last.iter().flatten().fold(0.0, |a: f64, b| a.max(*b));
    let blanks = std::iter::repeat_n(' ', width - last.len());
    let shown = last.iter().map(|value| match (value, ascii) {
        (None, _) => ' ',
        (Some(value), true) => ASCII[level(*value, largest, 4)],
        (Some(value), false) => match level(*value, largest, 8) {
            0 => ' ',
            level => BLOCKS[level - 1],
        },
    });
    blanks.chain(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_stand_and_hang() {
        let values = [0.0, 1.0, 2.0, 4.0];
        assert_eq!(lines(&values, 4.0, (2, 1), (false, false)), ["⢀⣼"]);
        assert_eq!(lines(&values, 4.0, (2, 1), (true, false)), ["⠈⢻"]);
        assert_eq!(lines(&values, 4.0, (4, 1), (false, true)), ["  .#"]);
        assert_eq!(lines(&values, 4.0, (2, 2), (false, true)), [" #", ":#"]);
        assert_eq!(lines(&[], 0.0, (2, 1), (false, false)), ["  "]);
    }

    #[test]
    fn a_spark_line_ends_with_the_last_value() {
        let values = [Some(9.0), Some(1.0), None, Some(0.0), Some(8.0)];
        assert_eq!(spark(&values, 4, false), "▁  █");
        assert_eq!(spark(&values, 6, true), " #.  #");
    }
}
