//! A trial file is what a stranger wrote: any bytes are a trial or a list of mistakes, each with a place in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rotproof_trial::file::{Overrides, TrialFile};

fuzz_target!(|bytes: &[u8]| {
    match TrialFile::parse("fuzz.yaml", bytes, &Overrides::default()) {
        Ok(trial) => {
            // What was understood, written out with every default, is understood as the same.
            let resolved = trial.to_yaml().expect("a trial can be written");
            let again = TrialFile::parse("fuzz.yaml", resolved.as_bytes(), &Overrides::default());
            assert_eq!(again.expect("what was written can be read").to_yaml().expect("and written"), resolved);
        }
        Err(mistakes) => assert!(!mistakes.list.is_empty()),
    }
});
