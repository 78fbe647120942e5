//! Messages and requests that reach a vhost-user-blk server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::vhost_request::check(bytes));
