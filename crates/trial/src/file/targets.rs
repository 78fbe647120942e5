//! Whether the load of a trial writes what its faults are to follow.
//!
//! Only what can be said without going through the load; whether it ever comes by a certain block is found out when
//! the targets are resolved, before it runs. Whether a block of a file has a place on the device is found out when its
//! rule begins to act.

use rotproof_fault::{EnabledPhase, FaultEntry, Rule, Target};
use rotproof_layers::StackSpec;
use rotproof_load::LoadSpec;
use rotproof_load::object::ObjectInfo;
use rotproof_spec::{Path, Problems, nearest};
use rotproof_subject::{FileSystem, SubjectSpec};

/// Reports targets that `load` cannot have on `objects`. Where the sizes are not known yet, they are 0.
pub fn validate_targets(
    faults: &[FaultEntry],
    load: &LoadSpec,
    objects: &[ObjectInfo],
    path: &Path,
    problems: &mut Problems,
) {
    let has_prefill = has_prefill(load);
    for (index, entry) in faults.iter().enumerate() {
        // No model aims at what the load writes.
        let Some(rule) = entry.rule() else { continue };
        let Some(target) = rule.matching.target.as_ref().filter(|target| target.is_known_to_load()) else {
            continue;
        };
        let path = path.index(index).key("match").key("target");
        if !load.writes_anything() && !has_prefill {
            let message = "a load that only reads writes no content that a target could name";
            problems.add_with_help(&path, message, "add `prefill: true` to the load, or let it write");
            continue;
        }
        match target {
            Target::File { file, block } => validate_file(file, *block, objects, &path, problems),
            Target::MostDuplicated { .. } if load.duplicates.is_none() => problems.add_with_help(
                &path,
                "this load writes no duplicates",
                "give it some, such as `duplicates: 30%`, or take another target",
            ),
            Target::Seen(_) | Target::Extent { .. } | Target::Type { .. } => {}
            Target::MostDuplicated { .. } | Target::Unique { .. } | Target::LastBlockOfEvery(_) => {
                let is_only_prefill = rule.during.0 == [EnabledPhase::Prefill] && has_prefill;
                if load.has_unforeseen_end() && load.writes_anything() && !is_only_prefill {
                    problems.add_with_help(
                        &path,
                        "what a load writes until its time is up or it is steady is not known beforehand",
                        "end it by `total` or `requests` alone, or take a target such as { file: a, block: 7 }",
                    );
                }
            }
        }
    }
}

fn has_prefill(load: &LoadSpec) -> bool {
    load.prefill.unwrap_or_else(|| load.reads_anything())
}

/// Reports targets whose place on the device this trial cannot find out.
pub fn validate_extents(
    faults: &[FaultEntry],
    (stack, subject, load): (&StackSpec, &SubjectSpec, &LoadSpec),
    objects: &[ObjectInfo],
    path: &Path,
    problems: &mut Problems,
) {
    for (index, entry) in faults.iter().enumerate() {
        let Some(rule) = entry.rule() else { continue };
        let Some(Target::Extent { file, block }) = &rule.matching.target else { continue };
        let path = path.index(index).key("match").key("target");
        let kind = subject.file_system().map(|spec| spec.kind);
        let by_content = "leave `by: extent` out, and the block is matched by its content";
        let (message, help) = match kind {
            None if subject.has_files() => {
                (format!("{} does not say where a block of a file lies", subject.name()), by_content)
            }
            None => (
                format!("there are no files on the subject {}, so none has extents", subject.name()),
                "match by `offset`, or take ext4 or xfs as the subject",
            ),
            Some(_) if matches!(subject, SubjectSpec::Guard(_)) => {
                ("a guard does not say where a block of a file lies".to_owned(), by_content)
            }
            Some(_) if matches!(subject, SubjectSpec::Machine(_)) => (
                "the kernel of a machine is not asked where a block of a file lies on its disk".to_owned(),
                by_content,
            ),
            Some(FileSystem::Btrfs) => (
                "btrfs tells where a block lies in its own address space, not on the device".to_owned(),
                by_content,
            ),
            Some(_) if !stack.keeps_offsets() || !stack.is_one_chain() => (
                "what lies at an offset of the file system lies elsewhere where the faults act: a layer between \
                 them moves blocks"
                    .to_owned(),
                "put `faults` above `dedup`, do without `concat`, or leave `by: extent` out to match by content",
            ),
            Some(_) => match not_there_yet(rule, load) {
                Some(problem) => problem,
                None => {
                    validate_file(file, *block, objects, &path, problems);
                    continue;
                }
            },
        };
        problems.add_with_help(&path, message, help);
    }
}

/// Reports kinds of blocks that this trial cannot find.
pub fn validate_types(
    faults: &[FaultEntry],
    (stack, subject, load): (&StackSpec, &SubjectSpec, &LoadSpec),
    objects: &[ObjectInfo],
    path: &Path,
    problems: &mut Problems,
) {
    for (index, entry) in faults.iter().enumerate() {
        let Some(rule) = entry.rule() else { continue };
        let Some(Target::Type { file, .. }) = &rule.matching.target else { continue };
        let path = path.index(index).key("match").key("target");
        let (message, help) = if !subject.is_mounted() {
            (
                format!("the blocks of the subject {} have no kinds", subject.name()),
                "match by `offset` or content, or take ext4, xfs, btrfs or zfs as the subject",
            )
        } else if load.command.is_some() || load.personality.is_some() {
            (
                "when blocks of a kind are looked for is known only of a load of blocks".to_owned(),
                "leave `command` and `personality` out of the load, or match by `offset`",
            )
        } else if !stack.keeps_offsets() || !stack.is_one_chain() {
            (
                "what lies at an offset of the file system lies elsewhere where the faults act: a layer between them \
                 moves blocks, or there are several devices"
                    .to_owned(),
                "put `faults` above `dedup`, and do without `concat` and several devices",
            )
        } else {
            let Some(file) = file else { continue };
            match not_there_yet(rule, load) {
                Some(problem) => problem,
                None => {
                    validate_file(file, 0, objects, &path, problems);
                    continue;
                }
            }
        };
        problems.add_with_help(&path, message, help);
    }
}

/// Why there is no block of a file when the rule begins to act.
fn not_there_yet(rule: &Rule, load: &LoadSpec) -> Option<(String, &'static str)> {
    let is_enabled = |phase| rule.during.iter().any(|enabled| *enabled == phase);
    if is_enabled(EnabledPhase::Prefill) {
        let message =
            "a block has no place before the files are filled, and this rule is enabled while they are";
        return Some((message.to_owned(), "leave prefill out of `during`"));
    }
    (is_enabled(EnabledPhase::Run) && !has_prefill(load)).then(|| {
        let message = "a block has no place before it is written, and this load begins with empty files";
        (message.to_owned(), "add `prefill: true` to the load, or `during: check` to the rule")
    })
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
