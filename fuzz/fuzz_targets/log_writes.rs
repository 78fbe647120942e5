//! Logs of the kernel's dm-log-writes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::recording::check_log(bytes));
