//! The short form of a rule or a model.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::fault_rule::check(bytes));
