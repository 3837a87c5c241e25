//! `leasehold lock`: a distributed flock for jobs.
//!
//! Uses `Locker` and not the simpler `Lock`, because the command logs each reply of MongoDB and
//! saves observations for the next job.

#![forbid(unsafe_code)]

mod arguments;
mod contender_log;
mod held;
mod inherited;
mod messages;
mod observation_cache;
mod piped;
mod standard_input;
mod waiting;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use tracing::warn;

pub use self::arguments::LockArgs;
use self::held::{Prepared, Work};
use self::inherited::{Held, Inherited};
use self::messages::{JobMessages, NewestError};
use self::observation_cache::ObservationCache;
use self::standard_input::StandardInput;
use self::waiting::{LEAVE_MAX, LockAttempt, WaitLimits, Waited};
use leasehold_cli::store_options::{self, stopping};
use leasehold_cli::{run_to_end, trace};
use leasehold_clock as clock;
use leasehold_config::{Key, LockConfig};
use leasehold_core::election::{BootTime, Timings, Token};
use leasehold_core::lock::{EntryMode, LockMode, MinHold, Observations, scaled};
use leasehold_guard::Command;
use leasehold_guard::prerequisites::prerequisites;
use leasehold_host::log::{self, LineFormat};
use leasehold_host::privacy::hide_from_the_user;
use leasehold_host::signals::{Exit, Relays, Stops};
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::locker::{LockError, Locker, LockerOptions};
use leasehold_mongodb::trace::Trace;
use leasehold_supervisor::command::StandbyCommand;

/// Turns of the event loop that the driver needs to send its first commands to nearby servers.
const TURNS_TO_CONNECT: u32 = 3;

fn system(operation: &str) -> impl Fn(io::Error) -> CommandError {
    CommandError::failed(exit::SYSTEM, operation)
}

/// Acquires the lock, runs the work under it, and releases it.
pub fn run(args: LockArgs) -> Result<ExitCode, CommandError> {
    let (name, reports) = (args.lock().clone(), args.report_exit_code);
    let newest = NewestError::default();
    let ended = acquire_and_work(args, &newest);
    if reports {
        let (code, why) = match &ended {
            Ok(exit) => (exit.code(), newest.text()),
            Err(error) => (error.exit, error.to_string()),
        };
        // The parent may have closed the pipe.
        piped::print_line(&piped::exit_line(&name, code, &why));
    }
    ended.map(Exit::take)
}

fn acquire_and_work(args: LockArgs, newest: &NewestError) -> Result<Exit, CommandError> {
    if args.command.is_empty() {
        let lock = args.lock();
        standard_input::check().map_err(|why| {
            CommandError::new(exit::USAGE, format!("lock {lock} not acquired"))
                .because(why)
                .to_fix(format!(
                    "give a command (leasehold lock {lock} -- COMMAND), or keep a pipe open as standard input"
                ))
        })?;
    }
    let loaded = args.configuration.sources.load();
    // An inner command may lack a MongoDB URI, because a command does not inherit credentials.
    let names_no_store = loaded.names_no_store();
    if names_no_store && let Some(held) = Inherited::of_process().of(args.lock(), None) {
        let stderr = Arc::new(log::Stderr::open());
        let messages = JobMessages::new(args.lock(), LineFormat::Text, args.quiet, stderr, newest);
        return Ok(run_under_outer_lock(&args, held, &messages).into());
    }
    let config = loaded.lock_config().map_err(|error| {
        let error = CommandError::from(error);
        match names_no_store && is_inside() {
            true => error.to_fix(
                "give this command the connection string too, preferably with --mongodb-uri-file: \
                 the outer `leasehold` does not pass its configuration on",
            ),
            false => error,
        }
    })?;
    config.placement.check("lock", args.lock())?;
    let timings = match args.lease_duration {
        Some(duration) => scaled(&config.timings, duration).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
            CommandError::new(exit::CONFIGURATION, "--lease-duration").because(errors.join("; "))
        })?,
        None => config.timings,
    };
    let ignored = args.configuration.sources.ignored_variables();
    let trace = trace::from_environment()?;
    let format = match config.log.format.json {
        Some(json) => LineFormat::of(json),
        None => LineFormat::Plain(messages::prefix(args.lock())),
    };
    let log = log::start(config.log.level, format);
    for ignored in ignored {
        let meant = ignored.meant.map(Key::variable);
        warn!(lock = %args.lock(), variable = ignored.name, meant, "{ignored}");
    }
    hide_from_the_user();
    let messages = JobMessages::new(args.lock(), log.format, args.quiet, log.stderr, newest);
    let store = inherited::store(&config.mongodb);
    if let Some(held) = Inherited::of_process().of(args.lock(), Some(&store)) {
        return Ok(run_under_outer_lock(&args, held, &messages).into());
    }
    if !args.command.is_empty() {
        prerequisites()?;
    }
    let job = Job {
        args: &args,
        config: &config,
        timings,
        store: &store,
        messages: &messages,
        trace: trace.as_ref(),
    };
    run_to_end(exit::SYSTEM, job.contend())?
}

