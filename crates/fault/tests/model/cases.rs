//! Random rules and requests on a device so small that they meet all the time, and rules that come and go between the
//! requests.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use rotproof_block::{ContentHash, Operation, Phase};
use rotproof_fault::{
    AtMark, Bits, By, Cycle, Delay, Direction, Draw, Effect, EnabledPhase, Errno, HashText, Match, Moment,
    NewPart, OneOrMany, OperationMatch, Per, Persistence, Rule, RuleState, Schedule, Seen, SeenBlock, Target,
    Tear,
};
use rotproof_spec::{ByteRange, Bytes, End, Span};

pub const SECTOR: u64 = 512;
/// Six blocks and a piece of a seventh.
pub const DEVICE_BYTES: u64 = 6 * 4096 + 3 * SECTOR;
/// Every block that is written is filled with a byte below this, so that contents repeat.
pub const CONTENTS: u8 = 3;

#[derive(Clone, Debug)]
pub struct Case {
    pub rules: Vec<Rule>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub enum Step {
    Ask(Ask),
    Add(Box<Rule>),
    /// The number of a rule, to be taken modulo how many there are.
    Set(usize, RuleState),
    /// The load sets the mark with this text.
    Mark(&'static str),
}

const MARKS: [&str; 3] = ["one", "two", "three"];

/// A request, and whether the device below fails it.
#[derive(Clone, Debug)]
pub struct Ask {
    pub operation: Operation,
    pub offset: u64,
    pub length: u64,
    pub fill: u8,
    pub phase: Phase,
    pub fails_below: bool,
}

pub fn any_case() -> impl Strategy<Value = Case> {
    let state = select(vec![RuleState::Active, RuleState::Paused, RuleState::Removed]);
    let step = prop_oneof![
        12 => any_request().prop_map(Step::Ask),
        1 => any_rule().prop_map(|rule| Step::Add(Box::new(rule))),
        2 => (any::<usize>(), state).prop_map(|(rule, state)| Step::Set(rule, state)),
        2 => select(MARKS.to_vec()).prop_map(Step::Mark),
    ];
    (vec(any_rule(), 0..5), vec(step, 1..70)).prop_map(|(rules, steps)| Case { rules, steps })
}

/// Rules with everything that chance and time decide, which the model does not know, and nothing but requests.
pub fn any_chancy_case() -> impl Strategy<Value = Case> {
    let rule = (any_rule(), option::of(any_chancy_schedule()), option::of(any_chancy_effect())).prop_map(
        |(rule, schedule, effect)| Rule {
            schedule: schedule.unwrap_or(rule.schedule),
            effect: effect.unwrap_or(rule.effect),
            ..rule
        },
    );
    let steps = vec(any_request().prop_map(Step::Ask), 1..90);
    (vec(rule, 1..5), steps).prop_map(|(rules, mut steps)| {
        // A request that fails by itself has taken its turn under a rate, but no record says so.
        let has_rate = rules.iter().any(|rule: &Rule| matches!(rule.effect, Effect::Bandwidth(_)));
        for step in &mut steps {
            if let Step::Ask(ask) = step {
                ask.fails_below &= !has_rate;
            }
        }
        Case { rules, steps }
    })
}

fn any_chancy_schedule() -> impl Strategy<Value = Schedule> {
    let per = select(vec![None, Some(Per::Block), Some(Per::Request)]);
    prop_oneof![
        3 => (1u32..100, per).prop_map(|(percent, per)| {
            let chance = format!("{percent}%").parse().expect("a probability");
            Schedule::Probability { chance, per }
        }),
        1 => (0u64..50, option::of(0u64..50)).prop_map(|(at, lasts)| Schedule::Time {
            at: Span(Duration::from_micros(at)),
            lasts: lasts.map(|lasts| Span(Duration::from_micros(lasts))),
        }),
        1 => (1u32..100, 0u64..50, option::of(0u64..50)).prop_map(|(percent, at, lasts)| Schedule::Within {
            chance: format!("{percent}%").parse().expect("a probability"),
            per: None,
            at: Span(Duration::from_micros(at)),
            lasts: lasts.map(|lasts| Span(Duration::from_micros(lasts))),
        }),
    ]
}

fn any_chancy_effect() -> impl Strategy<Value = Effect> {
    let part = select(vec![NewPart::First, NewPart::Last, NewPart::Scattered, NewPart::Shorn]);
    let span = (1u64..9).prop_map(|milliseconds| Span(Duration::from_millis(milliseconds)));
    prop_oneof![
        (1u32..9).prop_map(|count| Effect::BitFlip(Bits::Random { count, draw: Draw(None) })),
        (1u32..99).prop_map(|count| Effect::BitFlip(Bits::RandomBurst { count, draw: Draw(None) })),
        Just(Effect::Noise(Draw(None))),
        Just(Effect::StaleRead),
        Just(Effect::MediumError),
        Just(Effect::Error { errno: Errno::ENOSPC, after: true }),
        select(vec![
            Direction::Anywhere(Draw(None)),
            Direction::By(Bytes(4096)),
            Direction::To(Bytes(2 * 4096)),
        ])
        .prop_map(Effect::MisdirectedWrite),
        (part, option::of(1u8..8)).prop_map(|(new, sectors)| Effect::TornWrite(Tear {
            new,
            sectors,
            draw: Draw(None)
        })),
        span.prop_map(|span| Effect::Delay(Delay::Exponential(span))),
        Just(Effect::Bandwidth(Bytes(1 << 30))),
        select(vec![Effect::ReadOnly, Effect::Gone]),
    ]
}

fn any_request() -> impl Strategy<Value = Ask> {
    let operation = prop_oneof![
        4 => Just(Operation::WRITE),
        4 => Just(Operation::Read),
        1 => Just(Operation::WriteZeroes),
        1 => Just(Operation::Discard),
        1 => Just(Operation::Flush),
    ];
    let sectors = DEVICE_BYTES / SECTOR;
    let by_sector =
        (0..sectors, 0..sectors).prop_map(move |(start, count)| (start, count.min(sectors - start)));
    let by_block = (0u64..7, 1u64..4).prop_map(move |(start, count)| {
        let start = start * 8;
        (start, (count * 8).min(sectors - start))
    });
    let range = prop_oneof![2 => by_block, 1 => by_sector];
    let phase = prop_oneof![
        8 => Just(Phase::Run),
        1 => Just(Phase::Setup),
        1 => Just(Phase::Prefill),
        2 => Just(Phase::Check),
    ];
    (operation, range, 0..CONTENTS, phase, prop::bool::weighted(0.05)).prop_map(
        |(operation, (start, count), fill, phase, fails_below)| {
            let is_flush = operation == Operation::Flush;
            let (offset, length) = if is_flush { (0, 0) } else { (start * SECTOR, count * SECTOR) };
            Ask { operation, offset, length, fill, phase, fails_below }
        },
    )
}

fn any_seen() -> impl Strategy<Value = Seen> {
    let by = select(vec![By::Place, By::Content]);
    let block = prop_oneof![
        any::<bool>().prop_map(|apart| SeenBlock::MostDuplicated { apart }),
        any::<bool>().prop_map(|apart| SeenBlock::Unique { apart }),
        by.clone().prop_map(|by| SeenBlock::LastWritten { by }),
        by.prop_map(|by| SeenBlock::NextWritten { by }),
    ];
    let time = (0u64..20).prop_map(|at| Moment::At(Span(Duration::from_micros(at))));
    let moment = prop_oneof![2 => (0u64..8).prop_map(Moment::After), 1 => time];
    (block, moment).prop_map(|(block, moment)| Seen { block, moment })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    use OperationMatch::{Any, Discard, Flush, Read, Write};
    let operation = option::of(select(vec![Read, Write, Flush, Discard, Any]));
    let range = (0u64..8, 0u64..4, 0u8..3).prop_map(|(start, length, kind)| ByteRange {
        start: start * 4096,
        end: match kind {
            0 => End::OneBlock,
            1 => End::At((start + length) * 4096),
            _ => End::Open,
        },
    });
    let content = (0..CONTENTS).prop_map(|fill| HashText(ContentHash::of(&[fill; 4096])));
    let schedule = prop_oneof![
        3 => Just(Schedule::All),
        1 => Just(Schedule::Once),
        1 => (0u64..4).prop_map(Schedule::After),
        1 => (1u64..4, 1u64..4, 0u64..4).prop_map(|(n, burst, offset)| Schedule::Every(Cycle { n, burst, offset })),
        1 => (1u64..6, 0u64..6).prop_map(|(from, more)| Schedule::Between { from, to: from + more }),
        1 => (1u64..4).prop_map(Schedule::Nth),
        1 => (1..3 * DEVICE_BYTES / 2).prop_map(|number| Schedule::Byte(Bytes(number))),
        1 => (1u64..5).prop_map(|number| Schedule::Mark(AtMark::Nth(number))),
        1 => select(MARKS.to_vec()).prop_map(|text| Schedule::Mark(AtMark::text(text))),
    ];
    let bit = (0u32..4096, 0u8..8).prop_map(|(byte, bit)| Bits::At { byte, bit });
    let effect = prop_oneof![
        Just(Effect::BitFlip(Bits::default())),
        bit.prop_map(Effect::BitFlip),
        (0u32..4096, 1u8..=255).prop_map(|(byte, mask)| Effect::BitFlip(Bits::Mask { byte, mask })),
        Just(Effect::Ones),
        Just(Effect::Zeros),
        Just(Effect::LostWrite),
        (1u64..3).prop_map(|draw| Effect::Noise(Draw(Some(draw)))),
        (select(vec![NewPart::First, NewPart::Last]), 1u8..8).prop_map(|(new, sectors)| {
            Effect::TornWrite(Tear { new, sectors: Some(sectors), draw: Draw(Some(0)) })
        }),
        (1u64..9).prop_map(|blocks| Effect::MisdirectedWrite(Direction::By(Bytes(blocks * 4096)))),
        (0u64..9).prop_map(|block| Effect::MisdirectedWrite(Direction::To(Bytes(block * 4096)))),
        Just(Effect::StaleRead),
        Just(Effect::ERROR),
        (1u64..5).prop_map(|milliseconds| Effect::Delay(Delay::Constant(Span(Duration::from_millis(
            milliseconds
        ))))),
    ];
    let phases = select(vec![
        vec![EnabledPhase::Run, EnabledPhase::Check],
        vec![EnabledPhase::Prefill, EnabledPhase::Run],
        vec![EnabledPhase::Check],
    ]);
    let target = prop_oneof![4 => Just(None), 1 => any_seen().prop_map(|seen| Some(Target::Seen(seen)))];
    let conditions = (vec(range, 0..3), subsequence(vec![0u8, 1, 2], 0..3), vec(content, 0..3), target);
    let matching = (operation, conditions).prop_map(|(operation, (offset, which, content, target))| Match {
        operation,
        offset: if which.contains(&0) { OneOrMany(offset) } else { OneOrMany::default() },
        content: if which.contains(&1) { OneOrMany(content) } else { OneOrMany::default() },
        target,
        ..Match::default()
    });
    let persistence = select(vec![
        Persistence::Transient,
        Persistence::Sticky,
        Persistence::UntilRewritten { spares: None },
    ]);
    (matching, schedule, effect, persistence, phases).prop_map(
        |(mut matching, schedule, effect, persistence, during)| {
            if effect == Effect::StaleRead {
                // As validation wants it.
                matching =
                    Match { offset: matching.offset, operation: matching.operation, ..Match::default() };
                matching.operation = matching.operation.filter(|operation| matches!(operation, Read | Any));
            }
            let during = OneOrMany(during);
            Rule { name: None, on: None, matching, schedule, effect, persistence, during }
        },
    )
}
