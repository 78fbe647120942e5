//! The words of the subject `machine`: a guest kernel, what carries it, how it reaches its disk, the file system on that.

use std::fmt;
use std::path::PathBuf;

use rotproof_guest::{GuestKind, Kernel, MEMORY_DEFAULT, MEMORY_MIN, QEMU_MEMORY_MAX};
use rotproof_spec::{Bytes, Path, Problems};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{FileSystemSpec, SubjectSpec};

/// The most memory that a guest of User Mode Linux gets.
const UML_MEMORY_MAX: u64 = 4 << 30;

/// A guest kernel with a file system on the exported stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// What carries the kernel. Default: uml.
    #[serde(default, skip_serializing_if = "MachineKind::is_uml")]
    pub kind: MachineKind,
    /// The file system on its disk: ext4, xfs, btrfs, jfs or f2fs, with the options that it has as a subject.
    #[serde(serialize_with = "write_file_system", deserialize_with = "read_file_system")]
    pub file_system: FileSystemSpec,
    /// Its memory, from 64MiB to 4GiB, of QEMU to 2GiB. Default: 256MiB.
    #[serde(default = "memory_default")]
    pub memory: Bytes,
    /// Keeps what is dirty in its memory until a sync, fsync or unmount asks for it. Default: false, as the kernel does it.
    #[serde(default)]
    pub holds_dirty: bool,
    /// Of QEMU: the image of the kernel. Default: the newest that is installed in `/boot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
    /// Of QEMU: the folder with the modules of that kernel. Default: those installed for it in `/lib/modules`, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<PathBuf>,
    /// How it reaches its disk. Default: file.
    #[serde(default, skip_serializing_if = "MachineDisk::is_file")]
    pub disk: MachineDisk,
    /// Of QEMU: goes on from a snapshot of a machine that has booted, which is made where there is none; else it boots.
    /// Default: true.
    #[serde(default = "snapshot_default", skip_serializing_if = "is_default_of_snapshot")]
    pub snapshot: bool,
}

fn snapshot_default() -> bool {
    true
}

fn is_default_of_snapshot(snapshot: &bool) -> bool {
    *snapshot == snapshot_default()
}

/// What carries a guest's kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MachineKind {
    /// User Mode Linux: the kernel is a program.
    #[default]
    Uml,
    /// QEMU, without help of the processor: a kernel for real machines.
    Qemu,
}

impl MachineKind {
    fn is_uml(&self) -> bool {
        *self == Self::Uml
    }
}

/// The export through which a guest reaches the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MachineDisk {
    /// The FUSE file.
    #[default]
    File,
    /// NBD.
    Nbd,
    /// vhost-user-blk.
    Vhost,
}

impl MachineDisk {
    fn is_file(&self) -> bool {
        *self == Self::File
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Nbd => "nbd",
            Self::Vhost => "vhost",
        }
    }
}

impl MachineSpec {
    /// A guest of User Mode Linux with this file system, and nothing else said.
    pub fn new(file_system: FileSystemSpec) -> Self {
        Self {
            kind: MachineKind::Uml,
            file_system,
            memory: memory_default(),
            holds_dirty: false,
            kernel: None,
            modules: None,
            disk: MachineDisk::File,
            snapshot: snapshot_default(),
        }
    }

    /// Where snapshots for it are kept, if it may go on from one.
    pub fn snapshot_folder(&self) -> Option<PathBuf> {
        if self.snapshot { rotproof_guest::snapshot_folder() } else { None }
    }

    /// Ok if this machine can run such a guest. Fails with [`Missing`](rotproof_block::ErrorKind::Missing) and what to do.
    pub fn check_requirements(&self) -> rotproof_block::Result<()> {
        rotproof_guest::check_requirements(self.kind == MachineKind::Qemu)?;
        self.guest_kind().map(drop)
    }

