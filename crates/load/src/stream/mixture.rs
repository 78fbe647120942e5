//! The order in which the contents of a distribution are written, so that the beginning of any length is mixed as the
//! whole is.
//!
//! Contents with about as many duplicates are a *kind*. Each window of blocks is shared out to the kinds as exactly as
//! whole blocks can be, in an irregular order, so that neither a period nor the end of any stretch prefers one. Within
//! its kind, a block stands on a tape: content after content, each as often as it is written. Stretches of the tape are
//! shuffled, longer ones the further on they are, so that duplicates come apart, but a beginning of any length holds whole
//! contents: what can be saved of it is what can be saved of the whole.
//!
//! All of it is a pure function of the number of the block, in constant time and without state.

use std::collections::HashSet;

use rotproof_block::hash::mix;

use super::share::{Share, permuted};
use crate::duplicates::Distribution;

/// Blocks that are shared out to the kinds together, as a power of two. No kind is rarer than one block of them.
const WINDOW_BITS: u32 = 10;
const WINDOW: u64 = 1 << WINDOW_BITS;

/// A part of a window, of so many blocks as a power of two, is nearly as mixed as the window.
const PART_BITS: u32 = 6;

/// A stretch of the tape that is shuffled is this power of two shorter than the tape before it. Of a half-written stretch
/// of contents with `d` duplicates at most an eighth of its blocks too few are duplicates, so of all blocks 0.4%.
const STRETCH_BITS: u32 = 5;

/// Contents that stand for those of a kind.
const PATTERN: u64 = 1 << 10;

/// Streams of [`mix`] that belong to this.
const WINDOWS: u64 = 0xd0_b1e5;
const PARTS: u64 = 0xd0_6b1d;
const STRATA: u64 = 0xd0_57a7;
const STRETCHES: u64 = 0xd0_3e3b;
const PATTERNS: u64 = 0xd0_9a77;

/// A distribution made ready.
#[derive(Debug)]
pub struct Mixture {
    /// Up to where each kind goes, of all blocks; the last is one.
    ends: Vec<Share>,
    kinds: Vec<Kind>,
    savable: f64,
}

/// Contents with about as many duplicates.
#[derive(Debug)]
struct Kind {
    /// Where on the tape each content of the pattern begins, and where the pattern ends and begins again.
    starts: Vec<u64>,
    is_unique: bool,
}

impl Mixture {
    /// Of a distribution that is not empty.
    pub fn new(distribution: &Distribution) -> Self {
        let all = distribution.blocks() as f64;
        let mut kinds: Vec<(f64, Vec<(u64, u64)>)> = Vec::new();
        let mut last = None;
        for (duplicates, contents) in distribution.lines() {
            let share = (duplicates as f64 + 1.0) * contents as f64 / all;
            let octave = (duplicates + 1).ilog2();
            match kinds.last_mut() {
                Some((sum, lines)) if last == Some(octave) => {
                    *sum += share;
                    lines.push((duplicates, contents));
                }
                _ => kinds.push((share, vec![(duplicates, contents)])),
            }
            last = Some(octave);
        }
        // One that is too rare for a window joins its neighbour.
        const RAREST: f64 = 1.5 / WINDOW as f64;
        while let Some(rare) = kinds.iter().position(|(share, _)| *share < RAREST).filter(|_| kinds.len() > 1)
        {
            let (share, lines) = kinds.remove(rare);
            let into = &mut kinds[rare.saturating_sub(1)];
            into.0 += share;
            into.1.extend(lines);
        }
        let mut sum = 0.0;
        let mut ends: Vec<Share> = kinds
            .iter()
            .map(|(share, _)| {
                sum += share;
                Share::new(sum)
            })
            .collect();
        if let Some(end) = ends.last_mut() {
            *end = Share::new(1.0);
        }
        Self {
            ends,
            kinds: kinds.into_iter().map(|(_, lines)| Kind::new(&lines)).collect(),
            savable: distribution.savable(),
        }
    }

    /// Share of the blocks that repeat another one.
    pub fn savable(&self) -> f64 {
        self.savable
    }

    /// Whether no content ever repeats.
    pub fn is_plain(&self) -> bool {
        self.kinds.iter().all(|kind| kind.is_unique)
    }

    /// Whether the content with this number may repeat.
    pub fn may_repeat(&self, content: u64) -> bool {
        !self.kinds[(content % self.kinds.len() as u64) as usize].is_unique
    }

