//! Whatever bytes arrive, parsing ends in a message within its bounds or in an error.

use proptest::prelude::*;
use rotproof_export::fuse::{FuseOperation, HEAD_BYTES, NAME_BYTES_MAX, TRANSFER_BYTES_MAX, parse};

/// Splits a message as it arrives.
fn parse_whole(bytes: &[u8]) -> Result<rotproof_export::fuse::Message<'_>, rotproof_export::fuse::Malformed> {
    let (head, payload) = bytes.split_at(bytes.len().min(HEAD_BYTES));
    parse(head, payload)
}

fn check(bytes: &[u8]) {
    let unique = bytes.get(8..16).map(|unique| u64::from_ne_bytes(unique.try_into().expect("eight bytes")));
    match parse_whole(bytes) {
        Err(malformed) => assert!(malformed.unique.is_none() == (bytes.len() < 40)),
        Ok(message) => {
            assert_eq!(Some(message.unique), unique);
            match message.operation {
                FuseOperation::Read { size, .. } | FuseOperation::ReadDir { size, .. } => {
                    assert!(size <= TRANSFER_BYTES_MAX);
                }
                FuseOperation::Write { size, .. } => {
                    assert_eq!(size, bytes.len() - HEAD_BYTES);
                    assert!(size <= TRANSFER_BYTES_MAX);
                }
                FuseOperation::Lookup(name) => {
                    let end = bytes[40..].iter().position(|&byte| byte == 0).expect("a name ends");
                    assert!((1..=NAME_BYTES_MAX).contains(&end));
                    assert!(name.is(&bytes[40..40 + end]));
                    assert!(!name.is(&bytes[40..40 + end - 1]));
                }
                _ => {}
            }
        }
    }
}

/// A message with a true length and a header that says so.
fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let length = 40 + u32::try_from(body.len()).expect("short");
    let mut bytes = [length.to_ne_bytes(), opcode.to_ne_bytes()].concat();
    bytes.extend_from_slice(&7u64.to_ne_bytes());
    bytes.extend_from_slice(&1u64.to_ne_bytes());
    bytes.resize(40, 0);
    bytes.extend_from_slice(body);
    bytes
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }

    #[test]
    fn any_body_of_any_operation_is_survived(
        opcode in 0u32..60, body in prop::collection::vec(any::<u8>(), 0..400)
    ) {
        check(&message(opcode, &body));
    }

    #[test]
    fn sizes_that_lie_are_refused(size: u32, payload in 0usize..200, opcode in 15u32..17) {
        let mut body = vec![0; 40 + payload];
        body[16..20].copy_from_slice(&size.to_ne_bytes());
        check(&message(opcode, &body));
    }

    #[test]
    fn names_of_any_length_are_read(name in prop::collection::vec(1u8.., 0..300)) {
        let bytes = message(1, &[&name[..], &[0]].concat());
        let parsed = parse_whole(&bytes);
        match parsed.map(|message| message.operation) {
            Ok(FuseOperation::Lookup(parsed)) => prop_assert!(parsed.is(&name) && (1..=255).contains(&name.len())),
            Ok(other) => prop_assert!(false, "{other:?}"),
            Err(_) => prop_assert!(name.is_empty() || name.len() > 255),
        }
    }
}

#[test]
fn a_length_that_is_not_what_arrived_is_refused() {
    let mut bytes = message(3, &[]);
    assert!(parse_whole(&bytes).is_ok());
    bytes.push(0);
    assert_eq!(parse_whole(&bytes).expect_err("a byte too many").unique, Some(7));
    bytes.truncate(39);
    assert_eq!(parse_whole(&bytes).expect_err("not even a header").unique, None);
}
