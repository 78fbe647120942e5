//! Ten thousand lives of volumes, drawn from seeds: operations, members that misbehave, losses of power; and tens of thousands of the
//! states that a loss of power may leave of one. None may break a promise.
//!
//! What a life and a state are and what must hold is in `rotproof_matrix`. A seed that breaks one is printed. A life is lived again
//! with `ROTPROOF_LIFE=SEED cargo test --package rotproof-matrix lives`, one that changes while it is used with
//! `ROTPROOF_LIFE_IN_USE=SEED`, a story and its states are told again with
//! `ROTPROOF_POWER=SEED ROTPROOF_POWER_STATES=300 cargo test --package rotproof-matrix power`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rotproof_block::Result;
use rotproof_matrix::{Life, LifeInUse, PowerLoss, life, life_in_use, power_loss};

use crate::Effort;
use crate::figure::{Bar, Figure};

/// States of each story.
const STATES: u64 = 300;

/// Lives through all of them, on as many threads as there are processors.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let seeds = if effort.is_quick { 200 } else { 10_000 };
    let mut sum = Life::default();
    let add = |one: Life, sum: &mut Life| {
        sum.operations += one.operations;
        sum.torn += one.torn;
    };
    let done = through(seeds, "ROTPROOF_LIFE", &life, |one| add(one, &mut sum));
    found(Figure::from_rounds(format!("{seeds} lives of volumes"), "1/s", &[(done.per_second, 1.0)], None));
    let name = format!("operations, {} of them ended by a loss of power", sum.torn);
    found(Figure::from_rounds(name, "", &[(sum.operations as f64, 1.0)], None));
    let broken = [(done.broken as f64, 1.0)];
    found(Figure::from_rounds("lives in which a promise was broken", "", &broken, Some(Bar::Is(0.0))));
    let seeds = if effort.is_quick { 50 } else { 1000 };
    let mut sum = LifeInUse::default();
    let done = through(seeds, "ROTPROOF_LIFE_IN_USE", &life_in_use, |one| {
        sum.operations += one.operations;
        sum.torn += one.torn;
        one.changes.into_iter().for_each(|(name, count)| *sum.changes.entry(name).or_default() += count);
    });
    let name = format!(
        "operations while {seeds} volumes changed, {} of the openings ended by a loss of power",
        sum.torn
    );
    found(Figure::from_rounds(name, "", &[(sum.operations as f64, 1.0)], None));
    for (change, count) in sum.changes {
        found(Figure::from_rounds(format!("of their changes: {change}"), "", &[(count as f64, 1.0)], None));
    }
    let broken = [(done.broken as f64, 1.0)];
    let name = "lives in use in which a promise was broken";
    found(Figure::from_rounds(name, "", &broken, Some(Bar::Is(0.0))));
    let stories = if effort.is_quick { 10 } else { 200 };
    let mut sum = PowerLoss::default();
    let story = |seed| power_loss(seed, STATES);
    let done = through(stories, "ROTPROOF_POWER", &story, |one| {
        sum.states += one.states;
        sum.one_first += one.one_first;
        sum.alone += one.alone;
        for (operation, states) in one.by_operation {
            *sum.by_operation.entry(operation).or_default() += states;
        }
    });
    let states = sum.states as f64;
    let name = format!(
        "states that a loss of power left, of {stories} stories; of one member first in {}, opened with one copy alone too {}",
        sum.one_first, sum.alone
    );
    found(Figure::from_rounds(name, "", &[(states, 1.0)], None));
    for (operation, states) in sum.by_operation {
        found(Figure::from_rounds(format!("of them during {operation}"), "", &[(states as f64, 1.0)], None));
    }
    let rate = [(done.per_second * states / stories as f64, 1.0)];
    found(Figure::from_rounds("states looked at", "1/s", &rate, None));
    let broken = [(done.broken as f64, 1.0)];
    found(Figure::from_rounds("stories with a state that breaks a promise", "", &broken, Some(Bar::Is(0.0))));
    Ok(())
}

/// What a number of seeds has come to.
struct Done {
    per_second: f64,
    broken: usize,
}

/// Goes through seeds on as many threads as there are processors, and prints those that break something under a `variable`.
fn through<T: Send>(
    seeds: u64,
    variable: &str,
    one: &(dyn Fn(u64) -> Result<T, String> + Sync),
    mut add: impl FnMut(T) + Send,
) -> Done {
    let next = AtomicU64::new(0);
    let add = Mutex::new(&mut add);
    let broken: Mutex<Vec<(u64, String)>> = Mutex::default();
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    match one(seed) {
                        Ok(one) => (*add.lock())(one),
                        Err(why) => broken.lock().push((seed, why)),
                    }
                }
            });
        }
    });
    for (seed, why) in broken.lock().iter() {
        eprintln!("{variable}={seed}: {why}");
    }
    let broken = broken.lock().len();
    Done { per_second: seeds as f64 / began.elapsed().as_secs_f64(), broken }
}
