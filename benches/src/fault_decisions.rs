//! How many requests the fault engine can decide on in a second of one core where no rule matches: by offset, by target,
//! by tag, and by content, where each block must be hashed, against the bare hash of the same blocks in the same run.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Context, Error, ErrorKind, Operation, Phase, Result, Tag};
use rotproof_fault::{Engine, EngineOptions, Gate, Header, ResolvedRule, Rule, TargetContent};

use crate::figure::{Bar, Figure};
use crate::{Effort, machine};

const BLOCK: u64 = 4096;
const DEVICE_BYTES: u64 = 1 << 40;
const RULES: u64 = 10_000;
/// What a core has to decide in a second, in millions, where it need not look at the data.
const WANTED_MILLIONS: f64 = 20.0;
/// Blocks that are hashed in turn: enough to be different, few enough to stay in the cache, so that the hash is
/// measured and not the memory.
const PAYLOADS: usize = 16;

/// Measures everything; hands out each figure as soon as it is known.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let span = Duration::from_secs_f64(effort.seconds / 4.0);
    let offset = |index: u64| format!("offset={}: error", DEVICE_BYTES / 2 + index * 8 * BLOCK);
    let tag = |index: u64| format!("tag=other-{index}.img: error");
    let sets = [
        ("no rule", engine(Vec::new())),
        ("10,000 by offset", engine(rules(RULES, offset)?)),
        ("10,000 by tag", engine(rules(RULES, tag)?)),
        ("one by wildcard", engine(rules(1, |_| "tag=*.vdi: error".to_owned())?)),
        ("10,000 by target", engine(targets()?)),
    ];
    for (name, engine) in sets {
        let gate = engine.gate();
        for operation in [Operation::Read, Operation::WRITE] {
            // What a read brings is looked at when it has come back.
            if name.ends_with("target") && operation == Operation::Read {
                continue;
            }
            let rounds: Vec<(f64, f64)> =
                (0..effort.rounds).map(|_| (decisions(&gate, operation, span), WANTED_MILLIONS)).collect();
            let direction = if operation == Operation::Read { "read" } else { "write" };
            let name = format!("{direction}, {name}, against 20 M/s");
            found(Figure::from_rounds(name, "M/s", &rounds, Some(Bar::AtLeast(1.0))));
        }
    }
    let content = |index: u64| format!("content={}: error", foreign_content(index));
    for (count, name) in [(1, "one"), (RULES, "10,000")] {
        let gate = engine(rules(count, content)?).gate();
        let rounds: Vec<(f64, f64)> =
            (0..effort.rounds).map(|_| (decisions(&gate, Operation::WRITE, span), hashes(span))).collect();
        let name = format!("write, {name} by hash, against the bare hash");
        found(Figure::from_rounds(name, "M/s", &rounds, Some(Bar::AtLeast(0.9))));
    }
    Ok(())
}

fn engine(rules: Vec<ResolvedRule>) -> Arc<Engine> {
    Engine::new(rules, EngineOptions { seed: 1, device_size: DEVICE_BYTES })
}

fn rule(text: &str) -> Result<ResolvedRule> {
    let rule: Rule =
        text.parse().map_err(|error| Error::new(ErrorKind::Internal, format!("{text}: {error}")))?;
    Ok(rule.into())
}

fn rules(count: u64, text: impl Fn(u64) -> String) -> Result<Vec<ResolvedRule>> {
    (0..count).map(|index| rule(&text(index))).collect()
}

/// One rule for contents that a load has worked out, so that their first bytes are known.
fn targets() -> Result<Vec<ResolvedRule>> {
    let mut rule = rule("target=unique: error")?;
    rule.contents = (0..RULES)
        .map(|index| TargetContent {
            content: foreign_content(index),
            label: format!("content {index}"),
            beginning: Some(mix(3, 0, index)),
        })
        .collect();
    Ok(vec![rule])
}

/// A content that no block of ours has.
fn foreign_content(index: u64) -> ContentHash {
    ContentHash(u128::from(mix(1, 0, index)) << 64 | u128::from(mix(2, 0, index)))
}

fn payloads() -> Vec<Vec<u8>> {
    let block = |seed: u64| (0..BLOCK / 8).flat_map(move |word| mix(seed, 9, word).to_le_bytes()).collect();
    (0..PAYLOADS as u64).map(block).collect()
}

/// Repeats `work` with the numbers from 0 for `span`; gives millions of it per second of CPU.
fn millions_per_second(span: Duration, mut work: impl FnMut(u64)) -> f64 {
    let (began, cpu_began, mut count) = (Instant::now(), machine::thread_cpu(), 0u64);
    while began.elapsed() < span {
        for _ in 0..1024 {
            work(count);
            count += 1;
        }
    }
    count as f64 / (machine::thread_cpu() - cpu_began).as_secs_f64() / 1e6
}

fn decisions(gate: &Gate, operation: Operation, span: Duration) -> f64 {
    let payloads = payloads();
    let tags = ["focal.img", "bionic.img", "jammy.img"].map(Tag::intern);
    millions_per_second(span, |number| {
        let context = Context {
            id: number,
            phase: Phase::Run,
            tag: tags[(number / 64 % 3) as usize],
            ..Context::default()
        };
        let block = mix(7, 0, number) % (DEVICE_BYTES / 2 / BLOCK);
        let header = Header { operation, offset: block * BLOCK, length: BLOCK, context };
        let payload: &[u8] =
            if operation == Operation::Read { &[] } else { &payloads[number as usize % PAYLOADS] };
        let passage = black_box(gate.begin(black_box(&header), payload));
        assert!(passage.is_none(), "no rule is meant to match");
    })
}

fn hashes(span: Duration) -> f64 {
    let payloads = payloads();
    millions_per_second(span, |number| {
        // The same work around it as around a decision.
        black_box(mix(7, 0, number));
        black_box(ContentHash::of(black_box(&payloads[number as usize % PAYLOADS])));
    })
}
