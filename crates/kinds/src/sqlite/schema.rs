//! Rows of the schema: which b-trees there are, and what they are called.

use super::btree::varint;

/// A table or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) root: u64,
}

/// Bytes of a column by the number for its type.
fn length(serial: u64) -> Option<usize> {
    Some(match serial {
        0 | 8 | 9 => 0,
        1..=4 => serial as usize,
        5 => 6,
        6 | 7 => 8,
        10 | 11 => return None,
        _ => usize::try_from((serial - 12) / 2).ok()?,
    })
}

/// What a record of the schema names; `None` if it has no b-tree, as a view has none.
pub(crate) fn entry(record: &[u8]) -> Option<Entry> {
    let (head, taken) = varint(record, 0)?;
    let head = usize::try_from(head).ok()?;
    let (mut at, mut from) = (taken, head);
    let mut columns = Vec::new();
    // type, name, tbl_name, rootpage, sql
    while at < head && columns.len() < 4 {
        let (serial, taken) = varint(record, at)?;
        at += taken;
        let end = from.checked_add(length(serial)?)?;
        columns.push((serial, record.get(from..end)?));
        from = end;
    }
    let (name, root) = (columns.get(1)?, columns.get(3)?);
    let root = match root.0 {
        9 => 1,
        1..=6 => root.1.iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte)),
        _ => 0,
    };
    (root > 0).then(|| Entry { name: String::from_utf8_lossy(name.1).into_owned(), root })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_root_and_a_view_has_none() {
        // table, item, item, 3, "x"
        let record = [&[6, 23, 21, 21, 1, 15][..], b"tableitemitem", &[3], b"x"].concat();
        assert_eq!(entry(&record), Some(Entry { name: "item".into(), root: 3 }));
        let view = [&[6, 21, 21, 21, 8, 15][..], b"viewitemitem", b"x"].concat();
        assert_eq!(entry(&view), None);
        for cut in 0..record.len() - 1 {
            assert_eq!(entry(&record[..cut]), None, "{cut}");
        }
    }
}
