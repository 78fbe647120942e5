//! A page of a b-tree: its cells, what they hold, and which pages they name.

use crate::bytes::{be16, be32, u8_at};

/// What a cell holds: the part on its own page, and where the rest is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) local: Vec<u8>,
    /// Bytes that lie in overflow pages.
    pub(crate) rest: u64,
    /// The first of those pages.
    pub(crate) overflow: u64,
}

/// A page of a b-tree.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) is_table: bool,
    pub(crate) is_leaf: bool,
    pub(crate) children: Vec<u64>,
    pub(crate) payloads: Vec<Payload>,
    /// Cells that end beyond the page.
    pub(crate) broken_cells: usize,
}

/// A number of one to nine bytes, and how many it took.
pub(crate) fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for index in 0..8 {
        let byte = u8_at(bytes, at + index)?;
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    Some((value << 8 | u64::from(u8_at(bytes, at + 8)?), 9))
}

/// How many bytes of a payload lie on the page itself (*Database File Format*, section 1.6).
fn local_bytes(payload: u64, usable: u64, is_table: bool) -> u64 {
    let most = if is_table { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
    if payload <= most {
        return payload;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let wanted = least + (payload - least) % (usable - 4);
    if wanted <= most { wanted } else { least }
}

impl Page {
    /// `None` if it is no page of a b-tree. The first page of a database has its header first.
    pub(crate) fn parse(bytes: &[u8], is_first: bool, usable: usize) -> Option<Self> {
        let bytes = bytes.get(..usable)?;
        let head = if is_first { 100 } else { 0 };
        let (is_table, is_leaf) = match u8_at(bytes, head)? {
            2 => (false, false),
            5 => (true, false),
            10 => (false, true),
            13 => (true, true),
            _ => return None,
        };
        let mut page = Self { is_table, is_leaf, ..Self::default() };
        let count = usize::from(be16(bytes, head + 3)?);
        let pointers = head + if is_leaf { 8 } else { 12 };
        if pointers + 2 * count > usable {
            return None;
        }
        for index in 0..count {
            let at = usize::from(be16(bytes, pointers + 2 * index)?);
            match page.cell(bytes, at) {
                Some(()) => {}
                None => page.broken_cells += 1,
            }
        }
        if !is_leaf {
            page.children.push(u64::from(be32(bytes, head + 8)?));
        }
        Some(page)
    }

    fn cell(&mut self, bytes: &[u8], mut at: usize) -> Option<()> {
        if !self.is_leaf {
            self.children.push(u64::from(be32(bytes, at)?));
            at += 4;
            if self.is_table {
                // A key and nothing else.
                return varint(bytes, at).map(|_| ());
            }
        }
        let (length, taken) = varint(bytes, at)?;
        at += taken;
        if self.is_table {
            at += varint(bytes, at)?.1;
        }
        let local = local_bytes(length, bytes.len() as u64, self.is_table);
        let end = at.checked_add(usize::try_from(local).ok()?)?;
        let rest = length - local;
        // Longer than SQLite lets anything be.
        if rest > u64::from(u32::MAX) {
            return None;
        }
        let overflow = if rest > 0 { u64::from(be32(bytes, end)?) } else { 0 };
        self.payloads.push(Payload { local: bytes.get(at..end)?.to_vec(), rest, overflow });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_one_to_nine_bytes() {
        assert_eq!(varint(&[0x7f], 0), Some((127, 1)));
        assert_eq!(varint(&[0x81, 0x00], 0), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9], 0), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0x80, 0x80], 0), None);
    }

    #[test]
    fn long_payloads_leave_the_page_as_sqlite_splits_them() {
        // A table: all up to 4061 bytes; beyond, so much that the rest fills whole pages, if it fits.
        assert_eq!(local_bytes(4061, 4096, true), 4061);
        assert_eq!(local_bytes(4062, 4096, true), 489);
        assert_eq!(local_bytes(9000, 4096, true), 816);
        assert_eq!(local_bytes(1002, 4096, false), 1002);
        assert_eq!(local_bytes(1003, 4096, false), 489);
    }
}
