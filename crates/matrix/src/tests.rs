//! The whole matrix of the volume, as the docs have it.

use super::*;

const SEED: u64 = 1;

/// The seeds that somebody asks for: one, or those from one to another.
fn range(text: &str) -> std::ops::Range<u64> {
    let (first, end) = text.split_once("..").unwrap_or((text, ""));
    let first: u64 = first.parse().expect("a number");
    first..end.parse().unwrap_or(first + 1)
}

#[test]
fn no_cell_is_silent_and_every_cell_is_as_the_docs_say() {
    let cells: Vec<Cell> = all_cells()
        .into_iter()
        .map(|(fault, place, when)| {
            volume_cell(fault, place, when, SEED)
                .unwrap_or_else(|error| panic!("{fault:?}, {place:?}, {when:?}: {error}"))
        })
        .collect();
    for cell in &cells {
        assert!(cell.is_as_promised(), "{cell:?}");
    }
    // Nearly every fault must have acted, or it was no trial of anything.
    let unmet = cells.iter().filter(|cell| cell.fate == Fate::Unmet).count();
    assert!(unmet < cells.len() / 20, "{unmet} of {} were not met", cells.len());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/volume.md");
    let docs = std::fs::read_to_string(path).expect("a page");
    let table = table(&cells);
    assert!(docs.contains(&table), "docs/volume.md does not have this table:\n{table}");
}

#[test]
fn another_seed_finds_nothing_silent_either() {
    for (number, (fault, place, when)) in all_cells().into_iter().enumerate().step_by(5) {
        let cell = volume_cell(fault, place, when, 100 + number as u64).expect("is done");
        assert!(cell.is_as_promised(), "{cell:?}");
        assert_eq!(volume_cell(fault, place, when, 100 + number as u64).expect("is done"), cell, "repeats");
    }
}

/// What is wrong below a volume without checksums is handed out: the matrix sees it.
#[test]
fn without_checksums_the_same_faults_are_silent() {
    let silent = [Fault::BitFlip, Fault::Zeros, Fault::Stale, Fault::Lost]
        .map(|fault| volume::cell_of(fault, Place::DataA, When::Rest, SEED, false).expect("is done").fate);
    assert_eq!(silent, [Fate::Silent; 4]);
}

#[test]
fn lives_of_volumes_with_troubles_and_losses_of_power_hold_what_they_must() {
    // `ROTPROOF_LIFE=7` is that one again, `ROTPROOF_LIFE=0..1000` so many.
    let asked = std::env::var("ROTPROOF_LIFE").ok();
    let (mut sum, mut broken) = (Life::default(), Vec::new());
    for seed in asked.as_deref().map_or(10..26, range) {
        match life(seed) {
            Ok(one) => {
                sum.operations += one.operations;
                sum.torn += one.torn;
                sum.versions += one.versions;
            }
            Err(why) => broken.push(format!("ROTPROOF_LIFE={seed}: {why}")),
        }
    }
    assert!(broken.is_empty(), "{} broke a promise:\n{}", broken.len(), broken.join("\n"));
    if asked.is_none() {
        assert!(sum.operations > 1000 && sum.torn > 3 && sum.versions > 10, "{sum:?}");
        assert_eq!(life(3), life(3), "a seed is a life");
    }
}

#[test]
fn lives_of_volumes_that_change_while_they_are_used_hold_what_they_must() {
    // `ROTPROOF_LIFE_IN_USE=7` is that one again, `ROTPROOF_LIFE_IN_USE=0..1000` so many.
    let asked = std::env::var("ROTPROOF_LIFE_IN_USE").ok();
    let (mut sum, mut broken) = (LifeInUse::default(), Vec::new());
    for seed in asked.as_deref().map_or(0..16, range) {
        match life_in_use(seed) {
            Ok(one) => {
                sum.operations += one.operations;
                sum.refused += one.refused;
                sum.torn += one.torn;
                sum.versions += one.versions;
                one.changes
                    .into_iter()
                    .for_each(|(name, count)| *sum.changes.entry(name).or_default() += count);
            }
            Err(why) => broken.push(format!("ROTPROOF_LIFE_IN_USE={seed}: {why}")),
        }
    }
    assert!(broken.is_empty(), "{} broke a promise:\n{}", broken.len(), broken.join("\n"));
    if asked.is_none() {
        assert!(sum.operations > 1000 && sum.torn > 3 && sum.versions > 10, "{sum:?}");
        for change in
            ["grow", "grow in place", "add a copy", "remove a copy", "replace", "capture", "roll back"]
        {
            assert!(sum.changes.contains_key(change), "{change}: {sum:?}");
        }
        assert_eq!(life_in_use(3), life_in_use(3), "a seed is a life");
    }
}
