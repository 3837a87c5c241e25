use std::collections::BTreeMap;

use super::*;

fn parsed(arguments: &[&str]) -> Result<Invocation, UsageError> {
    let arguments = [&["leasehold"], arguments].concat();
    parse(arguments.into_iter().map(OsString::from))
}

#[test]
fn the_commands_pass_claps_own_checks() {
    command().debug_assert();
}

#[test]
fn short_flags_set_the_keys() {
    let Ok(Invocation::Run(run)) = parsed(&["run", "--lease", "orders", "--identity=me"]) else {
        panic!("a valid command line");
    };
    let flags = run.configuration.sources.flags.iter();
    let flags: Vec<_> = flags
        .map(|(key, value)| (key.path(), value.as_str()))
        .collect();
    let expected = [("lease.name", "orders"), ("identity.name", "me")];
    assert_eq!(flags, expected.map(|(key, value)| (key.to_owned(), value)));
}

#[test]
fn a_command_is_everything_after_two_dashes() {
    let Ok(Invocation::Run(run)) = parsed(&["run", "--", "sleep", "--config", "--"]) else {
        panic!("a valid command line");
    };
    assert_eq!(run.command, ["sleep", "--config", "--"]);
    assert!(run.configuration.sources.files.is_empty());
}

#[test]
fn commands_that_start_often_are_built_alone_and_parsed_alike() {
    for line in [
        "run --lease orders --config=a.toml --log-level=debug -- sleep --lease 3",
        "guard --socket=/s -- sleep --socket 3",
        "lock jobs -n -E 3 --at-least=5s --once-per=1h --key=k -- a --wait",
        "lock --lock=jobs --slots=3 --wait 30 --log-level=debug --report-exit-code",
        "status orders --output=json",
    ] {
        let words = ["leasehold"].into_iter().chain(line.split(' '));
        let line: Vec<_> = words.map(OsString::from).collect();
        let only = one_only(&line).expect("a command that starts often");
        assert_eq!(only.get_subcommands().count(), 1);
        let read = |command: Command| {
            let mut matches = command.try_get_matches_from(&line).expect("valid");
            let line = CommandLine::from_arg_matches_mut(&mut matches);
            format!("{:?}", line.expect("as declared"))
        };
        assert_eq!(read(only), read(CommandLine::command()));
    }
    assert!(one_only(&["leasehold", "leases", "lock"].map(OsString::from)).is_none());
}

#[test]
fn leases_and_locks_are_named_by_an_argument_or_a_flag() {
    for (command, flags) in [
        (&["lock"][..], &["--lock"][..]),
        (&["lock", "--no-wait"], &["--lock"]),
        (&["locks", "break"], &["--lock"]),
        (&["describe"], &["--lease", "--lock"]),
        (&["leases", "retire"], &["--lease"]),
        (&["step-down"], &["--lease"]),
        (&["transfer", "--to=b"], &["--lease"]),
        (&["pause"], &["--lease"]),
        (&["resume"], &["--lease"]),
        (&["cancel"], &["--lease"]),
        (&["repair", "--token-at-least=1"], &["--lease"]),
        (&["status"], &["--lease"]),
        (&["check"], &["--lease"]),
    ] {
        for flag in flags {
            for name in [&["jobs"][..], &[flag, "jobs"]] {
                let parsed = parsed(&[command, name].concat());
                assert!(parsed.is_ok(), "{command:?} {name:?}");
            }
        }
        let both = parsed(&[command, &["jobs", flags[0], "jobs"]].concat());
        assert_eq!(
            both.expect_err("one of them").code(),
            exit::USAGE,
            "{command:?}"
        );
        let other = ["--lease", "--lock"]
            .into_iter()
            .find(|it| !flags.contains(it));
        if let Some(other) = other {
            let other = parsed(&[command, &[other, "jobs"]].concat());
            assert_eq!(
                other.expect_err("not its flag").code(),
                exit::USAGE,
                "{command:?}"
            );
        }
    }
    let job = ["lock", "--lock", "jobs", "--", "true"];
    let Ok(Invocation::Lock(lock)) = parsed(&job) else {
        panic!("a valid command line");
    };
    assert_eq!(lock.lock().as_str(), "jobs");
}

