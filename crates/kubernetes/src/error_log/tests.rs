//! Goal: verify the log lines of a lasting failure. Method: capture the log.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::*;
use leasehold_core::election::{BootTime, Role};
use leasehold_metrics::fixture;

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

#[test]
fn a_lasting_error_is_counted_each_time_and_logged_at_growing_intervals() {
    let unreachable = ApiError {
        what: "the API server cannot be reached",
        detail: None,
        status: None,
        may_land: false,
        retry: ApiRetry::Again,
    };
    let (_, status) = watch::channel(fixture::status(Role::Unknown));
    let metrics = fixture::metrics(status);
    let subject = "label x of pod y".to_owned();
    let api = Api::over("https://api:443".to_owned(), || unreachable!("no request"));
    let mut errors = RequestErrorLog::new(
        Surface::Label,
        subject,
        "patch pods/status",
        &api,
        metrics.clone(),
    );
    let page = Page::default();
    let written = page.clone();
    let log = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || written.clone())
        .finish();
    tracing::subscriber::with_default(log, || {
        let start = BootTime::from_nanos(1_000_000_000);
        for second in 0..100 {
            errors.failed(&unreachable, start + Duration::from_secs(second));
        }
        // After 0, 2, 6, 14, 30 and 62 s.
        assert_eq!(page.lines().len(), 6, "{:#?}", page.lines());
        errors.failed(&ApiError::NO_ANSWER, start + Duration::from_secs(100));
        assert_eq!(page.lines().len(), 7, "a new kind is logged immediately");
        errors.over();
        let lines = page.lines();
        assert!(lines[7].contains("failures=101"), "{lines:#?}");
        errors.over();
        assert_eq!(page.lines().len(), 8, "a success is not logged");
    });
    assert_eq!(metrics.publish_failures(Surface::Label), 101);
}
