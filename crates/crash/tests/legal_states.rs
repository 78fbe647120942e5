//! What comes out of every way is legal, and what may come out does, by the plainest reading of the rules.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "a set of units is a list of ranges, of which there may be one"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use common::{History, Image, SECTOR, make_up};
use rotproof_block::ErrorKind;
use rotproof_crash::{
    Contents, CrashState, StateDescription, StateOptions, States, Survivor, Way, WayLimits,
};

fn options(path: &Path, ways: &[Way], unit_sectors: u64) -> StateOptions {
    StateOptions {
        ways: ways.to_vec(),
        unit_bytes: Some(unit_sectors * SECTOR),
        limits: WayLimits { all_subsets_of_max: 20, ..WayLimits::default() },
        marks_matter: false,
        ..StateOptions::new(path, 7)
    }
}

fn image_of(contents: &Contents, state: &CrashState) -> Image {
    let snapshot = &state.image.snapshot;
    let mut bytes = vec![0; (snapshot.sectors() * SECTOR) as usize];
    contents.read(snapshot, 0, &mut bytes).expect("the files are there");
    bytes
        .chunks(SECTOR as usize)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never torn");
            sector[0]
        })
        .collect()
}

/// The states of some ways with their images.
fn states(options: StateOptions) -> Vec<(CrashState, Image)> {
    let states = States::new(options).expect("a recording");
    let contents = states.contents().clone();
    states
        .map(|state| {
            let state = state.expect("the recording is whole");
            let image = image_of(&contents, &state);
            (state, image)
        })
        .collect()
}

/// Small histories, with atomic units of one, two and four sectors.
fn histories(count: u64, requests: u64, parts_max: u64, each: impl Fn(u64, &Path, u64, &History)) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut used = 0;
    for seed in 0..count {
        let path = folder.path().join(seed.to_string());
        let history = make_up(seed, &path, 2 + seed % requests);
        let unit_sectors = [1, 2, 4][(seed % 3) as usize];
        if history.parts_max(unit_sectors) <= parts_max {
            used += 1;
            each(seed, &path, unit_sectors, &history);
        }
        std::fs::remove_file(&path).expect("it is there");
    }
    assert!(used > count / 4, "most histories are too large: {used}");
}

#[test]
fn all_subsets_are_exactly_what_a_crash_may_leave() {
    histories(500, 8, 13, |seed, path, unit_sectors, history| {
        let legal: BTreeSet<Image> = history.legal(unit_sectors).into_keys().collect();
        let given = states(options(path, &[Way::Subsets], unit_sectors));
        let images: BTreeSet<Image> = given.iter().map(|(_, image)| image.clone()).collect();
        assert_eq!(given.len(), images.len(), "{seed}: each image once");
        assert!(
            images == legal,
            "{seed}: {history:?}\nnot legal: {:?}\nmissing: {:?}",
            images.difference(&legal).collect::<Vec<_>>(),
            legal.difference(&images).collect::<Vec<_>>()
        );
    });
}

#[test]
fn every_state_of_every_way_is_legal_at_its_moment_and_can_be_made_again() {
    histories(150, 12, 40, |seed, path, unit_sectors, history| {
        let mut legal: HashMap<u64, BTreeSet<Image>> = HashMap::new();
        let mut identities: BTreeMap<u128, Image> = BTreeMap::new();
        for way in Way::ALL {
            let given = states(StateOptions {
                limits: WayLimits {
                    per_point_max: 40,
                    subsets_drawn: 40,
                    all_subsets_of_max: 5,
                    dropped_max: 3,
                },
                ..options(path, &[way], unit_sectors)
            });
            assert!(!given.is_empty() || way != Way::Subsets, "the device as it was is a state at least");
            for (state, image) in given {
                let position = state.description.position;
                let legal = legal.entry(position).or_insert_with(|| history.legal_at(position, unit_sectors));
                assert!(
                    legal.contains(&image),
                    "{seed} {way:?} {:?} {image:?}\n{history:?}",
                    state.description
                );
                let known = identities.entry(state.image.identity).or_insert_with(|| image.clone());
                assert_eq!(*known, image, "{seed}: two images with one identity");
                let text = serde_json::to_string(&state.description).expect("JSON");
                let again: StateDescription = serde_json::from_str(&text).expect("JSON");
                let (point, again) = again.rebuild(path, None).expect("legal");
                assert_eq!(image_of(point.contents(), &again), image, "{seed} {way:?}");
                assert_eq!(again.image.identity, state.image.identity);
            }
        }
        let images: BTreeSet<&Image> = identities.values().collect();
        assert_eq!(images.len(), identities.len(), "{seed}: one image with two identities");
    });
}

#[test]
fn the_same_seed_gives_the_same_states_and_another_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    make_up(5, &path, 40);
    let all = |seed| -> Vec<StateDescription> {
        let options = StateOptions { seed, ..options(&path, &Way::ALL, 1) };
        let limits = WayLimits { all_subsets_of_max: 3, subsets_drawn: 50, ..WayLimits::default() };
        states(StateOptions { limits, ..options }).into_iter().map(|(state, _)| state.description).collect()
    };
    let first = all(1);
    assert!(first.len() > 100);
    assert_eq!(first, all(1));
    assert_ne!(first, all(2));
    let bounded = StateOptions { states_max: 17, ..options(&path, &Way::ALL, 1) };
    assert_eq!(states(bounded).len(), 17);
}

#[test]
fn what_no_crash_could_leave_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    let history = make_up(11, &path, 20);
    let (state, _) = states(options(&path, &[Way::SingleWrites], 1))
        .into_iter()
        .find(|(state, _)| state.description.survivors.len() >= 2)
        .expect("some survive together");
    let refused = |change: &dyn Fn(&mut StateDescription)| {
        let mut description = state.description.clone();
        change(&mut description);
        description.rebuild(&path, None).expect_err("no crash could leave it").kind()
    };
    assert_eq!(refused(&|state| state.recording = "0".repeat(32)), ErrorKind::Invalid);
    assert_eq!(refused(&|state| state.position = history.events + 5), ErrorKind::OutOfRange);
    assert_eq!(refused(&|state| state.survivors.push(Survivor::whole(state.position))), ErrorKind::Invalid);
    assert_eq!(refused(&|state| state.survivors[0].units = Some(vec![0..100])), ErrorKind::Invalid);
    assert_eq!(refused(&|state| state.unit_bytes = 100), ErrorKind::Invalid);
    let file = folder.path().join("state.json");
    state.description.write(&file).expect("there is room");
    assert_eq!(StateDescription::read(&file).expect("a state"), state.description);
    std::fs::write(&file, "{}").expect("there is room");
    assert_eq!(StateDescription::read(&file).expect_err("no state").kind(), ErrorKind::Invalid);
}
