//! Goal: verify the log lines of a lasting failure. Method: capture the log.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::*;
use crate::election::{BootTime, Identity, LeaseName, Session, Status};
use crate::publish::render::Identification;

/// A log that keeps its lines in memory.
#[derive(Debug, Default, Clone)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn metrics() -> Metrics {
    let who = Identification {
        lease: LeaseName::new("orders").unwrap(),
        identity: Identity::new("a").unwrap(),
        boot_id: None,
    };
    let status = Status::initial(Session::from_bytes([1; 16]), BootTime::default());
    let (_, status) = watch::channel(status);
    let (_, store) = watch::channel(None);
    Metrics::new(&who, status, store).unwrap()
}

#[test]
fn a_trouble_that_lasts_is_counted_each_time_and_logged_more_and_more_seldom() {
    let unreachable = Trouble {
        what: "the API server cannot be reached",
        status: None,
        may_land: false,
        remedy: Remedy::Again,
    };
    let metrics = metrics();
    let subject = "label x of pod y".to_owned();
    let mut troubles = Troubles::new(
        Surface::Label,
        subject,
        "patch pods/status",
        metrics.clone(),
    );
    let page = Page::default();
    let written = page.clone();
    let log = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || written.clone())
        .finish();
    tracing::subscriber::with_default(log, || {
        for _ in 0..100 {
            troubles.goes_on(&unreachable);
        }
        // 1, 2, 4, 8, 16, 32, 64.
        assert_eq!(page.lines().len(), 7, "{:#?}", page.lines());
        troubles.goes_on(&Trouble::NO_ANSWER);
        assert_eq!(page.lines().len(), 8, "another kind is said at once");
        troubles.over();
        let lines = page.lines();
        assert!(lines[8].contains("failures=101"), "{lines:#?}");
        troubles.over();
        assert_eq!(page.lines().len(), 9, "what works is not worth a line");
    });
    assert_eq!(metrics.publish_failures(Surface::Label), 101);
}
