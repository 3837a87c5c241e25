//! `leasehold locks`: lists, breaks and prunes locks, for operators.
//!
//! The command never contends for a lock, and removes only expired entries unless `--force` is
//! given.

mod arguments;
mod breaking;
mod calls;
mod listing;
mod pruning;

use std::process::ExitCode;

use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_mongodb::store::mongo::operators::MongoCollection;

pub use self::arguments::LocksArgs;
use self::arguments::LocksCommand;
use self::calls::Calls;
use crate::operators::configured;
use leasehold_cli::store_options::of_locks;

/// Runs the requested action.
///
/// # Errors
/// [`CommandError`], not yet printed.
pub fn run(args: LocksArgs) -> Result<ExitCode, CommandError> {
    let connection = args.connection();
    configured(&connection, async |config| {
        let locks = MongoCollection::brief(of_locks(&config, config.timings));
        let calls = Calls::new(&locks, &config, connection.timeout());
        let answered = match args.command {
            None => list(&calls, args.output.json()).await,
            Some(LocksCommand::Break(args)) => {
                let lock = calls.of(args.name);
                let round_trip = config.timings.operation_timeout();
                breaking::run(&lock, args.force, args.yes, round_trip).await
            }
            Some(LocksCommand::Prune(args)) => pruning::run(&calls, args.unused_for).await,
        };
        locks.shut_down().await;
        answered.map(Into::into)
    })
}

async fn list(calls: &Calls<'_>, json: bool) -> Result<u8, CommandError> {
    let listed = calls.list().await?;
    leasehold_cli::answer(listing::listing(&listed, json).as_bytes())?;
    Ok(exit::DONE)
}
