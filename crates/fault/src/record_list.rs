//! Numbers of records, as a list of some two bytes each: a bad block may have millions.

use crate::packed::{Rest, put_difference};

/// Numbers in the order in which they were pushed.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordList {
    /// The last of them in [`LAST_BYTES`], then each as the difference from the one before.
    bytes: Vec<u8>,
}

const LAST_BYTES: usize = 8;
/// Few differences take more.
const USUAL_BYTES: usize = 4;

impl RecordList {
    fn last(&self) -> u64 {
        self.bytes.first_chunk().map_or(0, |last: &[u8; LAST_BYTES]| u64::from_le_bytes(*last))
    }

    pub(crate) fn push(&mut self, record: u64) {
        let last = self.last();
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(2 * LAST_BYTES);
            self.bytes.resize(LAST_BYTES, 0);
        } else if self.bytes.capacity() - self.bytes.len() < USUAL_BYTES {
            // Not twice as much: there may be millions of these lists.
            self.bytes.reserve_exact(2 * LAST_BYTES + self.bytes.len() / 8);
        }
        put_difference(&mut self.bytes, last, record);
        self.bytes[..LAST_BYTES].copy_from_slice(&record.to_le_bytes());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let (mut rest, mut last) = (Rest(self.bytes.get(LAST_BYTES..).unwrap_or_default()), 0);
        std::iter::from_fn(move || {
            if rest.0.is_empty() {
                return None;
            }
            last = rest.difference(last);
            Some(last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_pushed_comes_back(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut list = RecordList::default();
            numbers.iter().for_each(|&number| list.push(number));
            prop_assert!(list.iter().eq(numbers));
        }
    }
}