fn is_inside() -> bool {
    let ours = ["LEASEHOLD_LOCK", "LEASEHOLD_LEASE"];
    ours.iter().any(|name| std::env::var_os(name).is_some())
}

/// Runs the command under an outer lock. If the lock is lost, the outer guard kills the command.
fn run_under_outer_lock(args: &LockArgs, held: &Held, messages: &JobMessages) -> u8 {
    let may = match (held.mode(), args.want()) {
        (Some(EntryMode::Exclusive), LockMode::Exclusive | LockMode::Shared)
        | (Some(EntryMode::Shared), LockMode::Shared) => true,
        (Some(EntryMode::Slot), LockMode::Slot(slots)) => slots.get() == held.slots,
        (_, LockMode::Exclusive | LockMode::Shared | LockMode::Slot(_)) => false,
    };
    if !may {
        messages.say(&format!(
            "already held as {} by an outer command; cannot also be held as {} (deadlock); \
             request this mode in the outer command",
            held.mode,
            args.want().entry_mode().as_str(),
        ));
        return args.conflict_exit_code;
    }
    let outer = [
        ("--at-least", args.at_least() != MinHold::NONE),
        ("--once-per", args.once_per().is_some()),
    ];
    if let Some((flag, _)) = outer.iter().find(|(_, given)| *given) {
        messages.say(&format!(
            "already held by an outer command: give {flag} to the outer command"
        ));
        return exit::CONFIGURATION;
    }
    if held.is_valid() != Some(true) {
        messages.say("the outer command has lost the lock");
        return exit::LOCK_LOST;
    }
    held::run_within(&args.command, args.lock(), held, messages)
}

fn command(args: &LockArgs, config: &LockConfig, timings: &Timings) -> Option<StandbyCommand> {
    let (program, arguments) = args.command.split_first()?;
    // Sets the grace period here, because the first deadlines may lack it: an unconfirmed grant
    // gives only provisional authority.
    let command = Command::new(program)
        .arguments(arguments)
        .leftover_grace(timings.loss_grace());
    let stopping = stopping(&config.workload);
    Some(StandbyCommand::new(command, stopping, None))
}

/// Warns of a changed number of slots. A job with another number is refused only while the lock has
/// entries, so jobs that do not overlap would not notice the change.
fn warn_of_slots(args: &LockArgs, before: u32) {
    let (lock, slots) = (args.lock(), args.want().slots());
    let shown = match before {
        0 => "without --slots".to_owned(),
        before => format!("with --slots {before}"),
    };
    warn!(
        %lock, slots, slots_before = before,
        "lock was last used {shown}: all users must pass the same value"
    );
}

#[derive(Clone, Copy)]
struct Job<'a> {
    args: &'a LockArgs,
    config: &'a LockConfig,
    timings: Timings,
    store: &'a str,
    messages: &'a JobMessages,
    trace: Option<&'a Trace>,
}

