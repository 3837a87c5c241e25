//! Reads the status file like a workload.

use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

use super::boottime_ns;

static BOOT_ID: LazyLock<String> = LazyLock::new(|| {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot_id.unwrap_or_default().trim().to_owned()
});

/// The last content of a status file. The content is parsed only if it has changed, because polls
/// are frequent.
#[derive(Debug, Default)]
pub(crate) struct StatusFile {
    text: String,
    status: Option<Value>,
}

impl StatusFile {
    /// Reads the file. Returns `None` if the file does not exist, or its text as the error if the
    /// text is not JSON.
    pub(crate) fn read(&mut self, directory: &Path) -> Option<Result<&Value, &str>> {
        let text = std::fs::read_to_string(directory.join("status.json")).ok()?;
        if text != self.text {
            self.status = serde_json::from_str(&text).ok();
            self.text = text;
        }
        Some(self.status.as_ref().ok_or(&self.text))
    }

    /// Reads a daemon's file. Returns `None` if the file does not exist.
    ///
    /// # Panics
    /// If the file is not JSON, because the daemon must replace it atomically.
    pub(super) fn read_whole(&mut self, directory: &Path) -> Option<&Value> {
        let status = self.read(directory)?;
        Some(status.unwrap_or_else(|text| panic!("status.json is incomplete: {text}")))
    }
}

/// Returns the deadline in a status, on CLOCK_BOOTTIME.
pub fn valid_until_ns(status: &Value) -> Option<u64> {
    status["valid_until_boottime_ns"].as_u64()
}

/// Returns true if `status` grants authority now, in this boot.
pub fn leads(status: &Value) -> bool {
    leads_at(status, boottime_ns())
}

/// Returns true if `status` grants authority at `now`, a time on this boot's CLOCK_BOOTTIME.
pub fn leads_at(status: &Value, now: u64) -> bool {
    status["leader"] == true
        && status["role"] == "leader"
        && status["boot_id"] == **BOOT_ID
        && valid_until_ns(status).is_some_and(|until| until > now)
}