#[test]
fn status_has_a_directory_or_a_lease() {
    let legal: [&[&str]; 3] = [
        &["status", "--lease", "orders", "--output", "json", "--watch"],
        &["status", "orders", "-o", "json"],
        &["status", "-ojson", "--lease", "orders"],
    ];
    for arguments in legal {
        let Ok(Invocation::Status(status)) = parsed(arguments) else {
            panic!("{arguments:?} is valid");
        };
        assert_eq!(
            (status.lease(), status.output.json()),
            (Some("orders"), true)
        );
        assert_eq!(status.watch, arguments.contains(&"--watch"));
    }
    let both = parsed(&["status", "--lease", "a", "b"]);
    assert_eq!(both.expect_err("one of them").code(), exit::USAGE);
    assert!(parsed(&["status", "a", "--status-directory", "b"]).is_ok());
    assert!(parsed(&["run", "--directory", "b"]).is_ok());
}

#[test]
fn tips_name_the_probable_flag_or_the_dashes() {
    let said = |arguments: &[&str]| {
        let stop = parsed(arguments).expect_err("not legal");
        stop.error.render().to_string()
    };
    for (flag, meant) in [
        ("--uri", "'--mongodb-uri'"),
        ("--uri-file", "'--mongodb-uri-file'"),
        ("--listen", "'--http-listen'"),
    ] {
        let text = said(&["run", "--lease", "orders", flag, "x"]);
        assert!(text.contains(meant), "{flag}: {text}");
        assert!(!text.contains("-- --"), "{flag}: {text}");
    }
    let text = said(&["run", "--lease", "orders", "--gadget", "x"]);
    assert!(!text.contains("-- --"), "{text}");
    let text = said(&["run", "--lease", "orders", "./cmd"]);
    assert!(text.contains("put '--' before it: -- ./cmd"), "{text}");
    assert!(!text.contains("to name the lease"), "{text}");
    for arguments in [
        &["check", "--timeout", "-5s"][..],
        &["leases", "--timeout", "-5s"],
    ] {
        let text = said(arguments);
        assert!(
            text.contains("'-5s'") && text.contains("expected a duration"),
            "{text}"
        );
    }
    let text = said(&["run", "--lease=orders", "./cmd"]);
    assert!(!text.contains("to name the lease"), "{text}");
    let text = said(&["run", "orders", "--", "./cmd"]);
    assert!(text.contains("to name the lease: --lease orders"), "{text}");
    assert!(!text.contains("put '--'"), "{text}");
    for (arguments, tip) in [
        (&["leases", "orders"][..], "leasehold describe orders"),
        (&["locks", "orders"], "leasehold describe orders"),
        (&["locks", "--name", "orders"], "leasehold describe NAME"),
        (&["lease"], "a similar command exists: 'leases'"),
        (
            &["locks", "brake", "jobs"],
            "similar command exists: 'break'",
        ),
        (
            &["locks", "help", "brek"],
            "similar command exists: 'break'",
        ),
        (&["leases", "watch"], "an option has this name: '--watch'"),
        (
            &["lock", "x", "--lease", "demo", "--", "true"],
            "lock takes a lock: NAME or --lock NAME\n",
        ),
        (
            &["step-down", "--lock", "jobs"],
            "step-down takes a lease: NAME or --lease NAME\n",
        ),
        (
            &["locks", "break", "--lease", "jobs"],
            "break takes a lock: NAME or --lock NAME\n",
        ),
        (
            &["run", "--name", "me"],
            "run takes a lease: --lease NAME; to name the candidate: --identity NAME\n",
        ),
        (
            &["replicas", "a:1", "--lock", "jobs"],
            "replicas takes a lease: NAME or --lease NAME\n",
        ),
        (&["retire", "orders"], "leasehold leases retire"),
        (&["list"], "leasehold leases, leasehold locks"),
        (&["unlock", "jobs"], "leasehold locks break"),
        (
            &["describe"],
            "leasehold leases and leasehold locks list the names",
        ),
        (&["pause"], "leasehold leases lists the leases"),
        (&["locks", "break"], "leasehold locks lists the locks"),
        (&["transfer", "orders"], "--candidates lists the candidates"),
        (&["transfer", "orders", "pod-2"], "--to pod-2"),
        (
            &["step-down", "orders", "--wait", "5s"],
            "--timeout DURATION",
        ),
        (&["locks", "break", "jobs", "--yes"], "belongs to --force"),
        (
            &["locks", "--all", "--unused-for", "3d"],
            "--unused-for belongs to: leasehold locks prune\n",
        ),
        (
            &["locks", "prune", "--unused-for=3d", "--force"],
            "--force belongs to: leasehold locks break\n",
        ),
    ] {
        let text = said(arguments);
        assert!(text.contains(tip), "{arguments:?}: {text}");
        assert_eq!(text.matches("tip").count(), 1, "{arguments:?}: {text}");
    }
    let text = said(&["lock", "x", "--lease", "demo", "--", "true"]);
    let usage = "Usage: leasehold lock [OPTIONS] <NAME|--lock <NAME>> [-- <CMD>...]\n";
    assert!(text.contains(usage), "{text}");
    for flag in ["--wait", "-w", "--timeout", "--once-per", "--slots"] {
        let text = said(&["lock", "x", flag, "--", "true"]);
        let required = "a value is required for '";
        assert!(text.contains(required), "{flag}: {text}");
        assert!(!text.contains("unexpected"), "{flag}: {text}");
    }
    let text = said(&["lock", "x", "--"]);
    assert!(text.contains("Usage: leasehold lock"), "{text}");
    // A value that begins with a dash does not get the tip for a command.
    let text = said(&["lock", "jobs", "-w", "-1", "--", "true"]);
    assert!(text.contains("invalid value '-1' for '--wait"), "{text}");
    let text = said(&["lock", "jobs", "-w", "-1s", "--", "true"]);
    assert!(text.contains("invalid value '-1s' for '--wait"), "{text}");
    let text = said(&["leases", "--timeout", "-1s"]);
    assert!(
        text.contains("invalid value '-1s' for '--timeout <DURATION>': expected a duration"),
        "{text}"
    );
}

