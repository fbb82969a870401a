//! Plots of results as SVG: bars with their spread, and lines.

use std::fmt::Write as _;

/// Colours of groups and series that colour-blind readers can tell apart too (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555",
];
const WIDTH: f64 = 860.0;

/// Mapping of values to positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, with a tick for each power of ten.
    Log,
}

/// A bar with its spread.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name of the bar.
    pub label: String,
    /// Value shown by the length.
    pub value: f64,
    /// Smallest and largest value of the rounds, drawn as a whisker.
    pub range: (f64, f64),
    /// Index of the group.
    pub group: usize,
}

/// A named line through points.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name of the line.
    pub label: String,
    /// Value of each category, if there is one.
    pub values: Vec<Option<f64>>,
}

/// Bands and marks of a plot, next to its lines.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Shaded categories, from one to another, and what they are.
    pub bands: Vec<(usize, usize, String)>,
    /// Points that are not a measurement of ours: category, value, and whose they are.
    pub marks: Vec<(usize, f64, String)>,
}

/// An axis from one value to another.
struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(scale: Scale, least: f64, most: f64) -> Self {
        match scale {
            Scale::Linear => {
                let most = if most > 0.0 { most } else { 1.0 };
                let rough = most / 6.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .into_iter()
                    .find(|m| m * power >= rough)
                    .unwrap_or(10.0)
                    * power;
                let count = (most / step).ceil() as usize;
                let ticks: Vec<f64> = (0..=count).map(|i| i as f64 * step).collect();
                Self {
                    scale,
                    from: 0.0,
                    to: count as f64 * step,
                    ticks,
                }
            }
            Scale::Log => {
                let least = least.max(f64::MIN_POSITIVE).log10().floor() as i32;
                let most = (most.log10().ceil() as i32).max(least + 1);
                let ticks = (least..=most).map(|power| 10f64.powi(power)).collect();
                Self {
                    scale,
                    from: f64::from(least),
                    to: f64::from(most),
                    ticks,
                }
            }
        }
    }

    /// Position on the axis, 0 to 1.
    fn at(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
        };
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

/// Horizontal bars, one below the other, coloured by group, with a whisker from smallest to largest.
pub fn bars(title: &str, axis: &str, scale: Scale, groups: &[&str], bars: &[Bar]) -> String {
    const ROW: f64 = 22.0;
    let longest = bars
        .iter()
        .map(|bar| bar.label.chars().count())
        .max()
        .unwrap_or(0);
    let (left, right) = (20.0 + 6.6 * longest as f64, 80.0);
    let legend = Legend::new(groups.iter().copied(), left);
    let top = 48.0 + legend.height(groups.len());
    let (plot, height) = (WIDTH - left - right, top + ROW * bars.len() as f64 + 50.0);
    let bottom = height - 46.0;
    let least = bars
        .iter()
        .map(|bar| bar.range.0.min(bar.value))
        .fold(f64::INFINITY, f64::min);
    let most = bars
        .iter()
        .map(|bar| bar.range.1.max(bar.value))
        .fold(0.0, f64::max);
    let x_axis = Axis::new(scale, least, most);
    let x = |value: f64| left + plot * x_axis.at(value);
    let mut svg = begin(title, height);
    for (n, name) in groups.iter().enumerate() {
        let ((x, y), colour) = (legend.place(n), COLOURS[n % COLOURS.len()]);
        let _ = writeln!(
            svg,
            r#"<rect x="{x:.1}" y="{:.1}" width="12" height="10" fill="{colour}"/>"#,
            y - 9.0
        );
        text(&mut svg, x + 17.0, y, "start", name);
    }
    for &tick in &x_axis.ticks {
        let _ = writeln!(
            svg,
            r##"<path d="M{0:.1} {top}V{bottom:.1}" stroke="#ddd"/>"##,
            x(tick)
        );
        text(&mut svg, x(tick), bottom + 16.0, "middle", &short(tick));
    }
    text(&mut svg, left + plot / 2.0, height - 10.0, "middle", axis);
    for (i, bar) in bars.iter().enumerate() {
        let y = top + ROW * i as f64;
        let colour = COLOURS[bar.group % COLOURS.len()];
        text(&mut svg, left - 6.0, y + 15.0, "end", &bar.label);
        let _ = writeln!(
            svg,
            r#"<rect x="{left:.1}" y="{:.1}" width="{:.1}" height="14" fill="{colour}"/>"#,
            y + 4.0,
            x(bar.value) - left
        );
        let (low, high, middle) = (x(bar.range.0), x(bar.range.1), y + 11.0);
        let _ = writeln!(
            svg,
            r##"<path d="M{low:.1} {middle}H{high:.1}M{low:.1} {0}v6M{high:.1} {0}v6" stroke="#000" fill="none"/>"##,
            middle - 3.0
        );
        text(
            &mut svg,
            high.max(x(bar.value)) + 5.0,
            y + 15.0,
            "start",
            &short(bar.value),
        );
    }
    svg + "</svg>\n"
}

