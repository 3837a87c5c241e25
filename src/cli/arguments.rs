#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Args, Command, CommandFactory, FromArgMatches, Parser};

use super::Invocation;
use super::guard::GuardArgs;
use super::help::{NAMING, WIDTH_MAX, arranged, width, with_tip};
use super::lock::LockArgs;
use super::run::RunArgs;
use super::status::StatusArgs;
use crate::config::{MASK, looks_secret};
use crate::election::BootTime;
use crate::exit;
use crate::workload::WITNESS;
use leasehold_host::terminal::color;
use leasehold_operate::operators::OperatorCommand;

/// Leader election for replicated workloads, on the MongoDB they already have
#[derive(Debug, Parser)]
#[command(name = "leasehold", version = version(), after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    invocation: Invocation,
}

/// Returns the clap definition of the command line.
pub fn command() -> Command {
    arranged(CommandLine::command(), WIDTH_MAX)
}

/// Parses a command line. A request for help or the version is a [`UsageError`] too.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, UsageError> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    parsed(&arguments).map_err(|error| UsageError { error, arguments })
}

fn parsed(arguments: &[OsString]) -> Result<Invocation, Error> {
    if let Some((arguments, until)) = witness(arguments) {
        let invocation = parsed(&arguments)?;
        return Ok(match invocation {
            Invocation::Bury(args) => Invocation::Bury(args.of_a_guard(until)),
            other => other,
        });
    }
    if let Some(guard) = GuardArgs::without_clap(arguments) {
        return Ok(Invocation::Guard(guard));
    }
    // Only help and errors need the layout of the text. Computing it would delay the start of every
    // job by a millisecond.
    let matches = match one_only(arguments) {
        Some(command) => command.try_get_matches_from(arguments),
        None => CommandLine::command().try_get_matches_from(arguments),
    };
    let fitting = || arranged(CommandLine::command(), width()).try_get_matches_from(arguments);
    let matches = match matches {
        Err(error) if error.kind() == ErrorKind::DisplayVersion => return Err(error),
        Err(_) => fitting().map_err(|error| explained(error, arguments)),
        found => found,
    };
    let mut matches = matches?;
    let command = matches
        .subcommand()
        .map(|(_, it)| it.try_contains_id("command"));
    let has_command = matches!(command, Some(Ok(true)));
    if arguments.last().is_some_and(|last| last == "--") && !has_command {
        // The usual cause is an empty variable in a script. Without this check, leasehold would
        // start without a command.
        let subcommand = matches.subcommand_name().unwrap_or_default();
        return Err(wrong(subcommand, "a command is expected after --"));
    }
    let CommandLine { invocation } = CommandLine::from_arg_matches_mut(&mut matches)?;
    match contradiction(&invocation) {
        Some((subcommand, message)) => Err(wrong(subcommand, &message)),
        None => Ok(invocation),
    }
}

/// Returns the command line of `bury` and the end of authority, if a guard has replaced itself with
/// this process.
fn witness(arguments: &[OsString]) -> Option<(Vec<OsString>, BootTime)> {
    let (until, arguments) = arguments.split_last()?;
    let until = until.to_str()?.parse().ok().map(BootTime::from_nanos)?;
    let mut arguments = arguments.to_vec();
    let name = arguments.get_mut(1).filter(|name| *name == WITNESS)?;
    *name = "bury".into();
    Some((arguments, until))
}

/// Returns a definition of only the named command, if its processes run for long or start often.
/// Building the definitions of all commands takes a millisecond, and a guard would never free their
/// memory.
fn one_only(arguments: &[OsString]) -> Option<Command> {
    let only = match arguments.get(1)?.to_str()? {
        "run" => RunArgs::augment_args(Command::new("run")),
        "lock" => LockArgs::augment_args(Command::new("lock")),
        "guard" => GuardArgs::augment_args(Command::new("guard")),
        "status" => StatusArgs::augment_args(Command::new("status")),
        _ => return None,
    };
    Some(Command::new("leasehold").subcommand(only))
}

/// Returns the subcommand and the error message if the arguments contradict each other.
fn contradiction(invocation: &Invocation) -> Option<(&'static str, String)> {
    let (subcommand, message) = match invocation {
        Invocation::Run(args) => ("run", args.contradiction()),
        Invocation::Lock(args) => ("lock", args.contradiction()),
        Invocation::Locks(args) => ("locks", args.contradiction()),
        Invocation::Replicas(args) => ("replicas", args.contradiction()),
        Invocation::Operator(OperatorCommand::Web(args)) => ("web", args.contradiction()),
        Invocation::Operator(OperatorCommand::Leases(args)) => ("leases", args.contradiction()),
        _ => return None,
    };
    Some((subcommand, message?))
}

