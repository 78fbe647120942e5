//! A sample of the cells of btrfs RAID-1 and of a ZFS mirror, done by a real kernel and a real daemon as root, against the table of
//! the docs. `rotproof volume matrix --beside btrfs,zfs` does them all.

use std::os::unix::fs::PermissionsExt;

use rotproof_machine::registry::Registry;
use rotproof_matrix::{Cell, Fault, Place, When};
use rotproof_matrix_fs::{Peer, peer_cell};

/// Cells whose outcome does not hang on chance.
const SAMPLE: [(Peer, Fault, Place, When); 8] = [
    (Peer::Btrfs, Fault::BitFlip, Place::DataA, When::Rest),
    (Peer::Btrfs, Fault::Zeros, Place::Data, When::Rest),
    (Peer::Btrfs, Fault::Lost, Place::DataB, When::Rest),
    (Peer::Btrfs, Fault::BitFlip, Place::SumsA, When::Rest),
    (Peer::Zfs, Fault::BitFlip, Place::DataA, When::Rest),
    (Peer::Zfs, Fault::Zeros, Place::Data, When::Rest),
    (Peer::Zfs, Fault::BitFlip, Place::MapA, When::Rest),
    (Peer::Zfs, Fault::Lost, Place::MapA, When::Rest),
];

fn cells(of: &[(Peer, Fault, Place, When)]) -> Vec<(Peer, Cell)> {
    let state = tempfile::tempdir_in("/dev/shm").expect("memory");
    std::fs::set_permissions(state.path(), PermissionsExt::from_mode(0o700)).expect("ours");
    let run = Registry::at(state.path()).expect("a registry").begin().expect("a run");
    let cell = |(number, &(peer, fault, place, when)): (usize, &(Peer, Fault, Place, When))| {
        let cell = peer_cell(&run, &format!("cell-{number}"), peer, (fault, place, when), 1);
        (peer, cell.unwrap_or_else(|error| panic!("{peer:?}, {fault:?}, {place:?}, {when:?}: {error}")))
    };
    let cells = of.iter().enumerate().map(cell).collect();
    assert!(run.finish().is_empty(), "everything is taken away again");
    cells
}

/// The letter that a table of the docs has.
fn letter_in_docs(peer: Peer, cell: &Cell) -> char {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/volume.md");
    let docs = std::fs::read_to_string(path).expect("a page");
    let mut fault = "";
    for line in docs.lines().skip_while(|line| !line.starts_with("| | | data A |")).skip(2) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(name) = columns.get(2).filter(|_| columns.len() > 10) else { break };
        fault = if columns[1].is_empty() { fault } else { columns[1] };
        if (fault, *name) == (cell.fault.word(), peer.name()) {
            let place = Place::ALL.iter().position(|place| *place == cell.place).expect("a place");
            let letters: Vec<char> = columns[3 + place].chars().collect();
            return letters[if cell.when == When::Rest { 0 } else { 2 }];
        }
    }
    panic!("docs/volume.md says nothing of {} on {}", cell.fault.word(), peer.name());
}

#[test]
fn cells_are_as_the_docs_say() {
    for (peer, cell) in cells(&SAMPLE) {
        assert_eq!(cell.fate.letter(), letter_in_docs(peer, &cell), "{peer:?}: {cell:?}");
    }
}
