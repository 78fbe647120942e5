//! Of a load of files nobody can listen in: its calls are those of any program. What is judged there is what plain reads
//! of all files bring in the end, beside the verdict.

use std::collections::HashSet;

use super::evidence::Evidence;
use crate::ledger::Harm;
use crate::told::{Cause, Told};

pub fn judge(evidence: &Evidence<'_>, told: &Told, wrong: &mut Vec<String>) {
    let trial = evidence.trial;
    let failing: HashSet<&str> = told.failures.iter().map(|failure| failure.name.as_str()).collect();
    // After an error older contents may be right too, and nobody here knows which.
    if told.count("errors") == 0 {
        for (name, block) in &trial.strange {
            if !failing.contains(name.as_str()) {
                wrong.push(format!(
                    "acquitted: block {block} of {name} holds what it should not, and nobody tells"
                ));
            }
        }
    }
    for failure in &told.failures {
        let place = (&failure.name, failure.block);
        match failure.cause {
            Cause::Hit(line) => {
                let line = &evidence.lines[line];
                let fits = |way: &crate::told::Way| {
                    let holds = line.truths().any(|truth| way.expected.contains(&Some(truth)));
                    // What an error kept in the page cache was never written.
                    let is_kept = line.harm == Harm::Error && line.operation != "read";
                    way.is_error() || way.is_in_part || holds && (is_kept || line.after == way.found)
                };
                if !failure.ways.iter().any(fits) {
                    wrong.push(format!(
                        "acquitted: {place:?} is laid to {line:x?}, which is not shown: {failure:x?}"
                    ));
                }
            }
            Cause::Consequence(line) => {
                let line = &evidence.lines[line];
                if line.harm == Harm::Data && (line.of_load != Some(false) || line.served_at.is_none()) {
                    wrong.push(format!(
                        "acquitted: {place:?} is laid to {line:x?}, which is no metadata that was read"
                    ));
                }
            }
            Cause::Assumed(_) => {}
            Cause::Unexplained if trial.blows.is_empty() => {
                wrong.push(format!(
                    "charged: {place:?} is unexplained, but nobody else had a hand in it: {failure:x?}"
                ));
            }
            Cause::Unexplained => {}
        }
    }
}
