//! Settings, sources, pointers and handles that are refused.

use super::*;

#[test]
fn wrong_settings_and_sources_are_refused_with_the_lines_of_the_command() {
    let test = "wrong_settings_and_sources_are_refused_with_the_lines_of_the_command";
    let Some(command) = command(test) else { return };
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(&made(7, 100)));
    let gone = scratch.at("gone.pcap");
    let (base, shared) = (measure_options(), WEIR_SEED | WEIR_SHARED);
    let wrong = weir_options {
        filter: c"prot 53".as_ptr(),
        ..options()
    };
    let little = weir_measure_options { memory: 16, ..base };
    let late = weir_measure_options {
        window_ns: 1_000_000,
        late_ns: SECOND,
        ..base
    };
    let cases = [
        (&file[..], options(), little, "--memory 16"),
        (
            &file,
            options(),
            weir_measure_options {
                flags: shared,
                ..base
            },
            "--state shared",
        ),
        (&file, options(), late, "--window 1ms --late 1s"),
        (&file, wrong, base, "--filter prot\u{a0}53"),
        (&gone, options(), base, "--top 10"),
        (
            "-",
            options(),
            weir_measure_options {
                design: WEIR_RSS,
                ..base
            },
            "--design rss",
        ),
        ("", options(), base, "--top 10"),
        ("af_packet:", options(), base, "--top 10"),
    ];
    for (name, of, measure, flags) in cases {
        let flags: Vec<String> = flags
            .split(' ')
            .map(|flag| flag.replace('\u{a0}', " "))
            .collect();
        let arguments: Vec<&str> = [name]
            .into_iter()
            .chain(flags.iter().map(String::as_str))
            .collect();
        let (_, said, code) = printed(&command, &arguments);
        let (status, line) = open_with(&[name], &[], of, measure).unwrap_err();
        // The command looks at names before it opens them, and adds a remedy.
        let begins = said.starts_with(&format!("weir: {line}"));
        assert!(begins, "{line}\n{said}");
        assert_eq!(
            status,
            if code == Some(2) {
                WEIR_REFUSED
            } else {
                WEIR_FAILED
            },
            "{line}"
        );
    }
    let refused = |keys: &[&str], of, measure| open_with(&[&file], keys, of, measure).unwrap_err();
    let (status, line) = refused(&["src", "sorce"], options(), base);
    assert!(
        status == WEIR_REFUSED && line.starts_with("unknown key 'sorce'"),
        "{line}"
    );
    for (of, measure, why) in [
        (
            options(),
            weir_measure_options {
                flags: 2048,
                ..base
            },
            "weir_measure_options.flags is 0x800, which is unknown",
        ),
        (
            options(),
            weir_measure_options {
                flags: WEIR_BY_PEERS | WEIR_BY_PORTS,
                ..base
            },
            "weir_measure_options.flags has several of WEIR_BY_BYTES, WEIR_BY_PEERS, WEIR_BY_PORTS and WEIR_BY_CONTACTS: choose one",
        ),
        (
            options(),
            weir_measure_options {
                flags: WEIR_BY_PEERS,
                ..base
            },
            "--key 5tuple cannot be ranked with --by peers: it has one peer and one port: use the key src, dst or pair",
        ),
        (
            options(),
            weir_measure_options { sketch: 9, ..base },
            "weir_measure_options.sketch is 0x9, which is unknown",
        ),
        (
            options(),
            weir_measure_options { design: 9, ..base },
            "weir_measure_options.design is 0x9, which is unknown",
        ),
        (
            weir_options {
                limit: 5,
                ..options()
            },
            base,
            "limit: a measurement has none: leave it out",
        ),
        (
            weir_options {
                flags: WEIR_INVERT,
                ..options()
            },
            base,
            "invert: a measurement has none: leave it out",
        ),
        (
            weir_options {
                rules: c"default pass".as_ptr(),
                ..options()
            },
            base,
            "rules: a measurement has none: leave it out",
        ),
    ] {
        assert_eq!(refused(&[], of, measure), (WEIR_REFUSED, why.to_owned()));
    }
    let (status, line) = refused(&[], options(), weir_measure_options { size: 8, ..base });
    assert!(
        status == WEIR_SIZE && line.starts_with("weir_measure_options has 8 bytes"),
        "{line}"
    );
}

