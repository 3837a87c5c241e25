//! On a machine where the guard cannot work, leasehold must exit with an error before it acquires a
//! lease or lock.

use std::process::Command;

use leasehold_testbed::skip;
use rustix::process::getuid;

use crate::tool::{Place, Scene, Tool};

/// Runs its arguments under a seccomp filter that denies pidfd_open(2), as old container profiles
/// do.
const WITHOUT_PIDFD: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
# Load the number of the call; if it is 434, fail with EPERM; allow the others.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 434), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HL", len(code), ctypes.addressof(filters)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
"#;

/// Returns wrappers, each of which removes one prerequisite of the guard.
fn stages() -> Vec<(&'static str, String)> {
    let mut stages = vec![("pidfd_open", format!("python3 -c '{WITHOUT_PIDFD}' "))];
    match getuid().is_root() {
        true => stages.push((
            "/proc/self",
            "unshare --mount sh -c 'mount -t tmpfs none /proc && exec \"$@\"' sh ".to_owned(),
        )),
        false => skip("only root may hide /proc"),
    }
    stages
}

fn refused(scene: &Scene<'_>, stage: &str, line: &str) -> (Option<i32>, String) {
    let mut bash = scene.bash(&format!("exec {stage}{line}"));
    let status = bash.status().unwrap();
    (status.code(), scene.read("out") + &scene.read("err"))
}

#[test]
fn a_command_that_cannot_be_guarded_is_refused_before_the_acquisition() {
    let place = Place::new();
    for (missing, stage) in stages() {
        for tool in [Tool::Run, Tool::Lock, Tool::Hook] {
            let scene = place.scene(tool);
            let (code, said) = refused(&scene, &stage, "RUN touch ran");
            assert_eq!(code, Some(71), "{missing}, {tool:?}: {said}");
            assert!(said.contains("cannot run a command here: "), "{said}");
            assert!(said.contains(missing), "{missing}: {said}");
            assert!(!scene.path("ran").exists(), "{missing}, {tool:?}");
        }
        let scene = place.scene(Tool::Lock);
        let line = scene.operators(&["check", "--lease=checked"]);
        let (code, said) = refused(&scene, &stage, &line);
        assert_eq!(code, Some(2), "{said}");
        let line = said.lines().find(|line| line.contains("guard"));
        assert!(line.is_some_and(|line| line.contains(missing)), "{said}");
    }
    // The failed runs must not have created a lock or lease.
    for words in [&["locks"][..], &["leases"]] {
        let scene = place.scene(Tool::Lock);
        let listed = Command::new("bash")
            .args(["-c", &scene.operators(words)])
            .output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        assert!(!listed.contains("scene-"), "{listed}");
    }
}
