//! Runs an exploration and collects its figures.

use std::fmt;

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::model::action::Action;
use crate::model::properties::Exploration;
use crate::model::world::World;

/// Figures of an exploration.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Number of states reached, including repetitions.
    pub(crate) reached: usize,
    /// Number of distinct states.
    pub(crate) unique: usize,
    /// Maximum depth, in steps.
    pub(crate) depth: usize,
    /// The broken property, if any, and the steps that break it.
    pub(crate) broken: Option<(&'static str, Vec<Action>)>,
    /// Milestones that no run reached.
    pub(crate) missed: Vec<&'static str>,
    /// True if nothing is left to explore.
    pub(crate) complete: bool,
}

/// Explores everything within the bounds, until a property is broken.
///
/// An exploration that reaches more than `reached_max` states is aborted, which counts as a
/// failure.
pub(crate) fn explore(exploration: Exploration, reached_max: usize) -> Figures {
    let checker = exploration
        .checker()
        .threads(1)
        .target_state_count(reached_max)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
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
        complete: broken.is_none() && checker.state_count() < reached_max,
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
