//! What another machine says of itself to the probes of a run.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::probe_lines::check(bytes));
