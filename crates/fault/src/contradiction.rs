//! What makes no sense among several rules: names given twice, and two rules of which one can never show because
//! the other always hits the same blocks.

use std::collections::HashMap;
use std::ops::Range;

use rotproof_block::ContentHash;
use rotproof_spec::{Path, Problems};

use crate::effect::{Bits, Effect};
use crate::geometry::blocks_in;
use crate::matching::OperationKind;
use crate::rule::{EnabledPhase, Rule};
use crate::schedule::{Cycle, Schedule};
use crate::seen::{Seen, SeenBlock};
use crate::target::Target;

/// More contradictions than this are not reported: a plan with so many has one cause.
const REPORTED_MAX: usize = 20;

/// Reports everything that makes no sense in the rules of a plan: in each by itself ([`Rule::validate`]), and among
/// them. `path` is where the list stands in the document.
pub fn validate_all(rules: &[Rule], path: &Path, device_size: Option<u64>, problems: &mut Problems) {
    for (index, rule) in rules.iter().enumerate() {
        rule.validate(&path.index(index), device_size, problems);
    }
    validate_names(rules, path, problems);
    let placed: Vec<(usize, &Rule)> = rules.iter().enumerate().collect();
    validate_rules(&placed, path, problems);
}

/// Reports rules that contradict each other, each with its position in the list.
pub(crate) fn validate_rules(rules: &[(usize, &Rule)], path: &Path, problems: &mut Problems) {
    let mut search = Search { rules, found: vec![None; rules.len()], count: 0 };
    search.by_place();
    search.by_content();
    search.by_content_anywhere();
    for (found, (position, _)) in search.found.into_iter().zip(rules) {
        let Some((other, reason)) = found else { continue };
        let (other, rule) = rules[other];
        problems.add_with_help(
            &path.index(*position),
            format!("this contradicts {} ({}): {reason}", rule.name_or_default(other), path.index(other)),
            "separate their places, operations or phases, or let one hit only at times with a schedule",
        );
    }
}

fn validate_names(rules: &[Rule], path: &Path, problems: &mut Problems) {
    let mut first: HashMap<_, usize> = HashMap::new();
    for (index, rule) in rules.iter().enumerate() {
        let name = rule.name_or_default(index);
        if let Some(&other) = first.get(&name) {
            problems.add(
                &path.index(index).key("name"),
                format!("{} is called `{name}` too; reports could not tell them apart", path.index(other)),
            );
        } else {
            first.insert(name, index);
        }
    }
}

struct Search<'a> {
    rules: &'a [(usize, &'a Rule)],
    /// Per rule the first earlier one that it contradicts, and why.
    found: Vec<Option<(usize, &'static str)>>,
    count: usize,
}

