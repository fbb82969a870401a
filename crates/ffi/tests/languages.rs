//! What other languages know of the structures: files made from `include/weir.h` and from the sizes that Rust finds.
//!
//! `WEIR_WRITE=1 cargo test -p weir-ffi --test languages` writes them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use weir_testkit::{Scratch, have};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A structure as Rust lays it out: name, size, alignment, and the offsets of its fields.
type Layout = (&'static str, usize, usize, Vec<(&'static str, usize)>);

macro_rules! layout {
    ($name:ident { $($field:ident),* }) => {
        (stringify!($name), size_of::<weir::$name>(), align_of::<weir::$name>(),
            vec![$((stringify!($field), std::mem::offset_of!(weir::$name, $field))),*])
    };
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!(weir_column {
            field,
            capacity,
            values
        }),
        layout!(weir_sink_counts {
            given,
            written,
            refused,
            lost
        }),
        layout!(weir_options {
            size,
            flags,
            filter,
            splits,
            split_count,
            workers,
            limit,
            ring,
            latency_ns,
            batches,
            connections,
            from_ns,
            to_ns,
            rules,
            yes_take,
            sets,
            set_count,
            dedup,
            dedup_ns
        }),
        layout!(weir_sink_options {
            size,
            flags,
            yes_send,
            reserve,
            shift_ns,
            anonymize,
            payload
        }),
        layout!(weir_descriptor {
            offset,
            time_ns,
            captured,
            wire_len,
            interface,
            flags
        }),
        layout!(weir_batch {
            lease,
            region,
            region_len,
            packets,
            verdicts,
            len,
            passed,
            filter,
            link_type,
            reserved
        }),
        layout!(weir_counts {
            received,
            passed,
            filtered,
            denied,
            dropped_source,
            dropped_output,
            bytes,
            lost_before,
            waiting,
            held,
            starved,
            is_final,
            loss_not_recorded
        }),
        layout!(weir_interface { link_type, snaplen }),
        layout!(weir_measure_options {
            size,
            flags,
            keys,
            key_count,
            rows,
            changers,
            sketch,
            design,
            batch,
            memory,
            window_ns,
            late_ns,
            seed,
            geo,
            geo_count,
            reserved,
            columns
        }),
        layout!(weir_tcp {
            conversations,
            midway,
            capacity,
            evicted,
            evicted_retransmitted,
            unjudged,
            rows
        }),
        layout!(weir_tcp_figures {
            packets,
            payload,
            retransmitted,
            retransmitted_bytes,
            fast,
            spurious,
            repeated,
            out_of_order,
            duplicate_acks,
            zero_windows,
            resets,
            gaps,
            untimed,
            rtt_count,
            rtt_min_ns,
            rtt_mean_ns,
            rtt_max_ns
        }),
        layout!(weir_tcp_conversation {
            src,
            dst,
            sport,
            dport,
            first_ns,
            latest_ns,
            handshake_ns,
            begun,
            reserved
        }),
        layout!(weir_dns {
            unasked,
            unread,
            capacity,
            evicted_queries,
            evicted_names,
            evicted_servers,
            servers,
            slow,
            failing,
            unanswered
        }),
        layout!(weir_dns_figures {
            name,
            codes,
            code_count,
            reserved,
            queries,
            retransmitted,
            repeated,
            unanswered,
            time_count,
            median_ns,
            mean_ns,
            max_ns
        }),
        layout!(weir_finding {
            number,
            kind,
            state,
            host,
            begin_ns,
            last_ns,
            figure,
            most,
            unit,
            row
        }),
        layout!(weir_record_options {
            size,
            trigger_count,
            triggers,
            thresholds,
            threshold_count,
            compress,
            keep,
            every_ns,
            ram,
            disk,
            age_ns,
            cutoff,
            segment,
            segment_ns,
            sync_ns,
            reserve,
            saved_size,
            saved_age_ns,
            before_ns,
            after_ns,
            cooldown_ns,
            max_size,
            max_files,
            mode
        }),
    ]
}

