//! What makes no sense in a trial as a whole, although each of its parts may be fine by itself.
//!
//! The parts check themselves; here is what takes two of them, or a look at the backing file. Nothing is created.

use rotproof_layers::DeviceSpec;
use rotproof_load::layout::Layout;
use rotproof_load::object::{ObjectInfo, file_name};
use rotproof_spec::{Bytes, Path, Problems};

use super::subject_spec::SubjectSpec;
use super::trial_file::{RuntimeKind, TrialFile};

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
        self.expect.validate(self.faults.len(), &root.key("expect"), problems);
        self.validate_runtime(&root, problems);
        let size =
            self.stack.size().or_else(|| self.validate_backing_file(&root.key("stack").index(0), problems));
        if let Some(size) = size {
            self.validate_room(size, &root, problems);
        }
        if self.load.files.is_some() && self.subject.file_system().is_none() {
            problems.add_with_help(
                &root.key("load").key("files"),
                format!("there are no files on the subject {}", self.subject.name()),
                "remove `files`, or take ext4, xfs or btrfs as the subject",
            );
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
        if self.runtime == RuntimeKind::Simulated && self.subject != SubjectSpec::Raw {
            problems.add_with_help(
                &root.key("runtime"),
                format!("a kernel knows no virtual time, so {} cannot run in it", self.subject.name()),
                "take `subject: raw`, or `runtime: io_uring`",
            );
        }
    }

    /// The size of a leaf on a file that is there and tells it; reports one that neither is there nor has a size.
    fn validate_backing_file(&self, path: &Path, problems: &mut Problems) -> Option<u64> {
        let Some(DeviceSpec::File(file)) = self.stack.leaf() else { return None };
        match std::fs::metadata(&file.path) {
            Ok(metadata) if metadata.is_dir() => {
                problems.add(
                    &path.key("file").key("path"),
                    "this is a folder; a stack needs a file or block device",
                );
                None
            }
            // What a block device holds is known when it is opened.
            Ok(metadata) => metadata.is_file().then_some(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                problems.add_with_help(
                    &path.key("file").key("path"),
                    format!("{} does not exist, so its size must be given", file.path.display()),
                    "add for example `size: 1GiB`; the file is then created",
                );
                None
            }
            // What else is wrong with it is told, with its cause, when it is opened.
            Err(_) => None,
        }
    }

    /// Whether everything fits a device of `size` bytes.
    fn validate_room(&self, size: u64, root: &Path, problems: &mut Problems) {
        let load = root.key("load");
        let Some(file_system) = self.subject.file_system() else {
            self.validate_layout(&[ObjectInfo::new("device", size)], &load, problems);
            return;
        };
        let size_min = file_system.kind.device_size_min();
        if size < size_min.0 {
            problems.add_with_help(
                &root.key("subject"),
                format!(
                    "{} needs a device of at least {size_min}, and this stack has {}",
                    file_system.kind,
                    Bytes(size)
                ),
                "give the leaf of the stack a larger `size`",
            );
            return;
        }
        let Some(files) = self.load.files else { return };
        let all = u64::from(files.count).checked_mul(files.size.0);
        if all.is_none_or(|all| all >= size) {
            problems.add_with_help(
                &load.key("files"),
                format!("{} files of {} do not fit a device of {}", files.count, files.size, Bytes(size)),
                "leave the file system a tenth for itself, btrfs more",
            );
            return;
        }
        let objects: Vec<_> =
            (0..files.count).map(|index| ObjectInfo::new(file_name(index), files.size.0)).collect();
        self.validate_layout(&objects, &load, problems);
    }

    /// Whether each worker gets at least one place of its own.
    fn validate_layout(&self, objects: &[ObjectInfo], load: &Path, problems: &mut Problems) {
        let Ok(layout) = Layout::new(objects, self.load.block_size.0) else { return };
        if layout.places() < u64::from(self.load.workers) {
            problems.add_with_help(
                &load.key("workers"),
                format!(
                    "{} workers cannot share {} requests of {}",
                    self.load.workers,
                    layout.places(),
                    self.load.block_size
                ),
                "take fewer workers, smaller requests or a larger target",
            );
        }
    }
}
