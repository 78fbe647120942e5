//! What the device still holds when all is over: whether data that nobody could get at is out of reach, or gone.

use std::collections::{HashMap, HashSet};

use rotproof_block::ContentHash;
use rotproof_load::{ContentId, Failure};

use super::Evidence;

/// The device, as the subject would see it now.
pub trait Medium {
    /// How many of its blocks hold each of these contents; those that it does not hold may be absent. `None` if nobody can
    /// look.
    fn count(&self, contents: &HashSet<ContentHash>) -> Option<HashMap<ContentHash, u64>>;
}

/// Whether of each of `expected`, the contents that a block may hold, one is on the device as often as the load has put it
/// somewhere. False where nobody can look.
pub(super) fn intact(
    evidence: &Evidence<'_>,
    failures: &[Failure],
    expected: &[&[ContentHash]],
) -> Vec<bool> {
    let contents: HashSet<ContentHash> = expected.iter().copied().flatten().copied().collect();
    let found = evidence.medium.and_then(|medium| medium.count(&contents)).unwrap_or_default();
    let wanted = if found.is_empty() { HashMap::new() } else { wanted(evidence, failures, &contents) };
    let is_whole = |content: &ContentHash| {
        let found = found.get(content).copied().unwrap_or_default();
        found > 0 && found >= wanted.get(content).copied().unwrap_or(1)
    };
    expected.iter().map(|contents| contents.iter().any(is_whole)).collect()
}

/// In how many blocks each of these contents must be, where that may be more than one.
fn wanted(
    evidence: &Evidence<'_>,
    failures: &[Failure],
    contents: &HashSet<ContentHash>,
) -> HashMap<ContentHash, u64> {
    let mut wanted = HashMap::new();
    let Some((workload, oracle)) = evidence.load else { return wanted };
    let versions = failures.iter().flat_map(|failure| &failure.ways).flat_map(|way| &way.expected);
    let hashes: HashMap<ContentId, ContentHash> = versions
        .filter_map(|version| Some((version.content, version.hash?)))
        .filter(|(_, hash)| contents.contains(hash))
        .collect();
    for block in 0..workload.layout().blocks() {
        // The last write that succeeded.
        if let Some(hash) = oracle.legal(block).first().and_then(|content| hashes.get(content)) {
            *wanted.entry(*hash).or_default() += 1;
        }
    }
    wanted
}
