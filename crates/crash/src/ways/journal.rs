//! The order of a journal is checked, and only the rest is permuted: a journal whose commit waits for what it commits is protected by
//! that, so states that take it apart show what every other of them shows (Silhouette, FAST 2025).
//!
//! Where a commit is under way together with blocks of its journal, nothing protects them, and exactly that is tried. What belongs to a
//! journal is a guess by what blocks begin with, and by where they lie: about which states are worth a look, never about which are legal.

use super::{Choice, Choices, Role, WayLimits, subsets};
use crate::point::{Point, Survivor};
use crate::window::Volatile;

pub(super) fn choices(point: &Point, limits: &WayLimits, seed: u64) -> Choices {
    let roles = roles(point);
    let is_of_journal = |position: u64| roles.iter().any(|&(of, role)| of == position && role != Role::Data);
    let (journal, rest): (Vec<_>, Vec<_>) =
        point.all().into_iter().partition(|survivor| is_of_journal(survivor.write));
    let broken = unordered(point, &roles);
    if rest.is_empty() {
        return Box::new(broken.into_iter());
    }
    Box::new(broken.into_iter().chain(subsets::choices(point, &rest, &journal, limits, seed)))
}

/// What each volatile write is, by its position, in the order of submission: of a journal, its commit, or anything else.
fn roles(point: &Point) -> Vec<(u64, Role)> {
    let mut writes: Vec<&Volatile> = point.volatile().iter().collect();
    writes.sort_by_key(|write| write.position);
    let mut next = None;
    let role = |write: &Volatile| {
        let role = match Role::of(write.sectors.start * point.sector_bytes(), &write.beginning) {
            Role::Commit => Role::Commit,
            Role::Journal => Role::Journal,
            // Behind its descriptor a journal has copies of blocks, which look like what they are copies of.
            Role::Metadata | Role::Data if next == Some(write.sectors.start) => Role::Journal,
            Role::Metadata | Role::Data => Role::Data,
        };
        next = (role == Role::Journal).then_some(write.sectors.end);
        (write.position, role)
    };
    writes.into_iter().map(role).collect()
}

/// States in which a commit survives without a block of its journal that may still be missing then: each block by itself.
fn unordered(point: &Point, roles: &[(u64, Role)]) -> Vec<Choice> {
    let mut choices = Vec::new();
    let mut of_transaction: Vec<u64> = Vec::new();
    for &(position, role) in roles {
        match role {
            Role::Journal => of_transaction.push(position),
            Role::Commit => {
                let without = |missing: u64| -> Choice {
                    let survives =
                        |survivor: &Survivor| survivor.write != missing && survivor.write <= position;
                    point.all().into_iter().filter(survives).collect()
                };
                choices.extend(of_transaction.drain(..).map(without));
            }
            Role::Metadata | Role::Data => {}
        }
    }
    choices
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rotproof_block::Tag;

    use super::*;
    use crate::recording::{Header, Reader, Recorder, RecorderOptions};
    use crate::{Contents, point_at};

    const DESCRIPTOR: &[u8] = &[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1];
    const COMMIT: &[u8] = &[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];

    /// The choices behind these writes of a block each, by its number and its first bytes; `None` is a flush. Of each choice the writes
    /// that survive, by their number.
    fn chosen(writes: &[Option<(u64, &[u8])>]) -> Vec<Vec<usize>> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r");
        let header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 4096, id: 1 };
        let recorder = Recorder::create(&path, header, RecorderOptions { same_bits: 4 }).expect("a new file");
        let mut positions = Vec::new();
        for write in writes {
            let position = match write {
                Some((block, first)) => {
                    let mut data = vec![9; 4096];
                    data[..first.len()].copy_from_slice(first);
                    recorder.write(0, block * 4096, false, Tag::NONE, &data)
                }
                None => recorder.flush(0),
            };
            recorder.done(0, position, true);
            positions.push(position);
        }
        recorder.finish().expect("there is room");
        let contents = Arc::new(Contents::open(&path, header, None).expect("a recording"));
        let end = 2 * writes.len() as u64;
        let point =
            point_at(Reader::open(&path).expect("a recording"), contents, end, 4096).expect("so long");
        let number =
            |survivor: &Survivor| positions.iter().position(|&one| one == survivor.write).expect("known");
        let numbers = |choice: Choice| {
            let mut numbers: Vec<usize> = choice.iter().map(number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        choices(&point, &WayLimits::default(), 1).map(numbers).collect()
    }

    #[test]
    fn a_journal_in_order_is_left_whole_and_the_rest_is_permuted() {
        // A descriptor, two copies behind it, and two blocks elsewhere.
        let found = chosen(&[
            Some((10, DESCRIPTOR)),
            Some((11, b"a")),
            Some((12, b"b")),
            Some((50, b"x")),
            Some((70, b"y")),
        ]);
        assert!(found.iter().all(|choice| choice.starts_with(&[0, 1, 2])), "{found:?}");
        for rest in [&[][..], &[3], &[4], &[3, 4]] {
            assert!(found.contains(&[&[0, 1, 2], rest].concat()), "{rest:?} is missing in {found:?}");
        }
        // The commit comes behind a flush, which keeps the order.
        let found =
            chosen(&[Some((10, DESCRIPTOR)), Some((11, b"a")), None, Some((12, COMMIT)), Some((50, b"x"))]);
        assert!(found.iter().all(|choice| choice.contains(&3)), "{found:?}");
        assert!(chosen(&[Some((10, DESCRIPTOR))]).is_empty(), "there is nothing else");
    }

    #[test]
    fn a_commit_beside_its_journal_is_tried_without_each_of_its_blocks() {
        let found = chosen(&[Some((10, DESCRIPTOR)), Some((11, b"a")), Some((12, COMMIT)), Some((50, b"x"))]);
        assert_eq!(found[..2], [vec![1, 2], vec![0, 2]], "{found:?}");
        assert!(found[2..].iter().all(|choice| choice.starts_with(&[0, 1, 2])), "{found:?}");
    }
}
