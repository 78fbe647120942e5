//! What the catalog says of relations: rows of `pg_class` that count, found by `pg_filenode.map` (`pg_class.h`, `relmapper.c`,
//! `htup_details.h`, `clog.c` of PostgreSQL 15).

use std::collections::BTreeMap;

use crate::bytes::{le16, le32, u8_at};
use crate::source::Source;

use super::control::crc32c;
use super::page::{Method, PAGE_BYTES, Page};

/// What users make has this number or a later one.
const FIRST_OF_USERS: u32 = 16_384;
/// The number of `pg_class` itself.
pub(super) const CLASS: u32 = 1259;

/// A relation, by what its row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) name: String,
    pub(super) method: Method,
    pub(super) is_toast: bool,
    /// Whether it came with the cluster.
    pub(super) is_catalog: bool,
}

const MAP_MAGIC: u32 = 0x0059_2717;
const MAPPINGS_MAX: u32 = 62;
const MAP_SUMMED_BYTES: usize = 504;

/// Which files mapped relations have, by their numbers. `Err` says why the map cannot be believed.
pub(super) fn relation_map(bytes: &[u8]) -> Result<BTreeMap<u32, u32>, String> {
    let long = |at: usize| le32(bytes, at).ok_or_else(|| "it ends within its fields".to_owned());
    if long(0)? != MAP_MAGIC {
        return Err("it does not begin with its number".into());
    }
    if long(MAP_SUMMED_BYTES)? != crc32c(&bytes[..MAP_SUMMED_BYTES]) {
        return Err("its checksum is wrong".into());
    }
    let count = long(4)?;
    if count > MAPPINGS_MAX {
        return Err(format!("it cannot have {count} entries"));
    }
    (0..count as usize).map(|index| Ok((long(8 + 8 * index)?, long(12 + 8 * index)?))).collect()
}

/// Which transactions have ended well, by `pg_xact`.
pub(super) struct Commits<'a> {
    /// Segments by their numbers.
    pub(super) segments: BTreeMap<u64, Box<dyn Source + 'a>>,
}

/// Pages of a segment of `pg_xact` and its like.
const SEGMENT_PAGES: u64 = 32;
const PER_BYTE: u64 = 4;

impl Commits<'_> {
    /// `None` if it cannot be seen.
    fn is_committed(&self, transaction: u32) -> Option<bool> {
        // The transaction of initdb, and that of frozen rows.
        if matches!(transaction, 1 | 2) {
            return Some(true);
        }
        let byte = u64::from(transaction) / PER_BYTE;
        let each = SEGMENT_PAGES * PAGE_BYTES as u64;
        let mut found = [0];
        self.segments.get(&(byte / each))?.read_at(byte % each, &mut found).ok()?;
        let state = found[0] >> (2 * (transaction % PER_BYTE as u32)) & 3;
        Some(state == 1)
    }

    /// Whether a row counts for who comes now. What cannot be seen is taken for a row that does.
    fn is_live(&self, row: &[u8]) -> Option<bool> {
        const FROZEN: u16 = 0x0300;
        const MADE: u16 = 0x0100;
        const NEVER_MADE: u16 = 0x0200;
        const LOCKED_ONLY: u16 = 0x0080;
        const REMOVED: u16 = 0x0400;
        const NEVER_REMOVED: u16 = 0x0800;
        const BY_SEVERAL: u16 = 0x1000;
        let (made_by, removed_by, marks) = (le32(row, 0)?, le32(row, 4)?, le16(row, 20)?);
        let is_made = match marks & FROZEN {
            FROZEN | MADE => true,
            NEVER_MADE => false,
            _ => self.is_committed(made_by).unwrap_or(true),
        };
        let is_removed = if removed_by == 0 || marks & (NEVER_REMOVED | LOCKED_ONLY | BY_SEVERAL) != 0 {
            false
        } else {
            marks & REMOVED != 0 || self.is_committed(removed_by).unwrap_or(false)
        };
        Some(is_made && !is_removed)
    }
}

/// Relations of a page of `pg_class` by the numbers of their files; those that have none of their own are in the map. Rows that cannot be read
/// are left out.
pub(super) fn relations(
    page: &Page<'_>,
    commits: &Commits<'_>,
    map: &BTreeMap<u32, u32>,
    shared_map: &BTreeMap<u32, u32>,
) -> Vec<(Place, Relation)> {
    let parsed = |row: &[u8]| {
        if !commits.is_live(row)? {
            return None;
        }
        let columns = row.get(usize::from(u8_at(row, 22)?)..)?;
        let long = |at: usize| le32(columns, at);
        let (number, method, file) = (long(0)?, long(84)?, long(88)?);
        let name = columns.get(4..68)?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let is_shared = u8_at(columns, 113)? != 0;
        let kind = u8_at(columns, 115)?;
        let map = if is_shared { shared_map } else { map };
        let file = if file == 0 { *map.get(&number)? } else { file };
        let method = if kind == b'S' { Method::Sequence } else { Method::of(method) };
        let relation = Relation {
            name: String::from_utf8_lossy(name).into_owned(),
            method,
            is_toast: kind == b't',
            is_catalog: number < FIRST_OF_USERS,
        };
        Some((Place { is_shared, file }, relation))
    };
    page.items().filter_map(parsed).collect()
}