#[test]
fn pointers_and_handles_that_lead_nowhere_are_refused() {
    let scratch = Scratch::new();
    let file = CString::new(scratch.file("a.pcap", &capture(&made(8, 100)))).unwrap();
    let (mut measure, mut text, mut error) = (0, 0, 0);
    // SAFETY: all pointers lead to texts and variables, or are NULL.
    unsafe {
        let name = file.as_ptr();
        assert_eq!(
            weir_measure_open(null(), 1, null(), null(), &mut measure, &mut error),
            WEIR_NULL
        );
        assert_eq!(line(error), "names is NULL");
        assert_eq!(
            weir_measure_open(&name, 1, null(), null(), null_mut(), &mut error),
            WEIR_NULL
        );
        assert_eq!(line(error), "measure is NULL");
        assert_eq!(
            weir_measure_open(&name, 0, null(), null(), &mut measure, &mut error),
            WEIR_REFUSED
        );
        assert_eq!(line(error), "there is no name of a source");
        let keys = weir_measure_options {
            key_count: 1,
            ..measure_options()
        };
        assert_eq!(
            weir_measure_open(&name, 1, null(), &keys, &mut measure, &mut error),
            WEIR_NULL
        );
        assert_eq!(line(error), "weir_measure_options.keys is NULL");
        let keys = weir_measure_options {
            keys: &null(),
            ..keys
        };
        assert_eq!(
            weir_measure_open(&name, 1, null(), &keys, &mut measure, &mut error),
            WEIR_NULL
        );
        assert_eq!(
            (line(error), measure),
            ("weir_measure_options.keys[0] is NULL".to_owned(), 0)
        );
        assert_eq!(
            weir_measure_open(&name, 1, null(), null(), &mut measure, null_mut()),
            WEIR_OK
        );
        assert_eq!(
            weir_measure_next(measure, 0, null_mut(), null_mut(), null_mut()),
            WEIR_NULL
        );
        assert_eq!(weir_measure_remarks(measure, null_mut()), WEIR_NULL);
        assert_eq!(
            weir_measure_next(measure, 20 * SECOND, &mut text, null_mut(), null_mut()),
            WEIR_OK
        );
        // A handle of another kind is none of this one.
        assert_eq!(
            (weir_measure_stop(text), weir_stop(measure)),
            (WEIR_CLOSED, WEIR_CLOSED)
        );
        assert_eq!(weir_text_free(text), WEIR_OK);
        assert_eq!(weir_measure_remarks(measure, &mut text), WEIR_NOTHING);
        assert_eq!(
            (weir_measure_stop(measure), weir_measure_close(measure)),
            (WEIR_OK, WEIR_OK)
        );
        assert_eq!(
            weir_measure_next(measure, 0, &mut text, null_mut(), null_mut()),
            WEIR_CLOSED
        );
        assert_eq!(
            (
                weir_measure_stop(measure),
                weir_measure_remarks(measure, &mut text)
            ),
            (WEIR_CLOSED, WEIR_CLOSED)
        );
    }
}

#[test]
fn a_child_of_a_fork_is_refused_the_measurement_of_its_parent() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(&made(9, 100)));
    let measure = open_with(&[&file], &[], options(), measure_options()).unwrap();
    // SAFETY: the child calls the library and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused =
            weir_measure_stop(measure) == WEIR_FORKED && weir_measure_close(measure) == WEIR_FORKED;
        // SAFETY: nothing of the parent is ended.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: it leads to a number.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(answers(measure).0.lines().count(), 1);
}
