//! What the pages of a cluster of PostgreSQL are.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::postgres::check(bytes));
