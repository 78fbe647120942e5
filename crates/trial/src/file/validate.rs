//! What makes no sense in a trial as a whole, although each of its parts may be fine by itself.
//!
//! The parts check themselves; here is what takes two of them, or a look at the backing file. Nothing is created.

use rotproof_fault::{Effect, Target, validate_plan};
use rotproof_layers::DeviceSpec;
use rotproof_load::object::{ObjectInfo, file_name};
use rotproof_load::personality::FilePlan;
use rotproof_load::{FAT_DEVICE_BYTES_MIN, FAT_FILE_BYTES_MAX, FileEngine, FilesSpec, no_room};
use rotproof_spec::{Bytes, Path, Problems, number_in_range};
use rotproof_subject::SubjectSpec;

use super::targets::{validate_extents, validate_targets, validate_types};
use super::trial_file::{RuntimeKind, TrialFile};

/// Files that targets are looked up in; a load may not have more.
const FILES_MAX: u32 = 10_000;

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
        self.validate_runtime(&root, problems);
        self.validate_probes(&root.key("probes"), problems);
        self.validate_command(&root, problems);
        self.validate_backing_files(&root.key("stack"), problems);
        validate_plan(&self.faults, &root.key("faults"), &self.stack.sites(&bytes_of_file), problems);
        self.validate_count(&root.key("stack"), problems);
        let size = self.size();
        if let Some(size) = size {
            self.validate_room(size, &root, problems);
        }
        self.validate_hangs(&root.key("faults"), problems);
        self.validate_memory(&root.key("faults"), problems);
        self.validate_power(&root.key("faults"), problems);
        let (objects, faults) = (self.objects(size), root.key("faults"));
        if self.load.personality.is_some() {
            self.validate_personality(&root, problems);
            validate_types(&self.faults, (&self.stack, &self.subject, &self.load), &[], &faults, problems);
            return;
        }
        validate_types(&self.faults, (&self.stack, &self.subject, &self.load), &objects, &faults, problems);
        if self.load.command.is_none() {
            validate_targets(&self.faults, &self.load, &objects, &faults, problems);
            let parts = (&self.stack, &self.subject, &self.load);
            validate_extents(&self.faults, parts, &objects, &faults, problems);
        }
        if self.load.files.is_some() && !self.subject.has_files() {
            problems.add_with_help(
                &root.key("load").key("files"),
                format!("there are no files on the subject {}", self.subject.name()),
                "remove `files`, or take fat, ext4, xfs or btrfs as the subject",
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
            if is_said && self.subject.file_system().is_none() {
                problems.add_with_help(
                    &root.key("load").key(key),
                    format!(
                        "`{key}` is for files of the kernel's file systems, and {} has none",
                        self.subject.name()
                    ),
                    "remove it, or take ext4, xfs or btrfs as the subject",
                );
            }
        }
    }

    /// A layer that lives on while the power goes below would take for rot what nobody had flushed.
    fn validate_power(&self, path: &Path, problems: &mut Problems) {
        let Some(layer) = self.stack.devices().into_iter().find(|device| device.outlives_power()) else {
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
            _ => true,
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
        if self.subject.file_system().is_none() {
            problems.add_with_help(
                &root.key("load").key("personality"),
                format!(
                    "a load of files needs a file system, and {} is none of the kernel's",
                    self.subject.name()
                ),
                "take ext4, xfs or btrfs as the subject",
            );
        }
        for (index, entry) in self.faults.iter().enumerate() {
            let names_a_target = |rule: &rotproof_fault::Rule| {
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

    /// Only the memory of a machine can be reached.
    fn validate_memory(&self, path: &Path, problems: &mut Problems) {
        if self.subject.machine().is_some() {
            return;
        }
        for (index, _) in self.faults.iter().enumerate().filter(|(_, entry)| entry.is_on_memory()) {
            problems.add_with_help(
                &path.index(index).key("on"),
                format!("the subject {} has no memory that faults could act on", self.subject.name()),
                "take a machine as the subject, such as { machine: { file_system: ext4 } }",
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
                "take `subject: device`, ext4, xfs or btrfs, or a load of Rotproof's own",
            );
        }
        for (index, entry) in self.faults.iter().enumerate() {
            let target = entry.rule().and_then(|rule| rule.matching.target.as_ref());
            if target.is_some_and(Target::needs_trial) {
                problems.add_with_help(
                    &root.key("faults").index(index).key("match").key("target"),
                    "what a command writes is not known, so nothing can aim at it",
                    "match by `offset` or `operation`, or take a target such as { seen: most_duplicated }",
                );
            }
        }
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

    /// Most subjects are made on one device.
    fn validate_count(&self, path: &Path, problems: &mut Problems) {
        let count = self.stack.count();
        if count > 1 && !self.subject.takes_several() {
            problems.add_with_help(
                path,
                format!("the stack is {count} devices, and {} takes one", self.subject.name()),
                "put them together with `concat`, or take btrfs as the subject",
            );
        }
    }

    /// What the load works on, as far as it is known; sizes that are not are 0.
    pub(super) fn objects(&self, size: Option<u64>) -> Vec<ObjectInfo> {
        if !self.subject.has_files() {
            return vec![ObjectInfo::new("device", size.unwrap_or(0))];
        }
        let unknown = FilesSpec { size: Bytes(0), ..self.load.files_in(0) };
        let FilesSpec { count, size } = self.load.files.unwrap_or(unknown);
        // More are reported by the load itself.
        let count = count.min(FILES_MAX);
        (0..count).map(|index| ObjectInfo::new(file_name(index), size.0)).collect()
    }

    /// Whether everything fits a device of `size` bytes.
    fn validate_room(&self, size: u64, root: &Path, problems: &mut Problems) {
        let load = root.key("load");
        if self.subject.has_files() {
            let kind = self.subject.name();
            let size_min = self
                .subject
                .file_system()
                .map_or(Bytes(FAT_DEVICE_BYTES_MIN), |file_system| file_system.kind.device_size_min());
            if size < size_min.0 {
                problems.add_with_help(
                    &root.key("subject"),
                    format!(
                        "{kind} needs a device of at least {size_min}, and this stack has {}",
                        Bytes(size)
                    ),
                    "give the leaf of the stack a larger `size`",
                );
                return;
            }
            if let Some(personality) = &self.load.personality {
                let mut mistakes = Problems::default();
                personality.validate(&load, &mut mistakes);
                // What makes no sense by itself cannot be laid out.
                if mistakes.is_empty()
                    && let room = FilePlan::new(personality, self.seed).room_bytes()
                    && room > size / 10 * 9
                {
                    let room = room.next_multiple_of(1 << 20);
                    problems.add_with_help(
                        &load.key("personality"),
                        format!(
                            "its files take {}, which do not fit a device of {}",
                            Bytes(room),
                            Bytes(size)
                        ),
                        "give it fewer or smaller ones, such as `{ varmail: { files: 200 } }`",
                    );
                }
                return;
            }
            let Some(files) = self.load.files else { return };
            let all = u64::from(files.count).checked_mul(files.size.0);
            if all.is_none_or(|all| all >= size) {
                let (count, each) = (files.count, files.size);
                problems.add_with_help(
                    &load.key("files"),
                    format!("{count} files of {each} do not fit a device of {}", Bytes(size)),
                    "leave the file system a tenth of it, btrfs more",
                );
                return;
            }
            if self.subject == SubjectSpec::Fat && files.size.0 > FAT_FILE_BYTES_MAX {
                problems.add_with_help(
                    &load.key("files").key("size"),
                    format!("a file of {} is too large for FAT", files.size),
                    "FAT holds files below 4GiB; take smaller ones, and more of them",
                );
                return;
            }
        }
        self.validate_layout(&self.objects(Some(size)), &load, problems);
    }

    /// Whether each worker gets at least one place of its own.
    fn validate_layout(&self, objects: &[ObjectInfo], load: &Path, problems: &mut Problems) {
        let Some(no_room) = no_room(&self.load, objects) else { return };
        let path = match self.load.jobs.as_slice() {
            [] if self.load.mix.is_some() => load.key("mix"),
            [] => load.key("workers"),
            _ => load.key("jobs").index(no_room.job),
        };
        problems.add_with_help(&path, no_room.message, no_room.help);
    }
}

/// The size of a leaf on a file that is there and tells it.
pub(super) fn bytes_of_file(leaf: &DeviceSpec) -> Option<u64> {
    let DeviceSpec::File(file) = leaf else { return None };
    // What a block device holds is known when it is opened.
    std::fs::metadata(&file.path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use crate::file::{Overrides, TrialFile};

    /// The mistakes of a trial on a stack of `size`, as `path: message`.
    #[test]
    fn a_layer_that_would_not_notice_is_not_left_without_power() {
        for layer in ["checksum", "versions"] {
            let yaml = format!(
                "stack: [memory: {{ size: 64MiB }}, write_cache, faults, {layer}]\nfaults: ['write, nth=9: power_cut']\n"
            );
            let wanted = format!(
                "faults[0].effect: `{layer}` would not notice that the power goes below it: it keeps in memory what that takes"
            );
            assert_eq!(mistakes_of(&yaml), [wanted]);
        }
    }

    fn mistakes(size: &str, rest: &str) -> Vec<String> {
        mistakes_of(&format!("stack: [memory: {{ size: {size} }}]\n{rest}\n"))
    }

    fn mistakes_of(yaml: &str) -> Vec<String> {
        match TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default()) {
            Ok(_) => Vec::new(),
            Err(found) => found.list.into_iter().map(|d| format!("{}: {}", d.path, d.message)).collect(),
        }
    }

    #[test]
    fn what_takes_two_parts_to_be_wrong_is_refused() {
        for (size, rest, wanted) in [
            (
                "64MiB",
                "runtime: simulated\nsubject: ext4",
                "runtime: a kernel knows no virtual time, so ext4 cannot run in it",
            ),
            (
                "64MiB",
                "runtime: simulated\nprobes: on",
                "probes: probes look at the machine by its clock, and this trial runs in virtual time",
            ),
            ("64MiB", "probes: { interval: 10ms }", "probes.interval: probes every 10ms are not possible"),
            (
                "64MiB",
                "probes: { machines: { local: x } }",
                "probes.machines.local: `local` is the machine that the run is on, which is looked at anyway",
            ),
            (
                "512KiB",
                "subject: fat",
                "subject: fat needs a device of at least 1MiB, and this stack has 512KiB",
            ),
            (
                "16GiB",
                "subject: fat\nload: { files: { count: 1, size: 4GiB } }",
                "load.files.size: a file of 4GiB is too large for FAT",
            ),
            (
                "64MiB",
                "subject: fat\nload: { files: { count: 4, size: 16MiB } }",
                "load.files: 4 files of 16MiB do not fit a device of 64MiB",
            ),
            (
                "64MiB",
                "load: { files: { count: 1, size: 1MiB } }",
                "load.files: there are no files on the subject raw",
            ),
            (
                "64MiB",
                "load: { command: { run: true-ish } }",
                "subject: raw is nothing that a program could open",
            ),
            (
                "64MiB",
                "subject: device\nload: { command: { run: x }, reads: 20% }",
                "load.command: a command is the whole load; what stands beside it says nothing",
            ),
            (
                "64MiB",
                "subject: device\nload: { command: { run: x } }\nexpect: { silent: 0 }",
                "expect.silent: nobody can count `silent` for a command: what it wrote and saw is not known",
            ),
            (
                "64MiB",
                "subject: device\nload: { command: { run: x } }\nexpect: { check_exit: 1 }",
                "expect.check_exit: this command has no `check`",
            ),
            (
                "64MiB",
                "expect: { exit: 0 }",
                "expect.exit: `exit` is told of a command, and this load is none",
            ),
            (
                "64MiB",
                "subject: device\nload: { command: { run: x } }\nfaults: ['target=unique: zeros']",
                "faults[0].match.target: what a command writes is not known, so nothing can aim at it",
            ),
            (
                "64MiB",
                "load: { trace: { file: ../../examples/traces/mail.spc }, reads: 20% }",
                "load.reads: beside `trace`, `reads` says nothing: the trace says what is done",
            ),
            (
                "64MiB",
                "load: { trace: { file: ../../examples/trace-replay.yaml } }",
                "load.trace.file: ../../examples/trace-replay.yaml is in no format that tells itself; say which with \
                 `format` (--trace-format)",
            ),
            (
                "299MiB",
                "subject: xfs",
                "subject: xfs needs a device of at least 300MiB, and this stack has 299MiB",
            ),
            (
                "108MiB",
                "subject: btrfs",
                "subject: btrfs needs a device of at least 109MiB, and this stack has 108MiB",
            ),
            (
                "64MiB",
                "subject: ext4\nload: { files: { count: 4, size: 16MiB } }",
                "load.files: 4 files of 16MiB do not fit a device of 64MiB",
            ),
            (
                "64MiB",
                "subject: ext4\nload: { files: { count: 2, size: 8388608TiB } }",
                "load.files: 2 files of 8388608TiB do not fit a device of 64MiB",
            ),
            ("64KiB", "load: { workers: 20 }", "load.workers: 20 workers cannot share 16 requests of 4KiB"),
            (
                "64MiB",
                "faults: ['read, offset=64MiB: error']",
                "faults[0].match.offset: 64MiB is beyond the device, which has 64MiB",
            ),
            (
                "64MiB",
                "name: a/b",
                "name: the results go into a folder with the trial's name, and no folder can be called so",
            ),
            ("64MiB", "expect: { hits: 1 }", "expect.hits: `hits` counts faults, and this trial has none"),
            (
                "64MiB",
                "faults: ['target=file(b, block=1): zeros']",
                "faults[0].match.target.file: the load has no file `b`",
            ),
            (
                "64MiB",
                "faults: ['target=file(device, block=16384): zeros']",
                "faults[0].match.target.block: `device` has 16384 blocks of 4KiB, counted from 0",
            ),
            (
                "64MiB",
                "subject: ext4\nload: { files: { count: 1, size: 3 } }\nfaults: ['target=file(a, block=7): zeros']",
                "load.files.size: the size of a file is 3; it must be a multiple of 4KiB, and not 0",
            ),
            (
                "64MiB",
                "faults: ['read, target=file(device, block=7, by=extent): zeros']",
                "faults[0].match.target: there are no files on the subject raw, so none has extents",
            ),
            (
                "64MiB",
                "subject: fat\nfaults: ['read, target=file(a, block=7, by=extent): zeros']",
                "faults[0].match.target: fat does not say where a block of a file lies",
            ),
            (
                "300MiB",
                "subject: btrfs\nfaults: ['read, target=file(a, block=7, by=extent): zeros']",
                "faults[0].match.target: btrfs tells where a block lies in its own address space, not on the device",
            ),
            (
                "64MiB",
                "subject: ext4\nfaults: ['read, target=file(a, block=7, by=extent): zeros']",
                "faults[0].match.target: a block has no place before it is written, and this load begins with empty \
                 files",
            ),
            (
                "64MiB",
                "subject: ext4\nload: { prefill: true }\nfaults: ['during=prefill|run, target=file(a, block=7, \
                 by=extent): zeros']",
                "faults[0].match.target: a block has no place before the files are filled, and this rule is awake \
                 while they are",
            ),
            (
                "64MiB",
                "subject: ext4\nfaults: ['during=check, target=file(q, block=7, by=extent): zeros']",
                "faults[0].match.target.file: the load has no file `q`",
            ),
            (
                "64MiB",
                "load: { personality: { varmail: { files: 40, threads: 2 } } }",
                "load.personality: a load of files needs a file system, and raw is none of the kernel's",
            ),
            (
                "64MiB",
                "subject: ext4\nload: { personality: fileserver }",
                "load.personality: its files take 1343MiB, which do not fit a device of 64MiB",
            ),
            (
                "64MiB",
                "subject: ext4\nload: { personality: { varmail: { threads: 0 } } }",
                "load.personality.varmail.threads: 0 threads are not possible; give 1 to 1000",
            ),
            (
                "64MiB",
                "subject: ext4\nload: { personality: { varmail: { files: 40, threads: 2 } }, reads: 30% }",
                "load.reads: beside `personality`, `reads` says nothing",
            ),
            (
                "64MiB",
                "subject: ext4\nload: { personality: { varmail: { files: 40, threads: 2 } } }\nfaults: \
                 ['target=file(a, block=1): zeros']",
                "faults[0].match.target: a load of files makes and deletes its files as it goes, so none of its \
                 blocks can be named beforehand",
            ),
            (
                "64MiB",
                "faults: ['target=most_duplicated: zeros']",
                "faults[0].match.target: this load writes no duplicates",
            ),
            (
                "64MiB",
                "subject: device\nload: { polled: true }",
                "load.polled: the devices of a trial are Rotproof's own, and none of them can be polled",
            ),
            (
                "64MiB",
                "load: { fixed_buffers: true }",
                "load.fixed_buffers: nothing here goes to a file or block device by io_uring, so there is no memory to register",
            ),
            (
                "64MiB",
                "load: { duration: 1s }\nfaults: ['target=unique: zeros']",
                "faults[0].match.target: what a load writes until its time is up or it is steady is not known \
                 beforehand",
            ),
            (
                "64MiB",
                "load: { until_steady: {} }\nfaults: ['target=unique: zeros']",
                "faults[0].match.target: what a load writes until its time is up or it is steady is not known \
                 beforehand",
            ),
            (
                "64MiB",
                "load: { until_steady: { window: 4s } }",
                "load.until_steady.window: 4s are too few intervals to tell whether anything is steady",
            ),
            (
                "64MiB",
                "load: { until_steady: { window: 10min } }\nrecord: { interval: 10ms }",
                "load.until_steady.window: 10min are more than 10000 intervals",
            ),
            (
                "64MiB",
                "load: { until_steady: { window: 20s }, duration: 10s }",
                "load.until_steady.window: a load that runs for 10s cannot be found steady, which takes 20s",
            ),
            (
                "64MiB",
                "load: { reads: 100%, prefill: false }\nfaults: ['target=unique: zeros']",
                "faults[0].match.target: a load that only reads writes no content that a target could name",
            ),
        ] {
            assert_eq!(mistakes(size, rest), [wanted], "{rest}");
        }
    }

    #[test]
    fn offsets_of_faults_and_places_of_the_load_are_held_against_the_device_that_each_is_on() {
        let stack = |layers: &str, rest: &str| {
            let yaml = format!("stack: [memory: {{ size: 1MiB }}, {layers}]\n{rest}\n");
            TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
                .map_err(|found| found.list.into_iter().map(|d| d.path).collect::<Vec<_>>().join(" "))
                .map(|_| ())
        };
        let beyond = "faults: ['write, offset=3MiB: zeros']";
        assert_eq!(stack("dedup: { size: 4MiB }, faults", beyond), Ok(()));
        for below in ["faults, dedup: { size: 4MiB }", "dedup: { size: 4MiB }"] {
            assert_eq!(stack(below, beyond), Err("faults[0].match.offset".into()), "{below}");
        }
        let extent = "subject: ext4\nfaults: ['during=check, target=file(a, block=7, by=extent): zeros']";
        assert_eq!(stack("dedup: { size: 4MiB }, faults", extent), Ok(()));
        assert_eq!(stack("faults, dedup: { size: 4MiB }", extent), Err("faults[0].match.target".into()));
        let workers = "load: { workers: 20, block_size: 64KiB }";
        assert_eq!(stack("dedup", workers), Err("load.workers".into()));
        assert_eq!(stack("dedup: { size: 4MiB }", workers), Ok(()));
    }

    #[test]
    fn the_smallest_device_that_will_do_is_taken() {
        for (size, rest) in [
            ("300MiB", "subject: xfs"),
            ("109MiB", "subject: btrfs"),
            ("64KiB", "load: { workers: 16 }"),
            ("1MiB", "subject: fat\nruntime: simulated"),
            ("16GiB", "subject: fat\nload: { files: { count: 2, size: 4194300KiB } }"),
            ("64MiB", "faults: ['target=file(device, block=16383): zeros']"),
            ("64MiB", "subject: ext4\nfaults: ['target=file(d, block=3): zeros']"),
            ("64MiB", "load: { duration: 1s }\nfaults: ['target=file(device, block=3): zeros']"),
        ] {
            assert_eq!(mistakes(size, rest), [""; 0], "{rest}");
        }
    }

    #[test]
    fn a_backing_file_must_be_there_or_have_a_size() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("disk.img");
        let check = |options: &str| {
            let yaml =
                format!("stack: [file: {{ path: {}{options} }}]\nload: {{ workers: 5 }}", image.display());
            TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
                .map_err(|found| found.list.into_iter().map(|d| d.path).collect::<Vec<_>>().join(" "))
                .map(|_| ())
        };
        assert_eq!(check(""), Err("stack[0].file.path".into()));
        assert_eq!(check(", size: 1MiB"), Ok(()));
        std::fs::write(&image, [0; 4 * 4096]).expect("the image is written");
        assert_eq!(check(""), Err("load.workers".into()), "its size is taken from the file");
        std::fs::write(&image, [0; 5 * 4096]).expect("the image is written");
        assert_eq!(check(""), Ok(()));
    }
}
