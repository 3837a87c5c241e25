use std::fmt::{self, Debug};
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model, Path};

pub(crate) trait Case {
    fn name(&self) -> &'static str;

    /// Number of states when the case was last changed. If an exploration finds fewer states, the
    /// model covers less than before.
    fn states_min(&self) -> usize;

    fn explore(&self) -> Figures;

    /// Describes the problem with these figures, if there is one.
    fn complaint(&self, figures: &Figures) -> Option<String> {
        let good = figures.complete && figures.missed.is_empty();
        (!good || figures.unique < self.states_min()).then(|| format!("{}: {figures}", self.name()))
    }
}

#[derive(Debug)]
pub(crate) struct Figures {
    /// The number of times that a step reached a state.
    pub(crate) reached: usize,
    pub(crate) unique: usize,
    pub(crate) depth: usize,
    /// The violated property, if any, with the steps that lead to the violation.
    pub(crate) broken: Option<(&'static str, Vec<String>)>,
    pub(crate) missed: Vec<String>,
    pub(crate) complete: bool,
}

/// Explores everything within the bounds, but stops once a property is violated. An exploration
/// that reaches more than `reached_max` states fails.
pub(crate) fn explore<M>(exploration: M, reached_max: usize) -> Figures
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let checker = exploration
        .checker()
        .threads(1)
        .target_state_count(reached_max)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let discoveries = checker.discoveries();
    let properties = checker.model().properties();
    let failure = |path: &Path<M::State, M::Action>| -> Vec<String> {
        let actions = path.clone().into_actions();
        actions.iter().map(|action| format!("{action:?}")).collect()
    };
    let broken = properties
        .iter()
        .filter(|property| property.expectation == stateright::Expectation::Always)
        .filter_map(|p| Some((p.name, failure(discoveries.get(p.name)?))))
        .min_by_key(|(_, steps)| steps.len());
    let missed = properties
        .iter()
        .filter(|property| property.expectation == stateright::Expectation::Sometimes)
        .filter(|property| !discoveries.contains_key(property.name))
        .map(|property| property.name.to_owned())
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
                write!(f, "\n    {step}")?;
            }
        }
        Ok(())
    }
}
