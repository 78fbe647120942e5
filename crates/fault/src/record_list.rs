//! Numbers of records, as a list of some two bytes each: a bad block may have millions.

use crate::packed::{Rest, difference_bytes, put_difference};

/// Numbers in the order in which they were pushed. No ledger comes to 2^48 records.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordList {
    /// Each as the difference from the one before, and [`ROOM`] up to the end. As long as what is allocated, so that the list itself
    /// takes two words. A list of more than [`EXACT_BYTES`] has the last of them in front, in [`LAST_BYTES`]; in a shorter one it is
    /// found by reading all.
    bytes: Box<[u8]>,
}

const LAST_BYTES: usize = 6;
/// No number ends with it.
const ROOM: u8 = 0x80;
/// Up to so many bytes no room is kept: there may be millions of such lists.
const EXACT_BYTES: usize = 64;

impl RecordList {
    fn last(&self) -> u64 {
        if !is_long(&self.bytes) {
            return self.iter().last().unwrap_or_default();
        }
        let mut last = [0; 8];
        last[..LAST_BYTES].copy_from_slice(&self.bytes[..LAST_BYTES]);
        u64::from_le_bytes(last)
    }

    /// The numbers, without the room behind them.
    fn numbers(&self) -> &[u8] {
        let numbers = &self.bytes[if is_long(&self.bytes) { LAST_BYTES } else { 0 }..];
        let room = numbers.iter().rev().take_while(|&&byte| byte == ROOM).count();
        &numbers[..numbers.len() - room]
    }

    pub(crate) fn push(&mut self, record: u64) {
        let (last, used) = (self.last(), self.numbers().len());
        let was_long = is_long(&self.bytes);
        let needed = used + difference_bytes(last, record);
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        let (front, room) = match was_long || needed > EXACT_BYTES {
            false => (0, needed),
            true if was_long && LAST_BYTES + needed <= bytes.len() => (LAST_BYTES, bytes.len()),
            true => (LAST_BYTES, LAST_BYTES + needed + needed / 8),
        };
        bytes.reserve_exact(room.saturating_sub(bytes.len()));
        if front > 0 && !was_long {
            bytes.splice(..0, [0; LAST_BYTES]);
        }
        bytes.resize(front + used, 0);
        put_difference(&mut bytes, last, record);
        bytes[..front].copy_from_slice(&record.to_le_bytes()[..front]);
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

/// Whether a list of these bytes has its last number in front.
fn is_long(bytes: &[u8]) -> bool {
    bytes.len() > EXACT_BYTES
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
    fn a_list_of_twelve_takes_37_bytes() {
        let mut list = RecordList::default();
        (0..12).for_each(|round| list.push(20_000_000 + round * 1_000_000));
        assert_eq!(list.bytes.len(), 37);
    }
}
