//! Ten thousand lives of volumes, drawn from seeds: operations, members that misbehave, losses of power. None may break a promise.
//!
//! What a life is and what must hold is in `rotproof_matrix`. A seed that breaks one is printed, and lives again with
//! `ROTPROOF_LIFE=SEED cargo test --package rotproof-matrix lives`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rotproof_block::Result;
use rotproof_matrix::life;

use crate::Effort;
use crate::figure::{Bar, Figure};

/// Lives through all of them, on as many threads as there are processors.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let seeds = if effort.is_quick { 200 } else { 10_000 };
    let (next, operations, torn) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
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
                    match life(seed) {
                        Ok(life) => {
                            operations.fetch_add(life.operations, Ordering::Relaxed);
                            torn.fetch_add(life.torn, Ordering::Relaxed);
                        }
                        Err(why) => broken.lock().push((seed, why)),
                    }
                }
            });
        }
    });
    for (seed, why) in broken.lock().iter() {
        eprintln!("ROTPROOF_LIFE={seed}: {why}");
    }
    let seconds = began.elapsed().as_secs_f64();
    let rate = [(seeds as f64 / seconds, 1.0)];
    found(Figure::from_rounds(format!("{seeds} lives of volumes"), "1/s", &rate, None));
    let name = format!("operations, {} of them ended by a loss of power", torn.load(Ordering::Relaxed));
    found(Figure::from_rounds(name, "", &[(operations.load(Ordering::Relaxed) as f64, 1.0)], None));
    let share = [(broken.lock().len() as f64, 1.0)];
    found(Figure::from_rounds("lives in which a promise was broken", "", &share, Some(Bar::Is(0.0))));
    Ok(())
}