/// Lines over categories at equal distances.
pub fn lines(
    title: &str,
    axes: (&str, &str),
    scale: Scale,
    categories: &[String],
    lines: &[Line],
) -> String {
    lines_with_notes(title, axes, scale, categories, lines, &Notes::default())
}

/// Lines over categories at equal distances, with bands and marks. A line is broken where a category has no value.
pub fn lines_with_notes(
    title: &str,
    axes: (&str, &str),
    scale: Scale,
    categories: &[String],
    lines: &[Line],
    notes: &Notes,
) -> String {
    let (left, right, height) = (70.0, 30.0, 460.0);
    let legend = Legend::new(lines.iter().map(|line| line.label.as_str()), left);
    let top = 60.0 + legend.height(lines.len());
    let (plot, bottom) = (WIDTH - left - right, height - 50.0);
    let all = || {
        let values = lines
            .iter()
            .flat_map(|line| line.values.iter().flatten().copied());
        values.chain(notes.marks.iter().map(|(_, value, _)| *value))
    };
    let y_axis = Axis::new(
        scale,
        all().fold(f64::INFINITY, f64::min),
        all().fold(0.0, f64::max),
    );
    let step = plot / categories.len().max(1) as f64;
    let x = |i: usize| left + step * (i as f64 + 0.5);
    let y = |value: f64| bottom - (bottom - top) * y_axis.at(value);
    let mut svg = begin(title, height);
    for (n, (from, to, label)) in notes.bands.iter().enumerate() {
        let (from, width) = (x(*from) - step * 0.45, step * ((to - from) as f64 + 0.9));
        let (fill, high) = (["#fdf1d6", "#e3eef9"][n % 2], bottom - top);
        let _ = writeln!(
            svg,
            r#"<rect x="{from:.1}" y="{top}" width="{width:.1}" height="{high:.1}" fill="{fill}"/>"#
        );
        text(
            &mut svg,
            from + width / 2.0,
            top + 14.0 + 15.0 * n as f64,
            "middle",
            label,
        );
    }
    for (n, line) in lines.iter().enumerate() {
        let (x, y) = legend.place(n);
        let _ = writeln!(
            svg,
            r#"<path d="M{x:.1} {:.1}h28" {}/>"#,
            y - 4.0,
            stroke(n)
        );
        marker(&mut svg, n, x + 14.0, y - 4.0);
        text(&mut svg, x + 34.0, y, "start", &line.label);
    }
    for &tick in &y_axis.ticks {
        let _ = writeln!(
            svg,
            r##"<path d="M{left} {:.1}h{plot:.1}" stroke="#ddd"/>"##,
            y(tick)
        );
        text(&mut svg, left - 6.0, y(tick) + 4.0, "end", &short(tick));
    }
    for (i, category) in categories.iter().enumerate() {
        text(&mut svg, x(i), bottom + 16.0, "middle", category);
    }
    text(&mut svg, left + plot / 2.0, height - 12.0, "middle", axes.0);
    text(&mut svg, 20.0, top - 10.0, "start", axes.1);
    for (n, line) in lines.iter().enumerate() {
        let mut path = String::new();
        let mut joins = false;
        for (i, value) in line.values.iter().enumerate() {
            if let Some(value) = value {
                let _ = write!(
                    path,
                    "{}{:.1},{:.1}",
                    if joins { "L" } else { "M" },
                    x(i),
                    y(*value)
                );
            }
            joins = value.is_some();
        }
        let _ = writeln!(svg, r#"<path d="{path}" {}/>"#, stroke(n));
        for (i, value) in line.values.iter().enumerate() {
            if let Some(value) = value {
                marker(&mut svg, n, x(i), y(*value));
            }
        }
    }
    for (category, value, label) in &notes.marks {
        let (x, y) = (x(*category), y(*value));
        let _ = writeln!(
            svg,
            r##"<path d="M{:.1} {:.1}l14 14m0 -14l-14 14" stroke="#000" stroke-width="2.5"/>"##,
            x - 7.0,
            y - 7.0
        );
        text(&mut svg, x - 13.0, y + 4.0, "end", label);
    }
    svg + "</svg>\n"
}

/// Several plots, one below the other, as one.
pub fn column(plots: &[String]) -> String {
    const HEIGHT: f64 = 460.0;
    let height = HEIGHT * plots.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n"
    );
    for (i, plot) in plots.iter().enumerate() {
        svg += &plot.replacen("<svg ", &format!("<svg y=\"{}\" ", HEIGHT * i as f64), 1);
    }
    svg + "</svg>\n"
}

