//! Messages of the FUSE channel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::fuse_request::check(bytes));
