//! What a server says to the NBD leaf, from the handshake to its end.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::nbd_server::check(bytes));
