//! Where a rule applies, in blocks of the device and contents, and how often each aim has been hit. Known when the rule
//! is added, or only later: for a rule that aims at what the device has seen, or at where a file lies.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use rotproof_block::ContentHash;

use crate::BLOCK_BYTES;
use crate::geometry::blocks_in;
use crate::interval::{BlockSet, IntervalIndex};
use crate::record::{TargetKey, Visit};
use crate::resolved::{ResolvedRule, TargetContent};
use crate::rule::Rule;
use crate::statistics::Choice;
use crate::target::Target;
use crate::visits::{VisitsByContent, VisitsByPlace};

#[derive(Debug)]
pub(crate) struct Aims {
    /// The blocks that the rule is limited to; `None` is everywhere.
    pub(crate) places: Option<BlockSet>,
    /// The contents that it wants, with the number of the aim; `None` is anything.
    pub(crate) contents: Option<HashMap<ContentHash, WantedContent>>,
    /// What can be said to be hit or missed: each content, else each place, as they were written.
    list: Vec<Aim>,
    /// From blocks to aims, for a rule by place alone.
    by_place: IntervalIndex,
    /// How often each block has met the rule, or each content if it goes by contents.
    visits: VisitsByPlace,
    content_visits: VisitsByContent,
    flush_visits: AtomicU32,
}

/// A content that a rule asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedContent {
    /// The number of the aim.
    aim: u32,
    /// Its first eight bytes, where they are known.
    pub(crate) beginning: Option<u64>,
}

#[derive(Debug)]
struct Aim {
    key: TargetKey,
    hits: AtomicU64,
}

/// What a rule aims at that does not know yet.
static NOTHING: LazyLock<Aims> =
    LazyLock::new(|| Aims::new(Some(BlockSet::new([])), None, Vec::new(), IntervalIndex::default(), 0));

impl Aims {
    /// Of a rule whose target has been resolved, on a device of so many bytes.
    pub(crate) fn of(resolved: &ResolvedRule, device_size: u64) -> Self {
        let ranges = resolved.rule.matching.offset.iter().map(|range| blocks_in(range, device_size));
        Self::within(resolved, ranges.collect(), device_size)
    }

    /// Of a rule that has chosen what it aims at; its other conditions hold all the same.
    pub(crate) fn chosen(rule: &Rule, choice: Choice, device_size: u64) -> Self {
        let mut resolved = ResolvedRule::from(rule.clone());
        match choice {
            Choice::Content(content) => {
                let label = rule.matching.target.as_ref().map_or_else(String::new, Target::to_string);
                resolved.contents.push(TargetContent { content, label, beginning: None });
                Self::of(&resolved, device_size)
            }
            Choice::Place(block) => {
                let offsets = rule.matching.offset.iter().map(|range| blocks_in(range, device_size));
                let is_permitted = rule.matching.offset.is_empty() || BlockSet::new(offsets).contains(block);
                let range = if is_permitted { block..block + 1 } else { 0..0 };
                Self::within(&resolved, vec![range], device_size)
            }
        }
    }

    /// Of a rule that was told where it acts; its other conditions hold all the same. With no blocks it matches nothing.
    pub(crate) fn placed(rule: &Rule, blocks: Vec<Range<u64>>, device_size: u64) -> Self {
        let offsets: Vec<Range<u64>> =
            rule.matching.offset.iter().map(|range| blocks_in(range, device_size)).collect();
        let mut ranges: Vec<Range<u64>> = if offsets.is_empty() {
            blocks
        } else {
            let both = |one: &Range<u64>| {
                let one = one.clone();
                offsets.iter().map(move |other| one.start.max(other.start)..one.end.min(other.end))
            };
            blocks.iter().flat_map(both).filter(|range| range.start < range.end).collect()
        };
        if ranges.is_empty() {
            ranges.push(0..0);
        }
        Self::within(&ResolvedRule::from(rule.clone()), ranges, device_size)
    }

    /// Limited to `ranges`, if there are any.
    fn within(resolved: &ResolvedRule, ranges: Vec<Range<u64>>, device_size: u64) -> Self {
        let matching = &resolved.rule.matching;
        let device_blocks = device_size.div_ceil(BLOCK_BYTES);
        let places = (!ranges.is_empty()).then(|| BlockSet::new(ranges.iter().cloned()));
        if matching.is_by_content() {
            let wanted = wanted_contents(resolved);
            let keys =
                wanted.iter().map(|wanted| TargetKey::content(wanted.content, &wanted.label)).collect();
            let contents = wanted
                .iter()
                .zip(0..)
                .map(|(wanted, aim)| (wanted.content, WantedContent { aim, beginning: wanted.beginning }));
            return Self::new(
                places,
                Some(contents.collect()),
                keys,
                IntervalIndex::default(),
                device_blocks,
            );
        }
        let keys = ranges.iter().map(|range| TargetKey::Offset(range.start * BLOCK_BYTES)).collect();
        let ranges = ranges.into_iter().zip(0..).filter(|(range, _)| !range.is_empty());
        Self::new(places, None, keys, IntervalIndex::new(ranges), device_blocks)
    }

