//! Rules for property tests: everything that the language can say, sensible or not.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rotproof_block::ContentHash;
use rotproof_spec::{ByteRange, Bytes, End, Span};

use crate::{
    AwakePhase, Bit, Cycle, Effect, HashText, Match, OneOrMany, OperationMatch, Per, Persistence, Rule,
    Schedule, Target,
};

fn any_range() -> impl Strategy<Value = ByteRange> {
    let end = prop_oneof![any::<u64>().prop_map(End::At), Just(End::Open), Just(End::OneBlock)];
    (any::<u64>(), end).prop_map(|(start, end)| ByteRange { start, end })
}

fn any_target() -> impl Strategy<Value = Target> {
    prop_oneof![
        any::<u64>().prop_map(|count| Target::MostDuplicated { count }),
        any::<u64>().prop_map(|count| Target::Unique { count }),
        (any::<String>(), any::<u64>()).prop_map(|(file, block)| Target::File { file, block }),
        any::<u64>().prop_map(|bytes| Target::LastBlockOfEvery(Bytes(bytes))),
    ]
}

pub(crate) fn any_effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        (any::<u32>(), any::<u8>()).prop_map(|(byte, bit)| Effect::BitFlip(Bit::At { byte, bit })),
        Just(Effect::BitFlip(Bit::Random)),
        Just(Effect::Zeros),
        Just(Effect::LostWrite),
        Just(Effect::Error),
        any::<u64>().prop_map(|nanoseconds| Effect::Delay(Span(Duration::from_nanos(nanoseconds)))),
    ]
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        Just(Schedule::All),
        Just(Schedule::Once),
        any::<u64>().prop_map(Schedule::After),
        any::<[u64; 3]>().prop_map(|[n, burst, offset]| Schedule::Every(Cycle { n, burst, offset })),
        any::<[u64; 2]>().prop_map(|[from, to]| Schedule::Between { from, to }),
        (0..1_000_000u64, prop::sample::select(vec![None, Some(Per::Block), Some(Per::Request)])).prop_map(
            |(millionths, per)| {
                let chance = format!("{millionths}e-6").parse().expect("a probability");
                Schedule::Probability { chance, per }
            }
        ),
        (any::<u64>(), option::of(any::<u64>())).prop_map(|(at, lasts)| Schedule::Time {
            at: Span(Duration::from_nanos(at)),
            lasts: lasts.map(|lasts| Span(Duration::from_nanos(lasts))),
        }),
        any::<u64>().prop_map(Schedule::Nth),
    ]
}

pub(crate) fn any_rule() -> impl Strategy<Value = Rule> {
    let operation =
        option::of(prop::sample::select(OperationMatch::WORDS.map(|(_, operation)| operation).to_vec()));
    let matching = (
        operation,
        vec(any_range(), 0..4),
        vec(any::<u128>().prop_map(|hash| HashText(ContentHash(hash))), 0..4),
        option::of(any_target()),
    )
        .prop_map(|(operation, offset, content, target)| Match {
            operation,
            offset: OneOrMany(offset),
            content: OneOrMany(content),
            target,
        });
    let phases = prop::sample::subsequence(AwakePhase::WORDS.map(|(_, phase)| phase).to_vec(), 1..=3);
    (option::of(any::<String>()), matching, any_schedule(), any_effect(), any::<bool>(), phases).prop_map(
        |(name, matching, schedule, effect, sticky, during)| Rule {
            name,
            matching,
            schedule,
            effect,
            persistence: if sticky { Persistence::Sticky } else { Persistence::Transient },
            during: OneOrMany(during),
        },
    )
}
