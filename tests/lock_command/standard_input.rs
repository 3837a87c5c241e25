//! Goal: without a command, leasehold refuses a standard input that is already at end of file,
//! because end of file releases the lock.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use rustix::pipe::{PipeFlags, pipe, pipe_with};

use crate::job::{Job, Place};

/// Asserts that leasehold refuses this input before it acquires the lock.
fn is_refused(place: &Place, lock: &str, input: impl Into<Stdio>) {
    let mut command = place.command(&["lock", lock]);
    command.stdin(input);
    let output = Job::start(command).output();
    output.says(64, "standard input is at its end");
    assert_eq!(output.stdout, "", "no lock is reported as held");
    let listed = place.run(&["locks"]).stdout;
    assert!(!listed.contains(lock), "{listed}");
}

#[test]
fn a_standard_input_at_its_end_is_refused() {
    let place = Place::new();
    is_refused(&place, "null", Stdio::null());
    let file = place.path("uri");
    is_refused(&place, "file", File::open(file).unwrap());
    let (reader, writer) = pipe().unwrap();
    drop(writer);
    is_refused(&place, "closed", reader);
    let (reader, writer) = pipe().unwrap();
    File::from(writer).write_all(b"last words\n").unwrap();
    is_refused(&place, "spent", reader);
    let write_only = File::options().write(true).open("/dev/null").unwrap();
    is_refused(&place, "unreadable", write_only);
}

#[test]
fn a_background_job_of_a_script_is_refused() {
    let place = Place::new();
    let job = place.command(&["lock", "script"]);
    let mut script = Command::new("sh");
    script
        .args(["-c", "\"$@\" & wait $!", "sh"])
        .arg(job.get_program())
        .args(job.get_args())
        .envs(
            job.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = Job::start(script).output();
    output.says(64, "standard input is at its end");
}

#[test]
fn a_non_blocking_pipe_keeps_the_lock() {
    let place = Place::new();
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let mut command = place.command(&["lock", "non-blocking"]);
    command.stdin(reader);
    let mut job = Job::start(command);
    let mut line = String::new();
    let mut output = BufReader::new(job.standard_output());
    output.read_line(&mut line).unwrap();
    assert!(line.contains("non-blocking"), "{line}");
    assert_eq!(place.run_empty("non-blocking", &["--no-wait"]).code, 75);
    drop(writer);
    assert_eq!(job.output().code, 0);
}

/// Runs a script with `bash -m` on a terminal. Returns the job and the terminal's input.
fn on_a_terminal(place: &Place, lines: &str) -> (Job, impl Write + use<>) {
    let environment = place.command(&["lock", "environment"]);
    let environment = environment.get_envs();
    let file = place.path("job.bash");
    std::fs::write(&file, lines).unwrap();
    let mut script = Command::new("script");
    script
        .envs(environment.filter_map(|(name, value)| Some((name, value?))))
        .args(["-qefc", &format!("bash -m {}", file.display()), "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut job = Job::start(script);
    let keyboard = job.input();
    (job, keyboard)
}

/// Waits for a line with this text. Returns all output up to this line.
fn wait_shown(shown: &mut impl BufRead, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let read = shown.read_line(&mut all).unwrap();
        assert!(read > 0, "the output has ended: {all}");
    }
    all
}

fn line(place: &Place, lock: &str) -> String {
    let job = place.command(&["lock", lock]);
    let words = std::iter::once(job.get_program()).chain(job.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.display())).collect();
    words.join(" ")
}

#[test]
fn a_background_job_of_a_terminal_is_refused() {
    let place = Place::new();
    let lines = format!("{} & wait $!; exit $?\n", line(&place, "background"));
    let (job, _keyboard) = on_a_terminal(&place, &lines);
    let output = job.output();
    assert_eq!(output.code, 64, "{output:?}");
    assert!(
        output.stdout.contains("not in the foreground"),
        "{output:?}"
    );
}

#[test]
fn in_the_background_the_job_keeps_the_lock() {
    let place = Place::new();
    let lines = format!(
        "{} --lease-duration=3s\nbg\nwhile [ ! -e {go} ]; do sleep 0.02; done\nfg\n",
        line(&place, "moved"),
        go = place.path("go").display(),
    );
    let (mut job, mut keyboard) = on_a_terminal(&place, &lines);
    let mut shown = BufReader::new(job.standard_output());
    wait_shown(&mut shown, "press Ctrl-D or Ctrl-C");
    keyboard.write_all(b"\x1a").unwrap();
    // A stopped process would have lost the lock within these 6 s.
    let waiter = place.run_empty("moved", &["--wait=6s"]);
    assert_eq!(waiter.code, 75, "{waiter:?}");
    std::fs::write(place.path("go"), "").unwrap();
    keyboard.write_all(b"\x04").unwrap();
    assert_eq!(job.output().code, 0);
}

#[test]
fn in_the_foreground_of_a_terminal_the_output_explains_how_to_release() {
    let place = Place::new();
    for (key, code) in [(b"\x04", 0), (b"\x03", 130)] {
        let (mut job, mut keyboard) = on_a_terminal(&place, &line(&place, "foreground"));
        let mut shown = BufReader::new(job.standard_output());
        let held = wait_shown(&mut shown, "press Ctrl-D or Ctrl-C");
        assert!(
            held.contains("lost if MongoDB does not answer for 18s"),
            "{held}"
        );
        assert!(!held.contains('{'), "a terminal shows JSON: {held}");
        keyboard.write_all(key).unwrap();
        wait_shown(&mut shown, "lock foreground: released");
        assert_eq!(job.output().code, code);
    }
    let kept = format!("{} --at-least=30s", line(&place, "kept"));
    let (mut job, mut keyboard) = on_a_terminal(&place, &kept);
    let mut shown = BufReader::new(job.standard_output());
    wait_shown(&mut shown, "press Ctrl-D or Ctrl-C");
    keyboard.write_all(b"\x04").unwrap();
    wait_shown(&mut shown, "others can acquire it after the minimum hold");
    assert_eq!(job.output().code, 0);
}