impl Job<'_> {
    async fn contend(self) -> Result<Exit, CommandError> {
        let stops = Stops::register().map_err(system("register the signal handlers"))?;
        let relays = Relays::register().map_err(system("register the signal handlers"))?;
        let mut command = match command(self.args, self.config, &self.timings) {
            Some(command) => {
                let prepared = Prepared::new().map_err(system("prepare the command"))?;
                Some((command, prepared))
            }
            None => None,
        };
        let input = StandardInput::of(command.is_none());
        let code = self
            .attempts(command.as_mut(), input, (stops, relays))
            .await;
        if let Some((command, _)) = command {
            command.dismiss().await;
        }
        code
    }

    async fn attempts(
        self,
        mut command: Option<&mut (StandbyCommand, Prepared)>,
        mut input: StandardInput,
        (mut stops, mut relays): (Stops, Relays),
    ) -> Result<Exit, CommandError> {
        let Self { args, timings, .. } = self;
        let limits = || WaitLimits {
            wait: args.limit(),
            timings,
        };
        let mut patience = limits();
        // An attempt without a wait often fails, so the command is not prepared in advance.
        let waits = args.limit().is_none_or(|wait| !wait.is_zero());
        let mut tries = args.retries;
        let mut watched: Option<(Token, Observations)> = None;
        loop {
            let began = clock::boot_now();
            let attempt = LockAttempt::new(self, patience, tries, watched.is_none());
            let mut cache = ObservationCache::of(args.lock(), self.store);
            // The cache's directory may be read-only, or new for each job.
            if let Some((_, observations)) = &watched {
                let unchanged = Observations::default();
                cache.seen.observations = observations.merged(&unchanged, &cache.seen.observations);
            }
            let started = Locker::start(self.options(&cache), attempt.log(cache));
            let refused =
                |error: LockError| CommandError::new(exit::CONFIGURATION, error.to_string());
            let mut locker = started.map_err(refused)?;
            if waits && let Some((command, _)) = &mut command {
                // The guard starts while the servers answer the first commands.
                for _ in 0..TURNS_TO_CONNECT {
                    tokio::task::yield_now().await;
                }
                command.prepare();
            }
            let waited = attempt.wait(&mut locker, &mut input, &mut stops);
            let mut waited = waited.await.map_err(system("contend for the lock"))?;
            if let (Waited::Held(authority), Some((highest, _))) = (&waited, &watched)
                && args.want() == LockMode::Exclusive
                && Some(authority.token) > highest.next()
            {
                // Without the dead holder, this job would have found the lock held.
                locker.release().await;
                let _ = tokio::time::timeout(LEAVE_MAX, locker.wait()).await;
                let why = "not acquired: another job held the lock during the watch";
                self.messages.left_to_others(why);
                waited = Waited::NotAcquired;
            }
            let exit = match waited {
                Waited::Held(authority) => {
                    self.messages.forget_conflicts();
                    if let Some(before) = locker.slots_before() {
                        warn_of_slots(args, before);
                    }
                    let work = Work {
                        job: self,
                        token: authority.token,
                        slot: locker.status().borrow().slot,
                    };
                    match &mut command {
                        Some((command, prepared)) => {
                            let signals = (&mut stops, &mut relays);
                            work.run(command, prepared, locker, signals).await
                        }
                        None => Ok(Some(work.hold(locker, &mut input, &mut stops).await)),
                    }
                    .map_err(system("hold the lock"))?
                }
                Waited::NeverHeld => None,
                Waited::Silent => {
                    let finished = locker
                        .wait()
                        .await
                        .map_err(system("contend for the lock"))?;
                    let seen = finished.observations.iter();
                    let expires = seen.map(|(_, it)| {
                        let expires = it.since + it.lease_duration.duration();
                        expires.max(it.kept_until.unwrap_or_default())
                    });
                    let expires = expires.max();
                    watched = Some((finished.token_highest, finished.observations.clone()));
                    match self.pause(expires, &mut input, &mut stops).await {
                        None => continue,
                        over => over,
                    }
                }
                Waited::NotAcquired if tries > 0 => {
                    tries -= 1;
                    patience = limits();
                    // Pauses even with --no-wait, to give the current holders time to release.
                    let until = clock::boot_now() + timings.retry_interval();
                    match self.pause(Some(until), &mut input, &mut stops).await {
                        None => continue,
                        over => over,
                    }
                }
                Waited::NotAcquired => Some(args.conflict_exit_code.into()),
                Waited::Over(exit) => Some(exit),
            };
            if let Some(exit) = exit {
                return Ok(exit);
            }
            warn!(lock = %args.lock(), "lock lost before the command began, contending again");
            patience.spend(clock::boot_now().since(began));
        }
    }

    /// Returns the exit if this process must end during the pause.
    async fn pause(
        &self,
        until: Option<BootTime>,
        input: &mut StandardInput,
        stops: &mut Stops,
    ) -> Option<Exit> {
        tokio::select! {
            () = clock::until(until) => None,
            stop = stops.next() => Some(stop.into()),
            () = input.closed() => Some(self.abandoned().into()),
        }
    }

    fn abandoned(&self) -> u8 {
        self.messages
            .say("not acquired: standard input was closed during the wait");
        exit::USAGE
    }

    fn options(&self, cache: &ObservationCache) -> LockerOptions {
        let Self { args, config, .. } = *self;
        let mut store = store_options::of_locks(config, self.timings);
        store.trace = self.trace.cloned();
        let mut options = LockerOptions::new(store, args.lock().clone());
        (options.mode, options.min_hold) = (args.want(), args.at_least());
        options.once_per = args.once_per();
        options.non_blocking = args.limit().is_some_and(|wait| wait.is_zero());
        options.remembered = cache.seen.clone();
        options
    }
}
