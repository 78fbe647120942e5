//! Ranges of blocks: the places of one rule, and an index over the places of all rules.

use std::ops::Range;

/// Disjoint, sorted, non-empty ranges of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockSet {
    ranges: Vec<Range<u64>>,
    /// For each range, how many blocks are in those before it.
    blocks_before: Vec<u64>,
}

impl BlockSet {
    /// The union of `ranges`; empty ones are left out.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut ranges: Vec<Range<u64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut union: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match union.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => union.push(range),
            }
        }
        let blocks_before = union
            .iter()
            .scan(0, |sum, range| {
                let before = *sum;
                *sum += range.end - range.start;
                Some(before)
            })
            .collect();
        Self { ranges: union, blocks_before }
    }

    /// How many blocks it has.
    pub(crate) fn len(&self) -> u64 {
        let last = self.ranges.last().zip(self.blocks_before.last());
        last.map_or(0, |(range, before)| before + (range.end - range.start))
    }

    /// How many of its blocks come before `block`, which is one of them.
    pub(crate) fn rank(&self, block: u64) -> u64 {
        let number = self.ranges.partition_point(|range| range.end <= block);
        let start = self.ranges.get(number).map_or(block, |range| range.start);
        self.blocks_before.get(number).copied().unwrap_or_default() + block.saturating_sub(start)
    }

    /// All of them.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// What the set has in common with `wanted`, in order.
    pub(crate) fn within(&self, wanted: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.ranges.partition_point(|range| range.end <= wanted.start);
        self.ranges[first..]
            .iter()
            .take_while({
                let end = wanted.end;
                move |range| range.start < end
            })
            .map(move |range| range.start.max(wanted.start)..range.end.min(wanted.end))
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        self.within(block..block + 1).next().is_some()
    }
}

/// Which rules have a place in a range: one binary search for none, and O(log n) for each that is found, however much
/// the ranges overlap.
///
/// The nodes are sorted by start and read as a balanced binary tree whose root is the middle of the slice, and each node
/// knows the largest end below it (an interval tree, Cormen et al., chapter 14, without pointers).
#[derive(Debug, Default)]
pub(crate) struct IntervalIndex {
    nodes: Vec<Node>,
    /// Start of each node, apart, so that a search touches little memory.
    starts: Vec<u64>,
    /// Largest end of each node and all before it.
    ends_so_far: Vec<u64>,
}

#[derive(Debug)]
struct Node {
    range: Range<u64>,
    /// Largest end in the subtree of which this node is the root.
    end_max: u64,
    rule: u32,
}

impl IntervalIndex {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (Range<u64>, u32)>) -> Self {
        let mut nodes: Vec<Node> =
            ranges.into_iter().map(|(range, rule)| Node { end_max: range.end, range, rule }).collect();
        nodes.sort_unstable_by_key(|node| (node.range.start, node.rule));
        fill_end_max(&mut nodes);
        let starts = nodes.iter().map(|node| node.range.start).collect();
        let ends_so_far = nodes
            .iter()
            .scan(0, |end, node| {
                *end = node.range.end.max(*end);
                Some(*end)
            })
            .collect();
        Self { nodes, starts, ends_so_far }
    }

    /// Whether any range has a block in `wanted`.
    pub(crate) fn has(&self, wanted: &Range<u64>) -> bool {
        // Of those that start early enough one ends late enough, or none does.
        let started = self.starts.partition_point(|&start| start < wanted.end);
        started > 0 && self.ends_so_far[started - 1] > wanted.start
    }

    /// Calls `found` with the rule of every range that has a block in `wanted`. Returns how many nodes were looked
    /// at.
    pub(crate) fn find(&self, wanted: Range<u64>, mut found: impl FnMut(u32)) -> usize {
        // Halves that may hold something. Each level leaves one behind, so the depth of the tree is enough.
        let mut waiting: [&[Node]; usize::BITS as usize + 1] = [&[]; usize::BITS as usize + 1];
        let mut count = 1;
        let mut looked_at = 0;
        waiting[0] = &self.nodes;
        while count > 0 {
            count -= 1;
            let nodes = waiting[count];
            let Some(root) = nodes.get(nodes.len() / 2) else { continue };
            looked_at += 1;
            if root.end_max <= wanted.start {
                continue;
            }
            let (left, right) = (&nodes[..nodes.len() / 2], &nodes[nodes.len() / 2 + 1..]);
            if root.range.start < wanted.end {
                if root.range.end > wanted.start {
                    found(root.rule);
                }
                waiting[count] = right;
                count += 1;
            }
            waiting[count] = left;
            count += 1;
        }
        looked_at
    }
}

fn fill_end_max(nodes: &mut [Node]) -> u64 {
    let middle = nodes.len() / 2;
    let Some(own) = nodes.get(middle).map(|node| node.range.end) else { return 0 };
    let (left, rest) = nodes.split_at_mut(middle);
    let end_max = own.max(fill_end_max(left)).max(fill_end_max(&mut rest[1..]));
    rest[0].end_max = end_max;
    end_max
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range() -> impl Strategy<Value = Range<u64>> {
        (0u64..60, 1u64..12).prop_map(|(start, length)| start..start + length)
    }

    proptest! {
        #[test]
        fn a_set_holds_exactly_the_blocks_of_its_ranges(
            ranges in prop::collection::vec(range(), 0..12), wanted in range()
        ) {
            let set = BlockSet::new(ranges.clone());
            for block in 0..80 {
                let expected = ranges.iter().any(|range| range.contains(&block));
                prop_assert_eq!(set.contains(block), expected, "block {}", block);
            }
            let common: Vec<u64> = set.within(wanted.clone()).flatten().collect();
            let expected: Vec<u64> = wanted.filter(|block| set.contains(*block)).collect();
            prop_assert_eq!(common, expected);
            let all: Vec<u64> = set.ranges().iter().cloned().flatten().collect();
            prop_assert_eq!(set.len(), all.len() as u64);
            prop_assert!(all.iter().zip(0..).all(|(&block, rank)| set.rank(block) == rank));
        }

        #[test]
        fn the_index_finds_what_a_walk_over_all_ranges_finds(
            ranges in prop::collection::vec(range(), 0..40), wanted in range()
        ) {
            let index = IntervalIndex::new(ranges.iter().cloned().zip(0..));
            let mut found = Vec::new();
            index.find(wanted.clone(), |rule| found.push(rule));
            found.sort_unstable();
            let expected: Vec<u32> = ranges
                .iter()
                .zip(0..)
                .filter(|(range, _)| range.start < wanted.end && wanted.start < range.end)
                .map(|(_, rule)| rule)
                .collect();
            prop_assert_eq!(index.has(&wanted), !expected.is_empty());
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_miss_among_ten_thousand_ranges_looks_at_no_more_than_the_height_of_the_tree() {
        let index = IntervalIndex::new((0..10_000u64).map(|n| (n * 10..n * 10 + 5, n as u32)));
        for block in [5, 49_999, 99_998, 200_000] {
            let mut found = 0;
            let looked_at = index.find(block..block + 1, |_| found += 1);
            assert_eq!(found, 0);
            assert!(looked_at <= 28, "block {block}: {looked_at} nodes");
        }
    }
}