/// What the header declares.
#[derive(Debug, Default)]
struct Header {
    constants: Vec<(String, i64)>,
    structs: Vec<(String, Vec<(String, String)>)>,
    functions: Vec<Function>,
}

#[derive(Debug)]
struct Function {
    name: String,
    result: String,
    parameters: Vec<(String, String)>,
}

/// A declaration like `const char *const *names`: its type and its name.
fn declared(text: &str) -> (String, String) {
    let text = text.trim();
    let at = text
        .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .map_or(0, |at| at + 1);
    (text[..at].trim().to_owned(), text[at..].to_owned())
}

fn header() -> Header {
    let text = std::fs::read_to_string(root().join("crates/ffi/include/weir.h")).unwrap();
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n");
    let mut header = Header::default();
    for line in code.lines() {
        if let Some((name, value)) = line
            .strip_prefix("#define ")
            .and_then(|rest| rest.split_once(' '))
        {
            header.constants.push((
                name.to_owned(),
                value.parse().unwrap_or_else(|_| panic!("{name}: {value}")),
            ));
        }
    }
    for part in code.split("typedef struct {").skip(1) {
        let (fields, rest) = part.split_once('}').unwrap();
        let name = rest.split_once(';').unwrap().0.trim().to_owned();
        let fields = fields
            .split(';')
            .map(str::trim)
            .filter(|field| !field.is_empty())
            .map(declared);
        header.structs.push((name, fields.collect()));
    }
    let functions = code
        .split("extern \"C\" {")
        .nth(1)
        .unwrap()
        .split("#ifdef")
        .next()
        .unwrap();
    for function in functions.split(';') {
        let Some((head, parameters)) = function.split_once('(') else {
            continue;
        };
        let (result, name) = declared(
            head.rsplit("__cplusplus\n")
                .next()
                .unwrap()
                .rsplit("#endif")
                .next()
                .unwrap(),
        );
        let parameters = parameters.trim_end().trim_end_matches(')');
        let parameters = parameters
            .split(',')
            .filter(|one| one.trim() != "void")
            .map(declared)
            .collect();
        header.functions.push(Function {
            name,
            result,
            parameters,
        });
    }
    header
}

/// Functions that end within microseconds and call nothing that waits. Java calls them without telling the collector, which waits for them.
const SHORT: [&str; 2] = ["weir_release", "weir_split"];

/// Layout of a type of C in Java.
fn java_layout(kind: &str) -> &'static str {
    match kind {
        _ if kind.contains('*') => "ADDRESS",
        "uint32_t" | "int32_t" | "weir_status" => "JAVA_INT",
        "uint64_t" | "int64_t" | "size_t" | "weir_text" | "weir_source" | "weir_sink"
        | "weir_lease" | "weir_measure" | "weir_record" => "JAVA_LONG",
        "double" => "JAVA_DOUBLE",
        other => panic!("{other}"),
    }
}

