//! What makes no sense in one rule.

use rotproof_block::Tag;
use rotproof_spec::{ByteRange, Bytes, End, Path, Problems, nearest};

use crate::BLOCK_BYTES;
use crate::at_mark::AtMark;
use crate::chance::Chance;
use crate::delay::Delay;
use crate::effect::{Bits, Direction, Effect, SECTORS, Tear};
use crate::matching::{OperationKind, OperationMatch};
use crate::rule::Rule;
use crate::schedule::{Cycle, Schedule};
use crate::target::{Target, kinds};

impl Rule {
    /// Reports everything in the rule that makes no sense. `path` is where it stands in the document, `device_size`
    /// that of the device under the faults layer in bytes, as far as it is known.
    pub fn validate(&self, path: &Path, device_size: Option<u64>, problems: &mut Problems) {
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            problems.add_with_help(
                &path.key("name"),
                "the name is empty",
                "leave it out, and the fault is numbered",
            );
        }
        self.validate_place_of_conditions(path, problems);
        let matching = path.key("match");
        for (index, range) in self.matching.offset.iter().enumerate() {
            let place = match self.matching.offset.0.len() {
                1 => matching.key("offset"),
                _ => matching.key("offset").index(index),
            };
            validate_range(range, &place, device_size, problems);
        }
        if let Some(target) = &self.matching.target {
            validate_target(target, &matching.key("target"), problems);
        }
        self.validate_schedule(&path.key("schedule"), problems);
        self.validate_effect(&path.key("effect"), problems);
        self.validate_combination(path, problems);
        self.validate_phases(&path.key("during"), problems);
    }

    pub(crate) fn validate_schedule(&self, path: &Path, problems: &mut Problems) {
        let never = |word: &str, what: String| (path.key(word), format!("{what} never hits"));
        let ((place, message), help) = match self.schedule {
            Schedule::Every(Cycle { n: 0, .. }) => {
                (never("every", "`every: 0`".into()), "every: 1 hits every match")
            }
            Schedule::Every(Cycle { burst: 0, .. }) => {
                (never("burst", "`burst: 0`".into()), "leave it out for one hit in every cycle")
            }
            Schedule::Every(Cycle { n, burst, .. }) if burst > n => (
                (path.key("burst"), format!("{burst} matches are more than the {n} of a cycle")),
                "to hit every match, leave the schedule out",
            ),
            Schedule::Nth(0) => (never("nth", "`nth: 0`".into()), "matches are counted from 1"),
            Schedule::Mark(AtMark::Nth(0)) => (never("mark", "`mark: 0`".into()), "marks are counted from 1"),
            Schedule::Mark(AtMark::Text(Tag::NONE)) => {
                (never("mark", "a mark without a text".into()), "give the text that the load sets")
            }
            Schedule::Byte(Bytes(0)) => (never("byte", "`byte: 0`".into()), "bytes are counted from 1"),
            Schedule::Byte(_) if self.matching.operation == Some(OperationMatch::Flush) => (
                (
                    path.key("byte"),
                    "flushes carry no bytes, so none of them ever has the one that is waited for".into(),
                ),
                "count flushes, such as `nth: 3`, or let the rule match writes",
            ),
            Schedule::Between { from, to } if from > to || to == 0 => (
                never("from", format!("{from} to {to}")),
                "matches are counted from 1, and both ends are hit",
            ),
            Schedule::Probability { chance: Chance::NEVER, .. }
            | Schedule::Within { chance: Chance::NEVER, .. } => {
                (never("probability", "a probability of 0".into()), "give one such as 1% or 1e-6")
            }
            Schedule::Time { lasts: Some(lasts), .. } | Schedule::Within { lasts: Some(lasts), .. }
                if lasts.0.is_zero() =>
            {
                (never("for", "a window of 0".into()), "leave it out for everything up to the end")
            }
            _ => return,
        };
        problems.add_with_help(&place, message, help);
    }

    fn validate_effect(&self, path: &Path, problems: &mut Problems) {
        match self.effect {
            Effect::BitFlip(bits) => validate_bits(bits, &path.key("bit_flip"), problems),
            Effect::Delay(delay) if delay.is_nothing() => {
                problems.add_with_help(
                    &path.key("delay"),
                    "a delay of 0 changes nothing",
                    "give a span of time such as 10ms",
                );
            }
            Effect::Delay(Delay::Uniform(from, to)) if from > to => {
                problems.add(&path.key("delay").key("uniform"), format!("{from} is more than {to}"));
            }
            Effect::Hang(Some(span)) if span.0.is_zero() => {
                problems.add(&path.key("hang"), "a hang of 0 changes nothing");
            }
            Effect::Bandwidth(Bytes(0)) => {
                problems.add_with_help(
                    &path.key("bandwidth"),
                    "at 0 bytes a second nothing ever passes",
                    "take the effect hang",
                );
            }
            Effect::TornWrite(Tear { sectors: Some(sectors), .. }) if sectors == 0 || sectors >= SECTORS => {
                problems.add(
                    &path.key(self.effect.word()).key("sectors"),
                    format!("{sectors} of the {SECTORS} sectors of a block are no part of it; give 1 to 7"),
                );
            }
            Effect::MisdirectedWrite(Direction::By(by) | Direction::To(by))
                if !by.0.is_multiple_of(BLOCK_BYTES) =>
            {
                add_unaligned(by.0, &path.key("misdirected_write"), problems);
            }
            Effect::MisdirectedWrite(Direction::By(Bytes(0))) => {
                problems
                    .add(&path.key("misdirected_write").key("by"), "a write 0 bytes off is where it belongs");
            }
            Effect::StaleRead if self.matching.is_by_content() => {
                problems.add_with_help(
                    path,
                    "a stale read cannot be chosen by content: what a block will hold is not known when its old data must be kept",
                    "choose the blocks by offset",
                );
            }
            _ => {}
        }
    }

    /// Conditions and effect that exclude each other, so that the rule can never hit.
    fn validate_combination(&self, path: &Path, problems: &mut Problems) {
        if OperationKind::ALL.into_iter().any(|operation| self.concerns_operation(operation)) {
            return;
        }
        let word = self.matching.operation.map_or("reads and writes", OperationMatch::word);
        let effect = self.effect.word();
        let operation = path.key("match").key("operation");
        if self.effect.is_on_writes_alone() {
            problems.add_with_help(
                &operation,
                format!("{effect} only concerns writes, but the operation is {word}"),
                "take `operation: write`, or another effect",
            );
        } else if self.effect == Effect::StaleRead {
            problems.add_with_help(
                &operation,
                format!("{effect} only concerns reads, but the operation is {word}"),
                "take `operation: read`, or another effect",
            );
        } else if self.effect == Effect::ReadOnly {
            problems.add_with_help(
                &operation,
                format!("{effect} begins with a write or discard, but the operation is {word}"),
                "take `operation: write`",
            );
        } else if self.effect.is_on_data() {
            problems.add_with_help(
                &operation,
                format!("{effect} changes data, and a `{word}` carries none"),
                "take `operation: read` or `write`, or the effect error or delay",
            );
        } else if self.matching.operation == Some(OperationMatch::Flush) {
            problems.add_with_help(
                &operation,
                "a flush concerns the whole device, so it never matches an offset, content or target",
                "leave those conditions out",
            );
        } else {
            problems.add_with_help(
                &operation,
                format!("a {word} carries no data, so it never matches a content or target"),
                "choose the blocks by offset",
            );
        }
    }

    fn validate_phases(&self, path: &Path, problems: &mut Problems) {
        if self.during.is_empty() {
            problems.add_with_help(
                path,
                "the rule is enabled in no phase",
                "leave it out for run and check, or name one of prefill, run, check",
            );
        }
        for (index, phase) in self.during.iter().enumerate() {
            if self.during.0[..index].contains(phase) {
                problems.add(&path.index(index), format!("{} is named twice", phase.word()));
            }
        }
    }
}

