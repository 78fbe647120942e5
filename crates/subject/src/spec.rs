//! What a trial file says of its subject: the kinds of subjects, their words, and what the rest of a trial may ask of them.
//!
//! How they are written and what schema that has is in `spec_form.rs`; which options make no sense in `spec_check.rs`. It does not
//! know how a subject is made.

use std::fmt;

use rotproof_spec::Bytes;

use crate::{FileSystem, FileSystemSpec, GuardSpec, MachineSpec, VolumeSubjectSpec, ZfsSpec};

/// What is on trial, and thus where the load goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubjectSpec {
    /// The stack itself, in process.
    #[default]
    Raw,
    /// A FAT file system in process, by a library that runs over the stack.
    Fat,
    /// A loop device over the exported stack.
    Device,
    /// A file system on that loop device.
    FileSystem(FileSystemSpec),
    /// A pool of ZFS on the exported stack, by a program.
    Zfs(ZfsSpec),
    /// A guest kernel with a file system on the exported stack.
    Machine(MachineSpec),
    /// A guard over the files of one of the last two.
    Guard(GuardSpec),
    /// The devices of the stack as a volume, and what stands on it.
    Volume(VolumeSubjectSpec),
}

/// The word for a guest kernel.
pub(crate) const MACHINE: &str = "machine";
/// The word for a guard.
pub(crate) const GUARD: &str = "guard";
/// The word for a pool of ZFS.
pub(crate) const ZFS: &str = "zfs";
/// The word for a volume.
pub(crate) const VOLUME: &str = "volume";

/// Every word that `subject:` takes.
pub(crate) const SUBJECTS: [&str; 10] =
    ["raw", "fat", "device", "ext4", "xfs", "btrfs", ZFS, VOLUME, MACHINE, GUARD];

impl SubjectSpec {
    /// The word in the trial file.
    pub fn name(&self) -> &'static str {
        match self {
            SubjectSpec::Raw => "raw",
            SubjectSpec::Fat => "fat",
            SubjectSpec::Device => "device",
            SubjectSpec::FileSystem(spec) => spec.kind.name(),
            SubjectSpec::Zfs(_) => ZFS,
            SubjectSpec::Machine(_) => MACHINE,
            SubjectSpec::Guard(_) => GUARD,
            SubjectSpec::Volume(_) => VOLUME,
        }
    }

    /// The machine whose memory faults can act on, if there is one.
    pub fn machine(&self) -> Option<&MachineSpec> {
        match self {
            SubjectSpec::Machine(spec) => Some(spec),
            SubjectSpec::Guard(spec) => spec.over.machine(),
            SubjectSpec::Volume(spec) => spec.under.machine(),
            _ => None,
        }
    }

    /// The smallest device that a file system of it makes sense on; `None` of what is none, or in process.
    pub fn device_size_min(&self) -> Option<Bytes> {
        match self.zfs() {
            Some(_) => Some(crate::zfs_spec::DEVICE_SIZE_MIN),
            None => self.file_system().map(|spec| spec.kind.device_size_min()),
        }
    }

    /// Whether it needs no kernel: virtual time will do.
    pub fn is_in_process(&self) -> bool {
        matches!(self.on_top(), SubjectSpec::Raw | SubjectSpec::Fat)
    }

    /// Whether the load works on files.
    pub fn has_files(&self) -> bool {
        matches!(self.on_top(), SubjectSpec::Fat) || self.is_mounted()
    }

    /// Whether the load works on files through a kernel.
    pub fn is_mounted(&self) -> bool {
        self.zfs().is_some() || self.file_system().is_some()
    }

    /// The pool of ZFS, if it is one, also on a volume.
    pub fn zfs(&self) -> Option<&ZfsSpec> {
        match self.on_top() {
            SubjectSpec::Zfs(spec) => Some(spec),
            _ => None,
        }
    }

    /// Whether a process of this machine guards its files.
    pub fn is_guarded(&self) -> bool {
        matches!(self.on_top(), SubjectSpec::Guard(_))
    }

    /// Whether it is on the devices already.
    pub fn exists(&self) -> bool {
        self.file_system().is_some_and(|spec| spec.existing)
    }

    /// Whether something of it stands above the stack that can [end without a word](crate::Prepared::kill).
    pub fn can_be_killed(&self) -> bool {
        !self.is_in_process()
    }

    /// Whether it can be made on several devices.
    pub fn takes_several(&self) -> bool {
        match self {
            SubjectSpec::FileSystem(spec) => spec.kind == FileSystem::Btrfs,
            SubjectSpec::Guard(spec) => spec.over.takes_several(),
            SubjectSpec::Volume(_) | SubjectSpec::Zfs(_) => true,
            _ => false,
        }
    }

    /// Whether the file system may store what it is given in another form.
    pub fn compresses(&self) -> bool {
        if let Some(spec) = self.zfs() {
            return spec.compresses();
        }
        let options = self.file_system().into_iter().flat_map(|spec| &spec.mount);
        options.flat_map(|option| option.split(',')).any(|option| option.starts_with("compress"))
    }

    /// The file system of a kernel, if it is one, be it of a machine's, below a guard, or on a volume.
    pub fn file_system(&self) -> Option<&FileSystemSpec> {
        match self {
            SubjectSpec::Guard(spec) => spec.over.file_system(),
            SubjectSpec::Volume(spec) => spec.under.file_system(),
            SubjectSpec::FileSystem(spec) => Some(spec),
            SubjectSpec::Machine(spec) => Some(&spec.file_system),
            SubjectSpec::Raw | SubjectSpec::Fat | SubjectSpec::Device | SubjectSpec::Zfs(_) => None,
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "raw" => Some(SubjectSpec::Raw),
            "fat" => Some(SubjectSpec::Fat),
            "device" => Some(SubjectSpec::Device),
            ZFS => Some(SubjectSpec::Zfs(ZfsSpec::default())),
            VOLUME => Some(SubjectSpec::Volume(VolumeSubjectSpec::default())),
            other => {
                FileSystem::from_name(other).map(|kind| SubjectSpec::FileSystem(FileSystemSpec::new(kind)))
            }
        }
    }
}

impl fmt::Display for SubjectSpec {
    /// As in a sentence: `ext4 (mkfs -b 4096; mount noatime)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let SubjectSpec::Guard(guard) = self {
            return write!(f, " ({}) over {}", guard.mode.word(), guard.over);
        }
        if let SubjectSpec::Volume(volume) = self {
            return write!(f, " under {}", volume.under);
        }
        if let SubjectSpec::Machine(machine) = self {
            return write!(f, "{machine}");
        }
        if let SubjectSpec::Zfs(spec) = self {
            let words = spec.words();
            return if words.is_empty() { Ok(()) } else { write!(f, " ({})", words.join(", ")) };
        }
        let Some(spec) = self.file_system() else { return Ok(()) };
        let mut options = Vec::new();
        options.extend(spec.data.iter().map(|profile| format!("data {profile}")));
        options.extend(spec.metadata.iter().map(|profile| format!("metadata {profile}")));
        options.extend((!spec.mkfs.is_empty()).then(|| format!("mkfs {}", spec.mkfs.join(" "))));
        options.extend(spec.existing.then(|| "as it is".to_owned()));
        options.extend((!spec.mount.is_empty()).then(|| format!("mount {}", spec.mount.join(","))));
        if options.is_empty() { Ok(()) } else { write!(f, " ({})", options.join("; ")) }
    }
}
