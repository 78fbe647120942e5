//! What a device says of the volume that it is a member of.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::volume_member::check(bytes));
