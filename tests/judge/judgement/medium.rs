//! Whether the ledger tells the truth about the medium: that it keeps what is pristine, and what of it the load had made.

use rotproof_block::Phase;

use super::evidence::Evidence;
use crate::account::Legal;
use crate::ledger::{Harm, Line};

pub fn judge(evidence: &Evidence<'_>, wrong: &mut Vec<String>) {
    let (trial, account) = (evidence.trial, evidence.account);
    for (number, line) in evidence.lines.iter().enumerate() {
        let of_blocks = line.blocks.iter().map(|block| block.content);
        let Some(is_of_load) = line.of_load else { continue };
        if line.harm != Harm::Data || line.phase == Phase::Setup.word() {
            continue;
        }
        let is_written =
            line.before.into_iter().chain(of_blocks).all(|content| account.written.contains(&content));
        // What another hand has left may look like anything.
        let is_struck = line.before.is_some_and(|before| trial.blows.iter().any(|blow| blow.after == before));
        if is_written != is_of_load && !is_struck {
            wrong.push(format!(
                "line {number} says of_load: {is_of_load}, and the load wrote it: {is_written}: {line:x?}"
            ));
        }
    }
    if !trial.facts.is_direct || !trial.blows.is_empty() {
        return;
    }
    // Below all faults lies what was last written with success, whatever was shown above; but for what went with the power.
    if evidence.lines.iter().any(Line::is_dark) {
        return;
    }
    for ((_, block), legal) in &account.legal {
        let Legal::Versions(versions) = legal else { continue };
        let is_there =
            |content: &u128| trial.leaf.get(content).is_some_and(|offsets| offsets.contains(&(block * 4096)));
        if versions.len() == 1 && !is_there(&versions[0]) {
            wrong.push(format!(
                "the medium does not hold {:x} in block {block}, which was written there",
                versions[0]
            ));
        }
    }
}
