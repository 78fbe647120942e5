//! What arrives on the FUSE channel: the first bytes of a message, and the payload beside them.

use rotproof_export::fuse::{FuseOperation, HEAD_BYTES, TRANSFER_BYTES_MAX, parse};

/// Any bytes are a message, no number in which is beyond what can be served, or they are malformed.
pub fn check(bytes: &[u8]) {
    let (head, payload) = bytes.split_at(bytes.len().min(HEAD_BYTES));
    let Ok(message) = parse(head, payload) else { return };
    match message.operation {
        FuseOperation::Read { size, .. } | FuseOperation::ReadDir { size, .. } => {
            assert!(size <= TRANSFER_BYTES_MAX);
        }
        FuseOperation::Write { size, .. } => assert!(size == payload.len() && size <= TRANSFER_BYTES_MAX),
        _ => {}
    }
}

/// A message of each operation, with a body of each length that some operation has.
pub fn seeds() -> Vec<Vec<u8>> {
    let operations = 1u32..55;
    operations
        .flat_map(|operation| [0, 8, 16, 40, 88, 104].map(|length| message(operation, length)))
        .collect()
}

/// A header that tells its own length (`struct fuse_in_header`: 40 bytes), and a body.
fn message(operation: u32, body: u32) -> Vec<u8> {
    let mut bytes = [(40 + body).to_ne_bytes(), operation.to_ne_bytes()].concat();
    bytes.extend_from_slice(&7u64.to_ne_bytes());
    bytes.extend_from_slice(&1u64.to_ne_bytes());
    bytes.resize(40, 0);
    bytes.extend((0..body).map(|at| if at % 8 == 0 { 1 } else { 0 }));
    bytes
}
