//! `--script`: a Lua program steers a sender. Its errors are a line with their place, and end the sender.

use crate::support::*;

/// Arguments of a sender that would go on for a minute.
const SENDER: [&str; 7] = [
    "generate",
    "null",
    "--profile",
    "64",
    "--rate",
    "1kpps",
    "--script",
];

#[cfg(not(feature = "lua"))]
#[test]
fn without_lua_the_flag_says_how_to_get_it() {
    let done = weir([&SENDER[..], &["a.lua"]].concat());
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(done.err.contains("make install"), "{}", done.err);
}

#[cfg(feature = "lua")]
mod lua {
    use super::*;
    use crate::capture::net::Net;
    use crate::received::{RELAY, add_end};

    /// Runs the sender with a script.
    fn scripted(text: &[u8]) -> Done {
        let temp = Temp::new();
        let file = temp.file("a.lua", text);
        let done = weir([&SENDER[..], &[&file]].concat());
        Done {
            err: done.err.replace(&file, "a.lua"),
            ..done
        }
    }

    #[test]
    fn errors_have_a_place_and_end_the_sender() {
        for (text, code, line) in [
            ("local x = = 1", 2, "a.lua:1: unexpected symbol near '='"),
            ("\x1bLua", 2, "a.lua: attempt to load a binary chunk"),
            (
                "\nweir.set('rate', 'fast')",
                1,
                "a.lua:2: 'fast' is not a rate",
            ),
            (
                "\n\nweir.set('speed', 2)",
                1,
                "a.lua:3: 'speed' of generated packets cannot be set",
            ),
            ("weir.set('field', 'ipv4.nothing=1')", 1, "a.lua:1: "),
            (
                "local x = 1\nwhile true do x = x + 1 end",
                1,
                "a.lua:2: 10 000 000 instructions without a wait",
            ),
            (
                "local function f() return f() end f()",
                1,
                "a.lua:1: 10 000 000 instructions without a wait",
            ),
            (
                "local t = {}\nfor i = 1, 1e9 do t[i] = 'number ' .. i end",
                1,
                "a.lua:2: not enough memory: a script has 16 MiB",
            ),
            (
                "local s = 'x'\nfor i = 1, 40 do\n  s = s .. s\nend",
                1,
                "a.lua:3: not enough memory: a script has 16 MiB",
            ),
            ("weir.sleep(0.05) error('mine')", 1, "a.lua:1: mine"),
            (
                "weir.sleep(-1)",
                1,
                "a.lua:1: -1 is not a number of seconds",
            ),
            (
                "weir.nothing()",
                1,
                "a.lua:1: attempt to call a nil value (field 'nothing')",
            ),
            ("weir.set({}, 2)", 1, "a.lua:1: "),
            (
                "weir.search('fast', 1, 2)",
                1,
                "a.lua:1: 'fast' is not a goal",
            ),
        ] {
            let done = scripted(text.as_bytes());
            assert_eq!(done.code, Some(code), "{text}: {}", done.err);
            let told: Vec<&str> = done.err.lines().filter(|it| it.contains("a.lua")).collect();
            assert_eq!(told.len(), 1, "{text}: {}", done.err);
            assert!(told[0].contains(line), "{text}: {}", done.err);
        }
        let missing = weir([&SENDER[..], &["/nonexistent.lua"]].concat());
        assert_eq!(missing.code, Some(2), "{}", missing.err);
    }

    /// Nothing leads out of a script, and nothing runs long without an instruction.
    #[test]
    fn only_names_of_control_are_known() {
        let names = "os io package debug coroutine utf8 require load loadstring loadfile dofile pcall xpcall setmetatable getmetatable \
            collectgarbage string.dump string.rep string.find string.gsub string.match table.move";
        let text = format!(
            "print({})\nweir.finish()",
            names.split_whitespace().collect::<Vec<_>>().join(", ")
        );
        let done = scripted(text.as_bytes()).ok();
        let nils = vec!["nil"; names.split_whitespace().count()];
        assert_eq!(done.text(), nils.join("\t") + "\n");
    }

