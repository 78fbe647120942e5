//! What checksums, maps, versions and histories look like on a device.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::volume_parts::check(bytes));