#[test]
fn the_commands_that_hold_nothing_do_not_offer_an_identity() {
    let mut hidden = 0;
    each_command(&mut command(), "leasehold", &mut |command, path| {
        let mut arguments = command.get_arguments();
        if let Some(identity) = arguments.find(|it| it.get_id() == "identity.name") {
            let is_hidden = identity.is_hide_set();
            assert_eq!(is_hidden, path.starts_with("leasehold locks"), "{path}");
            hidden += usize::from(is_hidden);
        }
    });
    assert_eq!(hidden, 3);
    assert!(parsed(&["locks", "--identity", "me"]).is_ok());
}

/// Calls `examine` with each command and its name, such as "locks break".
fn each_command(command: &mut Command, path: &str, examine: &mut dyn FnMut(&mut Command, &str)) {
    examine(command, path);
    // clap adds its own subcommand `help` when a help text is rendered.
    let subcommands = command.get_subcommands_mut();
    for subcommand in subcommands.filter(|found| found.get_name() != "help") {
        let path = format!("{path} {}", subcommand.get_name());
        each_command(subcommand, &path, examine);
    }
}

#[test]
fn a_letter_means_the_same_in_every_command() {
    let mut meanings = BTreeMap::new();
    each_command(&mut command(), "leasehold", &mut |command, path| {
        for argument in command.get_arguments() {
            let long = argument.get_long().map(str::to_owned);
            let aliases = argument.get_all_short_aliases().into_iter().flatten();
            for letter in argument.get_short().into_iter().chain(aliases) {
                let meaning = (long.clone(), argument.get_action().takes_values());
                let (known, first) = meanings
                    .entry(letter)
                    .or_insert_with(|| (meaning.clone(), path.to_owned()));
                assert_eq!(*known, meaning, "-{letter} of {first} and {path}");
            }
        }
    });
    let letters: String = meanings.into_keys().collect();
    assert_eq!(letters, "Eaenoqsvwx");
}

