use super::{Exchange, Holding, Joining, Leaving, Waiting};
use crate::lock::{End, Loss, Standing};

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
        match self {
            Self::Joining(_) => Standing::Joining,
            Self::Waiting(waiting) => {
                let (holding, _, ahead) = exchange.view.ahead(exchange.writes.claim);
                Standing::Waiting {
                    position: waiting.position,
                    holding,
                    ahead,
                }
            }
            Self::Holding(holding) => Standing::Held(holding.authority),
            Self::Lost(loss) => Standing::Lost(*loss),
            Self::Leaving(_) => Standing::Leaving,
            Self::Ended(end) => Standing::Ended(end.clone()),
        }
    }
}
