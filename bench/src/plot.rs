//! Plots of results as SVG: bars with their spread, and lines.

use std::fmt::Write as _;

/// Colours of groups and series that colour-blind readers can tell apart too (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"];
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
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= rough).unwrap_or(10.0) * power;
                let count = (most / step).ceil() as usize;
                let ticks: Vec<f64> = (0..=count).map(|i| i as f64 * step).collect();
                Self { scale, from: 0.0, to: count as f64 * step, ticks }
            }
            Scale::Log => {
                let least = least.max(f64::MIN_POSITIVE).log10().floor() as i32;
                let most = (most.log10().ceil() as i32).max(least + 1);
                let ticks = (least..=most).map(|power| 10f64.powi(power)).collect();
                Self { scale, from: f64::from(least), to: f64::from(most), ticks }
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
    let longest = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let (left, right, top) = (20.0 + 6.6 * longest as f64, 80.0, 48.0 + 18.0 * groups.len().div_ceil(3) as f64);
    let (plot, height) = (WIDTH - left - right, top + ROW * bars.len() as f64 + 50.0);
    let bottom = height - 46.0;
    let least = bars.iter().map(|bar| bar.range.0.min(bar.value)).fold(f64::INFINITY, f64::min);
    let most = bars.iter().map(|bar| bar.range.1.max(bar.value)).fold(0.0, f64::max);
    let x_axis = Axis::new(scale, least, most);
    let x = |value: f64| left + plot * x_axis.at(value);
    let mut svg = begin(title, height);
    legend(&mut svg, groups.iter().copied(), left);
    for &tick in &x_axis.ticks {
        let _ = writeln!(svg, r##"<path d="M{0:.1} {top}V{bottom:.1}" stroke="#ddd"/>"##, x(tick));
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
        text(&mut svg, high.max(x(bar.value)) + 5.0, y + 15.0, "start", &short(bar.value));
    }
    svg + "</svg>\n"
}

/// Lines over categories at equal distances.
pub fn lines(title: &str, axes: (&str, &str), scale: Scale, categories: &[String], lines: &[Line]) -> String {
    let (left, right, top, height) = (70.0, 30.0, 60.0 + 18.0 * lines.len().div_ceil(3) as f64, 460.0);
    let (plot, bottom) = (WIDTH - left - right, height - 50.0);
    let all = || lines.iter().flat_map(|line| line.values.iter().flatten().copied());
    let y_axis = Axis::new(scale, all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let x = |i: usize| left + plot * (i as f64 + 0.5) / categories.len().max(1) as f64;
    let y = |value: f64| bottom - (bottom - top) * y_axis.at(value);
    let mut svg = begin(title, height);
    legend(&mut svg, lines.iter().map(|line| line.label.as_str()), left);
    for &tick in &y_axis.ticks {
        let _ = writeln!(svg, r##"<path d="M{left} {:.1}h{plot:.1}" stroke="#ddd"/>"##, y(tick));
        text(&mut svg, left - 6.0, y(tick) + 4.0, "end", &short(tick));
    }
    for (i, category) in categories.iter().enumerate() {
        text(&mut svg, x(i), bottom + 16.0, "middle", category);
    }
    text(&mut svg, left + plot / 2.0, height - 12.0, "middle", axes.0);
    text(&mut svg, left, top - 10.0, "middle", axes.1);
    for (n, line) in lines.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let dash = if n < COLOURS.len() { "" } else { r#" stroke-dasharray="6 4""# };
        let points = || line.values.iter().enumerate().filter_map(|(i, value)| Some((x(i), y((*value)?))));
        let path: Vec<String> = points().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>"#,
            path.join(" ")
        );
        for (x, y) in points() {
            let _ = writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#);
        }
    }
    svg + "</svg>\n"
}

fn begin(title: &str, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/>\n"
    );
    let _ = writeln!(svg, r#"<text x="20" y="24" font-size="16">{}</text>"#, escape(title));
    svg
}

/// Legend under the title, three names a row.
fn legend<'a>(svg: &mut String, names: impl Iterator<Item = &'a str>, left: f64) {
    let step = (WIDTH - left) / 3.0;
    for (i, name) in names.enumerate() {
        let (x, y) = (left + step * (i % 3) as f64, 44.0 + 18.0 * (i / 3) as f64);
        let colour = COLOURS[i % COLOURS.len()];
        let _ = writeln!(svg, r#"<rect x="{x:.1}" y="{:.1}" width="12" height="10" fill="{colour}"/>"#, y - 9.0);
        text(svg, x + 17.0, y, "start", name);
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escape(words));
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
        assert_eq!([axis.at(0.0), axis.at(25.0), axis.at(50.0)], [0.0, 0.5, 1.0]);
        let axis = Axis::new(Scale::Log, 30.0, 9000.0);
        assert_eq!(axis.ticks, [10.0, 100.0, 1000.0, 10_000.0]);
        assert!((axis.at(1000.0) - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_picture_names_all_it_shows_and_is_whole() {
        let bar = |label: &str, value| Bar { label: label.to_owned(), value, range: (value, value), group: 0 };
        let svg = bars("a < b", "ns", Scale::Linear, &["ours"], &[bar("one & two", 7.5), bar("three", 30.0)]);
        for part in ["a &lt; b", "one &amp; two", ">7.5<", ">30<", ">ours<", "</svg>"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let line = Line { label: "thp".to_owned(), values: vec![Some(1.0), None, Some(3.0)] };
        let names = ["1", "2", "3"].map(str::to_owned);
        let svg = lines("t", ("size", "ns"), Scale::Linear, &names, &[line]);
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
