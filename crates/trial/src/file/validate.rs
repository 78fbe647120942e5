//! What makes no sense in a trial as a whole, although each of its parts may be fine by itself.
//!
//! The parts check themselves; here is what takes two of them, or a look at the backing file. Nothing is created.

use std::borrow::Cow;

use rotproof_fault::{Effect, FaultEntry, MemoryKind, Rule, Target, validate_plan};
use rotproof_layers::DeviceSpec;
use rotproof_load::FileEngine;
use rotproof_spec::{Path, Problems, number_in_range};
use rotproof_subject::{FileSystem, SubjectSpec};

use super::targets::{validate_extents, validate_targets, validate_types};
use super::trial_file::{RuntimeKind, Stop, TrialFile};
use crate::gate::GatePhase;

/// Runs of one trial.
const REPEAT_MAX: u64 = 1000;

/// Characters of a trial's name, which becomes that of a folder.
const NAME_LENGTH_MAX: usize = 100;

impl TrialFile {
    /// Reports everything that makes no sense.
    pub fn validate(&self, problems: &mut Problems) {
        let root = Path::root();
        self.validate_name(&root.key("name"), problems);
        self.stack.validate(&root.key("stack"), problems);
        self.subject.validate(&root.key("subject"), problems);
        self.export.validate(&self.subject, &root.key("export"), problems);
        self.validate_volume(&root, problems);
        self.load.validate(&root.key("load"), problems);
        number_in_range(
            problems,
            &root.key("repeat"),
            "the number of runs",
            u64::from(self.repeat),
            1..=REPEAT_MAX,
        );
        self.record.validate(&root.key("record"), problems);
        if let Some(steady) = &self.load.until_steady {
            let path = root.key("load").key("until_steady");
            steady.validate_live(self.record.interval.nanoseconds(), &path, problems);
        }
        self.expect.validate(self.faults.len(), &root.key("expect"), problems);
        self.expect.validate_for(&self.load, &root.key("expect"), problems);
        self.expect.validate_crash(self.crash.is_some(), &root.key("expect"), problems);
        self.validate_gates(&root.key("expect").key("gates"), problems);
        self.validate_runtime(&root, problems);
        self.validate_probes(&root.key("probes"), problems);
        self.validate_command(&root, problems);
        self.validate_backing_files(&root.key("stack"), problems);
        validate_plan(&self.faults, &root.key("faults"), &self.stack.sites(&bytes_of_file), problems);
        self.validate_read_only(&root.key("stack"), problems);
        self.validate_count(&root.key("stack"), problems);
        let size = self.size();
        if let Some(size) = size {
            self.validate_room(size, &root, problems);
        }
        self.validate_hangs(&root.key("faults"), problems);
        self.validate_memory(&root.key("faults"), problems);
        if let Some(crash) = &self.crash {
            crash.validate(self, &root.key("crash"), problems);
        }
        self.validate_recordings(&root.key("stack"), problems);
        self.validate_stop(&root.key("stop"), problems);
        self.validate_existing(&root.key("subject"), problems);
        self.validate_power(&root.key("faults"), problems);
        let (objects, faults) = (self.objects(size), root.key("faults"));
        if self.load.personality.is_some() {
            self.validate_personality(&root, problems);
            validate_types(
                &self.faults,
                (&*self.whole_stack(), &self.subject, &self.load),
                &[],
                &faults,
                problems,
            );
            return;
        }
        validate_types(
            &self.faults,
            (&*self.whole_stack(), &self.subject, &self.load),
            &objects,
            &faults,
            problems,
        );
        if self.load.command.is_none() {
            validate_targets(&self.faults, &self.load, &objects, &faults, problems);
            let parts = (&*self.whole_stack(), &self.subject, &self.load);
            validate_extents(&self.faults, parts, &objects, &faults, problems);
        }
        if self.load.files.is_some() && !self.subject.has_files() {
            problems.add_with_help(
                &root.key("load").key("files"),
                format!("there are no files on the subject {}", self.subject.name()),
                "remove `files`, or take fat, ext4, xfs, btrfs or zfs as the subject",
            );
        }
        self.validate_fixed_buffers(&root.key("load").key("fixed_buffers"), problems);
        if self.load.polled {
            problems.add_with_help(
                &root.key("load").key("polled"),
                "the devices of a trial are Rotproof's own, and none of them can be polled",
                "leave it out; `rotproof load --hipri` polls devices that can",
            );
        }
        let load = &self.load;
        for (key, is_said) in
            [("ioengine", load.ioengine != FileEngine::IoUring), ("buffered", load.buffered)]
        {
            if is_said && !self.subject.is_mounted() {
                problems.add_with_help(
                    &root.key("load").key(key),
                    format!(
                        "`{key}` is for files of the kernel's file systems, and {} has none",
                        self.subject.name()
                    ),
                    "remove it, or take ext4, xfs, btrfs or zfs as the subject",
                );
            }
        }
    }

