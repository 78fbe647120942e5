//! Rules for property tests: everything that the language can say, sensible or not.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rotproof_block::ContentHash;
use rotproof_spec::{ByteRange, Bytes, End, Span};

use crate::at_mark::AtMark;
use crate::power_cut::{Keeps, PowerCut};
use crate::target::KindCopies;
use crate::{
    Bits, By, Cycle, Delay, Direction, Draw, Effect, EnabledPhase, Errno, HashText, Histogram, Match, Moment,
    NewPart, OneOrMany, OperationMatch, OriginMatch, Per, Persistence, Rule, Schedule, Seen, SeenBlock,
    TagPattern, Target, Tear,
};
use crate::{Copies, MemoryKind};

fn any_range() -> impl Strategy<Value = ByteRange> {
    let end = prop_oneof![any::<u64>().prop_map(End::At), Just(End::Open), Just(End::OneBlock)];
    (any::<u64>(), end).prop_map(|(start, end)| ByteRange { start, end })
}

fn any_target() -> impl Strategy<Value = Target> {
    prop_oneof![
        any::<u64>().prop_map(|count| Target::MostDuplicated { count }),
        any::<u64>().prop_map(|count| Target::Unique { count }),
        (any::<String>(), any::<u64>()).prop_map(|(file, block)| Target::File { file, block }),
        (any::<String>(), any::<u64>()).prop_map(|(file, block)| Target::Extent { file, block }),
        any::<u64>().prop_map(|bytes| Target::LastBlockOfEvery(Bytes(bytes))),
        (any::<String>(), any::<bool>(), option::of(any::<String>())).prop_map(|(kind, is_one, file)| {
            let copies = if is_one { KindCopies::One } else { KindCopies::All };
            Target::Type { kind, copies, file }
        }),
        any_seen().prop_map(Target::Seen),
    ]
}

fn any_seen() -> impl Strategy<Value = Seen> {
    let by = prop::sample::select(vec![By::Place, By::Content]);
    let block = prop_oneof![
        any::<bool>().prop_map(|apart| SeenBlock::MostDuplicated { apart }),
        any::<bool>().prop_map(|apart| SeenBlock::Unique { apart }),
        by.clone().prop_map(|by| SeenBlock::LastWritten { by }),
        by.prop_map(|by| SeenBlock::NextWritten { by }),
    ];
    let moment = prop_oneof![any::<u64>().prop_map(Moment::After), any_span().prop_map(Moment::At)];
    (block, moment).prop_map(|(block, moment)| Seen { block, moment })
}

pub(crate) fn any_effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        any_bits().prop_map(Effect::BitFlip),
        prop::sample::select(vec![
            Effect::Zeros,
            Effect::Ones,
            Effect::LostWrite,
            Effect::StaleRead,
            Effect::MediumError,
            Effect::ReadOnly,
            Effect::Gone,
        ]),
        any_draw().prop_map(Effect::Noise),
        (prop::sample::select(vec![Keeps::Part, Keeps::None, Keeps::All]), any::<bool>(), any_draw())
            .prop_map(|(keeps, everywhere, draw)| Effect::PowerCut(PowerCut { keeps, everywhere, draw })),
        prop_oneof![
            any::<u64>().prop_map(|by| Direction::By(Bytes(by))),
            any::<u64>().prop_map(|to| Direction::To(Bytes(to))),
            any_draw().prop_map(Direction::Anywhere),
        ]
        .prop_map(Effect::MisdirectedWrite),
        (
            prop::sample::select(vec![NewPart::First, NewPart::Last, NewPart::Scattered, NewPart::Shorn]),
            option::of(any::<u8>()),
            any_draw()
        )
            .prop_map(|(new, sectors, draw)| Effect::TornWrite(Tear { new, sectors, draw })),
        (prop::sample::select(Errno::NAMES.to_vec()), any::<bool>())
            .prop_map(|(name, after)| Effect::Error { errno: name.parse().expect("a name"), after }),
        any_delay().prop_map(Effect::Delay),
        any::<u64>().prop_map(|rate| Effect::Bandwidth(Bytes(rate))),
        option::of(any_span()).prop_map(Effect::Hang),
    ]
}

