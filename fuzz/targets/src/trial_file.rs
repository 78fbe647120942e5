//! A trial file: any bytes are a trial, or a list of mistakes.

use rotproof_trial::file::{Overrides, TrialFile};

/// What was understood, written out with every default, is understood as the same.
pub fn check(bytes: &[u8]) {
    match TrialFile::parse("fuzz.yaml", bytes, &Overrides::default()) {
        Ok(trial) => {
            let resolved = trial.to_yaml().expect("a trial can be written");
            let again = TrialFile::parse("fuzz.yaml", resolved.as_bytes(), &Overrides::default());
            assert_eq!(
                again.expect("what was written can be read").to_yaml().expect("and written"),
                resolved
            );
        }
        Err(mistakes) => assert!(!mistakes.list.is_empty()),
    }
}

/// Examples with much of the language in them.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        include_str!("../../../examples/first-trial.yaml"),
        include_str!("../../../examples/btrfs-repairs.yaml"),
        include_str!("../../../examples/seen.yaml"),
        include_str!("../../../examples/achilles/dedup-most-duplicated.yaml"),
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