    /// The devices of the stack are the members of a volume that is the subject.
    pub(super) fn validate_volume(&self, root: &Path, problems: &mut Problems) {
        if let SubjectSpec::Volume(volume) = &self.subject {
            let sizes = self.stack.sizes(&bytes_of_file);
            let paths = (&root.key("subject"), &root.key("stack"));
            volume.validate_over((&self.stack, &sizes), paths, problems);
        }
    }

    /// What fails is shown again from what lies beside it, which is the recording.
    fn validate_recordings(&self, path: &Path, problems: &mut Problems) {
        for (path, device) in self.stack.places(path) {
            if let DeviceSpec::Record(record) = device
                && record.path.is_some()
                && self.crash.is_some()
            {
                problems.add_with_help(
                    &path.key("record").key("path"),
                    "a trial with `crash` keeps its recording in the folder of its results",
                    "leave `path` out",
                );
            }
        }
    }

    /// What goes without a word must stand above the stack, and what is lost with it must be known.
    fn validate_stop(&self, path: &Path, problems: &mut Problems) {
        if self.stop == Stop::Unmount {
            return;
        }
        if self.subject.machine().is_some_and(|machine| machine.file_system.kind == FileSystem::Jfs) {
            problems.add_with_help(
                path,
                "the kernel's jfs replays no journal, so it cannot be mounted after a kill before its program has done so",
                "leave `stop` out, or take another file system",
            );
        } else if !self.subject.can_be_killed() {
            problems.add_with_help(
                path,
                format!("nothing of {} stands above the stack that could be killed", self.subject.name()),
                "take a subject of a kernel, such as ext4 or a machine, or cut the power of the stack by a rule: \
                 `write, nth=1000: power_cut`",
            );
        } else if self.load.personality.is_some() {
            problems.add_with_help(
                path,
                "of the files of a personality not all are flushed when it ends, so nobody could say what a kill may lose",
                "take a load of blocks, which flushes everything at its end, or a command with a check of its own",
            );
        } else if self.stop == Stop::KillWithPower {
            self.validate_kill_with_power(path, problems);
        }
    }

    /// Power that no rule takes does not go, and what dies with it must be at hand at that moment.
    fn validate_kill_with_power(&self, path: &Path, problems: &mut Problems) {
        let takes_power = |entry: &FaultEntry| matches!(entry, FaultEntry::Rule(rule) if matches!(rule.effect, Effect::PowerCut(_)));
        if !self.faults.iter().any(takes_power) {
            problems.add_with_help(
                path,
                "no rule takes the power of the stack, so nothing is killed with it",
                "add one, such as `write, nth=1000, during=run: power_cut`, or take `stop: kill`",
            );
        }
        if matches!(self.subject, SubjectSpec::Guard(_)) {
            problems.add_with_help(
                path,
                "the process of a guard cannot be killed in the middle of a request to what is below it",
                "take the file system or the machine itself",
            );
        }
    }

    /// What is on the devices already must have been put there by somebody.
    fn validate_existing(&self, path: &Path, problems: &mut Problems) {
        let is_new = |leaf: &DeviceSpec| matches!(leaf, DeviceSpec::Memory(_) | DeviceSpec::Disk(_));
        if self.subject.exists() && self.stack.leaves().any(is_new) {
            problems.add_with_help(
                path,
                "nothing exists on a leaf in memory, which is new in every run",
                "leave `existing` out, or take a file or device: `file: { path: disk.img, snapshot: true }` only reads it",
            );
        }
    }

    /// A layer that lives on while the power goes below would take for rot what nobody had flushed.
    fn validate_power(&self, path: &Path, problems: &mut Problems) {
        let stack = self.whole_stack();
        let Some(layer) = stack.devices().into_iter().find(|device| device.outlives_power()) else {
            return;
        };
        for (index, entry) in self.faults.iter().enumerate() {
            if entry.rule().is_some_and(|rule| matches!(rule.effect, Effect::PowerCut(_))) {
                let word = layer.word();
                problems.add_with_help(
                    &path.index(index).key("effect"),
                    format!("`{word}` would not notice that the power goes below it: it keeps in memory what that takes"),
                    format!("take `{word}` out of the stack, or let the power be"),
                );
            }
        }
    }

