//! Goal: on a terminal, a command behaves like any job: it receives keys and input, and Ctrl-Z
//! stops the job but never the guard. Method: a shell on a pseudo terminal, created by script(1),
//! and simulated keys. The stopped commands are shells that only read a pipe. A shell that waits in
//! `vfork` for a stopped child would not be reported as stopped.

use std::fs::File;
use std::io::Write;
use std::process::{Child, ChildStdin, Command as Process, Stdio};

use leasehold_testbed::assert_contains;
use leasehold_testbed::pid::{exists, parent, state};

use crate::fixture::{Fixture, LONG, STARTS, eventually, millis};
use crate::stand_in::{Plan, command_line, guard, wait_for_gone};

const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";

/// A terminal of script(1). Dropping the terminal causes a hangup.
struct Terminal {
    script: Child,
    keyboard: ChildStdin,
}

impl Terminal {
    /// Runs `lines` in `shell`. `DAEMON` is replaced with the stand-in's command line.
    fn new(fixture: &Fixture, shell: &str, lines: &str, plan: &Plan) -> Self {
        let lines = lines.replace("DAEMON", &command_line());
        let job = fixture.path("job");
        std::fs::write(&job, format!("cd {}\n{lines}", fixture.path("").display())).unwrap();
        let screen = File::create(fixture.path("screen")).unwrap();
        let mut script = Process::new("script")
            .args(["-qefc", &format!("{shell} {}", job.display()), "/dev/null"])
            .envs(plan.environment(fixture))
            .stdin(Stdio::piped())
            .stdout(screen.try_clone().unwrap())
            .stderr(screen)
            .spawn()
            .expect("script(1); on Debian: apt-get install -y bsdutils");
        let keyboard = script.stdin.take().unwrap();
        Self { script, keyboard }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
        self.keyboard.flush().unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Returns a plan whose deadlines are later than the end of any test.
fn plan(script: &'static str) -> Plan {
    Plan::of(script).lasting(LONG, millis(300))
}

fn has_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

#[tokio::test]
async fn ctrl_c_ends_cmd_and_the_daemon_is_notified_of_the_interrupt() {
    let fixture = Fixture::new();
    let plan = plan("echo $$ > pid; exec sleep 60");
    let mut terminal = Terminal::new(&fixture, "bash -m", "DAEMON", &plan);
    let pid = fixture.wait_pid("pid").await;
    terminal.press(CTRL_C);
    let told = wait_for_gone(&fixture).await;
    assert_contains(&told, "Signalled(2), by_us: false, interrupted: true");
    assert!(!exists(pid));
}

#[tokio::test]
async fn cmd_reads_the_terminal() {
    it_reads_the_terminal("DAEMON").await;
}

#[tokio::test]
async fn cmd_in_a_pipeline_gets_the_terminal_when_it_reads_it() {
    it_reads_the_terminal("DAEMON | cat").await;
}

async fn it_reads_the_terminal(lines: &str) {
    let fixture = Fixture::new();
    let plan = plan("read line < /dev/tty; echo \"$line\" > got");
    let mut terminal = Terminal::new(&fixture, "bash -m", lines, &plan);
    guard(&fixture).await;
    terminal.press(b"hello\n");
    wait_for_gone(&fixture).await;
    assert_eq!(fixture.lines("got"), ["hello"]);
}

#[tokio::test]
async fn ctrl_z_stops_the_job_without_the_guard_and_fg_lets_it_go_on() {
    let fixture = Fixture::new();
    let plan = plan("mkfifo go; echo $$ > pid; read line < go; exit 5");
    let lines = "DAEMON
        echo stopped >> journal
        while [ ! -e resume ]; do sleep 0.01; done
        fg
        echo done >> journal";
    let mut terminal = Terminal::new(&fixture, "bash -m", lines, &plan);
    let (pid, guard) = (fixture.wait_pid("pid").await, guard(&fixture).await);
    let daemon = parent(guard);
    terminal.press(CTRL_Z);
    fixture.wait_lines("journal", 1).await;
    assert!(has_stopped(pid), "CMD goes on");
    assert!(has_stopped(daemon), "the daemon continues");
    assert!(!has_stopped(guard), "the guard has stopped");
    std::fs::write(fixture.path("resume"), "").unwrap();
    eventually("CMD continues", || !has_stopped(pid)).await;
    std::fs::write(fixture.path("go"), "go\n").unwrap();
    let told = wait_for_gone(&fixture).await;
    assert_contains(&told, "Exited(5), by_us: false");
    assert_eq!(fixture.wait_lines("journal", 2).await, ["stopped", "done"]);
}

#[tokio::test]
async fn a_job_that_stays_stopped_loses_cmd_at_the_deadline() {
    let fixture = Fixture::new();
    let plan =
        plan("mkfifo go; trap '' TERM; echo $$ > pid; read line < go").lasting(STARTS, millis(300));
    let lines = "DAEMON
        echo stopped >> journal
        while [ ! -e resume ]; do sleep 0.01; done
        fg";
    let mut terminal = Terminal::new(&fixture, "bash -m", lines, &plan);
    let (pid, guard) = (fixture.wait_pid("pid").await, guard(&fixture).await);
    let daemon = parent(guard);
    terminal.press(CTRL_Z);
    fixture.wait_lines("journal", 1).await;
    eventually("CMD is gone", || !exists(pid)).await;
    assert!(has_stopped(daemon), "the daemon has continued");
    std::fs::write(fixture.path("resume"), "").unwrap();
    let told = wait_for_gone(&fixture).await;
    assert_contains(&told, "Signalled(9), by_us: true");
}

#[tokio::test]
async fn the_terminal_comes_back_from_a_command_that_is_gone() {
    let fixture = Fixture::new();
    let plan = plan("exit 0");
    // Without job control, the shell does not take the terminal back.
    let lines = "DAEMON; read line < /dev/tty; echo \"$line\" > got";
    let mut terminal = Terminal::new(&fixture, "sh", lines, &plan);
    wait_for_gone(&fixture).await;
    terminal.press(b"hello\n");
    assert_eq!(fixture.wait_lines("got", 1).await, ["hello"]);
}
