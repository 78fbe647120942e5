//! Whether what a trial works on fits the devices of its stack, and what that is.

use rotproof_load::object::{ObjectInfo, file_name};
use rotproof_load::personality::FilePlan;
use rotproof_load::{FAT_DEVICE_BYTES_MIN, FAT_FILE_BYTES_MAX, FilesSpec, no_room};
use rotproof_spec::{Bytes, Path, Problems};
use rotproof_subject::SubjectSpec;

use super::trial_file::TrialFile;

/// Files that targets are looked up in; a load may not have more.
const FILES_MAX: u32 = 10_000;

impl TrialFile {
    /// Most subjects are made on one device.
    pub(super) fn validate_count(&self, path: &Path, problems: &mut Problems) {
        let count = self.stack.count();
        if count > 1 && !self.subject.takes_several() {
            problems.add_with_help(
                path,
                format!("the stack is {count} devices, and {} takes one", self.subject.name()),
                "put them together with `concat`, or take btrfs or a volume as the subject",
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
    pub(super) fn validate_room(&self, size: u64, root: &Path, problems: &mut Problems) {
        let load = root.key("load");
        if self.subject.has_files() {
            let kind = self.subject.on_top().name();
            let size_min = self.subject.device_size_min().unwrap_or(Bytes(FAT_DEVICE_BYTES_MIN));
            if size < size_min.0 && !self.subject.exists() {
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
            if *self.subject.on_top() == SubjectSpec::Fat && files.size.0 > FAT_FILE_BYTES_MAX {
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
