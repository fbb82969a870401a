//! The programs in the documentation, extracted, and run on a capture of `weir generate`: in C, Java, Python and Rust.

mod jdk;

use jdk::{Java, root, text};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use weir_testkit::{Python, Scratch, have, skipped};

/// All documents: the README, and those of `docs` and of the bindings.
fn documents() -> Vec<String> {
    let mut found = vec![
        "README.md".to_owned(),
        "bindings/python/README.md".to_owned(),
    ];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root()).unwrap();
                found.push(name.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A program in a document.
#[derive(Clone, Debug)]
struct Snippet {
    document: String,
    /// Document and line.
    place: String,
    language: String,
    code: String,
}

impl Snippet {
    /// Whether it opens the interface eth0, which only some machines have.
    fn is_live(&self) -> bool {
        self.code.contains("\"eth0\"")
    }

    /// Says that it was only compiled.
    fn tell_not_run(&self) {
        println!(
            "{}: compiled and not run: it opens the interface eth0",
            self.place
        );
    }
}

/// All fenced programs of a language. Blocks of scripts/docs (`console`, `text`, `toml`) are no programs.
fn snippets(language: &str) -> Vec<Snippet> {
    let mut found = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(root().join(&document)).unwrap();
        let mut open: Option<Snippet> = None;
        // Columns of the list item in which a program stands.
        let mut indent = 0;
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => {
                    indent = line.len() - line.trim_start().len();
                    open = Some(Snippet {
                        document: document.clone(),
                        place: format!("{document}:{}", number + 1),
                        language: language.to_owned(),
                        code: String::new(),
                    });
                }
                (Some(_), Some(_)) => found.extend(open.take()),
                (Some(snippet), None) => {
                    writeln!(snippet.code, "{}", line.get(indent..).unwrap_or_default()).unwrap()
                }
                (None, None) => {}
            }
        }
    }
    // Programs in Lua run in the tests of the command, where it has Lua.
    let known = [
        "", "console", "text", "toml", "json", "c", "java", "python", "rust", "lua",
    ];
    for Snippet {
        place, language, ..
    } in &found
    {
        assert!(
            known.contains(&&language[..]),
            "{place}: no test runs programs in '{language}'"
        );
    }
    found.retain(|snippet| snippet.language == language);
    assert!(!found.is_empty(), "there is no program in {language}");
    found
}

/// The code of a language in each document that has some.
fn by_document(language: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::<String, String>::new();
    for snippet in snippets(language) {
        found
            .entry(snippet.document)
            .or_default()
            .push_str(&snippet.code);
    }
    found
}

fn libraries() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned()
}