/// Colour and dashes of a line.
fn stroke(n: usize) -> String {
    let dash = if n < COLOURS.len() {
        ""
    } else {
        r#" stroke-dasharray="6 4""#
    };
    format!(
        r#"fill="none" stroke="{}" stroke-width="2"{dash}"#,
        COLOURS[n % COLOURS.len()]
    )
}

/// A point of a line: a circle, a square, a triangle or a diamond.
fn marker(svg: &mut String, n: usize, x: f64, y: f64) {
    let shape = match n % 4 {
        0 => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="4""#),
        1 => format!(r#"<path d="M{:.1} {:.1}h7.6v7.6h-7.6z""#, x - 3.8, y - 3.8),
        2 => format!(r#"<path d="M{x:.1} {:.1}l4.8 8.6h-9.6z""#, y - 5.2),
        _ => format!(
            r#"<path d="M{x:.1} {:.1}l5.2 5.2l-5.2 5.2l-5.2 -5.2z""#,
            y - 5.2
        ),
    };
    let _ = writeln!(svg, r#"{shape} fill="{}"/>"#, COLOURS[n % COLOURS.len()]);
}

fn begin(title: &str, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/>\n"
    );
    let _ = writeln!(
        svg,
        r#"<text x="20" y="24" font-size="16">{}</text>"#,
        escape(title)
    );
    svg
}

/// Places of names under the title, as many in a row as the longest one lets.
struct Legend {
    left: f64,
    columns: usize,
}

impl Legend {
    fn new<'a>(names: impl Iterator<Item = &'a str>, left: f64) -> Self {
        let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let columns = ((WIDTH - left) / (46.0 + 6.6 * longest as f64)) as usize;
        Self {
            left,
            columns: columns.clamp(1, 4),
        }
    }

    /// Height of the rows of this many names.
    fn height(&self, names: usize) -> f64 {
        18.0 * names.div_ceil(self.columns) as f64
    }

    fn place(&self, n: usize) -> (f64, f64) {
        let step = (WIDTH - self.left) / self.columns as f64;
        (
            self.left + step * (n % self.columns) as f64,
            44.0 + 18.0 * (n / self.columns) as f64,
        )
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
        escape(words)
    );
}

fn escape(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A number in few characters.
fn short(value: f64) -> String {
    let text = match value {
        v if v >= 99.5 || v == 0.0 => format!("{v:.0}"),
        v if v >= 0.95 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_the_axis_says() {
        let axis = Axis::new(Scale::Linear, 3.0, 47.0);
        assert_eq!(axis.ticks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(
            [axis.at(0.0), axis.at(25.0), axis.at(50.0)],
            [0.0, 0.5, 1.0]
        );
        let axis = Axis::new(Scale::Log, 30.0, 9000.0);
        assert_eq!(axis.ticks, [10.0, 100.0, 1000.0, 10_000.0]);
        assert!((axis.at(1000.0) - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_picture_names_all_it_shows_and_is_whole() {
        let bar = |label: &str, value| Bar {
            label: label.to_owned(),
            value,
            range: (value, value),
            group: 0,
        };
        let svg = bars(
            "a < b",
            "ns",
            Scale::Linear,
            &["ours"],
            &[bar("one & two", 7.5), bar("three", 30.0)],
        );
        for part in [
            "a &lt; b",
            "one &amp; two",
            ">7.5<",
            ">30<",
            ">ours<",
            "</svg>",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let line = Line {
            label: "thp".to_owned(),
            values: vec![Some(1.0), None, Some(3.0)],
        };
        let names = ["1", "2", "3"].map(str::to_owned);
        let svg = lines(
            "t",
            ("size", "ns"),
            Scale::Linear,
            &names,
            std::slice::from_ref(&line),
        );
        // Two points and the legend's; the line is broken between them.
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(
            svg.contains("M196.7,") && svg.contains("M703.3,") && !svg.contains('L'),
            "{svg}"
        );
        let notes = Notes {
            bands: vec![(1, 2, "many".to_owned())],
            marks: vec![(2, 30.0, "theirs".to_owned())],
        };
        let noted = lines_with_notes("t", ("size", "ns"), Scale::Linear, &names, &[line], &notes);
        assert!(
            [">many<", ">theirs<", ">30<"]
                .iter()
                .all(|part| noted.contains(part)),
            "{noted}"
        );
        let both = column(&[svg, noted]);
        assert_eq!(
            (
                both.matches("<svg ").count(),
                both.matches("</svg>").count()
            ),
            (3, 3)
        );
    }
}