#[test]
fn the_short_help_of_every_command_fits_on_a_screen() {
    /// Rows of a terminal, except for the prompt's row.
    const ROWS: usize = 40;
    let mut commands = 0;
    each_command(&mut command(), "leasehold", &mut |command, path| {
        let help = command.render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= WIDTH_MAX, "{path}: {line}");
            // clap continues a description far to the right if it does not fit next to its flag.
            assert!(!line.starts_with(&" ".repeat(11)), "{path}: {line}");
        }
        assert!(help.lines().count() <= ROWS, "{path}: {help}");
        let pointer = format!("{path} --help");
        let last = help.trim_end().lines().last().unwrap_or_default();
        assert!(last.contains(&pointer), "{path}: {last}");
        commands += 1;
    });
    assert!(commands >= 21, "{commands}");
}

#[test]
fn the_help_fits_and_keeps_its_examples() {
    let mut texts = Vec::new();
    each_command(
        &mut CommandLine::command(),
        "leasehold",
        &mut |command, path| {
            let text = command.get_after_help().map(ToString::to_string);
            texts.push((path.to_owned(), text.unwrap_or_default()));
        },
    );
    let mut texts = texts.into_iter();
    each_command(&mut command(), "leasehold", &mut |command, path| {
        let help = command.render_long_help().to_string();
        let itself = format!("All options: {path} --help");
        assert!(!help.contains(&itself), "{path}: {help}");
        for line in help.lines() {
            assert!(line.chars().count() <= WIDTH_MAX, "{path}: {line}");
        }
        let blocks = help
            .split("\n\n")
            .filter_map(|block| block.strip_prefix("Examples:\n"));
        for line in blocks.flat_map(str::lines) {
            assert!(line.starts_with("  "), "{path}: {line}");
        }
        let (same, text) = texts.next().expect("equal command trees");
        assert_eq!(same, path);
        for example in text
            .lines()
            .filter(|line| line.starts_with("  ") && !line.starts_with("    "))
        {
            let check = example.split_once("leasehold check ");
            let named = check.is_none_or(|(_, words)| words.contains("orders"));
            assert!(named, "no lease: {example}");
            assert!(
                help.lines().any(|line| line == example),
                "{path}: {example}\n{help}"
            );
        }
    });
}

#[test]
fn a_narrow_terminal_keeps_the_indentation() {
    let mut narrow = arranged(CommandLine::command(), 50);
    let lock = narrow.find_subcommand_mut("lock").expect("it is there");
    let help = lock.render_long_help().to_string();
    let minutely = "  leasehold lock minutely -n --at-least 55s --\n      ./sync\n      from cron on every host: once a minute,\n      whatever their clocks say\n";
    assert!(help.contains(minutely), "{help}");
}

#[test]
fn every_subcommand_is_listed_once_with_its_group() {
    let help = command().render_help().to_string();
    for subcommand in command().get_subcommands() {
        let line = format!("\n  {} ", subcommand.get_name());
        assert_eq!(help.matches(&line).count(), 1, "{line}: {help}");
    }
    let at = |text: &str| {
        help.find(text)
            .unwrap_or_else(|| panic!("no {text}: {help}"))
    };
    let order = [
        "Workloads and jobs:",
        "\n  lock ",
        "for operators:",
        "\n  describe ",
        "Setup:",
        "\n  install ",
        "Options:",
    ];
    assert!(order.map(at).is_sorted(), "{help}");
}

