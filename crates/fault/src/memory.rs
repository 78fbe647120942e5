//! Rules on memory, of a machine or of the processes of a command: the place `memory`, and which parts of it a rule means.
//!
//! Memory has no requests. Whoever injects looks at it again and again, and what it finds at one look is a match of the
//! rule. Here are the words, what makes no sense in them, and what an effect makes of a block; looking is somebody else's.

use std::fmt;
use std::str::FromStr;

use rotproof_spec::{Path, Problems, nearest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;
use crate::corruption::Corruption;
use crate::effect::{Bits, Effect};
use crate::matching::Match;
use crate::rule::{Persistence, Rule};
use crate::schedule::Schedule;
use crate::target::Target;

/// What a rule names with `on` to act on the memory of the subject. No place in a stack is called so.
pub const MEMORY: &str = "memory";

/// Places that one rule may choose at a look.
const PLACES_MAX: u64 = 1_000_000;

/// What a page of memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// It caches what corruptions on a device, and holds what corruptions there.
    PageCache,
    /// It caches what is still to be written.
    Dirty,
    /// Memory of a process; of a process: what is neither its heap, nor its stack, nor of a file.
    Anonymous,
    /// The kernel's own.
    Kernel,
    /// Nobody's.
    Free,
    /// Of a process: the heap that grows by `brk`.
    Heap,
    /// Of a process: the stack of its first thread.
    Stack,
    /// Of a process: the bytes of a file that it has mapped.
    FileBacked,
}

impl MemoryKind {
    /// The words they are written with, in the order of the variants.
    pub(crate) const WORDS: [(&'static str, MemoryKind); 8] = [
        ("page_cache", Self::PageCache),
        ("dirty", Self::Dirty),
        ("anonymous", Self::Anonymous),
        ("kernel", Self::Kernel),
        ("free", Self::Free),
        ("heap", Self::Heap),
        ("stack", Self::Stack),
        ("file_backed", Self::FileBacked),
    ];

    /// Whether memory of a machine can be of this kind.
    pub fn is_of_machine(self) -> bool {
        !matches!(self, Self::Heap | Self::Stack | Self::FileBacked)
    }

    /// Whether memory of a process can be of this kind.
    pub fn is_of_process(self) -> bool {
        matches!(self, Self::Anonymous | Self::Heap | Self::Stack | Self::FileBacked)
    }

    /// The word it is written with.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for MemoryKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = Self::WORDS.map(|(word, _)| word);
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|&(_, kind)| kind).ok_or_else(
            || match nearest(text, words) {
                Some(meant) => format!("unknown kind of memory `{text}`; did you mean `{meant}`?"),
                None => format!("unknown kind of memory `{text}`; known are {}", words.join(", ")),
            },
        )
    }
}

/// Which of several copies of a block in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Copies {
    /// The one that is in use. A copy of which nobody knows whether it is, is left alone.
    #[default]
    One,
    /// All of them, those too that are left over from former use.
    All,
}

impl Copies {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::All => "all",
        }
    }
}

impl FromStr for Copies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "one" => Ok(Self::One),
            "all" => Ok(Self::All),
            _ => Err(format!("`copies` is one or all, not `{text}`")),
        }
    }
}

impl Match {
    /// The first condition that only memory has, by its key.
    fn of_memory(&self) -> Option<&'static str> {
        let given = [
            ("kind", !self.kind.is_empty()),
            ("address", !self.address.is_empty()),
            ("places", self.places.is_some()),
            ("copies", self.copies.is_some()),
            ("process", !self.process.is_empty()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }
}

impl Rule {
    /// Whether it acts on the memory of the subject, not in the stack.
    pub fn is_on_memory(&self) -> bool {
        self.on.as_deref() == Some(MEMORY)
    }

    /// Reports conditions that only memory has, in a rule that acts elsewhere.
    pub(crate) fn validate_place_of_conditions(&self, path: &Path, problems: &mut Problems) {
        if let Some(key) = self.matching.of_memory() {
            problems.add_with_help(
                &path.key("match").key(key),
                format!("`{key}` is a condition on memory, and this rule acts in the stack"),
                "add `on: memory`, or match by offset or content",
            );
        }
    }

