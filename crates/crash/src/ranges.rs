//! Sets of sectors or units as ranges: in order, none empty, none touching the next.

use std::ops::Range;

/// Whether two ranges share something.
pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// `set` without what `hole` has.
pub(crate) fn without(set: &[Range<u64>], hole: &Range<u64>) -> Vec<Range<u64>> {
    let parts =
        |range: &Range<u64>| [range.start..range.end.min(hole.start), range.start.max(hole.end)..range.end];
    set.iter()
        .flat_map(|range| if overlap(range, hole) { parts(range) } else { [range.clone(), 0..0] })
        .filter(|range| !range.is_empty())
        .collect()
}

/// What both have.
pub(crate) fn common(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found: Vec<_> = a
        .iter()
        .flat_map(|a| b.iter().map(|b| a.start.max(b.start)..a.end.min(b.end)))
        .filter(|range| !range.is_empty())
        .collect();
    found.sort_by_key(|range| range.start);
    found
}

/// What one of them has.
pub(crate) fn union(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut all: Vec<_> = a.iter().chain(b).filter(|range| !range.is_empty()).cloned().collect();
    all.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in all {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Number of elements.
pub(crate) fn count(set: &[Range<u64>]) -> u64 {
    set.iter().map(|range| range.end - range.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::hash::mix;
    use std::collections::BTreeSet;

    #[test]
    fn they_are_sets() {
        let elements = |set: &[Range<u64>]| set.iter().cloned().flatten().collect::<BTreeSet<u64>>();
        for index in 0..2000 {
            let draw = |stream| mix(1, stream, index) % 24;
            let set = |stream| {
                let ranges: Vec<_> =
                    (0..3u64).map(|n| draw(stream + n)..draw(stream + n + 10).max(1)).collect();
                union(&ranges, &[])
            };
            let (a, b, hole) = (set(100), set(200), draw(1)..draw(2));
            let (ea, eb) = (elements(&a), elements(&b));
            assert_eq!(elements(&union(&a, &b)), &ea | &eb);
            assert_eq!(elements(&common(&a, &b)), &ea & &eb);
            assert_eq!(elements(&without(&a, &hole)), &ea - &hole.clone().collect());
            assert_eq!(count(&a), ea.len() as u64);
            assert_eq!(
                a.iter().any(|a| overlap(a, &hole) && !hole.is_empty()),
                !(&ea & &hole.collect()).is_empty()
            );
            assert!(union(&a, &b).windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