#[test]
fn the_short_help_has_the_flags_for_the_first_setup() {
    let mut commands = command();
    let run = commands.find_subcommand_mut("run").expect("it is there");
    let (short, long) = (
        run.render_help().to_string(),
        run.render_long_help().to_string(),
    );
    for flag in ["--lease <NAME>", "--mongodb-uri-file", "--http-listen"] {
        assert!(short.contains(flag) && long.contains(flag), "{flag}");
    }
    assert!(!short.contains("--hooks-on-lead") && long.contains("--hooks-on-lead"));
}

#[test]
fn connection_strings_are_masked_in_usage_errors() {
    let uri = "mongodb://user:hunter2@host";
    for arguments in [
        vec!["run", uri],
        vec!["run", "--mongodb-url", uri],
        vec!["run", "--mongodb-url=mongodb://user:hunter2@host"],
        vec!["status", "--output", uri],
        vec!["status", "--output=mongodb://user:hunter2@host"],
        vec!["status", "--watch=mongodb://user:hunter2@host"],
        vec!["config", "--log-level", "info", "user:hunter2@host"],
        vec![uri],
    ] {
        let stop = parsed(&arguments).expect_err("not legal");
        for color in [true, false] {
            let shown = stop.text(color);
            assert!(!shown.contains("hunter2"), "{arguments:?}: {shown}");
        }
        let shown = stop.text(false);
        assert!(shown.starts_with("leasehold: "), "{shown}");
        assert_eq!(stop.code(), exit::USAGE, "{arguments:?}");
    }
}

#[test]
fn a_flag_without_effect_is_refused() {
    for (arguments, flag) in [
        (
            &["lock", "a", "--workload-stop-signal", "INT"][..],
            "--workload-stop-signal",
        ),
        (
            &["run", "--workload-stop-signal", "INT"],
            "--workload-stop-signal",
        ),
        (
            &["run", "--lease-handoff-delay", "1s", "--", "true"],
            "--lease-handoff-delay",
        ),
        (
            &["run", "--workload-ends-first", "--", "true"],
            "--workload-ends-first",
        ),
        (&["locks", "--identity-address", "a"], "--identity-address"),
        (&["lock", "a", "--mongodb-watch", "poll"], "--mongodb-watch"),
        (&["locks", "--mongodb-watch", "poll"], "--mongodb-watch"),
        (&["leases", "--mongodb-watch", "poll"], "--mongodb-watch"),
        (
            &["pause", "a", "--mongodb-watch", "poll"],
            "--mongodb-watch",
        ),
        (&["web", "--mongodb-watch", "poll"], "--mongodb-watch"),
        (
            &["locks", "break", "a", "--identity-address", "a"],
            "--identity-address",
        ),
    ] {
        let Err(stop) = parsed(arguments) else {
            panic!("{arguments:?} is taken");
        };
        let text = stop.error.to_string();
        assert!(text.contains(flag), "{arguments:?}: {text}");
    }
    for legal in [
        &["locks", "-o", "json"][..],
        &["locks", "--output=json", "prune", "--unused-for", "30d"],
        &["lock", "a", "--workload-stop-signal", "INT", "--", "true"],
        &["run", "--lease-handoff-delay", "1s"],
        &["run", "--workload-ends-first"],
    ] {
        assert!(parsed(legal).is_ok(), "{legal:?}");
    }
}

#[test]
fn the_help_of_locks_does_not_mention_leadership() {
    let mut root = command();
    root.build();
    for path in [&["lock"][..], &["locks"], &["locks", "break"]] {
        let mut of = &mut root;
        for name in path {
            of = of.find_subcommand_mut(name).expect("a subcommand");
        }
        let help = of.render_long_help().to_string();
        assert_eq!(help.contains("--identity <"), path == ["lock"], "{help}");
        for word in ["leader", "candidate", "step-down", "supervised"] {
            assert!(!help.contains(word), "{word}: {help}");
        }
    }
}
