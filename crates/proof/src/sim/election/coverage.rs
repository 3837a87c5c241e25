use std::fmt;

use super::faults::Fault;
use crate::election::{Notice, Operation, Outcome, Reason, Role, Transition};
use crate::proof::sim::coverage::{Answer, Case, Coverage, closed, pairs};
use crate::proof::sim::faults::Kind as _;

closed! {
    Call of Operation {
        Create => "create",
        Acquire => "acquire",
        TakeOver => "take over",
        Renew => "renew",
        Release => "release",
        Register => "register",
        Withdraw => "withdraw",
        Read => "read",
    }
}

closed! {
    Landing {
        Matched => "matched",
        Refused => "refused",
    }
}

closed! {
    /// The cause of a requested step-down.
    Asked {
        StepDown => "a request to step down",
        Transfer => "a request for a transfer",
        Pause => "a pause",
        Signal => "a signal",
        Shutdown => "a shutdown",
        Health => "an unhealthy workload",
    }
}

closed! {
    Said of Notice {
        Overtook => "overtook",
        Succeeded => "succeeded",
        StoreRolledBack => "store went back",
        Duplicate => "duplicate",
        Foreign => "foreign",
        InvalidLeaseDuration => "absurd duration",
        BackingOff => "backing off",
        NotDemoted => "not demoted",
        LeftToExpire => "left to expire",
        WorkloadStuck => "workload stuck",
        RequestForAnotherToken => "request for another token",
        TokensExhausted => "tokens exhausted",
        GivingWay => "giving way",
    }
}

