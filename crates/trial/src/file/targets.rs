//! Whether the load of a trial writes what its faults are to follow.
//!
//! Only what can be said without going through the load; whether it ever comes by a certain block is found out when
//! the targets are resolved, before it runs.

use rotproof_fault::{FaultEntry, Target};
use rotproof_load::object::ObjectInfo;
use rotproof_load::{End, LoadSpec};
use rotproof_spec::{Path, Problems, nearest};

/// Reports targets that `load` cannot have on `objects`. Where the sizes are not known yet, they are 0.
pub fn validate_targets(
    faults: &[FaultEntry],
    load: &LoadSpec,
    objects: &[ObjectInfo],
    path: &Path,
    problems: &mut Problems,
) {
    let has_prefill = load.prefill.unwrap_or(load.reads.0 > 0.0);
    for (index, entry) in faults.iter().enumerate() {
        // No model aims at what the load writes.
        let Some(rule) = entry.rule() else { continue };
        let Some(target) = rule.matching.target.as_ref().filter(|target| target.is_known_to_load()) else {
            continue;
        };
        let path = path.index(index).key("match").key("target");
        if load.reads.0 >= 1.0 && !has_prefill {
            let message = "a load that only reads writes no content that a target could name";
            problems.add_with_help(&path, message, "add `prefill: true` to the load, or let it write");
            continue;
        }
        match target {
            Target::File { file, block } => validate_file(file, *block, objects, &path, problems),
            Target::MostDuplicated { .. } if load.duplicates.0 <= 0.0 => problems.add_with_help(
                &path,
                "this load writes no duplicates",
                "give it some, such as `duplicates: 30%`, or take another target",
            ),
            Target::Seen(_) => {}
            Target::MostDuplicated { .. } | Target::Unique { .. } | Target::LastBlockOfEvery(_) => {
                if matches!(load.end(), Some(End::Duration(_))) && load.reads.0 < 1.0 {
                    problems.add_with_help(
                        &path,
                        "what a load writes until its time is up is not known beforehand",
                        "end it by `total` or `requests`, or take a target such as { file: a, block: 7 }",
                    );
                }
            }
        }
    }
}

fn validate_file(file: &str, block: u64, objects: &[ObjectInfo], path: &Path, problems: &mut Problems) {
    let Some(object) = objects.iter().find(|object| object.name == file) else {
        let names: Vec<_> = objects.iter().map(|object| object.name.as_str()).collect();
        let help = match (names.as_slice(), nearest(file, names.iter().copied())) {
            ([one], _) => format!("the only one is `{one}`"),
            (_, Some(name)) => format!("did you mean `{name}`?"),
            ([first, .., last], None) => format!("its files are `{first}` to `{last}`"),
            ([], None) => return,
        };
        problems.add_with_help(&path.key("file"), format!("the load has no file `{file}`"), help);
        return;
    };
    // Of a file that is not even a block the load complains.
    let blocks = object.blocks();
    if blocks > 0 && block >= blocks {
        let message = format!("`{file}` has {blocks} blocks of 4KiB, counted from 0");
        problems.add_with_help(&path.key("block"), message, format!("the last one is {}", blocks - 1));
    }
}
