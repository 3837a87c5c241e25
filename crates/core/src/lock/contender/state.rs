//! The states of a contender, and the work under the lock.

use std::time::Duration;

use super::{Exchange, Holding, Joining, Leaving, Waiting};
use crate::election::BootTime;
use crate::lock::{End, Loss, MinHold, Standing};

#[derive(Debug, Clone, Hash)]
pub(super) enum State {
    Joining(Joining),
    Waiting(Waiting),
    Holding(Holding),
    /// The claim is lost; the work under it may still run.
    Lost(Loss),
    Leaving(Leaving),
    Ended(End),
}

impl State {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    pub(super) fn contends(&self) -> bool {
        matches!(self, Self::Joining(_) | Self::Waiting(_))
    }

    pub(super) fn holding(&self) -> Option<&Holding> {
        let Self::Holding(holding) = self else {
            return None;
        };
        Some(holding)
    }

    pub(super) fn joining(&mut self) -> Option<&mut Joining> {
        let Self::Joining(joining) = self else {
            return None;
        };
        Some(joining)
    }

    pub(super) fn standing(&self, exchange: &Exchange) -> Standing {
        let claim = exchange.writes.claim;
        match self {
            Self::Joining(_) => Standing::Joining,
            Self::Waiting(waiting) => Standing::Waiting {
                position: waiting.position,
                holding: exchange.view.numbers_ahead(claim).0,
                ahead: exchange.view.ahead(claim),
            },
            Self::Holding(holding) => Standing::Held(holding.authority()),
            Self::Lost(loss) => Standing::Lost(*loss),
            Self::Leaving(_) => Standing::Leaving,
            Self::Ended(end) => Standing::Ended(end.clone()),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct LockedWork {
    /// End of the minimum hold; `None` before the acquisition, and without a minimum hold.
    pub(super) keeps_until: Option<BootTime>,
    pub(super) succeeded: bool,
}

impl LockedWork {
    pub(super) fn begin(&mut self, min_hold: MinHold, now: BootTime) {
        self.keeps_until = (min_hold != MinHold::NONE).then(|| now + min_hold.get());
    }

    pub(super) fn rest(&self, now: BootTime) -> Option<Duration> {
        self.keeps_until.map(|until| until.since(now))
    }

    /// Returns the rest of the minimum hold if the work ends now.
    pub(super) fn kept_for(&self, now: BootTime) -> Option<Duration> {
        let until = self.keeps_until.filter(|until| *until > now)?;
        Some(until.since(now))
    }

    #[cfg(proof)]
    pub(super) fn compare(&self, form: &mut impl super::Form) {
        form.put(&(self.keeps_until, self.succeeded));
    }
}
