//! Images of file systems, damaged anywhere: what is read of them covers every byte once, and nothing is written.

use rotproof_block::Result;
use rotproof_kinds::{ReadOptions, Source, beyond, read};

/// As large as the smallest xfs.
const IMAGE_BYTES: u64 = 300 << 20;
const PIECES_MAX: usize = 4000;

/// Zeros but for some pieces: an image that fits into the input of a fuzzer.
struct Pieces<'a> {
    /// Offset and bytes, in the order of the offsets.
    pieces: Vec<(u64, &'a [u8])>,
}

impl<'a> Pieces<'a> {
    /// Of offset (8 bytes), length (2) and bytes each; the last may be cut off.
    fn parse(mut bytes: &'a [u8]) -> Self {
        let mut pieces = Vec::new();
        while let Some((head, rest)) = bytes.split_at_checked(10) {
            let (offset, length) = head.split_at(8);
            let offset = u64::from_le_bytes(offset.try_into().expect("8 bytes")) % IMAGE_BYTES;
            let length = usize::from(u16::from_le_bytes([length[0], length[1]])).min(rest.len());
            let length = length.min((IMAGE_BYTES - offset) as usize);
            pieces.push((offset, &rest[..length]));
            bytes = &rest[length..];
            if pieces.len() == PIECES_MAX {
                break;
            }
        }
        pieces.sort_by_key(|&(offset, _)| offset);
        Self { pieces }
    }
}

impl Source for Pieces<'_> {
    fn size(&self) -> u64 {
        IMAGE_BYTES
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|&end| end <= IMAGE_BYTES);
        let end = end.ok_or_else(|| beyond(offset, into.len(), IMAGE_BYTES))?;
        into.fill(0);
        // A piece is no longer than 64 KiB, so none that begins earlier reaches here.
        let first = self.pieces.partition_point(|&(at, _)| at + 65536 <= offset);
        for &(at, piece) in self.pieces[first..].iter().take_while(|&&(at, _)| at < end) {
            let (from, to) = (at.max(offset), (at + piece.len() as u64).min(end));
            if from < to {
                into[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
            }
        }
        Ok(())
    }
}

/// A map covers every byte once, and knows where its copies lie.
pub fn check(bytes: &[u8]) {
    let image = Pieces::parse(bytes);
    let Ok(map) = read(&image, ReadOptions { names: true }) else { return };
    let mut at = 0;
    for extent in map.extents() {
        assert_eq!(extent.start, at);
        assert!(extent.end > extent.start);
        at = extent.end;
    }
    assert_eq!(at, IMAGE_BYTES);
    assert!(map.damages.len() as u64 <= map.damages_count);
    map.totals();
}

/// What is not zero of small file systems that their own tools have made (`crates/kinds/tests/images/seeds.rs`).
pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../seeds/kinds_ext4.bin").to_vec(),
        include_bytes!("../seeds/kinds_xfs.bin").to_vec(),
        include_bytes!("../seeds/kinds_btrfs.bin").to_vec(),
    ]
}