fn java() -> String {
    let header = header();
    let mut out = String::from(
        "// Made from include/weir.h: WEIR_WRITE=1 cargo test -p weir-ffi --test languages. Never edited.\npackage weir.ffi;\n\n\
         import static java.lang.foreign.ValueLayout.ADDRESS;\nimport static java.lang.foreign.ValueLayout.JAVA_DOUBLE;\n\
         import static java.lang.foreign.ValueLayout.JAVA_INT;\n\
         import static java.lang.foreign.ValueLayout.JAVA_LONG;\n\nimport java.lang.foreign.FunctionDescriptor;\n\
         import java.lang.foreign.MemoryLayout;\nimport java.lang.foreign.StructLayout;\nimport java.lang.invoke.MethodHandle;\n\n\
         /** Functions, structures and constants of the C library, by their names there. */\npublic final class Native {\n    private Native() {}\n\n",
    );
    for (name, value) in &header.constants {
        writeln!(
            out,
            "    /** {name} of weir.h. */\n    public static final int {name} = {};",
            *value as u32 as i32
        )
        .unwrap();
    }
    for (name, fields) in &header.structs {
        let (_, size, align, offsets) = layouts()
            .into_iter()
            .find(|layout| layout.0 == name)
            .unwrap_or_else(|| panic!("{name}"));
        assert_eq!(
            fields.iter().map(|field| &field.1).collect::<Vec<_>>(),
            offsets.iter().map(|field| field.0).collect::<Vec<_>>(),
            "{name}"
        );
        writeln!(out, "\n    /** Structure {name} of weir.h. */\n    public static final class {name} {{\n        private {name}() {{}}\n").unwrap();
        writeln!(
            out,
            "        /** Its layout. */\n        public static final StructLayout LAYOUT = MemoryLayout.structLayout("
        )
        .unwrap();
        let lines: Vec<String> = fields
            .iter()
            .map(|(kind, field)| format!("            {}.withName(\"{field}\")", java_layout(kind)))
            .collect();
        writeln!(out, "{});", lines.join(",\n")).unwrap();
        for (field, offset) in &offsets {
            // A word of Java's own.
            let field = if *field == "interface" {
                "interface_"
            } else {
                field
            };
            writeln!(
                out,
                "        /** Offset of {field}, bytes. */\n        public static final long {field} = {offset};"
            )
            .unwrap();
        }
        writeln!(out, "\n        static {{\n            Library.check(\"{name}\", LAYOUT, {size}, {align}, new String[] {{{}}}, new long[] {{{}}});\n        }}\n    }}",
            offsets.iter().map(|(field, _)| format!("\"{field}\"")).collect::<Vec<_>>().join(", "),
            offsets.iter().map(|(_, offset)| offset.to_string()).collect::<Vec<_>>().join(", ")).unwrap();
    }
    for Function {
        name,
        result,
        parameters,
    } in &header.functions
    {
        let layouts: Vec<&str> = std::iter::once(&result[..])
            .chain(parameters.iter().map(|(kind, _)| &kind[..]))
            .map(java_layout)
            .collect();
        let named: Vec<String> = parameters
            .iter()
            .map(|(kind, name)| {
                format!("{kind}{}{name}", if kind.ends_with('*') { "" } else { " " })
            })
            .collect();
        writeln!(
            out,
            "\n    /** {{@code {result} {name}({})}} */",
            named.join(", ")
        )
        .unwrap();
        let make = if SHORT.contains(&&name[..]) {
            "shortFunction"
        } else {
            "function"
        };
        writeln!(out, "    public static final MethodHandle {name} =\n        Library.{make}(\"{name}\", FunctionDescriptor.of({}));", layouts.join(", ")).unwrap();
    }
    out.push_str("}\n");
    out
}

/// The same sizes, for a compiler of C.
fn c() -> String {
    let mut out = String::from(
        "/* Made by crates/ffi/tests/languages.rs. */\n#include <stddef.h>\n#include <weir.h>\n",
    );
    for (name, size, align, offsets) in layouts() {
        writeln!(
            out,
            "_Static_assert(sizeof({name}) == {size} && _Alignof({name}) == {align}, \"{name}\");"
        )
        .unwrap();
        for (field, offset) in offsets {
            writeln!(
                out,
                "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");"
            )
            .unwrap();
        }
    }
    out
}

#[test]
fn the_package_for_java_is_made_from_the_header() {
    let path = root().join("bindings/java/src/main/java/weir/ffi/Native.java");
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(&path, java()).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == java(),
        "Native.java is another: WEIR_WRITE=1 cargo test -p weir-ffi --test languages writes it"
    );
}

#[test]
fn structures_lie_in_c_as_in_rust() {
    if !have("structures_lie_in_c_as_in_rust", &["cc"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("layout.c", c().as_bytes());
    let include = root().join("crates/ffi/include");
    let done = std::process::Command::new("cc")
        .args(["-std=c11", "-fsyntax-only", "-I"])
        .arg(include)
        .arg(file)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
