//! The devices of a trace by their names.

use std::collections::{HashMap, HashSet};

/// Numbers of devices: a name that is a number keeps it, so that a trace that is written anew has the same.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    numbers: HashMap<String, u32>,
    taken: HashSet<u32>,
    /// The lowest that may be free.
    next: u32,
}

impl Devices {
    /// The number of a name: `preferred`, or what it says itself, if no other has that; else the next free one.
    pub(crate) fn number_of(&mut self, name: &str, preferred: Option<u32>) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let own = preferred.or_else(|| name.parse().ok()).filter(|number| !self.taken.contains(number));
        let number = own.unwrap_or_else(|| {
            while self.taken.contains(&self.next) && self.next < u32::MAX {
                self.next += 1;
            }
            self.next
        });
        self.taken.insert(number);
        self.numbers.insert(name.to_owned(), number);
        number
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_and_a_name_takes_what_is_free() {
        let mut devices = Devices::default();
        let found = ["7", "sda", "0", "sdb", "7", "sda"].map(|name| devices.number_of(name, None));
        assert_eq!(found, [7, 0, 1, 2, 7, 0], "of two that want one number the first has it");
        assert_eq!(devices.number_of("usr.9", Some(9)), 9);
    }
}
