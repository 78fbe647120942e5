//! What arrives on the FUSE channel: the first bytes of a message, and the payload beside them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rotproof_export::fuse::parse;

fuzz_target!(|parts: (&[u8], &[u8])| {
    let (head, payload) = parts;
    let _ = parse(head, payload);
});
