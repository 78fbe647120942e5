//! Clusters of PostgreSQL, damaged anywhere: what is read of them covers every byte of every file once.

use std::collections::BTreeMap;

use rotproof_kinds::{ReadOptions, read_cluster, read_cluster_file};

/// The files that a cluster has here; those that are not in the input are empty.
const PATHS: [&str; 14] = [
    "global/pg_control",
    "global/pg_filenode.map",
    "base/5/pg_filenode.map",
    "base/5/1259",
    "base/5/2662",
    "base/5/16384",
    "base/5/16384_fsm",
    "base/5/20000",
    "base/5/20001",
    "base/5/20002",
    "base/5/20003",
    "base/5/20004",
    "pg_xact/0000",
    "pg_wal/000000010000000000000001",
];
/// No file is longer.
const FILE_BYTES_MAX: usize = 4 * 8192;
const PIECES_MAX: usize = 2000;

/// Of a number of a file (1 byte), an offset (2), a length (2) and bytes each; the last may be cut off. Files are whole pages long, but for maps.
fn files(mut bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::from([("PG_VERSION".to_owned(), b"15\n".to_vec())]);
    let mut pieces = 0;
    while let Some((head, rest)) = bytes.split_at_checked(5) {
        let path = PATHS[usize::from(head[0]) % PATHS.len()];
        let number = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (offset, length) = (number(1) % FILE_BYTES_MAX, number(3).min(rest.len()));
        let length = length.min(FILE_BYTES_MAX - offset);
        let file: &mut Vec<u8> = files.entry(path.to_owned()).or_default();
        let least = if path.ends_with(".map") { 512 } else { 8192 };
        let end = (offset + length).next_multiple_of(least);
        if file.len() < end {
            file.resize(end, 0);
        }
        file[offset..offset + length].copy_from_slice(&rest[..length]);
        bytes = &rest[length..];
        pieces += 1;
        if pieces == PIECES_MAX {
            break;
        }
    }
    // With wrong sums nothing behind them would be read; most inputs get right ones.
    if files.len() % 8 != 6 {
        for (path, summed) in [(PATHS[0], 288), (PATHS[1], 504), (PATHS[2], 504)] {
            if let Some(file) = files.get_mut(path).filter(|file| file.len() >= summed + 4) {
                let sum = crc32c(&file[..summed]);
                file[summed..summed + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
    files
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| sum >> 1 ^ (0x82F6_3B78 & 0_u32.wrapping_sub(sum & 1));
    !bytes.iter().fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

/// Every file's map covers every byte once, and all joined do.
pub fn check(bytes: &[u8]) {
    let files = files(bytes);
    let Ok(cluster) = read_cluster(&files, ReadOptions { names: true }) else { return };
    assert_eq!(cluster.files.len(), files.len());
    for file in &cluster.files {
        let mut at = 0;
        for extent in file.map.extents() {
            assert_eq!(extent.start, at, "{}", file.path);
            assert!(extent.end > extent.start);
            at = extent.end;
        }
        assert_eq!(at, files[&file.path].len() as u64);
        assert!(file.map.damages.len() as u64 <= file.map.damages_count);
    }
    let one = read_cluster_file(&files, "PG_VERSION", ReadOptions::default()).expect("as it was read before");
    assert_eq!(one.extents().len(), 1);
    cluster.joined().totals();
}

/// What is not zero of the first pages of files of a cluster (`crates/kinds/tests/images/seeds.rs`).
pub fn seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../seeds/postgres.bin").to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Or nothing of interest would be fuzzed.
    #[test]
    fn the_seed_is_a_cluster_that_is_read() {
        let files = files(&seeds()[0]);
        let cluster = read_cluster(&files, ReadOptions { names: true }).expect("read");
        let words: Vec<&str> = cluster
            .files
            .iter()
            .flat_map(|file| file.map.extents().iter().map(|extent| extent.kind.word()))
            .collect();
        for word in [
            "catalog_page",
            "catalog_index_page",
            "heap_page",
            "fsm_page",
            "hash_bucket",
            "gin_leaf",
            "wal_page",
            "transaction_status",
        ] {
            assert!(words.contains(&word), "{word}: {words:?}");
        }
        let damages: Vec<_> = cluster.files.iter().flat_map(|file| &file.map.damages).collect();
        assert!(damages.is_empty(), "{damages:?}");
    }
}
