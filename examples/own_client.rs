//! Holds a lock through the program's own MongoDB client:
//! `cargo run --example own_client -- mongodb://…`.

#![allow(clippy::print_stdout, reason = "the example shows what it does")]

use std::error::Error;
use std::time::Duration;

use leasehold_mongodb::election::{Identity, ResourceName};
use leasehold_mongodb::locker::Lock;
use leasehold_mongodb::store::mongo::StoreOptions;
use mongodb::Client;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("usage: own_client URI")?;
    let mut options = ClientOptions::parse(&uri).await?;
    // One connection for the lock's waiter, 20 for calls of the lock, and 10 for the program.
    options.max_pool_size = Some(1 + 20 + 10);
    let client = Client::with_options(options)?;
    let identity = Identity::new(format!("own-client-{}", std::process::id()))?;
    // The client was created with this connection string.
    let store = StoreOptions::new(uri, identity).with_client(client.clone());
    let lock = Lock::new(store, ResourceName::new("example-own-client")?);
    for page in 1..=3 {
        let guard = lock.acquire_within(Duration::from_secs(60)).await?;
        if let Some(authority) = guard.authority() {
            println!("page {page}, token {}", authority.token);
        }
        guard.release().await?;
    }
    // The client belongs to the program and is still open.
    client
        .database("admin")
        .run_command(doc! { "ping": 1 })
        .await?;
    println!("released");
    Ok(())
}