    /// What a guest of this kind is carried by, with its kernel. Fails as [`Kernel::find`],
    /// and with [`Missing`](rotproof_block::ErrorKind::Missing) if its kernel is known not to have the file system.
    pub fn guest_kind(&self) -> rotproof_block::Result<GuestKind> {
        let file_system = self.file_system.kind.name();
        if self.kind.is_uml() {
            return rotproof_guest::check_uml_file_system(file_system)
                .map(|()| GuestKind::Uml { file_system });
        }
        Kernel::find(self.kernel.as_deref(), self.modules.as_deref(), file_system).map(GuestKind::Qemu)
    }

    /// Adds what cannot work to `problems`.
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        let most = Bytes(if self.kind.is_uml() { UML_MEMORY_MAX } else { QEMU_MEMORY_MAX });
        if !(MEMORY_MIN..=most.0).contains(&self.memory.0) {
            problems.add(
                &path.key("memory"),
                format!(
                    "a machine with {} of memory is not possible; give {} to {most}",
                    self.memory,
                    Bytes(MEMORY_MIN)
                ),
            );
        }
        if self.kind.is_uml() {
            let of_qemu = [
                ("kernel", self.kernel.is_some()),
                ("modules", self.modules.is_some()),
                ("disk", !self.disk.is_file()),
                ("snapshot", !self.snapshot),
            ];
            for (key, _) in of_qemu.iter().filter(|(_, is_given)| *is_given) {
                problems.add_with_help(
                    &path.key(key),
                    format!(
                        "`{key}` is for QEMU: User Mode Linux is its own kernel, which boots, with a file as its disk"
                    ),
                    "take `kind: qemu`, or leave it out",
                );
            }
        }
    }
}

impl fmt::Display for MachineSpec {
    /// As in a sentence, after its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == MachineKind::Qemu {
            write!(f, " (qemu, disk by {})", self.disk.word())?;
        }
        let held = if self.holds_dirty { ", which holds what is dirty" } else { "" };
        let file_system = SubjectSpec::FileSystem(self.file_system.clone());
        write!(f, " with {} of memory{held}, and {file_system}", self.memory)
    }
}

fn memory_default() -> Bytes {
    Bytes(MEMORY_DEFAULT)
}

fn write_file_system<S: Serializer>(spec: &FileSystemSpec, serializer: S) -> Result<S::Ok, S::Error> {
    SubjectSpec::FileSystem(spec.clone()).serialize(serializer)
}

fn read_file_system<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FileSystemSpec, D::Error> {
    match SubjectSpec::deserialize(deserializer)? {
        SubjectSpec::FileSystem(spec) => Ok(spec),
        other => Err(serde::de::Error::custom(format!(
            "the file system of a machine is ext4, xfs, btrfs, jfs or f2fs, not {}",
            other.name()
        ))),
    }
}

/// What a machine takes, with the schema of its file system.
pub(crate) fn machine_schema(generator: &mut SchemaGenerator, file_system: &Schema) -> Schema {
    let (memory, kind) = (generator.subschema_for::<Bytes>(), generator.subschema_for::<MachineKind>());
    let disk = generator.subschema_for::<MachineDisk>();
    json_schema!({
        "description": "A guest kernel (User Mode Linux or QEMU) with a file system.",
        "type": "object",
        "properties": {
            "kind": kind,
            "file_system": file_system,
            "memory": memory,
            "holds_dirty": {
                "description": "Keeps what is dirty in its memory until a sync, fsync or unmount asks for it. Default: false.",
                "type": "boolean"
            },
            "kernel": {
                "description": "Of QEMU: the image of the kernel. Default: the newest that is installed in /boot.",
                "type": "string"
            },
            "modules": {
                "description": "Of QEMU: the folder with the kernel's modules. Default: those installed for it in /lib/modules.",
                "type": "string"
            },
            "disk": disk,
            "snapshot": {
                "description": "Of QEMU: goes on from a snapshot of a machine that has booted; else it boots. Default: true.",
                "type": "boolean"
            }
        },
        "required": ["file_system"],
        "additionalProperties": false
    })
}
