//! The short form of a rule or a model, as it comes from a command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rotproof_fault::{FaultEntry, Rule};

fuzz_target!(|text: &str| {
    if let Ok(rule) = text.parse::<Rule>() {
        let printed = rule.to_string();
        assert_eq!(printed.parse::<Rule>().as_ref(), Ok(&rule), "{printed}");
    }
    if let Ok(entry) = text.parse::<FaultEntry>() {
        let printed = entry.to_string();
        assert_eq!(printed.parse::<FaultEntry>().as_ref(), Ok(&entry), "{printed}");
    }
});
