//! One volatile write is missing, or only one is there.

use super::{Choice, Indexed};
use crate::point::{Point, Survivor};

pub(super) fn choices(point: &Point) -> Indexed {
    let all = point.all();
    let count = 2 * all.len() as u64;
    let make = move |index: u64| -> Choice {
        let at = (index / 2) as usize;
        if index.is_multiple_of(2) {
            [&all[..at], &all[at + 1..]].concat()
        } else {
            vec![Survivor::whole(all[at].write)]
        }
    };
    Indexed { count, make: Box::new(make) }
}
