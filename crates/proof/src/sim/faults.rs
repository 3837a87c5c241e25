//! Faults by name. Each seed enables a subset of the faults, because this finds more bugs than
//! enabling all faults. The plan of a run is drawn before the run starts, so that a failing run can
//! be repeated with fewer faults.

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

use super::network::Fate;
use super::rng::Rng;

pub(super) trait Kind: Copy + Debug + Eq + Hash + 'static {
    const ALL: &'static [Self];

    /// Returns the fault that causes this fate of a call.
    fn of_calls(fate: Fate) -> Self;

    fn index(self) -> u32;

    fn words(self) -> &'static str;
}

/// Declares the faults of a simulation. `of calls` adds the faults that every simulation shares.
/// The doc comments of the faults are their descriptions in a trace.
macro_rules! faults {
    (of calls, $($own:tt)*) => {
        faults! {
            /// A call takes up to 40 s.
            Slow,
            /// A call never reaches the store.
            LostBefore,
            /// A call is applied and its answer is lost.
            LostAfter,
            /// A call reaches the store twice, the second time late.
            Duplicate,
            /// A call is reported as failed although the store applies it, now or later.
            Late,
            $($own)*
        }
    };
    ($($(#[doc = $words:literal])* $name:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum Fault {
            $($(#[doc = $words])* $name,)*
        }

        impl $crate::proof::sim::faults::Kind for Fault {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            fn of_calls(fate: $crate::proof::sim::network::Fate) -> Self {
                use $crate::proof::sim::network::Fate;

                match fate {
                    Fate::Slow => Self::Slow,
                    Fate::LostBefore => Self::LostBefore,
                    Fate::LostAfter => Self::LostAfter,
                    Fate::Duplicate => Self::Duplicate,
                    Fate::Late => Self::Late,
                }
            }

            fn index(self) -> u32 {
                self as u32
            }

            fn words(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($words),*).trim_ascii(),)*
                }
            }
        }
    };
}
pub(super) use faults;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Faults<F>(u128, PhantomData<F>);

impl<F: Kind> Faults<F> {
    pub(super) const NONE: Self = Self(0, PhantomData);

    pub(super) fn has(self, fault: F) -> bool {
        self.0 & (1 << fault.index()) != 0
    }

    pub(super) fn with(self, fault: F) -> Self {
        Self(self.0 | (1 << fault.index()), PhantomData)
    }

    pub(super) fn without(self, fault: F) -> Self {
        Self(self.0 & !(1 << fault.index()), PhantomData)
    }

    pub(super) fn list(self) -> Vec<F> {
        let has = |fault: &&F| self.has(**fault);
        F::ALL.iter().filter(has).copied().collect()
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Planned<F> {
    pub(super) at: u64,
    pub(super) fault: F,
    /// A random number that decides the details of the fault.
    pub(super) chance: u64,
}

/// Draws the faults of a run. For each instant, one fault is drawn at random according to
/// `weights`. If this fault is disabled, nothing happens at this instant. `gap` takes an instant,
/// which is 0 in the first call, and returns the time until the next instant.
pub(super) fn plan<F: Kind>(
    rng: &mut Rng,
    faults: Faults<F>,
    weights: &[(F, u64)],
    until: u64,
    gap: impl Fn(&mut Rng, u64) -> u64,
) -> Vec<Planned<F>> {
    let total = weights.iter().map(|(_, weight)| weight).sum();
    let mut plan = Vec::new();
    let mut at = gap(rng, 0);
    while at < until {
        let mut pick = rng.below(total);
        let chance = rng.next_u64();
        let drawn = weights.iter().find(|(_, weight)| {
            let hit = pick < *weight;
            pick = pick.saturating_sub(*weight);
            hit
        });
        let enabled = drawn.filter(|(fault, _)| faults.has(*fault));
        plan.extend(enabled.map(|(fault, _)| Planned {
            at,
            fault: *fault,
            chance,
        }));
        at += gap(rng, at);
    }
    plan
}