pub(crate) fn validate_bits(bits: Bits, path: &Path, problems: &mut Problems) {
    let (byte, bit, count) = match bits {
        Bits::At { byte, bit } => (byte, bit, 1),
        Bits::Mask { byte, mask } => (byte, 0, u32::from(mask)),
        Bits::Burst { byte, bit, count } => (byte, bit, count),
        Bits::Random { count, .. } | Bits::RandomBurst { count, .. } => (0, 0, count),
    };
    if u64::from(byte) >= BLOCK_BYTES {
        problems.add(
            &path.key("byte"),
            format!("byte {byte} is beyond the block; its bytes are 0 to {}", BLOCK_BYTES - 1),
        );
    }
    if bit > 7 {
        problems.add(&path.key("bit"), format!("bit {bit} is beyond the byte; its bits are 0 to 7"));
    }
    if count == 0 {
        problems.add(path, "no bit flips; give at least one");
    } else if u64::from(count) > BLOCK_BYTES * 8 {
        problems.add(path, format!("a block has only {} bits", BLOCK_BYTES * 8));
    }
}

pub(crate) fn validate_range(
    range: &ByteRange,
    path: &Path,
    device_size: Option<u64>,
    problems: &mut Problems,
) {
    let ByteRange { start, end } = *range;
    if let Some(size) = device_size
        && start >= size
    {
        problems.add(path, format!("{range} is beyond the device, which has {}", Bytes(size)));
        return;
    }
    if !start.is_multiple_of(BLOCK_BYTES) {
        add_unaligned(start, path, problems);
        return;
    }
    let End::At(end) = end else { return };
    if end == start {
        problems.add(path, format!("{range} is empty; the end is not included"));
    } else if end < start {
        problems.add_with_help(
            path,
            format!("{range} ends before it begins"),
            format!("did you mean {}..{}?", Bytes(end), Bytes(start)),
        );
    } else if let Some(size) = device_size
        && end > size
    {
        problems.add_with_help(
            path,
            format!("{range} reaches beyond the device, which has {}", Bytes(size)),
            format!("write {}.. for everything up to the end", Bytes(start)),
        );
    } else if !end.is_multiple_of(BLOCK_BYTES) && Some(end) != device_size {
        // A device need not end with a whole block.
        add_unaligned(end, path, problems);
    }
}