/// Where the files of a relation lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// In `global`, not in the folder of the database.
    pub(super) is_shared: bool,
    pub(super) file: u32,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::postgres::page::tests::page;

    /// A map of one relation.
    pub(in super::super) fn map(number: u32, file: u32) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        for (at, value) in [(0, MAP_MAGIC), (4, 1), (8, number), (12, file)] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let sum = crc32c(&bytes[..MAP_SUMMED_BYTES]);
        bytes[MAP_SUMMED_BYTES..508].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// A row of `pg_class`: transactions that made and removed it, marks, and what of its columns is looked at.
    pub(in super::super) struct Row {
        pub(in super::super) made: u32,
        pub(in super::super) removed: u32,
        pub(in super::super) marks: u16,
        pub(in super::super) number: u32,
        pub(in super::super) file: u32,
        pub(in super::super) method: u32,
        pub(in super::super) kind: u8,
        pub(in super::super) name: &'static str,
    }

    /// A page of `pg_class` with these rows.
    pub(in super::super) fn class_page(rows: &[Row]) -> Vec<u8> {
        let mut bytes = page(&[]);
        let mut end = PAGE_BYTES;
        for (index, row) in rows.iter().enumerate() {
            let mut item = vec![0; 24 + 144];
            item[..4].copy_from_slice(&row.made.to_le_bytes());
            item[4..8].copy_from_slice(&row.removed.to_le_bytes());
            item[20..22].copy_from_slice(&row.marks.to_le_bytes());
            item[22] = 24;
            for (at, value) in [(0, row.number), (84, row.method), (88, row.file)] {
                item[24 + at..28 + at].copy_from_slice(&value.to_le_bytes());
            }
            item[28..28 + row.name.len()].copy_from_slice(row.name.as_bytes());
            item[24 + 115] = row.kind;
            end -= item.len();
            bytes[end..end + item.len()].copy_from_slice(&item);
            let pointer = end as u32 | 1 << 15 | (item.len() as u32) << 17;
            let at = 24 + 4 * index;
            bytes[at..at + 4].copy_from_slice(&pointer.to_le_bytes());
        }
        bytes[12..14].copy_from_slice(&(24 + 4 * rows.len() as u16).to_le_bytes());
        bytes[14..16].copy_from_slice(&(end as u16).to_le_bytes());
        bytes
    }

    #[test]
    fn only_rows_that_count_say_what_a_file_is() {
        let row = |made, removed, marks, file| Row {
            made,
            removed,
            marks,
            number: 16_400,
            file,
            method: 403,
            kind: b'i',
            name: "some_index",
        };
        let bytes = class_page(&[
            row(2, 0, 0x0900, 1),
            // Removed by a transaction that ended well, by its mark and by pg_xact; by one that did not; locked.
            row(2, 9, 0x0500, 2),
            row(2, 4, 0x0100, 3),
            row(2, 5, 0x0100, 4),
            row(2, 4, 0x0180, 5),
            // Made by a transaction that did not end well; by one that did.
            row(5, 0, 0x0800, 6),
            row(4, 0, 0x0800, 7),
            Row { number: 1247, kind: b'r', method: 2, name: "pg_type", ..row(2, 0, 0x0B00, 0) },
            Row { kind: b't', method: 2, name: "pg_toast_16400", ..row(2, 0, 0x0B00, 9) },
        ]);
        let parsed = Page::parse(&bytes).expect("a page");
        // Two bits each from transaction 4 on: ended well, aborted.
        let status: Vec<u8> = vec![0, 0b1001];
        let commits = Commits { segments: BTreeMap::from([(0, Box::new(status) as Box<dyn Source>)]) };
        let of_type = BTreeMap::from([(1247, 8)]);
        let found = relations(&parsed, &commits, &of_type, &BTreeMap::new());
        let files: Vec<u32> = found.iter().map(|(place, _)| place.file).collect();
        assert_eq!(files, [1, 4, 5, 7, 8, 9]);
        let index = &found[0].1;
        assert_eq!((&*index.name, index.method, index.is_catalog), ("some_index", Method::Btree, false));
        assert!(found[4].1.is_catalog && found[5].1.is_toast);
    }

    #[test]
    fn a_map_that_is_damaged_is_none() {
        let good = map(1259, 77);
        assert_eq!(relation_map(&good), Ok(BTreeMap::from([(1259, 77)])));
        for at in [0, 4, 8, 500, 504] {
            let mut bytes = good.clone();
            bytes[at] ^= 0x40;
            assert!(relation_map(&bytes).is_err(), "{at}");
        }
        assert!(relation_map(&good[..300]).is_err());
    }
}
