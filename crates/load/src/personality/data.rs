//! What files hold: of every file and version a row of contents, one for each block of 4 KiB, cut where the file ends;
//! and what is in a block instead.

use rotproof_block::ContentHash;

use super::plan::FilePlan;
use crate::BLOCK_BYTES;
use crate::content::{Content, ContentId, SECTOR_BYTES, SectorIdentity};
use crate::evidence::{Look, SectorLook};
use crate::failure::{Classification, Misdirected, NamedBlock, SectorFinding, Stale};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The part of one block that a range of bytes covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) block: u64,
    /// Where in the block it begins.
    pub(super) start: usize,
    /// Where in the range it begins.
    pub(super) at: usize,
    pub(super) len: usize,
}

/// The pieces of `len` bytes from `offset` on.
pub(super) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= len {
            return None;
        }
        let position = offset + at as u64;
        let start = (position % BLOCK) as usize;
        let piece = Piece { block: position / BLOCK, start, at, len: (BLOCK_BYTES - start).min(len - at) };
        at += piece.len;
        Some(piece)
    })
}

/// Puts into `buffer` what a version of a file holds from `offset` on.
pub(super) fn fill(content: &Content, file: u32, version: u32, offset: u64, buffer: &mut [u8]) {
    for Piece { block, start, at, len } in pieces(offset, buffer.len()) {
        let id = ContentId::of_file(file, version, block);
        let target = &mut buffer[at..at + len];
        if len == BLOCK_BYTES {
            content.fill(id, target);
        } else {
            content.with_block(id, |truth| target.copy_from_slice(&truth[start..start + len]));
        }
    }
}

/// Whether `data` is what a version of a file holds in a piece.
pub(super) fn matches(content: &Content, file: u32, version: u32, piece: Piece, data: &[u8]) -> bool {
    let id = ContentId::of_file(file, version, piece.block);
    if piece.len == BLOCK_BYTES {
        return content.matches(id, data);
    }
    content.with_block(id, |truth| truth[piece.start..piece.start + piece.len] == *data)
}

/// A block with `data` from `start` on, and zeros around: how the end of a file lies on a device.
pub(super) fn padded(start: usize, data: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    block[start..start + data.len()].copy_from_slice(data);
    block
}

/// The hash of the padded block.
pub(super) fn hash_of(block: &[u8]) -> ContentHash {
    ContentHash::of(block)
}

/// Where the expected bytes come from, for saying what other bytes are.
#[derive(Clone, Copy)]
pub(super) struct Whose {
    pub(super) file: u32,
    pub(super) block: u64,
    /// The newest of the versions that may be there.
    pub(super) version: u32,
}

/// Says what `data` is, which is no truth in `truths`; all are padded blocks, of which `covered` are looked at.
pub(super) fn classify(
    plan: &FilePlan,
    whose: Whose,
    truths: &[Vec<u8>],
    data: &[u8],
    covered: std::ops::Range<usize>,
) -> Classification {
    if data[covered.clone()].iter().all(|&byte| byte == 0) {
        return Classification::Zeroed;
    }
    let sectors = match Look::beside(&plan.content, truths, data) {
        Look::FlippedBits(flipped) => {
            return Classification::FlippedBits { count: flipped.count, bits: flipped.first };
        }
        Look::Zeroed => return Classification::Zeroed,
        Look::Ones => return Classification::Ones,
        Look::Sectors(sectors) => sectors,
    };
    // What lies partly outside can be compared, but not recognised.
    let is_whole =
        |sector: usize| covered.start <= sector * SECTOR_BYTES && (sector + 1) * SECTOR_BYTES <= covered.end;
    let is_covered =
        |sector: usize| sector * SECTOR_BYTES < covered.end && covered.start < (sector + 1) * SECTOR_BYTES;
    let whole: Vec<(usize, SectorLook)> =
        sectors.iter().copied().enumerate().filter(|&(sector, _)| is_whole(sector)).collect();
    if let Some(id) = one_content(&whole) {
        return match stale(whose, id) {
            Some(stale) => Classification::Stale(stale),
            None => Classification::Misdirected(misdirected(plan, id)),
        };
    }
    let looks: Vec<(usize, SectorLook)> =
        sectors.iter().copied().enumerate().filter(|&(sector, _)| is_covered(sector)).collect();
    let is_known = |look: &SectorLook| matches!(look, SectorLook::Expected | SectorLook::Content(_));
    if !looks.iter().any(|(_, look)| is_known(look)) {
        return Classification::Noise;
    }
    let is_misplaced = looks.iter().any(|&(sector, look)| {
        look.identity().is_some_and(|identity| usize::from(identity.sector) != sector)
    });
    let sectors = looks.into_iter().map(|(_, look)| finding(plan, whose, look)).collect();
    if is_misplaced { Classification::Misplaced { sectors } } else { Classification::Torn { sectors } }
}