/// Makes `trace.pcap` in a folder, as `make run` makes its capture, unless the command is lacking. Returns the number of packets that tcpdump
/// finds for each expression.
fn trace<const N: usize>(
    test: &str,
    scratch: &Scratch,
    expressions: [&str; N],
) -> Option<[u64; N]> {
    let command = libraries().join("../weir");
    if !command.exists() {
        skipped(test, "there is no weir command beside the tests");
        return None;
    }
    if !have(test, &["tcpdump"]) {
        return None;
    }
    let file = scratch.at("trace.pcap");
    let made = Command::new(command)
        .args(["generate", &file, "--packets", "20000"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    Some(expressions.map(|expression| {
        let done = Command::new("tcpdump")
            .args(["-nn", "-r", &file, "--count", expression])
            .output()
            .unwrap();
        text(&done.stdout)
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }))
}

/// What a program printed. **Panics** with its place and its error if it failed.
#[track_caller]
fn good(place: &str, done: &Output) -> String {
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(
        done.status.success(),
        "{place} ended with {}: {out}{err}",
        done.status
    );
    out
}

/// Sum of the packets of lines `N packets`, one for each batch.
fn packets(out: &str) -> u64 {
    let counts = out.lines().filter_map(|line| line.strip_suffix(" packets"));
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

/// End of a program in C.
const C_LAST: &str = "    return 0;\n}\n";

const C_INCLUDED: &str = "#include <stdio.h>\n#include <weir.h>\n";

/// Function that parts of programs in C call.
const C_PRINT: &str = r#"
static void print_and_free(weir_text text)
{
    const char *line = "no text";
    weir_text_read(text, &line, NULL);
    puts(line);
    weir_text_free(text);
}
"#;

/// Frame of programs in C, with functions that they call.
const C_BEFORE: &str = r#"
static unsigned long long looked;
static void look(const uint8_t *frame, uint32_t bytes)
{
    looked += frame && bytes > 0;
}
static int fail(weir_text error)
{
    const char *line = "no text";
    weir_text_read(error, &line, NULL);
    fprintf(stderr, "weir: %s\n", line);
    return 1;
}
int main(void)
{
    (void)print_and_free;
"#;

/// Variables of the programs that begin behind `weir_open`.
const C_DECLARED: &str = r#"    const char *name = "trace.pcap";
    weir_options options = {.size = sizeof options, .filter = "udp port 53"};
    weir_source source;
    weir_batch batch;
    weir_text error = 0;
    (void)fail;
    (void)look;
    if (weir_open(&name, 1, &options, &source, &error) < 0)
        return fail(error);
"#;

/// Programs of one document go on with the variables of those before.
#[test]
fn programs_in_c_run() {
    let test = "programs_in_c_run";
    let scratch = Scratch::new();
    if !have(test, &["cc"]) {
        return;
    }
    let Some([matched]) = trace(test, &scratch, ["udp port 53"]) else {
        return;
    };
    let manual = std::fs::read_to_string(root().join("docs/weir.3")).unwrap();
    let blocks = manual
        .split(".nf\n")
        .skip(1)
        .filter_map(|block| block.split_once(".fi\n").map(|(code, _)| code));
    let manual: String = blocks.filter(|code| code.contains("weir_open(")).collect();
    assert!(!manual.is_empty());
    let mut programs = by_document("c");
    programs.insert("docs/weir.3".to_owned(), manual);
    for (place, code) in &programs {
        // Documents that show a part only leave the rest to the ones that they name.
        let declared = if code.contains("weir_source source;") {
            ""
        } else {
            C_DECLARED
        };
        let source = match code.split_once(C_LAST) {
            // A whole program, and parts that go on with its variables.
            Some((program, parts)) => {
                let (body, last) = program.rsplit_once("    printf(").unwrap();
                format!("{C_INCLUDED}{C_PRINT}{body}{parts}    printf({last}{C_LAST}")
            }
            None => format!(
                "{C_INCLUDED}{C_PRINT}{C_BEFORE}{declared}{code}    printf(\"%llu packets\\n\", looked);\n{C_LAST}"
            ),
        };
        let (source, program) = (
            scratch.file("program.c", source.as_bytes()),
            scratch.at("program"),
        );
        let mut cc = Command::new("cc");
        cc.args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", &program, &source, "-I",
        ]);
        cc.arg(root().join("crates/ffi/include"))
            .arg(format!("-L{}", libraries().display()));
        cc.arg(format!("-Wl,-rpath,{}", libraries().display()))
            .arg("-lweir");
        good(place, &cc.output().unwrap());
        let out = good(
            place,
            &Command::new(&program)
                .current_dir(scratch.path())
                .output()
                .unwrap(),
        );
        if code.contains("look(") || code.contains(C_LAST) {
            let last = format!("{matched} packets");
            assert_eq!(out.lines().last(), Some(&last[..]), "{place}");
        } else {
            assert_eq!(packets(&out), 20000, "{place}: {out}");
        }
        assert_eq!(
            out.contains("\"type\":\"window\"") && out.contains("\"type\":\"summary\""),
            code.contains("weir_measure_open("),
            "{place}: {out}"
        );
    }
}

/// Each program is a method of its own.
#[test]
fn programs_in_java_run() {
    let test = "programs_in_java_run";
    let scratch = Scratch::new();
    let Some([with_ports]) = trace(test, &scratch, ["udp and (ip6 or ip[6:2] & 0x1fff = 0)"])
    else {
        return;
    };
    let Some(java) = Java::new(test, &scratch) else {
        return;
    };
    let mut class = String::from(
        "import java.time.Duration;\nimport weir.*;\n\npublic final class Readme {\n    static long[] count = new long[65536];\n",
    );
    let mut calls = String::new();
    for (number, snippet) in snippets("java").iter().enumerate() {
        writeln!(
            class,
            "    static void program{number}() throws Exception {{\n{}    }}",
            snippet.code
        )
        .unwrap();
        match snippet.is_live() {
            true => snippet.tell_not_run(),
            false => writeln!(calls, "        program{number}();").unwrap(),
        }
    }
    writeln!(
        class,
        "    public static void main(String[] none) throws Exception {{\n{calls}        \
         System.out.println(java.util.Arrays.stream(count).sum() + \" packets\");\n    }}\n}}"
    )
    .unwrap();
    let file = scratch.file("Readme.java", class.as_bytes());
    let mut javac = Command::new(java.home.join("bin/javac"));
    javac.args(["-cp", &java.classes, "-d", &java.classes, &file]);
    good("README.md", &javac.output().unwrap());
    let done = java
        .command(&[], "Readme", &[])
        .current_dir(scratch.path())
        .output()
        .unwrap();
    let out = good("README.md", &done);
    assert_eq!(
        out.lines().last(),
        Some(&format!("{with_ports} packets")[..])
    );
}

/// What the program with a control packet has from elsewhere.
const PYTHON_BEFORE: &str = "
import hmac, struct, time
key = bytes(32)
class udp:
    def sendto(packet, to):
        assert len(packet) > 60 and to == ('10.0.0.9', 6633), (packet, to)
";

#[test]
fn programs_in_python_run() {
    let test = "programs_in_python_run";
    let scratch = Scratch::new();
    let Some([_]) = trace(test, &scratch, ["udp"]) else {
        return;
    };
    let Some(python) = Python::new(test, &scratch, &["numpy", "duckdb", "pandas"]) else {
        return;
    };
    for snippet in snippets("python") {
        let program = format!("{PYTHON_BEFORE}import duckdb, weir\n{}", snippet.code);
        let mut command = match snippet.is_live() && !snippet.code.contains("\"trace.pcap\"") {
            true => {
                snippet.tell_not_run();
                python.command(&[
                    "-c",
                    "import sys; compile(sys.argv[1], 'README', 'exec')",
                    &program,
                ])
            }
            false => python.command(&["-c", &program]),
        };
        good(
            &snippet.place,
            &command.current_dir(scratch.path()).output().unwrap(),
        );
    }
}

/// The examples of `weir-api` hold the programs, and run.
#[test]
fn programs_in_rust_run() {
    let test = "programs_in_rust_run";
    let scratch = Scratch::new();
    let Some([matched]) = trace(test, &scratch, ["udp"]) else {
        return;
    };
    let examples = ["readme", "guide"];
    let trimmed = |code: &str| code.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let code = examples.map(|name| {
        let file = root().join(format!("crates/api/examples/{name}.rs"));
        trimmed(&std::fs::read_to_string(file).unwrap())
    });
    for snippet in snippets("rust") {
        assert!(
            code.iter()
                .any(|code| code.contains(trimmed(&snippet.code).trim())),
            "{}: the examples are others",
            snippet.place
        );
    }
    for (name, last) in [
        ("readme", None),
        ("guide", Some(format!("{matched} packets"))),
    ] {
        let program = libraries().join("../examples").join(name);
        if !program.exists() {
            return skipped(
                test,
                "the examples are not built: cargo build -p weir-api --examples",
            );
        }
        let done = Command::new(program)
            .current_dir(scratch.path())
            .output()
            .unwrap();
        let out = good(name, &done);
        if let Some(last) = last {
            assert_eq!(out.lines().last(), Some(&last[..]));
        } else {
            assert_eq!(packets(&out), 20000);
        }
    }
}
