//! What lies beside guarded files: settings, headers and pages of tables, lines of the journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::guard_format::check(bytes));