closed! {
    Path {
        Adopted => "an acquisition of unknown outcome is adopted",
        OwnTakenOver => "a process acquires the lease while the document still names its own ended claim",
        ProvenDead => "a candidate takes over the claim of a process that provably exited",
        WentBackBelieved => "a linearizable read confirms that the store went back",
        WentBackRefuted => "a linearizable read shows that the store did not go back",
        ReservationUsed => "the candidate that the lease is reserved for acquires it",
        ReservationWaited => "another candidate acquires the lease once a reservation has expired",
        HintsDeclaredLate => "a leader begins to write hints during its leadership",
        ReleaseAnnounced => "a candidate acquires a lease because a hint announces its release",
        TimelyHandoff => "a hint or an event wakes a follower, which acquires a released lease",
        StandbyCrashed => "a leader hands over after its standby has crashed",
        TimelyTakeover => "a follower that reads renewals takes over from a killed leader",
        HeadStartUsed => "the standby acquires the lease",
        HeadStartWaited => "another candidate acquires the lease after the standby's head start",
        LowerWaited => "a candidate with a lower priority than the standby's acquires the lease",
        StandbyReplaced => "a standby with a lower priority is replaced",
        AskedAgain => "a leader asks a preferred standby to register again",
        PreferredTook => "a preferred standby takes the lease that was handed over to it",
        PreferredPassed => "another candidate takes the lease once the reservation for a preferred standby has expired",
        FilesShown => "a flush of the files is answered",
        FilesStuck => "a flush is not answered because the files are stuck",
        DirectoryLocked => "a status directory is locked",
        CutInTurn => "a process is frozen during a turn",
        DeposedSilent => "a deposed primary does not answer",
        FailoverOpen => "a failover while writes are in flight",
        FailoverLost => "a failover that loses a write",
        TooManyCalls => "a call is refused before it is sent",
        TwinTolerated => "both twins of a forked machine lead, which the checks tolerate",
        OnlyHooks => "a candidate runs hooks next to a workload that it does not supervise",
        ChildStarted => "a child is started",
        ChildRefused => "a child is not started because its deadline has passed or it must stop",
        RecordBlocks => "a child is not started yet because the disk for its record hangs",
        StartGivenUp => "a guard gives up starting a child whose record was not written",
        ChildKilled => "a child is killed",
        ChildLate => "a child outlives its deadline while neither guard nor daemon runs",
        GuardLate => "a daemon kills its late guard",
        GuardAwaited => "a new daemon waits for the guard of an exited daemon",
        ChildAwaited => "a new daemon waits for the child of a guard that was killed",
        Buried => "a witness releases the claim of an exited process",
        ReleasedByBarred => "a candidate that may not lead releases the claim of its exited predecessor",
        ReleasedBySuccessor => "a candidate releases the claim of its exited predecessor, as configured",
        ProofRefused => "a record is not a proof because the child that it names runs",
        ForeignRecordRefused => "a record from another container is not a proof because it says that a child runs",
        GuardWaits => "a guard waits because the daemon has or awaits another guard",
        ConnectionBroken => "the connection between a daemon and its guard breaks while the child runs",
        ContainerKilled => "the container of a guard ends while the child runs",
        OrderLost => "a start is ordered on a connection that the guard has closed",
        ProvenByGuard => "a guard that connects again proves that its earlier child is gone",
        ProvenByExit => "the exit of a guard proves that its child is gone",
        LedAgainWithGuard => "a restarted daemon leads again with a guard in another container",
        ReleasedWithoutGuard => "a restarted daemon without a guard releases the claim of its predecessor",
        ManyRecords => "a guard reads several records at once",
        RecordTooLate => "a guard reads a later deadline after the previous deadline has passed",
        BackedOff => "a candidate backs off because its workload repeatedly ends soon after its start",
        IgnorantTolerated => "a process that could not know of damage to the document acquires the lease",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Hit {
    Fault(Fault),
    Change(Role, Role),
    Reason(Reason),
    Asked(Asked),
    Call(Call, Answer),
    /// The true outcome of a call that had timed out.
    Late(Answer),
    Landed(Call, Landing),
    Said(Said),
    Path(Path),
}

impl From<Fault> for Hit {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<&Outcome> for Answer {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Applied(_) | Outcome::PrimaryOnly => Self::Applied,
            Outcome::Rejected => Self::Rejected,
            Outcome::Failed => Self::Failed,
            Outcome::Unknown => Self::Unknown,
        }
    }
}

impl Asked {
    /// Returns the source of the request that made a leader change its role, or `None` if there
    /// was no request.
    fn behind(reason: Reason, by_signal: bool) -> Option<Self> {
        match reason {
            Reason::Requested if by_signal => Some(Self::Signal),
            Reason::Requested => Some(Self::StepDown),
            Reason::Transferred => Some(Self::Transfer),
            Reason::Paused => Some(Self::Pause),
            Reason::Shutdown => Some(Self::Shutdown),
            Reason::Unhealthy => Some(Self::Health),
            _ => None,
        }
    }
}

impl Case for Hit {
    fn all() -> Vec<Self> {
        let mut changes = pairs(&Role::ALL, &Role::ALL, Self::Change);
        changes.retain(|change| !matches!(change, Self::Change(from, to) if from == to));
        let faults = Fault::ALL.iter().map(|it| Self::Fault(*it));
        faults
            .chain(changes)
            .chain(Reason::ALL.iter().map(|it| Self::Reason(*it)))
            .chain(Asked::ALL.iter().map(|it| Self::Asked(*it)))
            .chain(pairs(Call::ALL, Answer::ALL, Self::Call))
            .chain(Answer::ALL.iter().map(|it| Self::Late(*it)))
            .chain(pairs(Call::ALL, Landing::ALL, Self::Landed))
            .chain(Said::ALL.iter().map(|it| Self::Said(*it)))
            .chain(Path::ALL.iter().map(|it| Self::Path(*it)))
            .collect()
    }

    fn excused(self) -> Option<&'static str> {
        match self {
            Self::Change(Role::Stopping, Role::Leader) => Some(
                "a claim leads once, and the process becomes a follower before its next claim leads",
            ),
            Self::Reason(Reason::Renewed) => Some("a renewal changes no role"),
            Self::Reason(Reason::Died) => Some("an exited process has no role"),
            Self::Call(Call::Read, Answer::Rejected) => Some("a read has no filter"),
            Self::Landed(Call::Read, _) => Some("a read changes nothing"),
            Self::Said(Said::TokensExhausted) => Some(
                "this requires 2^63 acquisitions, or an edit after which no candidate can lead",
            ),
            _ => None,
        }
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => write!(f, "fault      {fault:?}"),
            Self::Change(from, to) => write!(f, "role       {from} -> {to}"),
            Self::Reason(reason) => write!(f, "reason     {reason}"),
            Self::Asked(asked) => write!(f, "steps down after {}", asked.words()),
            Self::Call(call, answer) => {
                write!(f, "operation  {}: {}", call.words(), answer.words())
            }
            Self::Late(answer) => write!(f, "after its time-out {}", answer.words()),
            Self::Landed(call, landing) => {
                let (call, landing) = (call.words(), landing.words());
                write!(f, "lands late {call}: {landing}")
            }
            Self::Said(said) => write!(f, "notice     {}", said.words()),
            Self::Path(path) => write!(f, "path       {}", path.words()),
        }
    }
}

impl Coverage<Hit> {
    pub(super) fn transition(&mut self, transition: &Transition, by_signal: bool) {
        let Transition {
            from, to, reason, ..
        } = transition;
        self.hit(Hit::Change(*from, *to));
        let Some(reason) = *reason else { return };
        self.hit(Hit::Reason(reason));
        if *from == Role::Leader
            && let Some(asked) = Asked::behind(reason, by_signal)
        {
            self.hit(Hit::Asked(asked));
        }
    }
}
