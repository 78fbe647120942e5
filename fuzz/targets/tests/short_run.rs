//! Every fuzz target for a moment, on the same mutations each time. `ROTPROOF_FUZZ_TIMES=100` makes it a hundred times
//! as long; for more than that there is cargo-fuzz.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::Path;

use rotproof_fuzz_targets::mutate::Mutations;
use rotproof_fuzz_targets::{FuzzTarget, TARGETS};

/// Mutations of each target in a run of ordinary length.
const MUTATIONS: usize = 4000;

/// Fewer of what is a whole session each time, with threads of its own.
const SESSIONS: usize = 1000;

fn times() -> usize {
    let given = std::env::var("ROTPROOF_FUZZ_TIMES").ok();
    given.map_or(1, |times| times.parse().expect("ROTPROOF_FUZZ_TIMES is a number"))
}

fn run(target: &FuzzTarget) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{}: nothing to begin from", target.name);
    let check = target.check;
    let count = if target.name.starts_with("nbd_") { SESSIONS } else { MUTATIONS };
    let mutations = Mutations::new(&seeds, 0).take(count * times());
    for input in seeds.iter().cloned().chain(mutations) {
        if catch_unwind(|| check(&input)).is_err() {
            panic!("{}: the message above is about {:?}", target.name, String::from_utf8_lossy(&input));
        }
    }
}

#[test]
fn every_target_stands_mutations_of_what_it_knows() {
    std::thread::scope(|scope| {
        for target in &TARGETS {
            std::thread::Builder::new()
                .name(target.name.to_owned())
                .spawn_scoped(scope, || run(target))
                .expect("a thread starts");
        }
    });
}

#[test]
fn mutations_are_many_and_the_same_every_time() {
    let seeds = [b"write, every=3: bit_flip".to_vec(), b"read: error".to_vec()];
    let some: Vec<_> = Mutations::new(&seeds, 7).take(1000).collect();
    assert_eq!(some, Mutations::new(&seeds, 7).take(1000).collect::<Vec<_>>());
    assert!(some.iter().collect::<BTreeSet<_>>().len() > 800);
    assert!(some.iter().any(|input| input.starts_with(b"read, ")), "words are exchanged");
}

#[test]
fn cargo_fuzz_has_exactly_these_targets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of cargo-fuzz");
    let files: BTreeSet<String> = std::fs::read_dir(folder.join("fuzz_targets"))
        .expect("its targets")
        .map(|entry| {
            entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned()
        })
        .collect();
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(files, names);
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("its manifest");
    for name in names {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is no binary");
    }
}