    /// The number of the content of block `n`, for one of many streams.
    #[inline]
    pub fn content(&self, seed: u64, stream: u64, n: u64) -> u64 {
        if let [Kind { is_unique: true, .. }] = self.kinds[..] {
            return n;
        }
        let (kind, place) = self.place(seed, stream, n);
        let place = shuffled(seed, stream ^ (kind as u64) << 40, place);
        // Contents of the kinds are numbered in turns.
        self.kinds[kind].content(place) * self.kinds.len() as u64 + kind as u64
    }

    /// The kind of block `n`, and its place on the tape of that kind.
    #[inline]
    fn place(&self, seed: u64, stream: u64, n: u64) -> (usize, u64) {
        let window = n >> WINDOW_BITS;
        let position = irregular(mix(seed, WINDOWS ^ stream, window), n & (WINDOW - 1));
        // In each window a kind has what it has of all windows up to it, less what it has up to the one before.
        let until = |end: Share| (end.of(window << WINDOW_BITS), end.of((window + 1) << WINDOW_BITS));
        let within = |end: Share| {
            let (before, after) = until(end);
            after - before
        };
        let kind = self.ends.partition_point(|&end| within(end) <= position).min(self.kinds.len() - 1);
        let first = kind.checked_sub(1).map_or((0, 0), |previous| until(self.ends[previous]));
        let before = self.ends[kind].of(window << WINDOW_BITS) - first.0;
        (kind, before + position - (first.1 - first.0))
    }

    /// How many different contents the first `n` blocks have. Takes time for the last stretch of each kind.
    pub fn distinct(&self, seed: u64, stream: u64, n: u64) -> u64 {
        let whole = n >> WINDOW_BITS << WINDOW_BITS;
        // Of the window that is not full, each block by itself.
        let mut last: Vec<Vec<u64>> = vec![Vec::new(); self.kinds.len()];
        for block in whole..n {
            let (kind, place) = self.place(seed, stream, block);
            last[kind].push(place);
        }
        let mut begin = 0;
        self.kinds
            .iter()
            .zip(&self.ends)
            .zip(last)
            .enumerate()
            .map(|(number, ((kind, end), last))| {
                let places = end.of(whole) - begin;
                begin = end.of(whole);
                kind.distinct(places, &last, |place| shuffled(seed, stream ^ (number as u64) << 40, place))
            })
            .sum()
    }
}

impl Kind {
    /// Of lines of duplicates and contents, each of them as often as its share of the contents.
    fn new(lines: &[(u64, u64)]) -> Self {
        let all: u128 = lines.iter().map(|&(_, contents)| u128::from(contents)).sum();
        let count = if lines.len() == 1 { 1 } else { PATTERN };
        let (mut sum, mut given) = (0u128, 0);
        let mut pattern = Vec::new();
        for &(duplicates, contents) in lines {
            sum += u128::from(contents);
            let until = (u128::from(count) * sum / all) as u64;
            pattern.extend((given..until).map(|_| duplicates));
            given = until;
        }
        // Irregular, and the same for ever.
        for last in (1..pattern.len()).rev() {
            let other = mix(PATTERNS, pattern.len() as u64, last as u64) % (last as u64 + 1);
            pattern.swap(last, other as usize);
        }
        let mut place = 0;
        let mut starts = vec![0];
        for duplicates in &pattern {
            place += duplicates + 1;
            starts.push(place);
        }
        Self { starts, is_unique: pattern.iter().all(|duplicates| *duplicates == 0) }
    }

    /// The content at a place of the tape.
    #[inline]
    fn content(&self, place: u64) -> u64 {
        let length = self.starts[self.starts.len() - 1];
        if self.starts.len() == 2 {
            return place / length;
        }
        let (round, within) = (place / length, place % length);
        let content = self.starts.partition_point(|&start| start <= within) - 1;
        round * (self.starts.len() as u64 - 1) + content as u64
    }

    /// Different contents of the first `places` and of `last`, all of them before they are shuffled.
    fn distinct(&self, places: u64, last: &[u64], shuffle: impl Fn(u64) -> u64) -> u64 {
        // A stretch is shuffled within itself, so what is before the one at the end is what it is unshuffled.
        let (begin, bits) = stretch(places);
        let whole = if begin == 0 { 0 } else { self.content(begin - 1) + 1 };
        // Of that one a bit for each content; what the last window adds may lie beyond it.
        let contents = self.content(begin + (1 << bits) - 1) + 1 - whole;
        let mut seen = vec![0u64; contents.div_ceil(64) as usize];
        let mut beyond = HashSet::new();
        for place in (begin..places).chain(last.iter().copied()) {
            let Some(content) = self.content(shuffle(place)).checked_sub(whole) else { continue };
            match seen.get_mut((content / 64) as usize) {
                Some(word) => *word |= 1 << (content % 64),
                None => drop(beyond.insert(content)),
            }
        }
        whole + seen.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() + beyond.len() as u64
    }
}

