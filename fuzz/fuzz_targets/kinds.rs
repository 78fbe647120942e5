//! What the blocks of a file system are.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::kinds::check(bytes));