    /// Those of a rule that does not know yet what it aims at: it matches nothing.
    pub(crate) fn nothing() -> &'static Self {
        &NOTHING
    }

    fn new(
        places: Option<BlockSet>,
        contents: Option<HashMap<ContentHash, WantedContent>>,
        keys: Vec<TargetKey>,
        by_place: IntervalIndex,
        device_blocks: u64,
    ) -> Self {
        Self {
            visits: VisitsByPlace::new(places.as_ref().map_or(device_blocks, BlockSet::len)),
            places,
            contents,
            list: keys.into_iter().map(|key| Aim { key, hits: AtomicU64::new(0) }).collect(),
            by_place,
            content_visits: VisitsByContent::default(),
            flush_visits: AtomicU32::new(0),
        }
    }

    /// Whether `block` is one of the places, or there are none in particular.
    pub(crate) fn covers(&self, block: u64) -> bool {
        self.places.as_ref().is_none_or(|places| places.contains(block))
    }

    /// This meeting of `block` with the rule; `content` is what it holds, where the rule has asked for it. `None` is a
    /// flush, which has no place.
    pub(crate) fn visit(
        &self,
        block: Option<u64>,
        content: impl FnOnce(u64) -> Option<ContentHash>,
    ) -> Visit {
        let Some(block) = block else {
            let number = self.flush_visits.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            return Visit { offset: None, content: None, number };
        };
        if let Some(content) = self.contents.as_ref().and_then(|_| content(block)) {
            return Visit { offset: None, content: Some(content), number: self.content_visits.next(content) };
        }
        let position = self.places.as_ref().map_or(block, |places| places.rank(block));
        Visit { offset: Some(block * BLOCK_BYTES), content: None, number: self.visits.next(position) }
    }

    /// The aims that blocks belong to, each once, in order. `content` is that of a block, where the rule has asked
    /// for it.
    pub(crate) fn among(
        &self,
        matched: &[Range<u64>],
        content: impl Fn(u64) -> Option<ContentHash>,
    ) -> Vec<u32> {
        let mut aims = Vec::new();
        match &self.contents {
            Some(contents) => {
                let blocks = matched.iter().cloned().flatten();
                aims.extend(blocks.filter_map(|block| Some(contents.get(&content(block)?)?.aim)));
            }
            None => {
                for range in matched {
                    self.by_place.find(range.clone(), |aim| aims.push(aim));
                }
            }
        }
        aims.sort_unstable();
        aims.dedup();
        aims
    }

    /// Counts a hit on each of `aims`.
    pub(crate) fn count_hit(&self, aims: &[u32]) {
        for &aim in aims {
            self.list[aim as usize].hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the ledger calls an aim.
    pub(crate) fn key(&self, aim: u32) -> TargetKey {
        self.list[aim as usize].key.clone()
    }

    /// Every aim with its hits, in the order in which they were written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TargetKey, u64)> {
        self.list.iter().map(|aim| (&aim.key, aim.hits.load(Ordering::Relaxed)))
    }
}

/// A content that a rule wants, with what people call it.
struct NamedContent {
    content: ContentHash,
    label: Arc<str>,
    beginning: Option<u64>,
}

/// The contents that a rule wants, in the order in which they were written.
fn wanted_contents(resolved: &ResolvedRule) -> Vec<NamedContent> {
    let matching = &resolved.rule.matching;
    let given: HashSet<ContentHash> = matching.content.iter().map(|text| text.0).collect();
    let mut wanted: Vec<NamedContent> = match &matching.target {
        Some(target) if target.is_by_content() => resolved
            .contents
            .iter()
            .map(|target| NamedContent {
                content: target.content,
                label: target.label.as_str().into(),
                beginning: target.beginning,
            })
            .collect(),
        _ => matching
            .content
            .iter()
            .map(|text| NamedContent { content: text.0, label: text.to_string().into(), beginning: None })
            .collect(),
    };
    // Both conditions given, both must hold. And a content that is named twice is one aim.
    let mut seen = HashSet::new();
    wanted.retain(|wanted| {
        (given.is_empty() || given.contains(&wanted.content)) && seen.insert(wanted.content)
    });
    wanted
}