fn any_span() -> impl Strategy<Value = Span> {
    any::<u64>().prop_map(|nanoseconds| Span(Duration::from_nanos(nanoseconds)))
}

fn any_draw() -> impl Strategy<Value = Draw> {
    option::of(any::<u64>()).prop_map(Draw)
}

fn any_bits() -> impl Strategy<Value = Bits> {
    prop_oneof![
        (any::<u32>(), any::<u8>()).prop_map(|(byte, bit)| Bits::At { byte, bit }),
        (any::<u32>(), any::<u8>()).prop_map(|(byte, mask)| Bits::Mask { byte, mask }),
        (any::<u32>(), any::<u8>(), any::<u32>()).prop_map(|(byte, bit, count)| Bits::Burst {
            byte,
            bit,
            count
        }),
        (any::<u32>(), any_draw()).prop_map(|(count, draw)| Bits::Random { count, draw }),
        (any::<u32>(), any_draw()).prop_map(|(count, draw)| Bits::RandomBurst { count, draw }),
    ]
}

fn any_delay() -> impl Strategy<Value = Delay> {
    prop_oneof![
        any_span().prop_map(Delay::Constant),
        (any_span(), any_span()).prop_map(|(from, to)| Delay::Uniform(from, to)),
        (any_span(), any_span()).prop_map(|(mean, deviation)| Delay::Normal(mean, deviation)),
        any_span().prop_map(Delay::Exponential),
        // Kept for the life of the process, so few of them.
        (1u64..9, 1u32..9).prop_map(|(ms, weight)| {
            let bars = [(Span(Duration::from_millis(ms)), weight), (Span::default(), 1)];
            Delay::Histogram(Histogram::new(&bars).expect("weights"))
        }),
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
        any::<u64>().prop_map(|number| Schedule::Byte(Bytes(number))),
        any::<u64>().prop_map(|number| Schedule::Mark(AtMark::Nth(number))),
        prop::sample::select(vec!["17", "transaction 17", "a \"b\" \\, c: d"])
            .prop_map(|text| Schedule::Mark(AtMark::text(text))),
        (0..100u64, any::<u64>(), option::of(any::<u64>())).prop_map(|(percent, at, lasts)| {
            Schedule::Within {
                chance: format!("{percent}%").parse().expect("a probability"),
                per: None,
                at: Span(Duration::from_nanos(at)),
                lasts: lasts.map(|lasts| Span(Duration::from_nanos(lasts))),
            }
        }),
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
        vec(any::<String>().prop_map(TagPattern), 0..3),
        vec(prop::sample::select(OriginMatch::WORDS.map(|(_, origin)| origin).to_vec()), 0..2),
        vec(prop::sample::select(MemoryKind::WORDS.map(|(_, kind)| kind).to_vec()), 0..3),
        vec(any_range(), 0..2),
        option::of(any::<u64>()),
        option::of(prop_oneof![Just(Copies::One), Just(Copies::All)]),
        vec(any::<String>().prop_map(TagPattern), 0..2),
    )
        .prop_map(
            |(operation, offset, content, target, tag, origin, kind, address, places, copies, process)| {
                Match {
                    operation,
                    offset: OneOrMany(offset),
                    content: OneOrMany(content),
                    target,
                    tag: OneOrMany(tag),
                    origin: OneOrMany(origin),
                    kind: OneOrMany(kind),
                    address: OneOrMany(address),
                    places,
                    copies,
                    process: OneOrMany(process),
                }
            },
        );
    let phases = prop::sample::subsequence(EnabledPhase::WORDS.map(|(_, phase)| phase).to_vec(), 1..=3);
    let persistence = prop_oneof![
        Just(Persistence::Transient),
        Just(Persistence::Sticky),
        option::of(any::<u32>()).prop_map(|spares| Persistence::UntilRewritten { spares }),
    ];
    let names = (option::of(any::<String>()), option::of(any::<String>()));
    (names, matching, any_schedule(), any_effect(), persistence, phases).prop_map(
        |((name, on), matching, schedule, effect, persistence, during)| Rule {
            name,
            on,
            matching,
            schedule,
            effect,
            persistence,
            during: OneOrMany(during),
        },
    )
}
