//! Rejects the late write of a former holder of a lock:
//! `cargo run --example fenced -- mongodb://…`.

#![allow(clippy::print_stdout, reason = "the example shows what it does")]

use std::error::Error;
use std::time::Duration;

use leasehold_mongodb::election::{Identity, ResourceName};
use leasehold_mongodb::fenced::{self, Fence, FencedError};
use leasehold_mongodb::locker::Lock;
use leasehold_mongodb::store::mongo::StoreOptions;
use mongodb::Client;
use mongodb::bson::{Document, doc};

/// Maximum time to wait for other holders.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("usage: fenced URI")?;
    let client = Client::with_uri_str(&uri).await?;
    let orders = client.database("example").collection::<Document>("orders");
    let order = doc! { "_id": "order-1" };
    orders.delete_one(order.clone()).await?;
    orders.insert_one(order.clone()).await?;

    let identity = Identity::new(format!("fenced-{}", std::process::id()))?;
    let name = ResourceName::new("example-fenced")?;
    let lock = Lock::new(StoreOptions::new(uri, identity), name.clone());
    let first = lock.acquire_within(PATIENCE).await?;
    let old_token = first.authority().ok_or("the lock was lost")?.token;
    first.release().await?;

    let second = lock.acquire_within(PATIENCE).await?;
    let paid = doc! { "$set": { "state": "paid" } };
    second.update_one(&orders, order.clone(), paid).await?;
    println!("written by the holder");

    // The first holder was paused before this write and does not know that it lost the lock.
    let cancelled = doc! { "$set": { "state": "cancelled" } };
    let old = Fence::new(name, old_token);
    match fenced::update_one(&orders, order.clone(), cancelled, &old).await {
        Err(FencedError::Refused { .. }) => println!("the late write is refused"),
        other => return Err(format!("not refused: {other:?}").into()),
    }
    let stored = orders
        .find_one(order)
        .await?
        .ok_or("the order does not exist")?;
    println!("state: {}", stored.get_str("state")?);
    second.release().await?;
    Ok(())
}