impl Search<'_> {
    /// The rules that always hit, by index: only between them can it be said for sure.
    fn candidates(&self, by_name: bool) -> Vec<usize> {
        (0..self.rules.len())
            .filter(|&index| always_hits(self.rules[index].1))
            .filter(|&index| is_by_name(self.rules[index].1) == by_name)
            .collect()
    }

    fn compare(&mut self, one: usize, other: usize) {
        let (earlier, later) = (one.min(other), one.max(other));
        if earlier == later || self.count == REPORTED_MAX || self.found[later].is_some() {
            return;
        }
        let (first, second) = (self.rules[earlier].1, self.rules[later].1);
        if let Some(reason) = incompatible(first, second)
            && meet(first, second)
        {
            self.found[later] = Some((earlier, reason));
            self.count += 1;
        }
    }

    /// Rules by place, or for any place: a sweep over the starts of their ranges.
    fn by_place(&mut self) {
        let mut ranges: Vec<(Range<u64>, usize)> = self
            .candidates(false)
            .into_iter()
            .flat_map(|index| blocks(self.rules[index].1).into_iter().map(move |range| (range, index)))
            .collect();
        ranges.sort_unstable_by_key(|(range, index)| (range.start, *index));
        let mut open: Vec<(u64, usize)> = Vec::new();
        for (range, index) in ranges {
            open.retain(|(end, _)| *end > range.start);
            for &(_, other) in &open {
                self.compare(other, index);
            }
            open.push((range.end, index));
        }
    }

    /// Rules that want the same content, or whose target is the same blocks.
    fn by_content(&mut self) {
        let mut wanted: HashMap<Wanted<'_>, Vec<usize>> = HashMap::new();
        for index in self.candidates(true) {
            let rule = self.rules[index].1;
            if let Some(target) = rule.matching.target.as_ref().and_then(|target| comparable(target, rule)) {
                wanted.entry(Wanted::Target(target)).or_default().push(index);
            }
            for content in &rule.matching.content {
                wanted.entry(Wanted::Content(content.0)).or_default().push(index);
            }
        }
        let mut groups: Vec<Vec<usize>> = wanted.into_values().filter(|group| group.len() > 1).collect();
        groups.sort_unstable();
        for group in groups {
            for (position, &index) in group.iter().enumerate() {
                for &other in &group[..position] {
                    if share_a_place(self.rules[other].1, self.rules[index].1) {
                        self.compare(other, index);
                    }
                }
            }
        }
    }

    /// A rule for any place hits every content and target, too.
    fn by_content_anywhere(&mut self) {
        let mut anywhere = self.candidates(false);
        anywhere.retain(|&index| self.rules[index].1.matching.offset.is_empty());
        for index in self.candidates(true) {
            for &other in &anywhere {
                self.compare(other, index);
            }
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
enum Wanted<'a> {
    Content(ContentHash),
    Target(Comparable<'a>),
}

/// A target without its count: the most duplicated content is among the three most duplicated.
#[derive(PartialEq, Eq, Hash)]
enum Comparable<'a> {
    MostDuplicated,
    Unique,
    /// Chosen at the same moment if the rules are enabled in the same phases.
    Seen(Seen, &'a [EnabledPhase]),
    Other(&'a Target),
}

fn comparable<'a>(target: &'a Target, rule: &'a Rule) -> Option<Comparable<'a>> {
    Some(match target {
        Target::MostDuplicated { .. } => Comparable::MostDuplicated,
        Target::Unique { .. } => Comparable::Unique,
        // Never the same as any other rule's.
        Target::Seen(Seen {
            block: SeenBlock::MostDuplicated { apart } | SeenBlock::Unique { apart },
            ..
        }) if *apart => {
            return None;
        }
        Target::Seen(seen) => Comparable::Seen(*seen, &rule.during.0),
        other => Comparable::Other(other),
    })
}

/// Whether blocks are chosen by anything but their place alone, so that nobody knows which they are.
fn is_by_name(rule: &Rule) -> bool {
    !rule.matching.content.is_empty() || rule.matching.target.is_some()
}

fn always_hits(rule: &Rule) -> bool {
    let is_every = |schedule| {
        matches!(schedule, Schedule::All | Schedule::After(0)) || schedule == Schedule::Every(Cycle::every(1))
    };
    is_every(rule.schedule) && !rule.effect.only_delays()
}

fn blocks(rule: &Rule) -> Vec<Range<u64>> {
    if rule.matching.offset.is_empty() {
        return std::iter::once(0..u64::MAX).collect();
    }
    let of_range = |range| blocks_in(range, u64::MAX);
    rule.matching.offset.iter().map(of_range).filter(|range| !range.is_empty()).collect()
}

fn share_a_place(one: &Rule, other: &Rule) -> bool {
    let others = blocks(other);
    blocks(one)
        .iter()
        .any(|range| others.iter().any(|other| range.start < other.end && other.start < range.end))
}

/// Whether some request concerns both.
fn meet(one: &Rule, other: &Rule) -> bool {
    one.during.iter().any(|phase| other.during.0.contains(phase))
        && one.matching.tag == other.matching.tag
        && one.matching.origin == other.matching.origin
        && OperationKind::ALL
            .into_iter()
            .any(|operation| one.concerns_operation(operation) && other.concerns_operation(operation))
}

/// Why the two effects on the same block make no sense together.
fn incompatible(one: &Rule, other: &Rule) -> Option<&'static str> {
    use Effect::{BitFlip, Gone, LostWrite, MisdirectedWrite, Zeros};
    let fails = |effect: Effect| {
        matches!(effect, Effect::Error { after: false, .. } | Gone | Effect::PowerCut(_) | Effect::ReadOnly)
    };
    let loses = |effect: Effect| matches!(effect, LostWrite | MisdirectedWrite(_));
    match (one.effect, other.effect) {
        (one, other) if one.only_delays() || other.only_delays() => None,
        (one, other) if fails(one) && fails(other) => Some("both fail the same requests"),
        (one, other) if fails(one) || fails(other) => {
            Some("one of them always fails the requests whose data the other changes")
        }
        (LostWrite, LostWrite) => Some("both lose the same writes"),
        (one, other)
            if loses(one) && other != Effect::StaleRead || loses(other) && one != Effect::StaleRead =>
        {
            Some("one of them always loses the writes whose data the other changes")
        }
        (Zeros, Zeros) => Some("both zero the same blocks"),
        (BitFlip(one @ (Bits::At { .. } | Bits::Mask { .. } | Bits::Burst { .. })), BitFlip(other))
            if one == other =>
        {
            Some("both flip the same bit, which leaves it as it was")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rules::any_rule;

    fn problems(texts: &[&str]) -> Vec<String> {
        let rules: Vec<Rule> = texts.iter().map(|text| text.parse().expect("a rule")).collect();
        let mut problems = Problems::default();
        validate_all(&rules, &Path::root().key("faults"), Some(16 << 20), &mut problems);
        problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    const HASH: &str = "content=000102030405060708090a0b0c0d0e0f";

    #[test]
    fn contradictions_are_found_by_place_content_and_target() {
        let flip = format!("{HASH}: bit_flip");
        let error = format!("write, {HASH}: error");
        for rules in [
            ["offset=0..1MiB: error", "offset=512KiB..2MiB: bit_flip"],
            ["write, offset=0: lost_write", "offset=0: zeros"],
            ["read: error", "read, offset=4096: error"],
            ["write: lost_write", "write: lost_write"],
            ["zeros", "every=1: zeros"],
            ["bit_flip(byte=3)", "bit_flip(byte=3)"],
            ["flush: error", "any: error"],
            ["target=unique: error", "target=unique(3): zeros"],
            ["target=file(a, block=1): error", "target=file(a, block=1): zeros"],
            ["zeros", "target=unique: lost_write"],
            [&flip, &error],
            ["target=seen(last_written, after=9): zeros", "target=seen(last_written, after=9): error"],
            ["target=seen(unique): zeros", "target=seen(unique): error"],
            ["error", "target=seen(next_written): zeros"],
        ] {
            let found = problems(&rules);
            assert_eq!(found.len(), 1, "{rules:?}: {found:?}");
            assert!(found[0].starts_with("faults[1]: this contradicts fault-1 (faults[0])"), "{}", found[0]);
        }
    }

    #[test]
    fn rules_that_can_both_show_do_not_contradict() {
        for rules in [
            ["offset=0..1MiB: error", "offset=1MiB..2MiB: bit_flip"],
            ["read: error", "write: bit_flip"],
            ["offset=0: error", "offset=0, every=3: bit_flip"],
            ["offset=0: error", "offset=0: delay(1ms)"],
            ["offset=0, during=run: error", "offset=0, during=check: zeros"],
            ["zeros", "bit_flip"],
            ["bit_flip(byte=1)", "bit_flip(byte=2)"],
            ["bit_flip(random)", "bit_flip(random)"],
            ["target=unique: error", "target=most_duplicated: zeros"],
            ["offset=0: error", "target=unique: zeros"],
            ["target=unique, offset=0: error", "target=unique, offset=4096: zeros"],
            ["flush: error", "write: zeros"],
            ["target=seen(last_written, after=9): zeros", "target=seen(last_written, after=8): error"],
            ["target=seen(last_written): zeros", "target=seen(last_written), during=run: error"],
            ["target=seen(unique, apart): zeros", "target=seen(unique, apart): error"],
            ["offset=0: error", "target=seen(next_written): zeros"],
        ] {
            assert_eq!(problems(&rules), [] as [String; 0], "{rules:?}");
        }
    }

    #[test]
    fn a_name_is_given_once_even_if_it_is_a_default() {
        assert!(problems(&["name=rot: zeros", "name=rot, once: error"])[0].contains("called `rot` too"));
        assert!(problems(&["name=fault-2: zeros", "once: error"])[0].contains("called `fault-2` too"));
    }

    #[test]
    fn ten_thousand_rules_are_checked_and_a_flood_of_contradictions_is_cut() {
        let disjoint: Vec<Rule> =
            (0..10_000u64).map(|n| format!("offset={}: error", n * 4096).parse().expect("a rule")).collect();
        let mut found = Problems::default();
        validate_all(&disjoint, &Path::root(), None, &mut found);
        assert!(found.is_empty());
        let same: Vec<Rule> = vec![Rule::new(Effect::ERROR); 10_000];
        validate_all(&same, &Path::root(), None, &mut found);
        assert_eq!(found.iter().count(), REPORTED_MAX);
    }

    proptest::proptest! {
        #[test]
        fn no_rules_make_the_validation_panic(rules in proptest::collection::vec(any_rule(), 0..6)) {
            validate_all(&rules, &Path::root(), Some(1 << 20), &mut Problems::default());
        }
    }
}
