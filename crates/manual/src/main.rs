//! Writes the manual pages and the shell completions of the `weir` command below a directory, as they lie below a prefix:
//! `weir-manual DIR`.
#![forbid(unsafe_code)]

mod roff;

use anyhow::{Context, bail};
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::path::Path;
use weir_command::cli::Cli;
use weir_command::help::{all, page};
use weir_command::topics::TOPICS;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), None) = (arguments.next(), arguments.next()) else {
        bail!("usage: weir-manual DIR");
    };
    write_all(Path::new(&directory))
}

/// Writes all files below `directory`.
fn write_all(directory: &Path) -> anyhow::Result<()> {
    let man1 = directory.join("share/man/man1");
    write(&man1.join("weir.1"), roff::overview().as_bytes())?;
    for names in all() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let page = page(&names).context("a command without a page")?;
        let file = format!("weir-{}.1", names.join("-"));
        write(&man1.join(file), roff::command(&page).as_bytes())?;
    }
    let rules = TOPICS.iter().find(|topic| topic.name == "rules");
    let rules = rules.context("no topic has the rules")?;
    let file = directory.join("share/man/man5/weir-rules.5");
    write(&file, roff::rules(rules.page).as_bytes())?;
    for (shell, file) in [
        (Shell::Bash, "share/bash-completion/completions/weir"),
        (Shell::Zsh, "share/zsh/site-functions/_weir"),
        (Shell::Fish, "share/fish/vendor_completions.d/weir.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "weir", &mut text);
        write(&directory.join(file), &text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().context("the file is in a directory")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use weir_testkit::skipped;

    /// Runs the first of these programs that is installed, and returns what it prints. `None` if there is none.
    fn checked(checkers: &[&[&str]], file: &Path) -> Option<String> {
        checkers.iter().find_map(|checker| {
            let mut command = Command::new(checker[0]);
            let done = command.args(&checker[1..]).arg(file).output().ok()?;
            let said = [done.stdout, done.stderr].concat();
            let code = if done.status.success() {
                ""
            } else {
                "it failed: "
            };
            Some(format!("{code}{}", String::from_utf8_lossy(&said)))
        })
    }

    #[test]
    fn pages_and_completions_are_right_for_their_readers() {
        let temp = std::env::temp_dir().join(format!("weir-manual-{}", std::process::id()));
        write_all(&temp).expect("the directory is new");
        let man: &[&[&str]] = &[
            &["mandoc", "-T", "lint", "-W", "warning"],
            &["groff", "-man", "-ww", "-z", "-Kutf8"],
        ];
        let share = temp.join("share");
        let (mut pages, mut wrong) = (0, String::new());
        for folder in ["man/man1", "man/man5"] {
            for entry in fs::read_dir(share.join(folder)).expect("it was made") {
                let file = entry.expect("it was made").path();
                pages += 1;
                match checked(man, &file) {
                    Some(said) => wrong.push_str(&said),
                    None => skipped("manual", "neither mandoc nor groff is installed"),
                }
                let text = fs::read_to_string(&file).expect("it was made");
                assert!(text.contains(".SH NAME\n"), "{}", file.display());
            }
        }
        assert_eq!(wrong, "");
        assert_eq!(pages, all().len() + 2);
        for (shell, file) in [
            ("bash", "bash-completion/completions/weir"),
            ("zsh", "zsh/site-functions/_weir"),
            ("fish", "fish/vendor_completions.d/weir.fish"),
        ] {
            match checked(&[&[shell, "-n"]], &share.join(file)) {
                Some(said) => assert_eq!(said, "", "{file}"),
                None => skipped("completions", format!("{shell} is not installed")),
            }
            let text = fs::read_to_string(share.join(file)).expect("it was made");
            assert!(
                text.contains("xdp-mode") && text.contains("reload"),
                "{file}"
            );
        }
    }
}