    #[test]
    fn the_program_of_the_documentation_runs() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/ctl.md");
        let page = std::fs::read_to_string(page).unwrap();
        let programs = page.split("```lua\n").skip(1);
        let programs: Vec<&str> = programs.filter_map(|it| it.split("```").next()).collect();
        assert!(!programs.is_empty());
        let temp = Temp::new();
        for program in programs {
            let script = temp.file("a.lua", program.replace("5e6", "2000").as_bytes());
            let words = ["generate", "null", "--profile", "64", "--script", &script];
            let text = weir(words).ok().text();
            assert!(text.starts_with("1000\t"), "{text}");
        }
    }

    #[test]
    fn a_script_steers_from_the_first_packet_on() {
        let test = "a_script_steers_from_the_first_packet_on";
        if !have(test, &["tcpdump"]) {
            return;
        }
        let Some(net) = Net::new(test) else { return };
        let temp = Temp::new();
        let script = "weir.set('field', 'ipv4.ttl=9')\nweir.set('sizes', 100)\nweir.stop()\nweir.sleep(0.05)\n\
            assert(weir.status().sent == 0 and weir.status().stopped)\nweir.set('rate', 4000)\nweir.start()\n\
            while weir.status().sent < 100 do weir.sleep(0.01) end\nweir.stop()\nlocal now = weir.status()\n\
            print(now.sent, now.bytes, now.rate, now.refused)\nweir.finish()\nprint('not printed')\n";
        let (file, out) = (temp.file("a.lua", script.as_bytes()), temp.at("out.pcap"));
        let judge = net.judge(&out);
        let words = [
            "generate",
            "af_packet:near",
            "--profile",
            "64",
            "--rate",
            "1pps",
        ];
        let done = net.weir(&[&words[..], &["--script", &file]].concat()).ok();
        let text = done.text();
        let told: Vec<&str> = text.split_whitespace().collect();
        let sent: usize = told[0].parse().unwrap();
        assert_eq!(told[1..], [&(sent * 100).to_string(), "4000pps", "0"]);
        assert!(sent >= 100, "{sent}");
        weir_testkit::wait::until("all packets", || {
            std::fs::metadata(&out).is_ok_and(|it| it.len() == 24 + 116 * sent as u64)
        });
        judge.stop();
        assert!(records(&out).iter().all(|it| it.data[22] == 9));
    }

    /// Every other packet is for a port that is stopped.
    #[test]
    fn a_script_stops_one_of_two_ports() {
        let temp = Temp::new();
        let packets = (0..1000).map(|number| pcap_record(1, &udp(53 + number % 2, 18)));
        let packets = [pcap_header(65_535, 1)].into_iter().chain(packets);
        let file = temp.file("in.pcap", &packets.collect::<Vec<_>>().concat());
        let script = "assert(#weir.status().ports == 2)\nweir.stop('2')\n\
            while weir.status().sent < 50 do weir.sleep(0.01) end\nweir.stop()\nlocal ports = weir.status().ports\n\
            print(ports[1].sent - ports[2].left_out, ports[2].sent, ports[2].stopped, ports[1].name)\nweir.start(2)\nweir.start()\n\
            while weir.status().ports[2].sent < 50 do weir.sleep(0.01) end\nweir.finish()\n";
        let script = temp.file("a.lua", script.as_bytes());
        let words = [
            "replay", &file, "--to", "null", "--to2", "null", "--script", &script,
        ];
        let more = ["--split-by", "dst port 54", "--rate", "2kpps", "--loop"];
        let done = weir([&words[..], &more].concat()).ok();
        let text = done.text();
        let told: Vec<&str> = text.split_whitespace().collect();
        assert!(matches!(told[0], "0" | "1"), "{text}");
        assert_eq!(told[1..], ["0", "true", "null"]);
    }

    #[test]
    fn a_script_steps_a_search() {
        let test = "a_script_steps_a_search";
        if !have(test, &["python3"]) {
            return;
        }
        let Some(net) = Net::new(test) else { return };
        add_end(&net);
        let temp = Temp::new();
        let script = "local search = weir.search('ndr,width=20%,initial=200ms,final=200ms,sum=200ms', 100, 6000)\n\
            for load, seconds in search.next, search do\n  weir.set('rate', load)\n  local before = weir.status().received\n  weir.start()\n\
            weir.sleep(seconds)\n  weir.stop()\n  weir.sleep(0.2)\n  search:tell(weir.status().received - before)\nend\n\
            print(search:bounds())\nweir.finish()\n";
        let file = temp.file("a.lua", script.as_bytes());
        let relay = net.start_at("far", &["python3", "-c", RELAY, "0", "2000"], "ready");
        let end = format!("netns:{}/end", net.name("far"));
        let words = [
            "generate",
            "af_packet:near",
            "--profile",
            "64",
            "--rate",
            "1kpps",
        ];
        let more = ["--gaps", "even", "--receive", &end, "--script", &file];
        let done = net.weir(&[&words[..], &more].concat());
        relay.stop();
        let text = done.text();
        let bounds: Vec<f64> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|it| it.parse().unwrap_or_default())
            .collect();
        assert_eq!(bounds.len(), 2, "{text}{}", done.err);
        assert!((1000.0..2400.0).contains(&bounds[0]), "{text}");
        assert!(
            bounds[0] < bounds[1] && bounds[1] <= bounds[0] / 0.79,
            "{text}"
        );
    }
}
