//! Block traces: `blktrace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::trace::check_blktrace(bytes));
