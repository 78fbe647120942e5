//! What the trials were, so that it can be seen what has been judged.

use std::collections::BTreeMap;
use std::fmt;

use crate::canary::Mutation;
use crate::conduct::Conducted;
use crate::draw::Case;

/// Counts of trials, hits, failures.
#[derive(Debug, Default)]
pub struct Tally {
    trials: u64,
    /// In which the other hand struck, and in which that was seen.
    struck: u64,
    seen: u64,
    subjects: BTreeMap<String, u64>,
    /// Trials in which a rule with that effect hit.
    effects: BTreeMap<String, u64>,
    fates: BTreeMap<String, u64>,
    causes: BTreeMap<&'static str, u64>,
    /// Wrong verdicts that were caught, by what was wrong with them; and those that nothing contradicts.
    canaries: BTreeMap<Mutation, (u64, u64)>,
}

impl Tally {
    pub fn add(&mut self, case: &Case, trial: &Conducted) {
        self.trials += 1;
        self.struck += u64::from(!trial.blows.is_empty());
        let is_struck = |blow: &crate::hand::Blow| {
            let expects = |way: &crate::told::Way| way.expected.contains(&Some(blow.before));
            trial.told.failures.iter().flat_map(|failure| &failure.ways).any(expects)
        };
        self.seen += u64::from(trial.blows.iter().any(is_struck));
        *self.subjects.entry(case.subject()).or_default() += 1;
        let word = |line: &crate::ledger::Line| line.effect.split('(').next().unwrap_or_default().to_owned();
        let effects: std::collections::BTreeSet<String> = trial.lines.iter().map(word).collect();
        effects.into_iter().for_each(|effect| *self.effects.entry(effect).or_default() += 1);
        for (fate, count) in trial.told.rules.iter().flat_map(|rule| &rule.fates) {
            *self.fates.entry(fate.clone()).or_default() += count;
        }
        for failure in &trial.told.failures {
            let word =
                ["unexplained", "assumed", "consequence", "hit"][usize::from(failure.cause.certainty())];
            *self.causes.entry(word).or_default() += 1;
        }
    }

    /// Takes down which wrong verdicts were caught; says which were not.
    pub fn sing(&mut self, tried: Vec<(Mutation, Option<String>)>) -> Vec<String> {
        let mut missed = Vec::new();
        for (mutation, escaped) in tried {
            match escaped {
                None => self.canaries.entry(mutation).or_default().0 += 1,
                Some(_) if !mutation.is_plain() => self.canaries.entry(mutation).or_default().1 += 1,
                Some(what) => missed.push(format!("the judge is blind to {mutation:?}: {what}")),
            }
        }
        missed
    }

    /// Panics where the trials do not show what they are to show.
    pub fn assert_is_worth_something(&self) {
        assert!(self.struck * 4 >= self.trials, "the other hand struck in {} trials", self.struck);
        assert!(
            self.seen * 2 >= self.struck,
            "what the other hand did was seen in {} of {}",
            self.seen,
            self.struck
        );
        for fate in ["masked", "reported", "silent", "unknown", "untriggered"] {
            assert!(self.fates.get(fate).is_some_and(|&count| count > 0), "no fault was {fate}");
        }
        for mutation in Mutation::ALL {
            let (caught, passed) = self.canaries.get(&mutation).copied().unwrap_or_default();
            assert!(caught > passed, "{mutation:?}: {caught} caught, {passed} not");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} trials, in {} the other hand, seen in {}", self.trials, self.struck, self.seen)?;
        writeln!(f, "subjects: {:?}", self.subjects)?;
        writeln!(f, "effects, trials in which they hit: {:?}", self.effects)?;
        writeln!(f, "fates: {:?}", self.fates)?;
        writeln!(f, "causes: {:?}", self.causes)?;
        write!(f, "wrong verdicts that were caught: {:?}", self.canaries)
    }
}