const EXAMPLES: &str = "\
Examples:
  export LEASEHOLD_MONGODB__URI='mongodb://…'
                             the connection string; two underscores; or --mongodb-uri-file FILE
  leasehold run --lease orders
                             contend for a lease and publish who leads
  leasehold run --lease orders -- ./scheduler
                             run a command exactly while this replica leads
  leasehold lock nightly-report --wait 2h --once-per 20h -- ./report
                             run a cron job, present on all hosts, once a night
  leasehold status orders && ./only-the-leader-does-this
                             ask this host's daemon: exit 0 if it leads
  leasehold leases --watch
                             live table of the leases: who leads
  leasehold describe nightly-report
                             a lease or a lock; for a job: when it last succeeded
  leasehold transfer orders --to orders-2
                             hand over to another candidate
  leasehold check --lease orders
                             examine servers, rights, certificates and this host before the first start
  leasehold config --config /etc/leasehold.toml
                             the effective configuration, and where each value came from

Exit codes: 0 done, 1 no (not leader; check: warnings), 2 cannot tell (check: failed), 3 a request is still under way, 64 usage, 69 MongoDB is unreachable or refuses a call, 71 system error, 75 lock not \
acquired, 76 lock lost, 77 skipped by --once-per, 78 configuration, 126/127 the command cannot be executed / found; else the command's own.";

const fn version() -> &'static str {
    concat!(
        env!("CARGO_PKG_VERSION"),
        " (revision ",
        env!("LEASEHOLD_REVISION"),
        ")"
    )
}

fn wrong(subcommand: &str, message: &str) -> Error {
    let mut root = command();
    root.build();
    let meant = match root.find_subcommand(subcommand) {
        Some(_) => root.find_subcommand_mut(subcommand).expect("it was found"),
        None => &mut root,
    };
    meant.error(ErrorKind::ValueValidation, message)
}

/// An invalid command line, or a request for the help or the version.
#[derive(Debug)]
pub struct UsageError {
    error: Error,
    arguments: Vec<OsString>,
}

impl UsageError {
    /// Prints help to standard output, and errors to standard error.
    pub fn print(&self) -> ExitCode {
        // If printing fails, the exit code alone reports the error.
        let _ = match self.error.use_stderr() {
            true => {
                let mut stderr = std::io::stderr().lock();
                stderr.write_all(self.text(color(&stderr)).as_bytes())
            }
            false => self.error.print(),
        };
        ExitCode::from(self.code())
    }

    /// Returns the error without secrets, and with leasehold's error prefix instead of clap's.
    fn text(&self, color: bool) -> String {
        let rendered = self.error.render();
        let plain = rendered.to_string();
        let masked = mask(&plain, &self.arguments);
        let text = match color && masked == plain {
            true => rendered.ansi().to_string(),
            false => masked,
        };
        text.replacen("error:", "leasehold:", 1)
    }

    /// Returns 0 for help and version, and 64 for errors, because clap's exit code 2 means "cannot
    /// tell" in leasehold.
    pub fn code(&self) -> u8 {
        if self.error.use_stderr() {
            exit::USAGE
        } else {
            exit::DONE
        }
    }
}

/// Masks arguments that could contain a password, because clap quotes unexpected arguments.
fn mask(message: &str, arguments: &[OsString]) -> String {
    let mut message = message.to_owned();
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let value = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => value,
            _ => &argument,
        };
        for secret in [&*argument, value] {
            if looks_secret(secret) {
                message = message.replace(secret, MASK);
            }
        }
    }
    message
}

/// Adds a remedy or a tip to the error about an unexpected argument. Removes clap's tip to pass an
/// unknown flag after `--`, which would run the flag as a command.
fn explained(mut error: Error, arguments: &[OsString]) -> Error {
    if let Some(error) = without_value(arguments) {
        return error;
    }
    let unexpected = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unexpected)) => unexpected.clone(),
        _ => return with_tip(error, arguments),
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let locks = arguments.get(1).is_some_and(|command| command == "lock");
    if let Some(remedy) = habit(&unexpected, arguments).filter(|_| locks) {
        let message = format!("unexpected argument '{unexpected}': {remedy}");
        return wrong("lock", &message);
    }
    let (commands, mut words) = (command(), arguments.iter());
    let subcommand = words.find_map(|word| commands.find_subcommand(word));
    if let Some(flag) = unexpected.strip_prefix("--") {
        error.remove(ContextKind::Suggested);
        let near = subcommand.and_then(|command| near_flag(command, flag));
        if let Some(near) = near {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
        }
        let member = subcommand.and_then(|command| member_with(command, flag));
        if unexpected == "--wait" || NAMING.contains(&&*unexpected) {
            error = with_tip(error, arguments);
        } else if let (Some(command), Some(member)) = (subcommand, member) {
            let command = command.get_name();
            let tip = format!("{unexpected} belongs to: leasehold {command} {member}");
            let tips = ContextValue::StyledStrs(vec![tip.into()]);
            error.insert(ContextKind::Suggested, tips);
        }
    } else if let Some(pair) = negative_value(&unexpected, arguments) {
        if let Some(error) = refusal(pair, arguments) {
            return error;
        }
        let [flag, value] = pair.map(|word| word.to_string_lossy());
        return Error::raw(
            ErrorKind::ValueValidation,
            format!("invalid value '{value}' for '{flag}': it is negative\n"),
        );
    } else if unexpected.starts_with('-') {
        // clap's tip would run the word as a command, but a word that begins with a dash is not a
        // command.
        error.remove(ContextKind::Suggested);
    } else if arguments
        .get(1)
        .is_some_and(|command| command == "transfer")
    {
        error = with_tip(error, arguments);
    } else if subcommand.is_some_and(takes_command) {
        let mut tips = Vec::new();
        let before_command = arguments.iter().take_while(|argument| *argument != "--");
        let is_named = before_command
            .map(|argument| argument.to_string_lossy())
            .any(|argument| argument == "--lease" || argument.starts_with("--lease="));
        if !is_named && subcommand.is_some_and(|command| command.get_name() == "run") {
            tips.push(format!("to name the lease: --lease {unexpected}").into());
        }
        if !arguments.iter().any(|argument| argument == "--") {
            tips.push(format!("to run a command, put '--' before it: -- {unexpected} …").into());
        }
        match tips.is_empty() {
            true => error.remove(ContextKind::Suggested),
            false => error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips)),
        };
    }
    error
}

