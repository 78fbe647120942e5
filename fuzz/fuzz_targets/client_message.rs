//! What a client of a load tells its controller.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::client_message::check(bytes));
