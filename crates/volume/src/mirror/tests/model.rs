//! Random requests on a mirror whose members fail at random, against a plain array that knows what each block may hold.

use proptest::prelude::*;
use rotproof_block::children::join;
use rotproof_block::hash::mix;

use super::*;

const SIZE: u64 = 512 << 10;
const UNIT: u64 = 512;

/// Of each block the versions that a reader may find; one, unless a write of it has failed.
type Model = Vec<Vec<u8>>;

/// How a member fails: so many of 256 requests, in one of several ways. What is decided for a request depends on its number.
fn plan(seed: u64, share: u64, hangs: bool) -> impl Fn(&Request, u64) -> Act + Send + Sync {
    move |request, number| {
        let draw = mix(seed, share, number);
        if draw % 256 >= share || request.operation == Operation::Flush && !draw.is_multiple_of(7) {
            return Act::Pass;
        }
        match draw / 256 % 6 {
            0 | 1 => Act::Fail(ErrorKind::Medium),
            2 => Act::FailAfter(ErrorKind::Medium),
            3 if hangs => Act::Hang,
            3 | 4 => Act::Delay(Duration::from_millis(draw / 4096 % 1500)),
            _ => Act::Delay(Duration::from_micros(draw / 4096 % 900)),
        }
    }
}

#[derive(Clone, Debug)]
struct Step {
    block: u64,
    blocks: u64,
    kind: u8,
    fill: u8,
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = (0u64..SIZE / UNIT, 1u64..300, 0u8..9, 1u8..).prop_map(|(block, blocks, kind, fill)| Step {
        block,
        blocks: blocks.min(SIZE / UNIT - block),
        kind,
        fill,
    });
    proptest::collection::vec(proptest::collection::vec(step, 1..5), 1..30)
}

fn request(step: &Step) -> Request {
    let (offset, length) = (step.block * UNIT, step.blocks * UNIT);
    match step.kind {
        0..=3 => {
            Request::write(offset, Buffer::copy_of(&vec![step.fill; length as usize]), Context::default())
        }
        4 => Request::discard(offset, length, Context::default()),
        5 => Request::flush(Context::default()),
        _ => Request::read(offset, Buffer::stale(length as usize), Context::default()),
    }
}

/// Runs requests that do not overlap, together, and holds what comes back against the model. Gives how many failed.
fn run(stand: &Stand, model: &mut Model, batch: &[Step]) -> Result<u32, TestCaseError> {
    let mut taken = vec![false; model.len()];
    let apart: Vec<&Step> = batch
        .iter()
        .filter(|step| {
            let own = step.block as usize..(step.block + step.blocks) as usize;
            let is_free = !taken[own.clone()].contains(&true);
            if is_free {
                taken[own].fill(true);
            }
            is_free
        })
        .collect();
    let completions = stand.drive(join(apart.iter().map(|step| stand.queue.submit(request(step))).collect()));
    let mut failed = 0;
    for (step, completion) in apart.into_iter().zip(completions) {
        let blocks = step.block as usize..(step.block + step.blocks) as usize;
        failed += u32::from(completion.result.is_err());
        match (step.kind, completion.result.is_ok()) {
            (0..=4, is_done) => {
                let fill = if step.kind == 4 { 0 } else { step.fill };
                for legal in &mut model[blocks] {
                    if is_done {
                        legal.clear();
                    }
                    legal.push(fill);
                }
            }
            (6.., true) => {
                for (legal, found) in model[blocks].iter_mut().zip(completion.buffer.chunks(UNIT as usize)) {
                    prop_assert!(found.iter().all(|byte| *byte == found[0]), "torn below the unit");
                    prop_assert!(legal.contains(&found[0]), "{} in place of one of {:?}", found[0], legal);
                    *legal = vec![found[0]];
                }
            }
            _ => {}
        }
    }
    Ok(failed)
}

fn everything(stand: &Stand, model: &mut Model) -> Result<u32, TestCaseError> {
    run(stand, model, &[Step { block: 0, blocks: SIZE / UNIT, kind: 6, fill: 0 }])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nobody_ever_reads_what_was_not_written_last(ways in 2usize..=3, seed: u64, share in 0u64..120, batches in steps()) {
        let stand = Stand::new(ways, SIZE);
        for (number, member) in stand.members.iter().enumerate() {
            member.plan(plan(mix(seed, 0, number as u64), share, false));
        }
        let mut model: Model = vec![vec![0]; (SIZE / UNIT) as usize];
        for (number, batch) in batches.iter().enumerate() {
            run(&stand, &mut model, batch)?;
            if number % 7 == 6 {
                stand.rebuild();
            }
        }
        // With the faults over and the last late write arrived it comes right by itself.
        stand.members.iter().for_each(|member| member.plan(|_, _| Act::Pass));
        stand.drive(stand.runtime.sleep(Duration::from_secs(70)));
        prop_assert_eq!(everything(&stand, &mut model)?, 0);
        stand.rebuild();
        prop_assert_eq!(everything(&stand, &mut model)?, 0);
        prop_assert_eq!(stand.compare().differing_blocks, 0);
        prop_assert_eq!(stand.mirror.to_rebuild(), []);
    }

    #[test]
    fn while_one_member_is_well_no_request_ever_fails(well in 0usize..2, seed: u64, share in 0u64..200, batches in steps()) {
        let stand = Stand::new(2, SIZE);
        stand.members[1 - well].plan(plan(seed, share, true));
        let mut model: Model = vec![vec![0]; (SIZE / UNIT) as usize];
        for batch in &batches {
            prop_assert_eq!(run(&stand, &mut model, batch)?, 0);
        }
        prop_assert_eq!(everything(&stand, &mut model)?, 0);
    }
}
