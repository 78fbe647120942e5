//! A ledger that somebody may have edited, to be injected again.

use rotproof_fault::{Replay, Rule, read_ledger};
use rotproof_trial::file::{Overrides, TrialFile};

/// A ledger is refused, or it says what rules have done; then it either fits a plan or is refused beside that.
pub fn check(bytes: &[u8]) {
    let Ok(records) = read_ledger(bytes) else { return };
    for window in records.windows(2) {
        assert!(window[0].sequence < window[1].sequence);
    }
    if let Ok(replay) = Replay::new(&records, &plan()) {
        assert!(replay.len() <= records.len());
        assert_eq!(replay.missing(&records[..]).expect("in memory"), [0u64; 0]);
    }
}

/// The plan that the seed comes from.
fn plan() -> Vec<Rule> {
    thread_local! {
        static PLAN: Vec<Rule> = {
            let text = include_bytes!("../../../examples/first-trial.yaml");
            let trial = TrialFile::parse("first-trial.yaml", text, &Overrides::default());
            trial.expect("an example makes sense").plan().expect("rules alone").rules
        };
    }
    PLAN.with(Clone::clone)
}

/// The ledger of a run, and each of its lines.
pub fn seeds() -> Vec<Vec<u8>> {
    let ledger = include_str!("../seeds/ledger.jsonl");
    std::iter::once(ledger).chain(ledger.lines()).map(|text| text.as_bytes().to_vec()).collect()
}
