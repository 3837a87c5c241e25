//! Detects a missing interpreter of a script, and a missing loader of an ELF program. Reports only
//! programs that execve(2) certainly refuses with ENOENT.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Number of bytes at the start of a file that the kernel reads to recognize its format
/// (BINPRM_BUF_SIZE).
const HEAD_LENGTH: usize = 256;
const HEADERS_MAX: usize = 64 * 1024;
const PATH_LENGTH_MAX: usize = 4096;

/// Returns the interpreter or loader that `program` names, if that file does not exist.
pub(super) fn missing(program: &Path) -> Option<PathBuf> {
    missing_with(program, &Handlers::of_kernel())
}

fn missing_with(program: &Path, handlers: &Handlers) -> Option<PathBuf> {
    // Opening a pipe would block.
    fs::metadata(program).ok().filter(fs::Metadata::is_file)?;
    // An unreadable program may still be executable.
    let file = File::open(program).ok()?;
    let mut head = Vec::new();
    let mut first = (&file).take(HEAD_LENGTH as u64);
    first.read_to_end(&mut head).ok()?;
    let named = match head.strip_prefix(b"#!") {
        Some(line) => interpreter(line, head.len() < HEAD_LENGTH)?.to_vec(),
        None => loader(&file, &head)?,
    };
    let named = PathBuf::from(OsStr::from_bytes(&named));
    // A relative path depends on the working directory at the time of the exec.
    let is_missing = named.is_absolute()
        && fs::metadata(&named).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    (is_missing && !handlers.may_execute(program, &head)).then_some(named)
}

/// Reads the rest of a `#!` line. The kernel refuses a line that is truncated within the name.
fn interpreter(line: &[u8], is_complete: bool) -> Option<&[u8]> {
    let start = line.iter().position(|byte| !b" \t".contains(byte))?;
    let line = &line[start..];
    let end = line.iter().position(|byte| b" \t\n\0".contains(byte));
    Some(&line[..end.or(is_complete.then_some(line.len()))?])
}

