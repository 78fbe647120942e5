//! Wrong verdicts, made of right ones by one change, which the judge must catch: else it is blind.

use crate::conduct::Conducted;
use crate::judgement::judge;
use crate::told::{Cause, Told};

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// A failing block is left out, and every number fits.
    Dropped,
    /// A block that never failed is added.
    Invented,
    /// What no fault accounts for is laid to a hit.
    Acquitted,
    /// ... and to a consequence of one.
    Excused,
    /// What a hit did is laid to somebody else.
    Charged,
    /// ... or to another hit.
    Swapped,
    /// Faults that handed out wrong data are said to have harmed nobody.
    Hushed,
    /// So are those that were told of,
    Untold,
    /// and those of which nothing is shown.
    Claimed,
    /// Those that harmed nobody are said to have handed out wrong data.
    Slandered,
    /// A trial that fails passes.
    Passed,
    /// A fault is not counted.
    Uncounted,
}

impl Mutation {
    pub const ALL: [Self; 12] = [
        Self::Dropped,
        Self::Invented,
        Self::Acquitted,
        Self::Excused,
        Self::Charged,
        Self::Swapped,
        Self::Hushed,
        Self::Untold,
        Self::Claimed,
        Self::Slandered,
        Self::Passed,
        Self::Uncounted,
    ];

    /// Whether it must be caught wherever it can be made. The others may make of one verdict that nothing contradicts another
    /// one.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Dropped | Self::Invented | Self::Charged | Self::Passed | Self::Uncounted)
    }

    /// The verdict with that change; `None` where there is nothing to change.
    fn of(self, trial: &Conducted) -> Option<Told> {
        let mut told = trial.told.clone();
        let has_cause = |is_it: &dyn Fn(Cause) -> bool| {
            trial.told.failures.iter().position(|failure| is_it(failure.cause))
        };
        match self {
            Self::Dropped => {
                told.failures.pop()?;
                told.recount();
            }
            Self::Invented => {
                let mut one = told.failures.first()?.clone();
                one.block = u64::MAX;
                told.failures.push(one);
                told.recount();
            }
            Self::Acquitted | Self::Excused => {
                let at = has_cause(&|cause| cause == Cause::Unexplained)?;
                let line = trial.lines.iter().position(|line| line.before.is_some())?;
                told.failures[at].cause =
                    if self == Self::Acquitted { Cause::Hit(line) } else { Cause::Consequence(line) };
                told.recount();
            }
            Self::Charged => {
                if !trial.blows.is_empty() {
                    return None;
                }
                let at = has_cause(&|cause| matches!(cause, Cause::Hit(_)))?;
                told.failures[at].cause = Cause::Unexplained;
                told.recount();
            }
            Self::Swapped => {
                let at = has_cause(&|cause| matches!(cause, Cause::Hit(_)))?;
                let Cause::Hit(line) = told.failures[at].cause else { return None };
                let own = &trial.lines[line];
                let is_other = |other: &crate::ledger::Line| {
                    own.after.is_some() && other.after.is_some() && other.after != own.after
                };
                told.failures[at].cause = Cause::Hit(trial.lines.iter().position(is_other)?);
            }
            Self::Hushed => move_fates(&mut told, "silent", "masked")?,
            Self::Untold => move_fates(&mut told, "reported", "masked")?,
            Self::Claimed => move_fates(&mut told, "unknown", "masked")?,
            Self::Slandered => move_fates(&mut told, "masked", "silent")?,
            Self::Passed => {
                if told.passes || !trial.facts.is_by_default {
                    return None;
                }
                told.passes = true;
            }
            Self::Uncounted => {
                let rule = told.rules.iter_mut().find(|rule| rule.hits > 0)?;
                let fate =
                    rule.fates.iter_mut().find(|(fate, count)| *fate != "untriggered" && **count > 0)?;
                *fate.1 -= 1;
                rule.faults -= 1;
                told.recount();
            }
        }
        Some(told)
    }
}

/// All faults of one fate have another.
fn move_fates(told: &mut Told, from: &str, to: &str) -> Option<()> {
    told.rules.iter().any(|rule| rule.fate(from) > 0).then_some(())?;
    for rule in &mut told.rules {
        let moved = rule.fates.insert(from.to_owned(), 0).unwrap_or_default();
        *rule.fates.entry(to.to_owned()).or_default() += moved;
    }
    told.recount();
    Some(())
}

/// Every change that can be made to the verdict of a trial, with the verdict where the judge does not see it.
pub fn missed(trial: &Conducted) -> Vec<(Mutation, Option<String>)> {
    // What a load of files was handed, nobody has written down.
    if trial.is_of_files() {
        return Vec::new();
    }
    let before = judge(trial, &trial.told).len();
    let try_one = |mutation: Mutation| {
        let told = mutation.of(trial)?;
        let is_seen = judge(trial, &told).len() > before;
        Some((mutation, (!is_seen).then(|| format!("{told:x?}"))))
    };
    Mutation::ALL.into_iter().filter_map(try_one).collect()
}
