//! Counts how often each case occurred. A soak run fails if it never reaches a required case,
//! because it then proves less than it claims.
//!
//! Every value of a closed enum is required, unless [`Case::excused`] gives a reason. A new role,
//! reason, notice, operation or fault therefore needs a run in which it occurs.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

pub(super) trait Case: Copy + Eq + Hash + fmt::Display + fmt::Debug + Send {
    fn all() -> Vec<Self>;

    /// Returns the reason why the runs need not reach this case, if there is one.
    fn excused(self) -> Option<&'static str>;
}

pub(super) fn pairs<A: Copy, B: Copy, C>(first: &[A], second: &[B], case: fn(A, B) -> C) -> Vec<C> {
    let each = first.iter();
    each.flat_map(|a| second.iter().map(move |b| case(*a, *b)))
        .collect()
}

/// Declares a fieldless enum of cases, with a text for each. With `of Source`, a value of `Source`
/// converts to the case with the same name.
macro_rules! closed {
    ($(#[$doc:meta])* $name:ident { $($variant:ident => $words:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum $name {
            $($variant,)*
        }

        impl $name {
            pub(super) const ALL: &[Self] = &[$(Self::$variant,)*];

            pub(super) const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)*
                }
            }
        }
    };
    ($(#[$doc:meta])* $name:ident of $source:ident {
        $($variant:ident => $words:literal,)*
    }) => {
        closed! {
            $(#[$doc])* $name { $($variant => $words,)* }
        }

        impl From<&$source> for $name {
            fn from(source: &$source) -> Self {
                match source {
                    $($source::$variant { .. } => Self::$variant,)*
                }
            }
        }
    };
}
pub(super) use closed;

closed! {
    Answer {
        Applied => "applied",
        Rejected => "rejected",
        Failed => "failed",
        Unknown => "unknown",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Coverage<C: Case>(HashMap<C, u64>);

impl<C: Case> Default for Coverage<C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C: Case> Coverage<C> {
    pub(super) fn hit(&mut self, case: C) {
        *self.0.entry(case).or_default() += 1;
    }

    pub(super) fn hit_if(&mut self, happened: bool, case: C) {
        if happened {
            self.hit(case);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (case, count) in &other.0 {
            *self.0.entry(*case).or_default() += count;
        }
    }

    fn count(&self, case: C) -> u64 {
        self.0.get(&case).copied().unwrap_or(0)
    }

    pub(super) fn missing(&self) -> Vec<String> {
        let missing = |case: &C| case.excused().is_none() && self.count(*case) == 0;
        let all = C::all().into_iter().filter(missing);
        all.map(|case| case.to_string()).collect()
    }
}

impl<C: Case> fmt::Display for Coverage<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for case in C::all() {
            let count = self.count(case);
            match case.excused() {
                Some(why) => writeln!(f, "{count:>12}  {case} (not required: {why})")?,
                None => writeln!(f, "{count:>12}  {case}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Letter {
        A,
        B,
        Excused,
    }

    impl Case for Letter {
        fn all() -> Vec<Self> {
            vec![Self::A, Self::B, Self::Excused]
        }

        fn excused(self) -> Option<&'static str> {
            (self == Self::Excused).then_some("never happens")
        }
    }

    impl fmt::Display for Letter {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{self:?}")
        }
    }

    #[test]
    fn a_case_never_hit_is_missing_unless_it_is_excused() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.missing(), ["A", "B"]);
        coverage.hit(Letter::B);
        assert_eq!(coverage.missing(), ["A"]);
        coverage.hit(Letter::A);
        assert_eq!(coverage.missing(), Vec::<String>::new());
    }
}
