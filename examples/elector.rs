//! Runs work on one replica at a time: `cargo run --example elector -- mongodb://…`.
//!
//! Start this program twice. The second process works once the first process has released the
//! lease.

#![allow(clippy::print_stdout, reason = "the example shows what it does")]

use std::error::Error;
use std::time::Duration;

use leasehold_mongodb::election::{Authority, Identity, ResourceName};
use leasehold_mongodb::elector::{Elector, ElectorOptions};
use leasehold_mongodb::store::mongo::StoreOptions;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("usage: elector URI")?;
    let identity = Identity::new(format!("elector-{}", std::process::id()))?;
    let store = StoreOptions::new(uri, identity);
    let mut options = ElectorOptions::new(store, ResourceName::new("example-elector")?);
    // The work below ends before `stop` is called, so the release need not wait for it.
    options.workload_ends_first = true;
    options.handoff_delay = Duration::ZERO;
    let elector = Elector::start(options);
    for page in 1..=3 {
        let authority = leadership(&elector).await?;
        // Send the token with every effect, so that the receiver can refuse a lower token.
        println!("page {page}, token {}", authority.token);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    elector.stop().await?;
    println!("released");
    Ok(())
}

/// Waits until this process leads.
async fn leadership(elector: &Elector) -> Result<Authority, Box<dyn Error>> {
    let mut status = elector.status();
    loop {
        match elector.authority() {
            Some(authority) => return Ok(authority),
            None => status.changed().await?,
        }
    }
}
