//! Fields one behind the other, and the *seal* behind them: the XXH3-64 of all bytes before it.

use crate::sum::Algorithm;

/// Bytes of a seal.
pub(crate) const SEAL_BYTES: usize = 8;

fn sum_of(bytes: &[u8]) -> [u8; SEAL_BYTES] {
    Algorithm::Xxh3.of(bytes).word().to_le_bytes()
}

/// Seals the bytes before `at`, at `at`.
pub(crate) fn seal(bytes: &mut [u8], at: usize) {
    let (sealed, rest) = bytes.split_at_mut(at);
    rest[..SEAL_BYTES].copy_from_slice(&sum_of(sealed));
}

/// Whether the bytes before `at` have their seal at `at`.
pub(crate) fn is_sealed(bytes: &[u8], at: usize) -> bool {
    sum_of(&bytes[..at]) == bytes[at..at + SEAL_BYTES]
}

/// Writes fields.
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// From the beginning.
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next field is at `at`, which is not before the end of the last one.
    pub(crate) fn skip_to(&mut self, at: usize) {
        debug_assert!(self.at <= at, "{} bytes of fields lie before {at}", self.at);
        self.at = at;
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

/// Reads fields, which all lie inside of the bytes.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From the beginning.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next field is at `at`.
    pub(crate) fn skip_to(&mut self, at: usize) {
        self.at = at;
    }

    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let bytes = &self.bytes[self.at..self.at + count];
        self.at += count;
        bytes
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        *self.bytes(N).first_chunk().expect("so many were taken")
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}