/// Returns the error if clap mistook the `--` before the command for the value of a flag.
fn without_value(arguments: &[OsString]) -> Option<Error> {
    let dashes = arguments.iter().position(|argument| argument == "--")?;
    let mut commands = command();
    commands.build();
    let subcommand = commands.find_subcommand(arguments.get(1)?)?;
    let flag = arguments.get(dashes - 1)?.to_str()?;
    let is_meant = |argument: &&Arg| {
        let longs = argument.get_long_and_visible_aliases().unwrap_or_default();
        let short = argument.get_short().map(|short| format!("-{short}"));
        let long = flag.strip_prefix("--");
        long.is_some_and(|long| longs.contains(&long)) || short.as_deref() == Some(flag)
    };
    let mut flags = subcommand.get_arguments();
    let meant =
        flags.find(|argument| argument.is_allow_hyphen_values_set() && is_meant(argument))?;
    let message = format!("a value is required for '{meant}' but none was supplied");
    Some(wrong(subcommand.get_name(), &message))
}

/// Returns the flag and its value if clap mistook a negative value, such as `-1s`, for flags.
fn negative_value<'a>(unexpected: &str, arguments: &'a [OsString]) -> Option<[&'a OsString; 2]> {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let negative = |value: &OsString| {
        let value = value.as_encoded_bytes();
        value.starts_with(unexpected.as_bytes()) && value.get(1).is_some_and(is_digit)
    };
    let mut pairs = arguments.windows(2);
    let pair =
        pairs.find(|pair| pair[0].as_encoded_bytes().starts_with(b"--") && negative(&pair[1]))?;
    Some([&pair[0], &pair[1]])
}

/// Returns clap's error, which names the accepted values of the flag; `None` for a configuration
/// key, because clap accepts any text as its value.
fn refusal([flag, value]: [&OsString; 2], arguments: &[OsString]) -> Option<Error> {
    let at = arguments
        .windows(2)
        .position(|two| two == [flag.clone(), value.clone()])?;
    let mut joined = arguments.to_vec();
    let value = joined.remove(at + 1);
    joined[at].push("=");
    joined[at].push(value);
    let error = command().try_get_matches_from(joined).err()?;
    (error.kind() == ErrorKind::ValueValidation).then_some(error)
}

/// Returns the remedy for an option of flock(1) or `consul lock` that works differently here.
fn habit(argument: &str, arguments: &[OsString]) -> Option<&'static str> {
    // `consul lock` accepts `-n 3`.
    let count = || {
        arguments.windows(2).any(|pair| {
            let value = pair[1].to_str().unwrap_or_default();
            pair[0] == "-n" && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    Some(match argument {
        "-c" | "--command" => "put the command after --, as in -- sh -c 'COMMAND'",
        "-u" | "--unlock" => "the lock is released when its command ends: omit the option",
        "-o" | "--close" => "the command inherits no descriptor of the lock: omit the option",
        "-F" | "--no-fork" => "the command always runs under a guard: omit the option",
        _ if !argument.starts_with('-') && count() => {
            "-n (--no-wait) takes no value; for N holders at a time: --slots N"
        }
        _ => return None,
    })
}

/// Returns the command's flag that ends with `-{flag}`, if exactly one flag does.
fn near_flag(command: &Command, flag: &str) -> Option<String> {
    let end = format!("-{flag}");
    let flags = command
        .get_arguments()
        .filter_map(|argument| argument.get_long());
    let mut near = flags.filter(|long| long.ends_with(&end));
    let first = near.next()?;
    near.next().is_none().then(|| format!("--{first}"))
}

/// Returns the subcommand of `command` that has the flag, if exactly one does.
fn member_with<'a>(command: &'a Command, flag: &str) -> Option<&'a str> {
    let has = |member: &&Command| member.get_arguments().any(|it| it.get_long() == Some(flag));
    let mut members = command.get_subcommands().filter(has);
    let first = members.next()?;
    members.next().is_none().then(|| first.get_name())
}

fn takes_command(command: &Command) -> bool {
    let mut arguments = command.get_arguments();
    arguments.any(|argument| argument.get_id() == "command")
}