/// The stretch of a place: where it begins, and its length as a power of two.
#[inline]
fn stretch(place: u64) -> (u64, u32) {
    let bits = place.checked_ilog2().unwrap_or(0).saturating_sub(STRETCH_BITS);
    (place >> bits << bits, bits)
}

/// A permutation of a window, in which each of its parts is spread over all of it.
#[inline]
fn irregular(key: u64, position: u64) -> u64 {
    let (part, within) = (position >> PART_BITS, position & ((1 << PART_BITS) - 1));
    // Of another order in each part, or the ends of all parts would go the same way.
    let coarse = permuted(mix(key, PARTS, part), within, PART_BITS);
    let fine_bits = WINDOW_BITS - PART_BITS;
    coarse << fine_bits | permuted(mix(key, STRATA, coarse), part, fine_bits)
}

/// The place that stands at a place after its stretch is shuffled.
#[inline]
fn shuffled(seed: u64, stream: u64, place: u64) -> u64 {
    let (begin, bits) = stretch(place);
    if bits == 0 {
        return place;
    }
    // Stretches of one length begin at different places, and those of different lengths too.
    begin + permuted(mix(seed, STRETCHES ^ stream, begin), place - begin, bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duplicates::{Duplicates, Profile};
    use proptest::prelude::*;
    use rotproof_spec::Percent;
    use std::collections::HashMap;

    fn counts(mixture: &Mixture, blocks: u64) -> HashMap<u64, u64> {
        let mut counts = HashMap::new();
        for n in 0..blocks {
            *counts.entry(mixture.content(7, 3, n)).or_default() += 1;
        }
        counts
    }

    #[test]
    fn every_beginning_of_every_profile_saves_what_the_whole_does() {
        for profile in Profile::ALL {
            let mixture = Mixture::new(&profile.distribution());
            let mut seen = HashSet::new();
            for n in 0..1u64 << 18 {
                seen.insert(mixture.content(1, 0, n));
                let blocks = n + 1;
                if blocks >= 1 << 12 && blocks.is_multiple_of(997) {
                    let realised = 1.0 - seen.len() as f64 / blocks as f64;
                    assert!(
                        (realised - mixture.savable()).abs() < 0.01,
                        "{profile:?}: {realised} of {blocks} blocks, not {}",
                        mixture.savable()
                    );
                }
            }
            assert_eq!(mixture.distinct(1, 0, 1 << 18), seen.len() as u64);
        }
    }

    #[test]
    fn what_is_saved_is_what_was_asked_for_at_every_size() {
        let shares = [0.1, 0.172, 0.25, 0.5, 0.609, 0.9].map(|share| Duplicates::Share(Percent(share)));
        for duplicates in shares.into_iter().chain(Profile::ALL.map(Duplicates::Profile)) {
            let mixture = Mixture::new(&duplicates.distribution().expect("no file"));
            // 64 MiB, 1 GiB and 16 GiB, a few blocks more, and several seeds.
            for blocks in [1u64 << 14, 1 << 18, 1 << 22] {
                for (seed, blocks) in [(1, blocks), (2, blocks + 777)] {
                    let realised = 1.0 - mixture.distinct(seed, 9, blocks) as f64 / blocks as f64;
                    let error = (realised - mixture.savable()).abs();
                    assert!(error < 0.01, "{duplicates}: {realised} of {blocks} blocks");
                }
            }
        }
    }

    #[test]
    fn contents_have_as_many_duplicates_as_the_distribution_says() {
        let distribution = Profile::Kernels.distribution();
        let blocks = 1u64 << 19;
        let counts = counts(&Mixture::new(&distribution), blocks);
        let wanted = |range: std::ops::RangeInclusive<u64>| {
            let lines = distribution.lines().filter(|(duplicates, _)| range.contains(duplicates));
            lines.map(|(duplicates, contents)| (duplicates + 1) as f64 * contents as f64).sum::<f64>()
                / distribution.blocks() as f64
        };
        for range in [0..=0, 1..=1, 2..=3, 4..=7, 8..=15, 16..=31, 32..=600] {
            let found = counts.values().filter(|count| range.contains(&(*count - 1))).sum::<u64>() as f64;
            let share = found / blocks as f64;
            assert!(
                (share - wanted(range.clone())).abs() < 0.02,
                "{range:?}: {share}, not {}",
                wanted(range.clone())
            );
        }
    }

    #[test]
    fn duplicates_are_not_all_neighbours() {
        let mixture = Mixture::new(&Distribution::from_pairs([(0, 50), (1, 25)]));
        let mut first: HashMap<u64, u64> = HashMap::new();
        let (mut far, mut pairs) = (0, 0);
        for n in 0..1u64 << 18 {
            if let Some(first) = first.insert(mixture.content(1, 0, n), n) {
                pairs += 1;
                far += u64::from(n - first > 1000);
            }
        }
        assert!(far * 4 > pairs, "{far} of {pairs} are more than 4 MB apart");
    }

    #[test]
    fn ends_of_stretches_are_as_mixed_as_everything() {
        for nominal in [0.1f64, 0.25, 0.5] {
            // Half of all contents that repeat are pairs, so that a share of blocks is of such contents.
            let mixture = Mixture::new(&Distribution::from_pairs([
                (0, ((1.0 - 2.0 * nominal).max(0.0) * 1e6) as u64 + 1),
                (1, (nominal * 1e6) as u64),
            ]));
            let share = (2.0 * nominal).min(1.0);
            for bits in [4u32, 6, 8, 10] {
                let ends = 1u64 << (22 - bits).min(16);
                for at in [0, (1 << bits) - 1] {
                    let repeating = (0..ends)
                        .filter(|number| mixture.may_repeat(mixture.content(5, 1, (number << bits) + at)))
                        .count() as f64;
                    let error = (share * (1.0 - share) / ends as f64).sqrt();
                    let found = repeating / ends as f64;
                    assert!(
                        (found - share).abs() <= 5.0 * error + 1e-5,
                        "{nominal}, every {} + {at}: {found}",
                        1u64 << bits
                    );
                }
            }
        }
    }

    #[test]
    fn many_lines_of_rare_kinds_are_a_mixture_too() {
        let distribution =
            Distribution::from_pairs((0..3000).map(|duplicates| (duplicates, 3000 / (duplicates + 1))));
        let mixture = Mixture::new(&distribution);
        let blocks = 1u64 << 19;
        let realised = 1.0 - counts(&mixture, blocks).len() as f64 / blocks as f64;
        assert!(
            (realised - distribution.savable()).abs() < 0.01,
            "{realised}, not {}",
            distribution.savable()
        );
    }

    #[test]
    fn a_content_that_never_ends_is_one() {
        let mixture = Mixture::new(&Distribution::from_pairs([(1 << 40, 1)]));
        assert_eq!(counts(&mixture, 5000).len(), 1);
        let plain = Mixture::new(&Distribution::from_pairs([(0, 9)]));
        assert!(plain.is_plain() && (0..100).all(|n| plain.content(1, 2, n) == n));
    }

    proptest! {
        #[test]
        fn places_of_a_kind_are_taken_once_and_distinct_is_what_a_count_finds(
            lines in prop::collection::vec((0u64..40, 1u64..2000), 1..8), seed: u64, n in 0u64..9000,
        ) {
            let mixture = Mixture::new(&Distribution::from_pairs(lines));
            let mut places = HashSet::new();
            let mut seen = HashSet::new();
            for block in 0..n {
                prop_assert!(places.insert(mixture.place(seed, 5, block)), "block {}", block);
                seen.insert(mixture.content(seed, 5, block));
            }
            prop_assert_eq!(mixture.distinct(seed, 5, n), seen.len() as u64);
        }

        #[test]
        fn a_window_is_taken_as_a_whole_and_its_parts_are_all_over_it(key: u64) {
            let positions: Vec<u64> = (0..WINDOW).map(|position| irregular(key, position)).collect();
            for part in positions.chunks(1 << PART_BITS) {
                let coarse: HashSet<u64> = part.iter().map(|at| at >> (WINDOW_BITS - PART_BITS)).collect();
                prop_assert_eq!(coarse.len(), 1 << PART_BITS);
            }
            prop_assert_eq!(positions.into_iter().collect::<HashSet<_>>().len() as u64, WINDOW);
        }

        #[test]
        fn a_shuffled_place_stays_in_its_stretch_and_no_two_meet(seed: u64, first in 0u64..1 << 36) {
            let (begin, bits) = stretch(first);
            let count = (1u64 << bits).min(2000);
            let found: HashSet<u64> = (begin..begin + count).map(|place| shuffled(seed, 1, place)).collect();
            prop_assert_eq!(found.len() as u64, count);
            prop_assert!(found.iter().all(|&place| stretch(place) == (begin, bits)));
        }
    }
}
