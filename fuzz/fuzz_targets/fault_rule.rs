//! The short form of a rule, as it comes from a command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rotproof_fault::Rule;

fuzz_target!(|text: &str| {
    if let Ok(rule) = text.parse::<Rule>() {
        let printed = rule.to_string();
        assert_eq!(printed.parse::<Rule>().as_ref(), Ok(&rule), "{printed}");
    }
});
