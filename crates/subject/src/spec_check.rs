//! What makes no sense in the options of a subject.

use rotproof_spec::{Path, Problems};

use crate::spec::{GUARD, MACHINE, VOLUME, ZFS};
use crate::{FileSystem, GuardMode, SubjectSpec};

/// The profiles of mkfs.btrfs (btrfs-progs 6.2).
const PROFILES: [&str; 9] =
    ["single", "dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5", "raid6"];

impl SubjectSpec {
    /// Reports options that cannot be what was meant.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        if let SubjectSpec::Volume(volume) = self {
            let under = path.key(VOLUME).key("under");
            if volume.under.exists() {
                problems.add_with_help(
                    &under,
                    "this volume is made for the trial, so nothing exists on it",
                    "for a volume that exists, begin the stack with `volume: { existing: true, of: ... }` and take what is on it \
                     as the subject",
                );
            }
            return volume.under.validate(&under, problems);
        }
        if let SubjectSpec::Guard(guard) = self {
            if guard.switch.is_some() && guard.mode != GuardMode::Z2 {
                problems.add_with_help(
                    &path.key(GUARD).key("switch"),
                    format!("the mode {} has no second sum to switch to", guard.mode.word()),
                    "leave `switch` out, or take `mode: z2`",
                );
            }
            return guard.over.validate(&path.key(GUARD).key("over"), problems);
        }
        if let SubjectSpec::Zfs(spec) = self {
            return spec.validate(&path.key(ZFS), problems);
        }
        let Some(spec) = self.file_system() else { return };
        if FileSystem::OF_MACHINES.contains(&spec.kind) && self.machine().is_none() {
            problems.add_with_help(
                path,
                format!("{} is put on trial in a machine only, whose kernel has it", spec.kind),
                format!("write `machine: {{ file_system: {} }}`", spec.kind),
            );
        }
        let options = match self {
            SubjectSpec::Machine(machine) => {
                let path = path.key(MACHINE);
                machine.validate(&path, problems);
                path.key("file_system").key(spec.kind.name())
            }
            _ => path.key(spec.kind.name()),
        };
        for (key, list) in [("mkfs", &spec.mkfs), ("mount", &spec.mount)] {
            for (index, option) in list.iter().enumerate() {
                if option.trim().is_empty() {
                    problems.add(&options.key(key).index(index), format!("an empty {key} option"));
                } else if option.contains('\0') {
                    problems.add(&options.key(key).index(index), "an option cannot contain a zero byte");
                }
            }
        }
        for (key, is_given) in [
            ("mkfs", !spec.mkfs.is_empty()),
            ("data", spec.data.is_some()),
            ("metadata", spec.metadata.is_some()),
        ] {
            if spec.existing && is_given {
                problems.add_with_help(
                    &options.key(key),
                    "what exists is not made, so nothing is chosen of how",
                    format!("leave out `{key}`, or `existing`"),
                );
            }
        }
        for (key, profile) in [("data", &spec.data), ("metadata", &spec.metadata)] {
            let Some(profile) = profile else { continue };
            if spec.kind != FileSystem::Btrfs {
                problems.add(
                    &options.key(key),
                    format!("{} keeps everything once; this is for btrfs", spec.kind),
                );
            } else if !PROFILES.contains(&profile.as_str()) {
                problems.add_with_help(
                    &options.key(key),
                    format!("btrfs has no profile `{profile}`"),
                    format!("one of {}", PROFILES.join(", ")),
                );
            }
        }
        for (index, option) in spec.mount.iter().enumerate() {
            if option.split(',').any(|word| word.trim() == "ro") {
                problems.add_with_help(
                    &options.key("mount").index(index),
                    "a load cannot work on a file system mounted read-only",
                    "remove `ro`",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> SubjectSpec {
        serde_saphyr::from_str(yaml).expect("well-formed")
    }

    #[test]
    fn options_that_cannot_work_are_reported_with_their_place() {
        let mut problems = Problems::default();
        read("ext4: { mkfs: [\"\"], mount: [\"noatime,ro\"] }")
            .validate(&Path::root().key("subject"), &mut problems);
        let paths: Vec<_> = problems.iter().map(|problem| problem.path.to_string()).collect();
        assert_eq!(paths, ["subject.ext4.mkfs[0]", "subject.ext4.mount[0]"]);
        for (yaml, part) in [
            ("ext4: { data: raid1 }", "is for btrfs"),
            ("btrfs: { metadata: raid7 }", "no profile"),
            ("volume: { under: { btrfs: { metadata: raid7 } } }", "no profile"),
            ("guard: { over: { ext4: { data: raid1 } } }", "is for btrfs"),
            ("guard: { over: ext4, mode: e2e, switch: 1s }", "no second sum"),
            ("machine: { file_system: ext4, disk: nbd }", "is for QEMU"),
            ("machine: { file_system: ext4, kernel: bzImage }", "is for QEMU"),
            ("machine: { kind: qemu, file_system: ext4, memory: 3GiB }", "64MiB to 2GiB"),
            ("zfs: { properties: [copies] }", "is no property"),
            ("volume: { under: { zfs: { pool: [altroot=/x] } } }", "not yours to say"),
        ] {
            let mut problems = Problems::default();
            read(yaml).validate(&Path::root(), &mut problems);
            let found: Vec<_> = problems.into_iter().map(|problem| problem.message).collect();
            assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
        }
    }
}