    /// Only what io_uring does to a file or block device has memory to be registered.
    fn validate_fixed_buffers(&self, path: &Path, problems: &mut Problems) {
        if !self.load.fixed_buffers {
            return;
        }
        let is_file = match self.subject {
            SubjectSpec::Raw => matches!(self.stack.leaf(), Some(DeviceSpec::File(_))),
            SubjectSpec::Fat => false,
            _ => !self.subject.is_in_process(),
        };
        if !is_file || self.load.ioengine != FileEngine::IoUring || self.runtime == RuntimeKind::Simulated {
            problems.add_with_help(
                path,
                "nothing here goes to a file or block device by io_uring, so there is no memory to register",
                "leave it out, or take a subject with a kernel, or `raw` over a `file`, and `runtime: io_uring`",
            );
        }
    }

    /// A load of files is one of system calls, on files that come and go.
    fn validate_personality(&self, root: &Path, problems: &mut Problems) {
        if !self.subject.is_mounted() {
            problems.add_with_help(
                &root.key("load").key("personality"),
                format!(
                    "a load of files needs a file system, and {} is none of the kernel's",
                    self.subject.name()
                ),
                "take ext4, xfs, btrfs or zfs as the subject",
            );
        }
        for (index, entry) in self.faults.iter().enumerate() {
            let names_a_target = |rule: &Rule| {
                let target = rule.matching.target.as_ref();
                target.is_some_and(|target| {
                    target.is_known_to_load() || matches!(target, Target::Extent { .. })
                })
            };
            if entry.rule().is_some_and(names_a_target) {
                problems.add_with_help(
                    &root.key("faults").index(index).key("match").key("target"),
                    "a load of files makes and deletes its files as it goes, so none of its blocks can be named \
                     beforehand",
                    "match by operation, offset or schedule, or let the rule choose, as with `target: { seen: unique, after: 1000 }`",
                );
            }
        }
    }

    /// Only the memory of a machine can be reached, and that of a program: the file system, or those of a command.
    fn validate_memory(&self, path: &Path, problems: &mut Problems) {
        let is_machine = self.subject.machine().is_some();
        let on_memory = self.faults.iter().enumerate().filter(|(_, entry)| entry.is_on_memory());
        for (index, rule) in on_memory.filter_map(|(index, entry)| Some((index, entry.rule()?))) {
            let is_process = self.subject.zfs().is_some() || self.subject.is_guarded();
            if is_machine || is_process || self.load.command.is_some() {
                self.validate_kinds_of_memory(is_machine, rule, &path.index(index).key("match"), problems);
                continue;
            }
            problems.add_with_help(
                &path.index(index).key("on"),
                format!("the subject {} has no memory that faults could act on", self.subject.name()),
                "take a machine as the subject, such as { machine: { file_system: ext4 } }, zfs, or a guard, or a program as the load",
            );
        }
    }

    fn validate_kinds_of_memory(&self, is_machine: bool, rule: &Rule, path: &Path, problems: &mut Problems) {
        let matching = &rule.matching;
        let fits = |kind: &MemoryKind| if is_machine { kind.is_of_machine() } else { kind.is_of_process() };
        for kind in matching.kind.iter().filter(|kind| !fits(kind)) {
            let (whose, help) = match is_machine {
                true => ("a machine", "take page_cache, dirty, anonymous, kernel or free"),
                false => ("a program", "take heap, stack, anonymous or file_backed"),
            };
            let message = format!("no memory of {whose} is `{kind}`");
            problems.add_with_help(&path.key("kind"), message, help);
        }
        if is_machine && !matching.process.is_empty() {
            problems.add_with_help(
                &path.key("process"),
                "which process a page of a machine belongs to is not known",
                "leave it out, or take a program as the load and no machine as the subject",
            );
        }
    }

    /// A load waits for its requests, and in a trial nobody can release one.
    fn validate_hangs(&self, path: &Path, problems: &mut Problems) {
        for (index, entry) in self.faults.iter().enumerate() {
            if entry.rule().is_some_and(|rule| rule.effect == Effect::Hang(None)) {
                problems.add_with_help(
                    &path.index(index).key("effect"),
                    "in a trial nobody releases what hangs, so it would never end",
                    "give it a span, such as { hang: 30s }; without one it is for `rotproof serve`",
                );
            }
        }
    }

    fn validate_gates(&self, path: &Path, problems: &mut Problems) {
        let names: Vec<Cow<'_, str>> =
            self.faults.iter().enumerate().map(|(index, entry)| entry.name_or_default(index)).collect();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        for (index, gate) in self.expect.gates.iter().enumerate() {
            gate.validate(&names, &path.index(index), problems);
            if gate.phase == Some(GatePhase::CoolDown) && self.load.cool_down.is_none() {
                problems.add_with_help(
                    &path.index(index).key("phase"),
                    "this load has no cool-down",
                    "give the load a `cool_down`, such as 10s, or limit another phase",
                );
            }
        }
    }

