//! Whether the blocks that the verdict counts as failing are those that failed, and in the same ways.

use super::evidence::{Evidence, WAYS_MAX};
use crate::account::{Seen, Spot};
use crate::told::{Told, Way};

pub fn judge(evidence: &Evidence<'_>, told: &Told, wrong: &mut Vec<String>) {
    let account = evidence.account;
    for failure in &told.failures {
        let spot: Spot = (failure.object, failure.block);
        let Some(seen) = evidence.by_spot.get(&spot) else {
            wrong.push(format!("block {spot:?} is said to have failed, and never did"));
            continue;
        };
        for way in &failure.ways {
            let is_it = |seen: &&&Seen| is_same(evidence, way, seen);
            match seen.iter().find(is_it) {
                None => wrong.push(format!("block {spot:?} never failed as is said: {way:x?}")),
                Some(seen) if way.kind == "unflushed" && !is_unflushed(evidence, seen) => {
                    wrong.push(format!("no failed flush told of this: {}", evidence.tell(seen)));
                }
                Some(_) => {}
            }
        }
    }
    for (spot, all) in &evidence.by_spot {
        let Some(failure) = told.failures.iter().find(|failure| (failure.object, failure.block) == *spot)
        else {
            wrong.push(format!("acquitted: nobody tells of {}", evidence.tell(all[0])));
            continue;
        };
        let of_phase = |phase: &str| failure.ways.iter().filter(|way| way.phase == phase).count();
        for seen in all {
            let is_told = failure.ways.iter().any(|way| is_same(evidence, way, seen));
            if !is_told && of_phase(evidence.phase_of(seen)) < WAYS_MAX {
                wrong.push(format!("this way of failing is not told: {}", evidence.tell(seen)));
            }
        }
    }
    for spot in &account.unchecked {
        wrong.push(format!("block {spot:?} was never read back"));
    }
}

/// Whether the verdict tells of just this.
fn is_same(evidence: &Evidence<'_>, way: &Way, seen: &Seen) -> bool {
    let event = evidence.event(seen);
    let expected: Vec<u128> = way.expected.iter().flatten().copied().collect();
    way.phase == event.phase.word()
        && way.operation == event.kind.word()
        && way.found == seen.found
        && way.is_error() == seen.found.is_none()
        && expected == seen.expected
}

/// Whether what was found can be the loss that a failed flush has told of.
fn is_unflushed(evidence: &Evidence<'_>, seen: &Seen) -> bool {
    let Some(found) = seen.found.filter(|_| seen.may_be_unflushed) else { return false };
    let Some(versions) = evidence.account.versions.get(&seen.spot) else { return false };
    // What was there before the first write that was made durable, nobody knows.
    let is_settled = !evidence.trial.facts.has_company && evidence.account.settled.contains(&seen.spot);
    if versions.contains(&found) || !is_settled {
        return true;
    }
    let sectors = |content: &u128| evidence.trial.contents.get(content).map(|bytes| bytes.chunks(512));
    let versions = || versions.iter().filter_map(sectors);
    let is_of_one = |(at, sector): (usize, &[u8])| {
        versions().any(|mut version| version.nth(at).is_some_and(|one| one == sector))
    };
    sectors(&found).is_some_and(|found| found.enumerate().all(is_of_one))
}
