//! Whether each failing block is laid to what can have caused it, and to nobody else.

use super::evidence::Evidence;
use crate::account::Seen;
use crate::told::{Cause, Failure, Told};

const HIT: u8 = 3;
const CONSEQUENCE: u8 = 2;
const ASSUMED: u8 = 1;

pub fn judge(evidence: &Evidence<'_>, told: &Told, wrong: &mut Vec<String>) {
    let has_hand = !evidence.trial.blows.is_empty();
    for failure in &told.failures {
        let all = evidence.ways((failure.object, failure.block));
        if all.is_empty() {
            continue;
        }
        let claimed = failure.cause.certainty();
        // The cause of a block is that of the way of its failing that is explained least.
        let shown = all.iter().map(|seen| shown(evidence, failure, seen)).min().unwrap_or(ASSUMED);
        let (block, cause) = ((&failure.name, failure.block), failure.cause);
        let has_flushes = all.iter().any(|seen| !evidence.flushes(seen).is_empty());
        let ways = || all.iter().map(|seen| evidence.tell(seen)).collect::<Vec<_>>().join("\n    ");
        if claimed > shown.max(ASSUMED) {
            wrong.push(format!(
                "acquitted: {block:?} is laid to {cause:?}, which is not shown:\n    {}",
                ways()
            ));
        } else if !has_hand && claimed == 0 {
            wrong.push(format!(
                "charged: {block:?} is unexplained, but nobody else had a hand in it:\n    {}",
                ways()
            ));
        } else if evidence.trial.facts.is_direct && !has_hand && claimed < HIT && shown == HIT && !has_flushes
        {
            wrong.push(format!("charged: {block:?} is {cause:?}, but its hits are plain:\n    {}", ways()));
        }
        let can_be = |seen: &&&Seen| {
            let is_told = is_told(failure, seen);
            match cause {
                Cause::Hit(line) => evidence.hits(seen, is_told).contains(&line),
                Cause::Consequence(line) => {
                    evidence.consequences(seen, is_told).contains(&line)
                        || evidence.flushes(seen).contains(&line)
                }
                Cause::Assumed(line) => evidence.lines[line].time <= evidence.event(seen).completed,
                Cause::Unexplained => true,
            }
        };
        if !all.iter().any(|seen| can_be(&seen)) {
            let line = cause.line().map(|line| &evidence.lines[line]);
            wrong.push(format!("{block:?} is laid to {cause:?}, which cannot be: {line:x?}\n    {}", ways()));
        }
    }
}

/// How much is shown of the cause of one way of failing.
fn shown(evidence: &Evidence<'_>, failure: &Failure, seen: &Seen) -> u8 {
    let is_told = is_told(failure, seen);
    if !evidence.hits(seen, is_told).is_empty() {
        HIT
    } else if !evidence.consequences(seen, is_told).is_empty() {
        CONSEQUENCE
    } else {
        ASSUMED
    }
}

/// Whether the verdict takes the way as one that an error has told of: a failed flush may have.
pub fn is_told(failure: &Failure, seen: &Seen) -> bool {
    seen.found.is_none()
        || seen.may_be_unflushed
            && failure.ways.iter().any(|way| way.found == seen.found && way.kind == "unflushed")
}
