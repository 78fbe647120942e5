//! What a client says to an NBD server, from the handshake to its end.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::nbd_client::check(bytes));
