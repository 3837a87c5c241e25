//! Runs a job under a distributed lock: `cargo run --example lock -- mongodb://…`.

#![allow(clippy::print_stdout, reason = "the example shows what it does")]

use std::error::Error;
use std::time::Duration;

use leasehold_mongodb::election::{Identity, ResourceName};
use leasehold_mongodb::locker::{Lock, LockError};
use leasehold_mongodb::store::mongo::StoreOptions;

/// Maximum time to wait for other holders.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("usage: lock URI")?;
    let identity = Identity::new(format!("lock-{}", std::process::id()))?;
    let store = StoreOptions::new(uri, identity);
    let lock = Lock::new(store, ResourceName::new("example-lock")?);
    let guard = match lock.acquire_within(PATIENCE).await {
        Ok(guard) => guard,
        Err(LockError::TimedOut) => return Err("another process holds the lock".into()),
        Err(error) => return Err(error.into()),
    };
    for page in 1..=3 {
        // The lock has a deadline and is renewed in the background: check before each effect.
        let Some(authority) = guard.authority() else {
            return Err("the lock was lost".into());
        };
        println!("page {page}, token {}", authority.token);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    guard.release().await?;
    println!("released");
    Ok(())
}
