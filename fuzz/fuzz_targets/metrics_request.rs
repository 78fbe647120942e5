//! What a client asks of the metrics server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::metrics_request::check(bytes));