    /// Reports everything that makes no sense in a rule on memory. `path` is where it stands.
    pub fn validate_on_memory(&self, path: &Path, problems: &mut Problems) {
        let Match { operation, offset, content, target, tag, origin, address, places, copies, .. } =
            &self.matching;
        let matching = path.key("match");
        let of_requests = [
            ("operation", operation.is_some()),
            ("offset", !offset.is_empty()),
            ("tag", !tag.is_empty()),
            ("origin", !origin.is_empty()),
        ];
        for (key, _) in of_requests.into_iter().filter(|(_, is_given)| *is_given) {
            problems.add_with_help(
                &matching.key(key),
                format!("`{key}` is a condition on requests, and memory has none"),
                "match by content, target, address or places",
            );
        }
        if let Some(target) = target
            && !matches!(target, Target::File { .. })
        {
            problems.add_with_help(
                &matching.key("target"),
                "in memory only a block of a file can be a target",
                "take one such as { file: a, block: 7 }, or match by content, address or places",
            );
        }
        let chosen = [!content.is_empty(), target.is_some(), !address.is_empty(), places.is_some()];
        if chosen.into_iter().filter(|is_given| *is_given).count() != 1 {
            problems.add_with_help(
                &matching,
                "a rule on memory says in one way what it hits",
                "give one of content, target, address and places, such as `places: 1`",
            );
        }
        if let Some(places) = places
            && !(1..=PLACES_MAX).contains(places)
        {
            problems.add(
                &matching.key("places"),
                format!("{places} places are not possible; give 1 to {PLACES_MAX}"),
            );
        }
        if copies.is_some() && content.is_empty() && target.is_none() {
            problems.add_with_help(
                &matching.key("copies"),
                "only a block that is found by what it is can have copies",
                "match by content or target, or leave `copies` out",
            );
        }
        for (index, range) in address.iter().enumerate() {
            crate::validate::validate_range(range, &matching.key("address").index(index), None, problems);
        }
        self.validate_effect_on_memory(path, problems);
    }

