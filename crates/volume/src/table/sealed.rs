//! Numbers in bytes, and bytes that carry a sum of themselves.

use xxhash_rust::xxh3::Xxh3;

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn read_u128(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

pub(crate) fn write_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn write_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// XXH3-64 of all bytes but the eight at `at`.
fn sum(bytes: &[u8], at: usize) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&bytes[..at]);
    hash.update(&bytes[at + 8..]);
    hash.digest()
}

/// Puts the sum of all other bytes at `at`.
pub(crate) fn seal(bytes: &mut [u8], at: usize) {
    let sum = sum(bytes, at);
    write_u64(bytes, at, sum);
}

/// Whether the sum at `at` is that of the other bytes.
pub(crate) fn unseal(bytes: &[u8], at: usize) -> bool {
    read_u64(bytes, at) == sum(bytes, at)
}