/// The content that all sectors are of, each in its own place.
fn one_content(sectors: &[(usize, SectorLook)]) -> Option<ContentId> {
    let id = sectors.first()?.1.identity()?.id;
    let is_of = |&(sector, look): &(usize, SectorLook)| {
        look.identity() == Some(SectorIdentity { id, sector: sector as u8 })
    };
    sectors.iter().all(is_of).then_some(id)
}

fn stale(whose: Whose, id: ContentId) -> Option<Stale> {
    let found = id.in_file()?;
    (found.file == whose.file && found.block == whose.block).then(|| Stale {
        content: id,
        write: found.version.into(),
        writes: whose.version.into(),
    })
}

fn misdirected(plan: &FilePlan, id: ContentId) -> Misdirected {
    Misdirected { content: id, places: place(plan, id).into_iter().collect(), writes: 1 }
}

fn place(plan: &FilePlan, id: ContentId) -> Option<NamedBlock> {
    let found = id.in_file().filter(|found| found.file < plan.names())?;
    Some(NamedBlock { object: plan.path(found.file), block: found.block, request: found.version.into() })
}

fn finding(plan: &FilePlan, whose: Whose, look: SectorLook) -> SectorFinding {
    match look {
        SectorLook::Expected => SectorFinding::Expected,
        SectorLook::Zeros => SectorFinding::Zeros,
        SectorLook::Ones => SectorFinding::Ones,
        SectorLook::Noise => SectorFinding::Noise,
        SectorLook::Content(SectorIdentity { id, sector }) => match stale(whose, id) {
            Some(Stale { write, .. }) => SectorFinding::Stale { content: id, sector, write },
            None => SectorFinding::Misdirected { content: id, sector, place: place(plan, id) },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan() -> FilePlan {
        FilePlan::new(&"varmail".parse().expect("known"), 1)
    }

    proptest! {
        #[test]
        fn a_range_holds_what_its_bytes_hold_one_by_one(offset in 0u64..20_000, len in 0usize..20_000) {
            let plan = plan();
            let mut whole = vec![0; 40_960];
            fill(&plan.content, 3, 7, 0, &mut whole);
            let mut range = vec![0; len];
            fill(&plan.content, 3, 7, offset, &mut range);
            prop_assert_eq!(&range[..], &whole[offset as usize..offset as usize + len]);
            for piece in pieces(offset, len) {
                let data = &range[piece.at..piece.at + piece.len];
                prop_assert!(matches(&plan.content, 3, 7, piece, data));
                prop_assert!(!matches(&plan.content, 3, 8, piece, data) || piece.len < 8);
            }
        }
    }

    #[test]
    fn what_is_in_a_block_instead_is_named_also_at_the_end_of_a_file() {
        let plan = plan();
        let whose = Whose { file: 3, block: 2, version: 7 };
        for len in [BLOCK_BYTES, 3000] {
            let of = |file, version, block| {
                let mut data = vec![0; len];
                fill(&plan.content, file, version, block * BLOCK, &mut data);
                padded(0, &data)
            };
            let truth = of(3, 7, 2);
            let look = |data: &[u8]| classify(&plan, whose, std::slice::from_ref(&truth), data, 0..len);
            let mut flipped = truth.clone();
            flipped[100] ^= 4;
            assert_eq!(look(&flipped).kind(), "flipped_bits");
            assert_eq!(look(&[0; BLOCK_BYTES]).kind(), "zeroed");
            let Classification::Stale(stale) = look(&of(3, 5, 2)) else { panic!("an earlier version") };
            assert_eq!((stale.write, stale.writes), (5, 7));
            let Classification::Misdirected(misdirected) = look(&of(12, 1, 0)) else {
                panic!("another file")
            };
            assert_eq!((misdirected.places[0].object.as_str(), misdirected.places[0].block), ("f12", 0));
            let mut torn = truth.clone();
            torn[..1024].copy_from_slice(&of(3, 6, 2)[..1024]);
            assert_eq!(look(&torn).kind(), "torn");
            let noise: Vec<u8> =
                (0..BLOCK_BYTES).map(|at| if at < len { (at * 37 + 1) as u8 } else { 0 }).collect();
            assert_eq!(look(&noise).kind(), "noise");
        }
    }
}