    fn validate_effect_on_memory(&self, path: &Path, problems: &mut Problems) {
        let effect = self.effect;
        if !matches!(effect, Effect::BitFlip(_) | Effect::Zeros | Effect::Ones | Effect::Noise(_)) {
            problems.add_with_help(
                &path.key("effect"),
                format!("{} is an effect on requests, and memory has none", effect.word()),
                "take bit_flip, zeros, ones or noise",
            );
        }
        if let Effect::BitFlip(bits) = effect {
            crate::validate::validate_bits(bits, &path.key("effect").key("bit_flip"), problems);
        }
        match self.persistence {
            Persistence::Transient => {}
            Persistence::Sticky
                if matches!(effect, Effect::BitFlip(Bits::At { .. } | Bits::Random { .. })) => {}
            Persistence::Sticky => problems.add_with_help(
                &path.key("persistence"),
                "in memory single bits are stuck, and this effect changes more",
                "take bit_flip at one place or `{ random: n }`, or leave `persistence` out",
            ),
            Persistence::UntilRewritten { .. } => problems.add_with_help(
                &path.key("persistence"),
                "memory that is written holds what was written",
                "leave it out for a flip, or take `sticky` for a bit that is stuck",
            ),
        }
        if matches!(self.schedule, Schedule::Byte(_) | Schedule::Mark(_)) {
            problems.add_with_help(
                &path.key("schedule"),
                "memory has no requests whose bytes could be counted, or that could follow a mark",
                "take once, nth, every or a window of time such as { at: 10s, for: 5s }",
            );
        } else if !self.schedule.is_counted() && !matches!(self.schedule, Schedule::Time { .. }) {
            problems.add_with_help(
                &path.key("schedule"),
                "how often memory is looked at is no measure for a probability",
                "take once, nth, every or a window of time such as { at: 10s, for: 5s }",
            );
        }
        self.validate_schedule(&path.key("schedule"), problems);
    }
}

impl Effect {
    /// What becomes of a block of 4096 bytes under an effect that memory can have, with `draw` as what chance said where the effect
    /// leaves something to it and does not say it yet. Gives the effect with that filled in; `None` for an effect on requests.
    pub fn distort(self, draw: u64, block: &mut [u8]) -> Option<Self> {
        let effect = if self.draw().is_some() { self } else { self.resolved(draw) };
        let part = 0..block.len().min(BLOCK_BYTES as usize);
        let corruption = match effect {
            Self::BitFlip(bits) => Corruption::bits(bits, &part)?,
            Self::Zeros => Corruption::fill(part, 0),
            Self::Ones => Corruption::fill(part, 0xff),
            Self::Noise(draw) => Corruption::noise(part, draw.number()),
            _ => return None,
        };
        corruption.apply(0, block);
        Some(effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let rule: Rule = text.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
        let mut problems = Problems::default();
        rule.validate_on_memory(&Path::root().key("faults").index(0), &mut problems);
        problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn a_rule_on_memory_says_in_one_way_what_it_hits_and_has_an_effect_that_memory_can_have() {
        for text in [
            "on=memory, target=file(a, block=7), once: bit_flip",
            "on=memory, content=3ee8dc4f9e7ee49593d76fe148c689ba, copies=all: zeros",
            "on=memory, places=16, kind=page_cache|dirty, at=1s: bit_flip(random)",
            "on=memory, address=1MiB..2MiB, nth=3, sticky: bit_flip(byte=0, bit=3)",
        ] {
            assert_eq!(complaints(text), [""; 0], "{text}");
        }
        for (text, wanted) in [
            (
                "on=memory, read, places=1: bit_flip",
                "faults[0].match.operation: `operation` is a condition on requests",
            ),
            ("on=memory: bit_flip", "faults[0].match: a rule on memory says in one way"),
            (
                "on=memory, places=1, address=0..4KiB: bit_flip",
                "faults[0].match: a rule on memory says in one way",
            ),
            ("on=memory, places=0: bit_flip", "faults[0].match.places: 0 places"),
            ("on=memory, places=3, copies=all: bit_flip", "faults[0].match.copies: only a block"),
            (
                "on=memory, target=unique: bit_flip",
                "faults[0].match.target: in memory only a block of a file",
            ),
            ("on=memory, places=1: lost_write", "faults[0].effect: lost_write is an effect on requests"),
            ("on=memory, places=1, sticky: noise", "faults[0].persistence: in memory single bits"),
            ("on=memory, places=1, until_rewritten: zeros", "faults[0].persistence: memory that is written"),
            (
                "on=memory, places=1, probability=1%: zeros",
                "faults[0].schedule: how often memory is looked at",
            ),
            ("on=memory, places=1, byte=64KiB: zeros", "faults[0].schedule: memory has no requests"),
        ] {
            let found = complaints(text);
            assert!(found.len() == 1 && found[0].starts_with(wanted), "{text}: {found:?}");
        }
    }

    #[test]
    fn an_effect_changes_a_block_as_it_says_and_the_same_for_the_same_draw() {
        let block = |effect: &str, draw| {
            let mut bytes = vec![0x55; BLOCK_BYTES as usize];
            let resolved = effect.parse::<Effect>().expect(effect).distort(draw, &mut bytes);
            (resolved, bytes)
        };
        let changed = |bytes: &[u8]| bytes.iter().map(|byte| (byte ^ 0x55).count_ones()).sum::<u32>();
        let (_, one) = block("bit_flip(byte=9, bit=2)", 1);
        assert_eq!((changed(&one), one[9]), (1, 0x51));
        let (resolved, random) = block("bit_flip(random=5)", 7);
        assert_eq!(changed(&random), 5);
        assert!(block("bit_flip(random=5)", 7).1 == random);
        assert!(block("bit_flip(random=5)", 8).1 != random);
        // What chance said is in the effect: it does the same without a draw.
        let mut again = vec![0x55; BLOCK_BYTES as usize];
        resolved.expect("an effect on data").distort(0, &mut again);
        assert!(again == random);
        assert_eq!(block("zeros", 1).1, vec![0; BLOCK_BYTES as usize]);
        assert_eq!(block("error", 1).0, None);
    }
}
