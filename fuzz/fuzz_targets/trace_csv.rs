//! Block traces: `csv`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::trace::check_csv(bytes));
