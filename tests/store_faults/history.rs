//! Goal: the history stays bounded (I11) and tokens grow through many handoffs (I3). Method:
//! transfer the lease back and forth 25 times, without a handoff delay.

use mongodb::bson::{DateTime, doc};

use crate::fixture::{LONG, monitored_pair, shared_stage};

const HAND_OFFS: i64 = 25;
const HISTORY_MAX: usize = 20;

#[tokio::test]
async fn i11_after_25_hand_offs_the_history_has_the_newest_20() {
    let stage = shared_stage().await;
    let (a, b, monitor) = monitored_pair(&stage).await;
    let stored = stage.stored();
    for token in 1..=HAND_OFFS {
        let to = if token % 2 == 1 { &b } else { &a };
        let request = doc! {
            "kind": "transfer", "token": token, "to": to.identity(), "at": DateTime::now(),
        };
        stored.set(doc! { "request": request }).await;
        let leads = |status: &serde_json::Value| status["token"].as_i64() == Some(token + 1);
        to.wait_until(leads, LONG).await;
    }
    let history = stored.history().await;
    assert_eq!(history.len(), HISTORY_MAX);
    let tokens: Vec<_> = history
        .iter()
        .filter_map(|e| e.get_i64("token").ok())
        .collect();
    let newest: Vec<_> = (HAND_OFFS - 19..=HAND_OFFS).collect();
    assert_eq!(tokens, newest);
    for entry in history {
        assert_eq!(entry.get_str("reason").ok(), Some("transferred"));
        let date = |key| entry.get_datetime(key).expect("a date").timestamp_millis();
        assert!(date("ended_at") >= date("acquired_at"));
    }
    let tokens: Vec<_> = monitor.reigns().iter().map(|reign| reign.token).collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
}
