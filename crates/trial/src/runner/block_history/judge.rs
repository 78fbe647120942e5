//! Whether a block may hold what it holds.

use rotproof_block::ContentHash;
use rotproof_load::BLOCK_BYTES;

use super::{Promised, SECTOR_BYTES, SECTORS, Version, What};

/// What a block of a new file holds.
pub(super) const BLANK: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
/// What a block is that holds what was never written there; if another block of the load was to hold it, it is *misdirected*.
pub(super) const NOISE: &str = "noise";

/// The versions that a block may show, where this was promised, and whether also what was there before.
pub(super) fn legal(versions: &[Version], promised: Promised) -> (Vec<&Version>, bool) {
    // The last one that is durable, if any is. What had completed before it began is gone.
    let durable =
        versions.iter().filter(|version| promised.covers(version)).max_by_key(|version| version.submitted);
    let since = durable.map_or(0, |durable| durable.submitted);
    (versions.iter().filter(|version| version.completed >= since).collect(), durable.is_none())
}

/// Whether a block may hold these bytes, which held `before` before the load, where this was promised. Each `unit_sectors` of it come from
/// one version.
pub(super) fn judge(
    versions: &[Version],
    (bytes, before): (&[u8], &[u8]),
    promised: Promised,
    unit_sectors: usize,
) -> Result<(), (&'static str, String)> {
    let (legal, may_be_untouched) = legal(versions, promised);
    if legal.iter().any(|version| version.what == What::Anything) {
        return Ok(());
    }
    let hashes: Vec<ContentHash> = match legal.is_empty() {
        true => Vec::new(),
        false => bytes.chunks_exact(SECTOR_BYTES).map(ContentHash::of).collect(),
    };
    let untouched = |at: usize| {
        let range = at * SECTOR_BYTES..(at + 1) * SECTOR_BYTES;
        bytes[range.clone()] == before[range]
    };
    let is_of = |version: &Version, at: usize| version.what.is_at(at, || hashes[at]);
    let is_legal = |sectors: std::ops::Range<usize>| {
        may_be_untouched && sectors.clone().all(untouched)
            || legal.iter().any(|version| sectors.clone().all(|at| is_of(version, at)))
    };
    let units = |sectors: usize| (0..SECTORS / sectors).map(move |unit| unit * sectors..(unit + 1) * sectors);
    if units(unit_sectors).all(is_legal) {
        return Ok(());
    }
    if units(1).all(is_legal) {
        return Err(("mixed", "holds sectors of several versions in one atomic unit".to_owned()));
    }
    if !may_be_untouched && (0..SECTORS).all(untouched) {
        let what = if *bytes == BLANK { "zeros" } else { "what was there before the load" };
        return Err(("lost", format!("holds {what}, and what was written there had been made durable")));
    }
    let is_whole = |version: &Version| version.what != What::Anything && version.what.is(bytes);
    Err(match (versions.iter().any(is_whole), versions.is_empty(), *before == BLANK) {
        (true, _, _) => ("stale", "is older than what had been made durable there".to_owned()),
        (false, true, true) => (NOISE, "was never written, and is not zeros".to_owned()),
        (false, true, false) => {
            (NOISE, "was never written, and is not what it was before the load".to_owned())
        }
        (false, false, _) => (NOISE, "holds what was never written there".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(byte: u8, submitted: u64, completed: u64) -> Version {
        let hash = ContentHash::of(&[byte; SECTOR_BYTES]);
        Version { what: What::Data([hash; SECTORS]), submitted, completed, durable: u64::MAX }
    }

    fn flushed(before: u64) -> Promised {
        Promised { before, durable_writes: 0 }
    }

    fn kind(versions: &[Version], bytes: &[u8], before: u64) -> &'static str {
        judge(versions, (bytes, &BLANK), flushed(before), SECTORS).err().map_or("legal", |(kind, _)| kind)
    }

    #[test]
    fn what_a_block_may_hold_goes_from_what_was_flushed_to_what_was_written_last() {
        let versions = [version(1, 1, 2), version(2, 3, 4), version(3, 5, u64::MAX)];
        let block = |byte: u8| vec![byte; BLOCK_BYTES];
        for (byte, floor, wanted) in [
            (0, 0, "legal"),
            (1, 0, "legal"),
            (3, 0, "legal"),
            (0, 3, "lost"),
            (1, 3, "legal"),
            (1, 9, "stale"),
            (2, 9, "legal"),
            (3, 9, "legal"),
            (0, 9, "lost"),
            (7, 0, "noise"),
        ] {
            assert_eq!(kind(&versions, &block(byte), floor), wanted, "{byte} after {floor}");
        }
        assert_eq!(kind(&[], &block(0), 9), "legal");
        assert_eq!(kind(&[], &block(1), 0), "noise");
        let mut mixed = block(2);
        mixed[..SECTOR_BYTES].fill(3);
        assert_eq!(kind(&versions, &mixed, 9), "mixed");
        assert_eq!(judge(&versions, (&mixed, &BLANK), flushed(9), 1), Ok(()));
        let anything = [version(1, 1, 2), Version { what: What::Anything, ..version(0, 3, 4) }];
        assert_eq!(kind(&anything, &block(9), 9), "legal");
        assert_eq!(kind(&[anything[1].clone(), version(1, 5, 6)], &block(9), 9), "noise");
    }
    #[test]
    fn a_durable_write_is_there_once_it_has_returned_without_any_flush() {
        // The second of three was to be durable, and was the first such write to return.
        let versions =
            [version(1, 1, 2), Version { durable: 1, ..version(2, 3, 4) }, version(3, 5, u64::MAX)];
        let of = |byte: u8, durable_writes: u64| {
            let promised = Promised { before: 0, durable_writes };
            judge(&versions, (&[byte; BLOCK_BYTES], &BLANK), promised, SECTORS)
                .err()
                .map_or("legal", |(kind, _)| kind)
        };
        for (byte, before, after) in
            [(0, "legal", "lost"), (1, "legal", "stale"), (2, "legal", "legal"), (3, "legal", "legal")]
        {
            assert_eq!((of(byte, 0), of(byte, 1)), (before, after), "{byte}");
        }
    }

    #[test]
    fn a_unit_of_some_sectors_comes_from_one_version() {
        let versions = [version(1, 1, 2), version(2, 3, 4)];
        let mut bytes = vec![1; BLOCK_BYTES];
        bytes[..2 * SECTOR_BYTES].fill(2);
        let kind = |unit_sectors| {
            judge(&versions, (&bytes, &BLANK), flushed(2), unit_sectors)
                .err()
                .map_or("legal", |(kind, _)| kind)
        };
        assert_eq!([1, 2, 4, 8].map(kind), ["legal", "legal", "mixed", "mixed"]);
    }

    #[test]
    fn what_was_there_before_the_load_is_legal_until_something_else_is_durable() {
        let before = [9; BLOCK_BYTES];
        let of = |versions: &[Version], byte: u8, floor: u64| {
            judge(versions, (&[byte; BLOCK_BYTES], &before), flushed(floor), SECTORS)
                .err()
                .map_or("legal", |(kind, _)| kind)
        };
        let versions = [version(1, 1, 2)];
        for (byte, volatile, durable, never) in
            [(9, "legal", "lost", "legal"), (1, "legal", "legal", "noise"), (0, "noise", "noise", "noise")]
        {
            let found = (of(&versions, byte, 0), of(&versions, byte, 9), of(&[], byte, 9));
            assert_eq!(found, (volatile, durable, never), "{byte}");
        }
    }
}
