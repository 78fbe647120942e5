//! Numbers of records, as a list of some two bytes each: a bad block may have millions.

use crate::packed::{Rest, put_difference};

/// Numbers in the order in which they were pushed.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordList {
    /// The difference from the one before, each.
    bytes: Vec<u8>,
    last: u64,
}

impl RecordList {
    pub(crate) fn push(&mut self, record: u64) {
        put_difference(&mut self.bytes, self.last, record);
        self.last = record;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let (mut rest, mut last) = (Rest(&self.bytes), 0);
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