    fn validate_name(&self, path: &Path, problems: &mut Problems) {
        let name = self.name.as_str();
        let is_folder_name = !matches!(name, "" | "." | "..")
            && !name.starts_with('-')
            && name.chars().count() <= NAME_LENGTH_MAX
            && name.chars().all(|c| c != '/' && !c.is_control());
        if !is_folder_name {
            problems.add_with_help(
                path,
                "the results go into a folder with the trial's name, and no folder can be called so",
                format!("at most {NAME_LENGTH_MAX} characters, no slash, no dash at the beginning"),
            );
        }
    }

    fn validate_runtime(&self, root: &Path, problems: &mut Problems) {
        if self.runtime == RuntimeKind::Simulated && !self.subject.is_in_process() {
            problems.add_with_help(
                &root.key("runtime"),
                format!("a kernel knows no virtual time, so {} cannot run in it", self.subject.name()),
                "take `subject: raw` or `subject: fat`, or `runtime: io_uring`",
            );
        }
    }

    fn validate_probes(&self, path: &Path, problems: &mut Problems) {
        let Some(probes) = &self.probes else { return };
        probes.validate(path, problems);
        if self.runtime == RuntimeKind::Simulated && probes.spec().is_some() {
            problems.add_with_help(
                path,
                "probes look at the machine by its clock, and this trial runs in virtual time",
                "remove `probes`, or take `runtime: io_uring`",
            );
        }
    }

    /// A program needs a path that it can open, and aims that do not take knowing what it writes.
    fn validate_command(&self, root: &Path, problems: &mut Problems) {
        if self.load.command.is_none() {
            return;
        }
        if self.subject.is_in_process() {
            problems.add_with_help(
                &root.key("subject"),
                format!("{} is nothing that a program could open", self.subject.name()),
                "take `subject: device`, ext4, xfs, btrfs or zfs, or a load of Rotproof's own",
            );
        }
        for (index, entry) in self.faults.iter().enumerate() {
            // In memory a block of a file is what the file holds at that moment.
            let rule = entry.rule().filter(|rule| !rule.is_on_memory());
            if rule.and_then(|rule| rule.matching.target.as_ref()).is_some_and(Target::needs_trial) {
                problems.add_with_help(
                    &root.key("faults").index(index).key("match").key("target"),
                    "what a command writes is not known, so nothing can aim at it",
                    "match by `offset` or `operation`, or take a target such as { seen: most_duplicated }",
                );
            }
        }
    }

    /// Reports leaves that refuse writes below something that writes.
    fn validate_read_only(&self, path: &Path, problems: &mut Problems) {
        if self.only_reads() {
            return;
        }
        for (path, device) in self.stack.places(path) {
            if let DeviceSpec::File(file) = device
                && file.read_only
            {
                problems.add_with_help(
                    &path.key("file").key("read_only"),
                    "what this trial does on it writes",
                    "take `snapshot: true`, which keeps writes in memory; or raw, `reads: 100%` and `prefill: false`",
                );
            }
        }
    }

    /// Whether the load writes nothing. To make a file system on it is to write.
    pub(crate) fn only_reads(&self) -> bool {
        let load = &self.load;
        matches!(self.subject, SubjectSpec::Raw | SubjectSpec::Device)
            && load.command.is_none()
            && load.prefill == Some(false)
            && !load.writes_anything()
    }

    /// Reports leaves on files that neither are there nor have a size, and two on one file. `path` is where the stack stands.
    pub(super) fn validate_backing_files(&self, path: &Path, problems: &mut Problems) {
        let mut known: Vec<(&std::path::Path, Path)> = Vec::new();
        for (path, device) in self.stack.places(path) {
            let DeviceSpec::File(file) = device else { continue };
            let place = path.key("file").key("path");
            if let Some((_, other)) = known.iter().find(|(known, _)| *known == file.path) {
                problems.add(&place, format!("{other} is this file too"));
            }
            known.push((&file.path, place.clone()));
            if file.size.is_some() {
                continue;
            }
            match std::fs::metadata(&file.path) {
                Ok(metadata) if metadata.is_dir() => {
                    problems.add(&place, "this is a folder; a stack needs a file or block device");
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => problems.add_with_help(
                    &place,
                    format!("{} does not exist, so its size must be given", file.path.display()),
                    "add for example `size: 1GiB`; the file is then created",
                ),
                // What a block device holds is known when it is opened, and what else is wrong with it is told then.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// The size of a leaf on a file that is there and tells it.
pub(super) fn bytes_of_file(leaf: &DeviceSpec) -> Option<u64> {
    let DeviceSpec::File(file) = leaf else { return None };
    // What a block device holds is known when it is opened.
    std::fs::metadata(&file.path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}
