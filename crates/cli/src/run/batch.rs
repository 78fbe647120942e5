//! Several trials of one command: those in virtual time at once, one for each processor; then the others one after the
//! other, since they measure time.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use rotproof_trial::file::RuntimeKind;

use super::Cell;
use super::outcome::{Outcome, Word};

/// Threads for trials in virtual time where nobody says how many.
pub fn jobs_default() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs every cell with `run`, and tells `ended` of each as it ends, with its place in the list; both say whether that goes on
/// well. Says what came of all, in their order. After `is_over` none is begun.
pub fn run_all(
    cells: &[Cell],
    jobs: usize,
    is_over: impl Fn() -> bool + Sync,
    run: impl Fn(&Cell, bool) -> Outcome + Sync,
    mut ended: impl FnMut(usize, &Outcome),
) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = cells.iter().map(|_| None).collect();
    let is_simulated = |cell: &Cell| cell.trial.file.runtime == RuntimeKind::Simulated;
    let (virtual_ones, others): (Vec<usize>, Vec<usize>) =
        (0..cells.len()).partition(|&index| jobs > 1 && is_simulated(&cells[index]));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        for number in 0..jobs.min(virtual_ones.len()) {
            let sender = sender.clone();
            let (next, run, is_over, virtual_ones) = (&next, &run, &is_over, &virtual_ones);
            let work = move || {
                while let Some(&index) = virtual_ones.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if is_over() || sender.send((index, run(&cells[index], true))).is_err() {
                        break;
                    }
                }
            };
            let started = thread::Builder::new().name(format!("trial-{number}")).spawn_scoped(scope, work);
            // With fewer threads it takes longer; with none they are run below.
            if started.is_err() {
                break;
            }
        }
        drop(sender);
        for (index, outcome) in receiver {
            ended(index, &outcome);
            outcomes[index] = Some(outcome);
        }
    });
    for index in virtual_ones.into_iter().chain(others) {
        if outcomes[index].is_none() && !is_over() {
            let outcome = run(&cells[index], false);
            ended(index, &outcome);
            outcomes[index] = Some(outcome);
        }
    }
    let not_run = |cell: &Cell| {
        let why = "interrupted before it was begun".to_owned();
        cell.named(Outcome { why, ..Outcome::of_word(Word::NotRun) })
    };
    outcomes.into_iter().zip(cells).map(|(outcome, cell)| outcome.unwrap_or_else(|| not_run(cell))).collect()
}
