//! Runs an exploration and says what it saw.

use std::fmt;

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::bounds::Bounds;
use crate::monitor::Milestone;
use crate::properties::Exploration;
use crate::world::World;

/// What an exploration saw.
#[derive(Debug)]
pub struct Figures {
    /// States reached, each as often as it was reached.
    pub reached: usize,
    /// Different states.
    pub unique: usize,
    /// The longest run without a repeated state, in steps.
    pub depth: usize,
    /// A broken property, and the steps that break it.
    pub broken: Option<(&'static str, Vec<Action>)>,
    /// Milestones that no run reached.
    pub missed: Vec<&'static str>,
    /// Whether nothing is left to explore.
    pub complete: bool,
}

/// How far to go.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// To this many steps from the start; all if `None`.
    pub depth: Option<usize>,
    /// An exploration that reaches more is given up, which is a failure.
    pub reached: usize,
}

/// Explores everything within `bounds`; some run must reach each milestone.
pub fn explore(bounds: Bounds, milestones: Vec<Milestone>, limit: Limit) -> Figures {
    let exploration = Exploration { bounds, milestones };
    let builder = exploration
        .checker()
        .threads(1)
        .target_state_count(limit.reached)
        .finish_when(HasDiscoveries::AnyFailures);
    let builder = match limit.depth {
        Some(depth) => builder.target_max_depth(depth),
        None => builder,
    };
    let checker = builder.spawn_bfs().join();
    let discoveries = checker.discoveries();
    let properties = checker.model().properties();
    let failure = |path: &Path<World, Action>| path.clone().into_actions();
    let broken = properties
        .iter()
        .filter(|property| property.expectation == stateright::Expectation::Always)
        .find_map(|p| Some((p.name, failure(discoveries.get(p.name)?))));
    let missed = properties
        .iter()
        .filter(|property| property.expectation == stateright::Expectation::Sometimes)
        .filter(|property| !discoveries.contains_key(property.name))
        .map(|property| property.name)
        .collect();
    Figures {
        reached: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: broken.is_none() && checker.state_count() < limit.reached,
        broken,
        missed,
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            reached,
            unique,
            depth,
            broken,
            missed,
            complete,
        } = self;
        write!(f, "{unique} states ({reached} reached), {depth} deep")?;
        if !complete {
            f.write_str(", not complete")?;
        }
        if !missed.is_empty() {
            write!(f, "; never: {}", missed.join(", "))?;
        }
        if let Some((name, steps)) = broken {
            write!(f, "; broken: {name}, after {} steps:", steps.len())?;
            for step in steps {
                write!(f, "\n    {step:?}")?;
            }
        }
        Ok(())
    }
}
