//! Numbers of records, as a list of some two bytes each: a bad block may have millions.

use crate::packed::{Rest, difference_bytes, put_difference};

/// Numbers in the order in which they were pushed. No ledger comes to 2^48 records.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordList {
    /// The last of them in [`LAST_BYTES`], each as the difference from the one before, and [`ROOM`] up to the end. As long as what is
    /// allocated, so that the list itself takes two words.
    bytes: Box<[u8]>,
}

const LAST_BYTES: usize = 6;
/// No number ends with it.
const ROOM: u8 = 0x80;
/// Up to so many bytes no room is kept: there may be millions of such lists.
const EXACT_BYTES: usize = 64;

impl RecordList {
    fn last(&self) -> u64 {
        let mut last = [0; 8];
        if let Some(bytes) = self.bytes.get(..LAST_BYTES) {
            last[..LAST_BYTES].copy_from_slice(bytes);
        }
        u64::from_le_bytes(last)
    }

    /// The numbers, without the room behind them.
    fn numbers(&self) -> &[u8] {
        let numbers = self.bytes.get(LAST_BYTES..).unwrap_or_default();
        let room = numbers.iter().rev().take_while(|&&byte| byte == ROOM).count();
        &numbers[..numbers.len() - room]
    }

    pub(crate) fn push(&mut self, record: u64) {
        let (last, used) = (self.last(), LAST_BYTES + self.numbers().len());
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        let needed = used + difference_bytes(last, record);
        let room = match needed {
            _ if needed <= bytes.len() => bytes.len(),
            _ if needed <= EXACT_BYTES => needed,
            _ => needed + needed / 8,
        };
        bytes.reserve_exact(room - bytes.len());
        bytes.resize(used, 0);
        put_difference(&mut bytes, last, record);
        bytes[..LAST_BYTES].copy_from_slice(&record.to_le_bytes()[..LAST_BYTES]);
        bytes.resize(room, ROOM);
        self.bytes = bytes.into_boxed_slice();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let (mut rest, mut last) = (Rest(self.numbers()), 0);
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
        fn what_was_pushed_comes_back(numbers in prop::collection::vec(prop_oneof![0..1u64 << 48, 0u64..300], 0..80)) {
            let mut list = RecordList::default();
            numbers.iter().for_each(|&number| list.push(number));
            prop_assert!(list.iter().eq(numbers));
        }
    }

    #[test]
    fn a_list_of_eleven_takes_forty_bytes() {
        let mut list = RecordList::default();
        (0..11).for_each(|round| list.push(20_000_000 + round * 1_000_000));
        assert_eq!(list.bytes.len(), 40);
    }
}
