//! leasehold must end with the same exit status or signal as the plain command.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::deviations::ENDS;
use crate::table::{Row, judge};
use crate::tool::{Place, Tool};

/// Names and scripts. In each script, `exec` makes the test the tool's parent.
const SITUATIONS: &[(&str, &str)] = &[
    ("exit code 0", "exec RUN true"),
    ("exit code 1", "exec RUN false"),
    ("exit code 75", "exec RUN sh -c 'exit 75'"),
    ("exit code 255", "exec RUN sh -c 'exit 255'"),
    ("not found", "exec RUN /nowhere/command"),
    ("not found in PATH", "exec RUN no-such-command"),
    ("empty name", "exec RUN ''"),
    ("not executable", "echo > file; exec RUN ./file"),
    ("a directory", "exec RUN /usr"),
    (
        "its interpreter is missing",
        "echo '#!/nowhere' > file; chmod +x file; exec RUN ./file",
    ),
    (
        "a script without #!",
        "echo 'echo $1' > file; chmod +x file; exec RUN ./file argument",
    ),
    (
        "an argument that is too long",
        "exec RUN true $(head -c 200000 /dev/zero | tr '\\0' x)",
    ),
    (
        "large variable",
        "export LARGE=$(head -c 100000 /dev/zero | tr '\\0' x); exec RUN sh -c 'echo ${#LARGE}'",
    ),
    ("ended by TERM", "exec RUN sh -c 'kill -TERM $$'"),
    ("ended by KILL", "exec RUN sh -c 'kill -KILL $$'"),
    ("ended by HUP", "exec RUN sh -c 'kill -HUP $$'"),
    ("ended by INT", "exec RUN sh -c 'kill -INT $$'"),
    (
        "ended by QUIT",
        "ulimit -c 0; exec RUN sh -c 'kill -QUIT $$'",
    ),
    ("ended by PIPE", "exec RUN sh -c 'kill -PIPE $$'"),
    (
        "ended by SEGV",
        "ulimit -c 0; exec RUN sh -c 'kill -SEGV $$'",
    ),
    (
        "exceeds the size of a file",
        "ulimit -c 0; ulimit -f 8; exec RUN dd if=/dev/zero of=big bs=9000 count=1",
    ),
    (
        "exit code after TERM from elsewhere",
        "exec RUN sh -c 'trap \"exit 5\" TERM; kill -TERM $$; sleep 60'",
    ),
    ("reads standard input", "echo word | RUN cat"),
    (
        "reads a part of standard input",
        "printf 'a\\nb\\n' > lines; { RUN sh -c 'read line'; cat; } < lines",
    ),
    (
        "output on a full disk",
        "exec RUN sh -c 'echo x || exit 9' > /dev/full",
    ),
    (
        "output that nobody reads",
        "RUN yes | head -n 1; echo ${PIPESTATUS[0]}",
    ),
    (
        "output through a filter that outlives it",
        "RUN bash -c 'exec > >(sleep 0.5; cat); echo first; echo last' | cat; echo ${PIPESTATUS[0]}",
    ),
    (
        "a failure, and a filter that outlives it",
        "RUN bash -c 'exec > >(sleep 0.5; cat); echo why; exit 3' | cat; echo ${PIPESTATUS[0]}",
    ),
    (
        "a process that stays",
        "export LEASEHOLD_WORKLOAD__LINGER=200ms
         RUN sh -c 'sleep 60 > /dev/null 2>&1 & echo $! > pid'; echo $?
         kill -KILL $(cat pid) 2> /dev/null && echo it runs || echo it was stopped",
    ),
    ("ended by timeout(1)", "exec timeout 0.5 RUN sleep 60"),
    (
        "ended by timeout(1), and exits 0",
        "exec timeout --preserve-status 3 RUN sh -c 'trap \"exit 0\" TERM; sleep 60 & wait'",
    ),
];

pub(crate) fn shown(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("exit code {}", status.code().unwrap()),
    }
}

#[test]
fn a_command_ends_as_the_plain_command_does() {
    let place = Place::new();
    let mut rows = Vec::new();
    for (situation, script) in SITUATIONS {
        let seen = Tool::installed().into_iter().map(|tool| {
            let scene = place.scene(tool);
            let end = shown(scene.bash(script).status().unwrap());
            (tool, end, scene.read("out"))
        });
        let seen: Vec<_> = seen.collect();
        let row = |property: &str, values| Row {
            situation: (*situation).to_owned(),
            property: property.to_owned(),
            values,
        };
        let ends = seen.iter().map(|(tool, end, _)| (*tool, end.clone()));
        rows.push(row("end", ends.collect()));
        let outputs = seen
            .iter()
            .map(|(tool, _, out)| (*tool, format!("{out:?}")));
        rows.push(row("output", outputs.collect()));
    }
    judge(&rows, ENDS);
}
