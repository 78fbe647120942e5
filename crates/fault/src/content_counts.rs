//! How often each content has been written, in bounded memory.
//!
//! Exact for up to [`CONTENTS_MAX`] different contents. Beyond that, the counts of all are lowered by the median and
//! those that reach nothing are forgotten (Misra and Gries, *Finding repeated elements*, 1982, in batches). Then a count
//! is short by at most 2/[`CONTENTS_MAX`] of all blocks counted, so that a content with a larger share is never
//! forgotten; that a content is unique is then only known of the ones that are remembered.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;

use rotproof_block::ContentHash;

use crate::content_index::Identity;

/// Contents that are remembered; seven eighths of a power of two, as much as a hash map of 34 MiB holds.
pub(crate) const CONTENTS_MAX: usize = 7 << 17;

#[derive(Debug)]
pub(crate) struct ContentCounts {
    entries: HashMap<u128, Entry, BuildHasherDefault<Identity>>,
    capacity: usize,
    /// Contents that a rule has chosen.
    chosen: HashSet<u128>,
    /// How many entries there are, by whether they are repeated and chosen: whether there is anything to choose is asked
    /// at every request.
    classes: [[usize; 2]; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    count: u32,
    /// It has been written at least twice, whatever the count was lowered by.
    is_repeated: bool,
    is_chosen: bool,
}

impl Default for ContentCounts {
    fn default() -> Self {
        Self::with_capacity(CONTENTS_MAX)
    }
}

impl ContentCounts {
    /// That remembers so many contents.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { entries: HashMap::default(), capacity, chosen: HashSet::new(), classes: Default::default() }
    }

    /// Forgets every count, but not what was chosen.
    pub(crate) fn restart(&mut self) {
        self.entries = HashMap::default();
        self.classes = Default::default();
    }

    /// Counts that `content` was written so many times.
    pub(crate) fn add(&mut self, content: ContentHash, times: u64) {
        if times == 0 {
            return;
        }
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&content.0) {
            self.forget_rare();
        }
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        let is_chosen = self.chosen.contains(&content.0);
        let entry = self.entries.entry(content.0).or_insert(Entry { is_chosen, ..Entry::default() });
        if entry.count > 0 {
            self.classes[usize::from(entry.is_repeated)][usize::from(entry.is_chosen)] -= 1;
        }
        entry.is_repeated |= entry.count > 0 || times > 1;
        entry.count = entry.count.saturating_add(times);
        self.classes[usize::from(entry.is_repeated)][usize::from(entry.is_chosen)] += 1;
    }

    /// Lowers every count by the median, so that at least half are forgotten.
    fn forget_rare(&mut self) {
        let mut counts: Vec<u32> = self.entries.values().map(|entry| entry.count).collect();
        let middle = counts.len() / 2;
        let Some((_, &mut median, _)) = (!counts.is_empty()).then(|| counts.select_nth_unstable(middle))
        else {
            return;
        };
        self.entries.retain(|_, entry| {
            entry.count = entry.count.saturating_sub(median);
            entry.count > 0
        });
        self.classes = Default::default();
        for entry in self.entries.values() {
            self.classes[usize::from(entry.is_repeated)][usize::from(entry.is_chosen)] += 1;
        }
    }

    /// The content with the highest count that has been written at least twice; with `apart`, of those that were not
    /// chosen. Takes a walk over all only if there is one.
    pub(crate) fn most_duplicated(&self, apart: bool) -> Option<ContentHash> {
        self.candidates(true, apart)?
            .max_by_key(|(content, entry)| (entry.count, std::cmp::Reverse(**content)))
            .map(|(content, _)| ContentHash(*content))
    }

    /// The content with the smallest hash of those that have been written once; with `apart`, of those that were not
    /// chosen.
    pub(crate) fn unique(&self, apart: bool) -> Option<ContentHash> {
        self.candidates(false, apart)?.map(|(content, _)| ContentHash(*content)).min()
    }

    fn candidates(&self, repeated: bool, apart: bool) -> Option<impl Iterator<Item = (&u128, &Entry)>> {
        let [free, chosen] = self.classes[usize::from(repeated)];
        let is_candidate = move |entry: &Entry| entry.is_repeated == repeated && !(apart && entry.is_chosen);
        (free > 0 || !apart && chosen > 0)
            .then(|| self.entries.iter().filter(move |(_, entry)| is_candidate(entry)))
    }

    /// Notes that a rule has chosen `content`.
    pub(crate) fn choose(&mut self, content: ContentHash) {
        self.chosen.insert(content.0);
        if let Some(entry) = self.entries.get_mut(&content.0)
            && !entry.is_chosen
        {
            entry.is_chosen = true;
            let class = &mut self.classes[usize::from(entry.is_repeated)];
            class[0] -= 1;
            class[1] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn content(number: u64) -> ContentHash {
        ContentHash::of(&number.to_le_bytes())
    }

    proptest! {
        #[test]
        fn with_room_for_all_contents_every_answer_is_that_of_a_list(
            steps in proptest::collection::vec((0u64..12, 0u64..4, any::<bool>(), any::<bool>()), 0..60)
        ) {
            let mut counts = ContentCounts::default();
            let (mut list, mut chosen) = (BTreeMap::<ContentHash, u64>::new(), Vec::new());
            for (number, times, chooses, apart) in steps {
                counts.add(content(number), times);
                *list.entry(content(number)).or_default() += times;
                let free = |hash: &ContentHash| !apart || !chosen.contains(hash);
                let most = list.iter().filter(|(hash, count)| **count > 1 && free(hash));
                let most = most.max_by_key(|(hash, count)| (**count, std::cmp::Reverse(**hash)));
                prop_assert_eq!(counts.most_duplicated(apart), most.map(|(hash, _)| *hash));
                let unique = list.iter().find(|(hash, count)| **count == 1 && free(hash)).map(|(hash, _)| *hash);
                prop_assert_eq!(counts.unique(apart), unique);
                if let (true, Some(hash)) = (chooses, unique) {
                    counts.choose(hash);
                    chosen.push(hash);
                }
            }
        }

        #[test]
        fn without_room_for_all_no_count_is_short_by_more_than_promised(
            writes in proptest::collection::vec((0u64..200, 1u64..5), 0..800), capacity in 2usize..40
        ) {
            let mut counts = ContentCounts::with_capacity(capacity);
            let (mut list, mut all) = (BTreeMap::<ContentHash, u64>::new(), 0);
            for (number, times) in writes {
                counts.add(content(number), times);
                *list.entry(content(number)).or_default() += times;
                all += times;
                prop_assert!(counts.entries.len() <= capacity);
            }
            for (hash, &count) in &list {
                let entry = counts.entries.get(&hash.0).copied().unwrap_or_default();
                prop_assert!(u64::from(entry.count) <= count);
                let short = count - u64::from(entry.count);
                prop_assert!(short * capacity as u64 <= 2 * all, "{} of {} with {}", short, all, capacity);
                prop_assert!(!entry.is_repeated || count > 1);
            }
            let [[a, b], [c, d]] = counts.classes;
            prop_assert_eq!(a + b + c + d, counts.entries.len());
        }
    }
}