/// Returns the name in the segment PT_INTERP of a 64-bit program for this processor.
fn loader(file: &File, head: &[u8]) -> Option<Vec<u8>> {
    const SEGMENT_OF_LOADER: u64 = 3;
    let machine = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        _ => return None,
    };
    let is_ours = head.starts_with(b"\x7fELF\x02\x01") && number(head, 18, 2)? == machine;
    let offset = number(head, 32, 8).filter(|_| is_ours)?;
    let size = usize::try_from(number(head, 54, 2)?).ok()?;
    let length = size * usize::try_from(number(head, 56, 2)?).ok()?;
    let mut headers = vec![0; length.min(HEADERS_MAX)];
    file.read_exact_at(&mut headers, offset).ok()?;
    let mut headers = headers.chunks_exact(size.max(1));
    let header = headers.find(|header| number(header, 0, 4) == Some(SEGMENT_OF_LOADER))?;
    let length = usize::try_from(number(header, 32, 8)?).ok()?;
    let mut name = vec![0; length.min(PATH_LENGTH_MAX)];
    file.read_exact_at(&mut name, number(header, 8, 8)?).ok()?;
    (name.pop() == Some(0)).then_some(name)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + length)?.iter().rev();
    Some(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The formats that an administrator registered with binfmt_misc. The kernel tries them before its
/// own formats.
enum Handlers {
    /// The registered formats.
    Visible(Vec<String>),
    /// The kernel supports such formats, but this process cannot see which formats are registered.
    /// For example, a container cannot see the formats of its host.
    Hidden,
}

impl Handlers {
    fn of_kernel() -> Self {
        let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        match filesystems.is_empty() || filesystems.contains("binfmt_misc") {
            true => Self::of_directory(Path::new("/proc/sys/fs/binfmt_misc")),
            false => Self::Visible(Vec::new()),
        }
    }

    fn of_directory(directory: &Path) -> Self {
        let read = |file: PathBuf| fs::read_to_string(file).ok();
        let entries = match read(directory.join("status")).as_deref() {
            None => return Self::Hidden,
            Some("disabled\n") => return Self::Visible(Vec::new()),
            Some(_) => fs::read_dir(directory).into_iter().flatten().flatten(),
        };
        // The other two files, `status` and `register`, describe no format.
        Self::Visible(entries.filter_map(|entry| read(entry.path())).collect())
    }

    fn may_execute(&self, program: &Path, head: &[u8]) -> bool {
        let program = program.as_os_str().as_bytes();
        let name = program.rsplit(|byte| *byte == b'/').next();
        let mut parts = name.unwrap_or_default().rsplitn(2, |byte| *byte == b'.');
        let extension = parts.next().filter(|_| parts.next().is_some());
        match self {
            Self::Visible(formats) => formats
                .iter()
                .any(|format| accepts(format, extension, head)),
            // Assumes that hidden formats select programs by extension. No administrator would
            // replace the interpreters of all scripts or all programs.
            Self::Hidden => extension.is_some(),
        }
    }
}

/// Returns true if the format, in the notation of binfmt_misc, matches this file.
fn accepts(format: &str, extension: Option<&[u8]>, head: &[u8]) -> bool {
    let value = |key| format.lines().find_map(|line| line.strip_prefix(key));
    if !format.starts_with("enabled\ninterpreter ") {
        return false;
    }
    if let Some(accepted) = value("extension .") {
        return extension == Some(accepted.as_bytes());
    }
    let bytes = |hex: &str| -> Option<Vec<u8>> {
        let pairs = (0..hex.len()).step_by(2);
        pairs
            .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
            .collect()
    };
    let offset = value("offset ").and_then(|offset| offset.parse::<usize>().ok());
    let (Some(offset), Some(magic)) = (offset, value("magic ").and_then(bytes)) else {
        return true;
    };
    let mask = value("mask ").and_then(bytes);
    let mask = mask.unwrap_or_else(|| vec![0xff; magic.len()]);
    let mut pairs = magic.iter().zip(mask).enumerate();
    pairs.all(|(at, (byte, mask))| {
        let found = head.get(offset + at).copied().unwrap_or(0);
        (found ^ byte) & mask == 0
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NO_FORMATS: Handlers = Handlers::Visible(Vec::new());

    fn named(content: &[u8]) -> Option<String> {
        let place = tempfile::tempdir().expect("a directory");
        let script = place.path().join("script");
        fs::write(&script, content).expect("a file");
        missing_with(&script, &NO_FORMATS).map(|named| named.display().to_string())
    }

    #[test]
    fn a_missing_interpreter_is_found_as_the_kernel_does() {
        for script in [
            "#!/no/such",
            "#!/no/such\necho",
            "#! \t/no/such -e x\n",
            "#!/no/such\0rest",
        ] {
            let found = named(script.as_bytes());
            assert_eq!(found.as_deref(), Some("/no/such"), "{script:?}");
        }
        let windows = named(b"#!/bin/sh\r\necho\r\n");
        assert_eq!(windows.as_deref(), Some("/bin/sh\r"));
        for other in [
            "#!/bin/sh\n",
            "#!no/such\n",
            "#!\n",
            "#!",
            "# !/no/such\n",
            "#!/dev/null/such\n",
            "",
        ] {
            assert_eq!(named(other.as_bytes()), None, "{other:?}");
        }
        let cut = format!("#!/no/such{}", "h".repeat(300));
        assert_eq!(named(cut.as_bytes()), None);
    }

    #[test]
    fn a_missing_loader_is_found() {
        let program = std::env::current_exe().expect("this program");
        let mut program = fs::read(program).expect("a readable program");
        assert_eq!(named(&program), None);
        let loader = b"/lib64/ld-linux-x86-64.so.2\0";
        let start = program.windows(loader.len()).position(|at| at == loader);
        // Programs for other processors have other loaders, and static programs have none.
        let Some(start) = start else { return };
        program[start + 1] = b'L';
        let found = named(&program);
        assert_eq!(found.as_deref(), Some("/Lib64/ld-linux-x86-64.so.2"));
        program.truncate(start);
        assert_eq!(named(&program), None);
    }

    #[test]
    fn an_unreadable_program_and_a_directory_are_accepted() {
        let place = tempfile::tempdir().expect("a directory");
        let script = place.path().join("script");
        assert_eq!(missing(&script), None);
        assert_eq!(missing(place.path()), None);
        fs::write(&script, "#!/no/such\n").expect("a file");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o111)).expect("its owner");
        // Root can read the script despite its mode.
        if File::open(&script).is_err() {
            assert_eq!(missing_with(&script, &NO_FORMATS), None);
        }
    }

    #[test]
    fn a_registered_format_may_execute_a_script_without_its_interpreter() {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).expect("a file");
        let formats = path("formats");
        let may = |program: &str| {
            Handlers::of_directory(&formats).may_execute(program.as_ref(), b"#!/no/such\n")
        };
        assert!(may("./script.sh") && !may("./script") && !may("/opt/a.b/script"));
        fs::create_dir(&formats).expect("a directory");
        write("formats/register", "");
        write("formats/status", "enabled\n");
        let format = |rest: &str| format!("enabled\ninterpreter /usr/bin/x\nflags: \n{rest}");
        write("formats/jar", &format("extension .jar\n"));
        write("formats/qemu", &format("offset 0\nmagic 7f454c46\n"));
        assert!(may("a.jar") && !may("a.sh") && !may("jar"));
        write("formats/x", &format("offset 2\nmagic 2f4e\nmask ffdf\n"));
        assert!(may("./script"));
        write("formats/status", "disabled\n");
        assert!(!may("./script"));
    }
}
