//! Goal: verify all tasks together. Method: a function acts as the API server.

use std::io::Write;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::Semaphore;
use tower::BoxError;
use tower::util::service_fn;

use super::queue::tests::transition;
use super::*;
use leasehold_config::{KubernetesEnabled, Placement};
use leasehold_core::election::Role;
use leasehold_metrics::fixture;
use leasehold_status::Surface;

/// A timeout for operations that complete immediately.
const LONG: Duration = Duration::from_secs(60);

/// Returns a publisher. `answer` maps the path of each request to the status of its answer. The
/// construction of client number `fault` panics, like a bug in a task.
fn publisher<F>(
    repair_interval: Duration,
    fault: Option<usize>,
    answer: impl Fn(String) -> F + Send + Sync + 'static,
) -> (Kubernetes, Tasks, Metrics, watch::Sender<Status>)
where
    F: Future<Output = u16> + Send + 'static,
{
    let answer = Arc::new(answer);
    let made = AtomicUsize::new(0);
    let api = Api::over("https://api".to_owned(), move || {
        let number = made.fetch_add(1, Ordering::SeqCst);
        if Some(number) == fault {
            // Panics without a backtrace, because printing it could take longer than the test
            // waits.
            resume_unwind(Box::new("a bug in a task"));
        }
        let answer = Arc::clone(&answer);
        let service = service_fn(move |request: Request<Body>| {
            let answer = answer(request.uri().path().to_owned());
            async move {
                let answer = Response::builder().status(answer.await);
                Ok::<_, BoxError>(answer.body(Body::empty()).unwrap())
            }
        });
        Ok(Client::new(service, "shop"))
    });
    let (status, receiver) = watch::channel(fixture::status(Role::Follower));
    let (who, metrics) = (fixture::who("me"), fixture::metrics(receiver.clone()));
    let settings = KubernetesConfig {
        enabled: KubernetesEnabled::On,
        pod_name: None,
        pod_uid: None,
        placement: Placement {
            namespace: None,
            account: None,
            rendered_for: None,
        },
        credentials: PathBuf::new(),
        label_prefix: "leasehold.dev".to_owned(),
        label_wait: LONG,
        demote_others: false,
        events: true,
    };
    let pod = Pod::new("a", "shop", "1").unwrap();
    let started = Kubernetes::spawn(
        api,
        pod,
        &settings,
        repair_interval,
        &who,
        &receiver,
        &metrics,
    );
    let (kubernetes, tasks) = started.unwrap();
    (kubernetes, tasks, metrics, status)
}

fn in_sync(metrics: &Metrics) -> bool {
    let page = metrics.text().unwrap();
    page.contains("leasehold_label_in_sync{lease=\"orders\"} 1")
}

async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(LONG / 2, wait).await;
    waited.unwrap_or_else(|_| panic!("not so: {what}"))
}

/// A log that records, for each line, whether the label is in sync.
#[derive(Clone)]
struct Witness {
    metrics: Metrics,
    seen: Arc<Mutex<Vec<bool>>>,
}

impl Write for Witness {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.seen.lock().unwrap().push(in_sync(&self.metrics));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_state_of_the_label_is_published_before_it_is_logged() {
    let requests = AtomicUsize::new(0);
    let (_kubernetes, _tasks, metrics, _status) =
        publisher(Duration::from_millis(1), None, move |_| {
            let number = requests.fetch_add(1, Ordering::SeqCst);
            std::future::ready(if number == 1 { 500 } else { 200 })
        });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let witness = Witness {
        metrics,
        seen: Arc::clone(&seen),
    };
    let log = tracing_subscriber::fmt().with_writer(move || witness.clone());
    // Tasks run on the thread of the test.
    let _log = tracing::subscriber::set_default(log.finish());
    soon("the failure and its end are logged", async {
        while seen.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(*seen.lock().unwrap(), [false, true]);
}

#[tokio::test]
async fn the_last_words_are_over_when_the_events_are_out_and_not_before() {
    let (asked, answered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gates = (Arc::clone(&asked), Arc::clone(&answered));
    let (kubernetes, _tasks, ..) = publisher(LONG, None, move |path| {
        let (asked, answered) = (Arc::clone(&gates.0), Arc::clone(&gates.1));
        async move {
            if path.contains("/events") {
                asked.add_permits(1);
                answered.acquire().await.unwrap().forget();
            }
            200
        }
    });
    for token in [1, 2] {
        kubernetes.transition(&transition(token));
    }
    soon("the label", kubernetes.demoted()).await;
    let last_words = kubernetes.last_words();
    tokio::pin!(last_words);
    for event in ["first", "second"] {
        soon(event, asked.acquire()).await.unwrap().forget();
        let over = tokio::time::timeout(Duration::ZERO, &mut last_words).await;
        assert!(over.is_err(), "the {event} Event has not been sent");
        answered.add_permits(1);
    }
    soon("the last words", last_words).await;
}

#[tokio::test]
async fn an_event_is_tried_a_few_times_and_then_given_up() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let (kubernetes, _tasks, metrics, _status) = publisher(LONG, None, move |path| {
        let failed = path.contains("/events");
        count.fetch_add(usize::from(failed), Ordering::SeqCst);
        std::future::ready(if failed { 500 } else { 200 })
    });
    kubernetes.transition(&transition(1));
    soon("the reporter gives up", kubernetes.last_words()).await;
    assert_eq!(requests.load(Ordering::SeqCst), 3);
    assert_eq!(metrics.publish_failures(Surface::Event), 3);
}

#[tokio::test]
async fn an_ended_task_is_named_and_its_label_is_not_reported_in_sync() {
    let repair_interval = Duration::from_millis(1);
    let ready = |_| std::future::ready(200);
    let (kubernetes, mut tasks, metrics, _status) = publisher(repair_interval, Some(20), ready);
    soon("the label", kubernetes.demoted()).await;
    assert!(in_sync(&metrics));
    let (task, error) = soon("the task ends", tasks.ended()).await;
    assert_eq!(task, "label");
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(!in_sync(&metrics), "no task maintains the label");
    // The other tasks continue, and the exit of the process does not wait for the ended task.
    kubernetes.transition(&transition(1));
    soon("the last words", kubernetes.last_words()).await;
    assert_eq!(metrics.publish_failures(Surface::Event), 0);
    let another = tokio::time::timeout(Duration::ZERO, tasks.ended()).await;
    assert!(another.is_err(), "{another:?}");
}

#[tokio::test]
async fn events_after_the_end_of_the_reporter_are_counted_and_not_waited_for() {
    // The first client belongs to the label task.
    let ready = |_| std::future::ready(200);
    let (kubernetes, mut tasks, metrics, _status) = publisher(LONG, Some(1), ready);
    soon("the label", kubernetes.demoted()).await;
    kubernetes.transition(&transition(1));
    assert_eq!(soon("the task ends", tasks.ended()).await.0, "events");
    kubernetes.transition(&transition(2));
    assert_eq!(metrics.publish_failures(Surface::Event), 1);
    soon("the last words", kubernetes.last_words()).await;
}
