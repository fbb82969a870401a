//! Check that native code and interpreter judge every packet of the captures as libpcap does.

use crate::report::Report;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use weir_filter::{Filter, interpreter, libpcap};
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{Layout, Stop};
use weir_packet::{Frame, LinkType};

/// Expressions of the filter's own tests.
const EXPRESSIONS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/filter/tests/expressions.txt"
);

#[derive(Default)]
struct Judge<'a> {
    filters: Vec<(LinkType, Vec<Filter>)>,
    expressions: Vec<&'a str>,
    links: Vec<LinkType>,
    packets: u64,
    verdicts: u64,
    differences: u64,
}

impl Judge<'_> {
    fn filters(&mut self, link: LinkType) -> usize {
        if let Some(at) = self.filters.iter().position(|(known, _)| *known == link) {
            return at;
        }
        let made = self
            .expressions
            .iter()
            .filter_map(|expression| Filter::compile(expression, link, false).ok());
        let made: Vec<Filter> = made.inspect(Filter::make_native).collect();
        self.filters.push((link, made));
        self.filters.len() - 1
    }
}

impl Visit for Judge<'_> {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        self.packets += frames.len() as u64;
        for frame in frames {
            let at = self.filters(self.links[frame.interface as usize]);
            for filter in &self.filters[at].1 {
                let program = filter.program();
                let oracle = libpcap::bpf_filter(program, frame.data, frame.wire_len);
                let interpreted = interpreter::run(program, frame.data, frame.wire_len);
                let native = filter.matches(std::slice::from_ref(frame));
                self.verdicts += 1;
                self.differences +=
                    u64::from(interpreted != oracle || (native != 0) != (oracle != 0));
            }
        }
        true
    }
}

fn captures() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_CAPTURES").map(PathBuf::from);
    let folder = named
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures"));
    folder.is_dir().then_some(folder)
}

/// Compares all captures with all expressions.
pub fn compare(report: &mut Report) -> anyhow::Result<()> {
    report.heading("Verdicts against libpcap's bpf_filter");
    let Some(folder) = captures() else {
        report.line("skipped: no captures (set WEIR_CAPTURES to a folder of capture files)");
        return Ok(());
    };
    let text = fs::read_to_string(EXPRESSIONS).with_context(|| EXPRESSIONS.to_owned())?;
    let section = text
        .lines()
        .skip_while(|line| *line != "[accepted]")
        .skip(1);
    let accepted = section.take_while(|line| !line.starts_with('['));
    let expressions: Vec<&str> = accepted
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut judge = Judge {
        expressions,
        ..Judge::default()
    };
    let mut files = 0;
    for entry in fs::read_dir(folder)? {
        let bytes = fs::read(entry?.path())?;
        let Ok((mut layout, mut pos)) = Layout::read(&bytes, true) else {
            continue;
        };
        files += 1;
        loop {
            judge.links = layout
                .interfaces
                .iter()
                .map(|interface| interface.link)
                .collect();
            let mut cursor = [Cursor::new(pos, bytes.len())];
            walk(&layout, &bytes, true, &mut cursor, &mut judge);
            pos = cursor[0].pos;
            match cursor[0].stop {
                Some(Stop::Layout) => match layout.apply(&bytes, pos, true) {
                    Ok(next) => pos = next,
                    Err(_) => break,
                },
                _ => break,
            }
        }
    }
    let Judge {
        expressions,
        packets,
        verdicts,
        differences,
        ..
    } = judge;
    let found = format!(
        "{files} captures, {packets} packets, {} expressions: {verdicts} verdicts of interpreter and native code, \
         {differences} differences",
        expressions.len()
    );
    report.line(&found);
    report.bar(
        "verdicts against libpcap, captures x expressions",
        "0 differences",
        &found,
        differences == 0,
    );
    if differences > 0 || verdicts == 0 {
        report.wrong("verdicts differ from libpcap's, or none was compared");
    }
    Ok(())
}
