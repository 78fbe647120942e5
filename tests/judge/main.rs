//! A second judge beside the verdict, over random trials: no acquittal, no false charge.
//!
//! It knows nothing of the engine. It reads the ledger, the medium below the faults, and the bytes that the application
//! sent and was handed; works out from these what can be said of each fault and each failing block (`docs/fates.md`); and
//! holds the verdict against that. In a third of the trials another hand writes to the medium too, which no rule explains.
//!
//! A hundred trials are run by the tests. More, and any one again with all that is known of it:
//! `ROTPROOF_JUDGE_TRIALS=1000 cargo test --package rotproof-cli --test judge -- --ignored --nocapture`,
//! `ROTPROOF_JUDGE_SEED=17 ROTPROOF_JUDGE_TRIALS=1 cargo test ...`. Without root there are no real devices and file systems
//! among them.
//!
//! `draw` draws a trial, `conduct` conducts it, with a `witness` above the subject, the `leaf` in the open and the other
//! `hand` between; `account` is the judge's own, `judgement` compares, and `canary` shows that it does.

#![expect(clippy::print_stdout, reason = "what is wrong with a trial takes more than a line")]

mod account;
mod canary;
mod conduct;
mod dice;
mod draw;
mod hand;
mod judgement;
mod leaf;
mod ledger;
mod look;
mod tally;
mod told;
mod witness;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use draw::Case;
use rotproof_block::ErrorKind;
use tally::Tally;

/// Trials at the same time: those on real file systems wait for kernels most of the time.
const AT_ONCE: u64 = 2;

fn is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}

/// Conducts the trial of a seed and judges its verdict. What is wrong with it, at length.
fn try_seed(seed: u64, tally: &Mutex<Tally>) -> Option<String> {
    let folder = tempfile::Builder::new().prefix("rotproof-judge-").tempdir().expect("a temporary folder");
    let case = Case::draw(seed, is_root(), folder.path());
    let (wrong, account) = match conduct::conduct(&case, folder.path()) {
        Ok(trial) => {
            let mut wrong = judgement::judge(&trial, &trial.told);
            if case.is_repeatable() {
                let told = conduct::runner_alike(&case, folder.path());
                match told {
                    Ok(told) if told == trial.told => {}
                    other => {
                        wrong.push(format!("the runner says something else of the same trial: {other:x?}"));
                    }
                }
            }
            // Of a verdict that is wrong as it stands nothing can be learnt about the judge.
            let missed = if wrong.is_empty() { canary::missed(&trial) } else { Vec::new() };
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.add(&case, &trial);
            wrong.extend(tally.sing(missed));
            (wrong, trial.to_string())
        }
        // What it cannot hit is known only once it is there.
        Err(error) if error.kind() == ErrorKind::Invalid => return None,
        Err(error) => (vec![format!("no verdict: {error}")], String::new()),
    };
    if wrong.is_empty() {
        return None;
    }
    let mut text = format!("seed {seed}: {} things are wrong\n{}", wrong.len(), case.yaml);
    let _ = writeln!(text, "hand: {:?}", case.hand);
    for one in wrong.iter().take(20) {
        let _ = writeln!(text, "- {one}");
    }
    text += &account;
    Some(text)
}

fn try_seeds(first: u64, count: u64) -> Tally {
    let (next, tally, wrong) = (AtomicU64::new(first), Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    if let Some(text) = try_seed(seed, &tally) {
                        println!("{text}");
                        wrong.lock().unwrap_or_else(PoisonError::into_inner).push(seed);
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{tally}");
    let mut wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    wrong.sort_unstable();
    assert!(wrong.is_empty(), "{} of {count} verdicts are wrong, those of the seeds {wrong:?}", wrong.len());
    tally
}

#[test]
fn a_second_judge_finds_no_acquittal_and_no_false_charge_in_a_hundred_trials() {
    let tally = try_seeds(1, 100);
    // A judge who has seen nothing finds nothing.
    tally.assert_is_worth_something();
}

#[test]
#[ignore = "as many as ROTPROOF_JUDGE_TRIALS says, a thousand unless told otherwise"]
fn a_second_judge_finds_none_in_a_thousand_either() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    try_seeds(number("ROTPROOF_JUDGE_SEED").unwrap_or(1001), number("ROTPROOF_JUDGE_TRIALS").unwrap_or(1000));
}
