//! Job files of fio.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rotproof_fuzz_targets::import_plan::check_fio(bytes));