fn add_unaligned(offset: u64, path: &Path, problems: &mut Problems) {
    let below = offset - offset % BLOCK_BYTES;
    let above = below.saturating_add(BLOCK_BYTES);
    problems.add_with_help(
        path,
        format!("{offset} is inside a block; faults act on whole blocks of {BLOCK_BYTES} bytes"),
        format!("write {} or {}", Bytes(below), Bytes(above)),
    );
}

fn validate_target(target: &Target, path: &Path, problems: &mut Problems) {
    match target {
        Target::MostDuplicated { count: 0 } => {
            problems.add(&path.key("most_duplicated"), "0 contents are none");
        }
        Target::Unique { count: 0 } => {
            problems.add(&path.key("unique"), "0 contents are none");
        }
        Target::File { file, .. } | Target::Extent { file, .. } if file.is_empty() => {
            problems.add_with_help(
                &path.key("file"),
                "the file has no name",
                "files are called a, b, c, ...",
            );
        }
        Target::Type { kind, .. } if !kinds().contains(&kind.as_str()) => {
            let all = kinds();
            let help = match nearest(kind, all.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => {
                    "`rotproof map` shows the kinds of a file system; docs/kinds.md lists them all".to_owned()
                }
            };
            let message = match kind.as_str() {
                "unknown" | "unused" => {
                    format!("of a block that is {kind} nobody can say that it is what is meant")
                }
                _ => format!("there is no kind of block `{kind}`"),
            };
            problems.add_with_help(&path.key("type"), message, help);
        }
        Target::Type { file: Some(file), .. } if file.is_empty() => {
            problems.add_with_help(
                &path.key("file"),
                "the file has no name",
                "files are called a, b, c, ...",
            );
        }
        Target::LastBlockOfEvery(bytes) if bytes.0 == 0 || !bytes.0.is_multiple_of(BLOCK_BYTES) => {
            problems.add_with_help(
                &path.key("last_block_of_every"),
                format!("{bytes} are no whole number of blocks of {BLOCK_BYTES} bytes"),
                "give a multiple of 4KiB such as 64MiB",
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rules::any_rule;

    /// Path and message of every problem of the rule on a device of 16 MiB.
    fn problems(text: &str) -> Vec<(String, String)> {
        let rule: Rule = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut problems = Problems::default();
        rule.validate(&Path::root().key("faults").index(0), Some(16 << 20), &mut problems);
        problems.into_iter().map(|problem| (problem.path.to_string(), problem.message)).collect()
    }

    #[test]
    fn sensible_rules_have_no_problems() {
        for text in [
            "error",
            "write, offset=1MiB..2MiB, every=3, sticky: bit_flip(byte=4095, bit=7)",
            "offset=0|4096|8MiB..16MiB|15MiB..: zeros",
            "flush: error",
            "discard, offset=0..1MiB: delay(1ms)",
            "any: lost_write",
            "any: bit_flip(random)",
            "any, target=most_duplicated(3): error",
            "target=last_block_of_every(64MiB), after=0: lost_write",
        ] {
            assert_eq!(problems(text), [], "{text}");
        }
    }

    #[test]
    fn each_mistake_is_found_at_its_place() {
        for (text, place, part) in [
            ("offset=2MiB..1MiB: error", "match.offset", "ends before"),
            ("offset=1MiB..1MiB: error", "match.offset", "empty"),
            ("offset=0..17MiB: error", "match.offset", "beyond the device"),
            ("offset=16MiB: error", "match.offset", "beyond the device"),
            ("offset=0|16MiB..: error", "match.offset[1]", "beyond the device"),
            ("offset=512: error", "match.offset", "inside a block"),
            ("offset=0..5000: error", "match.offset", "inside a block"),
            ("every=0: error", "schedule.every", "never hits"),
            ("nth=0: error", "schedule.nth", "never hits"),
            ("byte=0: error", "schedule.byte", "never hits"),
            ("mark=0: error", "schedule.mark", "never hits"),
            ("mark=\"\": error", "schedule.mark", "never hits"),
            ("flush, byte=64KiB: error", "schedule.byte", "flushes carry no bytes"),
            ("burst=0/5: error", "schedule.burst", "never hits"),
            ("burst=6/5: error", "schedule.burst", "more than the 5"),
            ("matches=5..4: error", "schedule.from", "never hits"),
            ("probability=0: error", "schedule.probability", "never hits"),
            ("at=1s+0s: error", "schedule.for", "never hits"),
            ("bit_flip(byte=4096)", "effect.bit_flip.byte", "beyond the block"),
            ("bit_flip(bit=8)", "effect.bit_flip.bit", "beyond the byte"),
            ("delay(0)", "effect.delay", "changes nothing"),
            ("delay(uniform=2s|1s)", "effect.delay.uniform", "more than"),
            ("hang(0)", "effect.hang", "changes nothing"),
            ("bandwidth(0)", "effect.bandwidth", "nothing ever passes"),
            ("bit_flip(mask=0)", "effect.bit_flip", "no bit"),
            ("bit_flip(random=40000)", "effect.bit_flip", "only 32768"),
            ("write: torn_write(sectors=8)", "effect.torn_write.sectors", "no part"),
            ("write: misdirected_write(by=0)", "effect.misdirected_write.by", "where it belongs"),
            ("write: misdirected_write(to=100)", "effect.misdirected_write", "inside a block"),
            ("read, target=unique: stale_read", "effect", "by content"),
            ("read: torn_write", "match.operation", "only concerns writes"),
            ("write: stale_read", "match.operation", "only concerns reads"),
            ("read: read_only", "match.operation", "begins with a write"),
            ("read: lost_write", "match.operation", "only concerns writes"),
            ("flush: lost_write", "match.operation", "only concerns writes"),
            ("flush: zeros", "match.operation", "changes data"),
            ("discard: bit_flip", "match.operation", "changes data"),
            ("flush, offset=0: error", "match.operation", "whole device"),
            ("flush, target=unique: error", "match.operation", "whole device"),
            ("discard, target=unique: error", "match.operation", "carries no data"),
            ("target=unique(0): error", "match.target.unique", "none"),
            ("target=most_duplicated(0): error", "match.target.most_duplicated", "none"),
            ("target=file(\"\", block=1): error", "match.target.file", "no name"),
            ("target=last_block_of_every(100): error", "match.target.last_block_of_every", "whole number"),
            ("target=last_block_of_every(0): error", "match.target.last_block_of_every", "whole number"),
            ("during=run|run: error", "during[1]", "twice"),
            ("name=\" \": error", "name", "empty"),
        ] {
            let found = problems(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].0, format!("faults[0].{place}"), "{text}");
            assert!(found[0].1.contains(part), "{text}: {}", found[0].1);
        }
    }

    #[test]
    fn a_device_may_end_inside_a_block() {
        let rule: Rule = "offset=0..4608: error".parse().expect("a rule");
        let mut problems = Problems::default();
        rule.validate(&Path::root(), Some(4608), &mut problems);
        assert!(problems.is_empty());
        rule.validate(&Path::root(), None, &mut problems);
        assert!(!problems.is_empty(), "on another device the range ends inside a block");
    }

    proptest::proptest! {
        #[test]
        fn no_rule_makes_the_validation_panic(rule in any_rule(), size: Option<u64>) {
            rule.validate(&Path::root(), size, &mut Problems::default());
        }
    }
}
