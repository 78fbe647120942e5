//! What a trial file says of its subject: a name, or for a file system a name with options.
//!
//! Owns the words of the file (`raw`, `fat`, `device`, `ext4`, `xfs`, `btrfs`, `zfs` ...) and what each file system needs at least.
//! It does not know how a subject is made.

use std::borrow::Cow;
use std::fmt;

use rotproof_spec::{Bytes, Path, Problems, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::machine_spec::machine_schema;
use crate::{MachineSpec, VolumeSubjectSpec, ZfsSpec};

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

/// A guard, through its mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSpec {
    /// Whose files: those of a file system, or of a machine.
    pub over: Box<SubjectSpec>,
    /// What it does with them.
    pub mode: GuardMode,
    /// After how long in memory a block is verified by the strong sum again. Default: never.
    pub switch: Option<Span>,
}

/// What of a guard is switched on, to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GuardMode {
    /// Nothing: what is read and written is passed on.
    #[serde(rename = "plain")]
    Plain,
    /// One sum, which the writer makes and the reader verifies, and nobody between.
    #[serde(rename = "e2e")]
    EndToEnd,
    /// Two sums, and verified at every boundary.
    #[default]
    #[serde(rename = "z2")]
    Z2,
}

impl GuardMode {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            GuardMode::Plain => "plain",
            GuardMode::EndToEnd => "e2e",
            GuardMode::Z2 => "z2",
        }
    }
}

/// A file system and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemSpec {
    /// Which one.
    pub kind: FileSystem,
    /// Further arguments of mkfs, one each.
    pub mkfs: Vec<String>,
    /// Further mount options, one each.
    pub mount: Vec<String>,
    /// How btrfs keeps data, by the name of mkfs.btrfs: single, dup, raid0, raid1, raid10 ... Default: as mkfs.btrfs does.
    pub data: Option<String>,
    /// The same of its metadata. Default: as `data` says, else as mkfs.btrfs does.
    pub metadata: Option<String>,
    /// It is on the devices already, and is mounted as it is.
    pub existing: bool,
}

/// The file systems that Rotproof can put on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileSystem {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// JFS: of machines alone.
    Jfs,
    /// F2FS: of machines alone.
    F2fs,
}

impl FileSystem {
    /// Those of this machine's own kernel, in the order in which messages name them.
    pub const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];
    /// Those that only guests are asked to mount: few kernels of hosts have them.
    pub const OF_MACHINES: [FileSystem; 2] = [FileSystem::Jfs, FileSystem::F2fs];

    /// The name in trial files, of the kernel's driver, and behind `mkfs.`.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
            FileSystem::Jfs => "jfs",
            FileSystem::F2fs => "f2fs",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain(Self::OF_MACHINES).find(|kind| kind.name() == name)
    }

    /// The smallest device that makes sense. mkfs.xfs refuses less than 300 MiB, mkfs.btrfs less than 109 MiB
    /// (versions 6.1 and 6.2, default options); mkfs.ext4 takes less, but below 2 MiB leaves out the journal. mkfs.jfs refuses less than 16 MiB, and what mkfs.f2fs makes of
    /// less than 64 MiB has hardly any room.
    pub fn device_size_min(self) -> Bytes {
        Bytes(match self {
            FileSystem::Ext4 => 2 << 20,
            FileSystem::Xfs => 300 << 20,
            FileSystem::Btrfs => 109 << 20,
            FileSystem::Jfs => 16 << 20,
            FileSystem::F2fs => 64 << 20,
        })
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The word for a guest kernel.
const MACHINE: &str = "machine";
/// The word for a guard.
const GUARD: &str = "guard";
/// The word for a pool of ZFS.
const ZFS: &str = "zfs";
/// The word for a volume.
pub(crate) const VOLUME: &str = "volume";

/// Every word that `subject:` takes.
const SUBJECTS: [&str; 10] = ["raw", "fat", "device", "ext4", "xfs", "btrfs", ZFS, VOLUME, MACHINE, GUARD];

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

    fn from_name(name: &str) -> Option<Self> {
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

/// The profiles of mkfs.btrfs (btrfs-progs 6.2).
const PROFILES: [&str; 9] =
    ["single", "dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5", "raid6"];

impl FileSystemSpec {
    /// Without options.
    pub fn new(kind: FileSystem) -> Self {
        Self { kind, mkfs: Vec::new(), mount: Vec::new(), data: None, metadata: None, existing: false }
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

/// The options of a file system as they stand in the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Further arguments of mkfs, one each: `["-b", "4096"]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mkfs: Vec<String>,
    /// Further mount options, one each: `["noatime"]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mount: Vec<String>,
    /// Of btrfs: how it keeps data, such as raid1.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    /// Of btrfs: how it keeps metadata. Default: as `data` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<String>,
    /// The file system is on the device already, and is mounted as it is instead of made. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    existing: bool,
}

/// What `guard` takes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GuardOptions {
    /// Whose files: ext4, xfs, btrfs or a machine, with the options that they have as subjects.
    over: SubjectSpec,
    /// plain, e2e or z2. Default: z2.
    #[serde(default)]
    mode: GuardMode,
    /// After how long in memory a block is verified by the strong sum again. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    switch: Option<Span>,
}

impl Serialize for SubjectSpec {
    /// The plain word where there are no options.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let SubjectSpec::Machine(machine) = self {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(MACHINE, machine)?;
            return map.end();
        }
        if let SubjectSpec::Guard(GuardSpec { over, mode, switch }) = self {
            let mut map = serializer.serialize_map(Some(1))?;
            let options = GuardOptions { over: (**over).clone(), mode: *mode, switch: *switch };
            map.serialize_entry(GUARD, &options)?;
            return map.end();
        }
        if let SubjectSpec::Volume(volume) = self
            && *volume != VolumeSubjectSpec::default()
        {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(VOLUME, volume)?;
            return map.end();
        }
        if let SubjectSpec::Zfs(spec) = self
            && *spec != ZfsSpec::default()
        {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(ZFS, spec)?;
            return map.end();
        }
        match self.file_system() {
            Some(spec) if *spec != FileSystemSpec::new(spec.kind) => {
                let mut map = serializer.serialize_map(Some(1))?;
                let FileSystemSpec { mkfs, mount, data, metadata, existing, .. } = spec.clone();
                let options = Options { mkfs, mount, data, metadata, existing };
                map.serialize_entry(self.name(), &options)?;
                map.end()
            }
            _ => serializer.serialize_str(self.name()),
        }
    }
}

impl<'de> Deserialize<'de> for SubjectSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Subject;
        impl<'de> Visitor<'de> for Subject {
            type Value = SubjectSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a subject such as raw, or ext4 with options: { ext4: { mount: [noatime] } }")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<SubjectSpec, E> {
                if name == MACHINE {
                    return Err(E::custom(
                        "a machine needs a file system: { machine: { file_system: ext4 } }",
                    ));
                }
                if name == GUARD {
                    return Err(E::custom("a guard is over something: { guard: { over: ext4 } }"));
                }
                SubjectSpec::from_name(name).ok_or_else(|| E::unknown_variant(name, &SUBJECTS))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SubjectSpec, A::Error> {
                use serde::de::Error as _;
                let key = map.next_key::<String>()?.ok_or_else(|| {
                    A::Error::custom(
                        "name one subject: raw, fat, device, ext4, xfs, btrfs, zfs, volume, machine or guard",
                    )
                })?;
                if key == ZFS {
                    let spec: ZfsSpec = map.next_value()?;
                    if map.next_key::<String>()?.is_some() {
                        return Err(A::Error::custom("a trial has one subject"));
                    }
                    return Ok(SubjectSpec::Zfs(spec));
                }
                if key == VOLUME {
                    let volume: VolumeSubjectSpec = map.next_value()?;
                    if matches!(*volume.under, SubjectSpec::Volume(_)) {
                        return Err(A::Error::custom("a volume is under anything but another volume"));
                    }
                    if map.next_key::<String>()?.is_some() {
                        return Err(A::Error::custom("a trial has one subject"));
                    }
                    return Ok(SubjectSpec::Volume(volume));
                }
                if key == MACHINE {
                    let machine: MachineSpec = map.next_value()?;
                    if map.next_key::<String>()?.is_some() {
                        return Err(A::Error::custom("a trial has one subject"));
                    }
                    return Ok(SubjectSpec::Machine(machine));
                }
                if key == GUARD {
                    let GuardOptions { over, mode, switch } = map.next_value()?;
                    if !matches!(over, SubjectSpec::FileSystem(_) | SubjectSpec::Machine(_)) {
                        return Err(A::Error::custom(format!(
                            "a guard is over ext4, xfs, btrfs or a machine, not {}",
                            over.name()
                        )));
                    }
                    if map.next_key::<String>()?.is_some() {
                        return Err(A::Error::custom("a trial has one subject"));
                    }
                    return Ok(SubjectSpec::Guard(GuardSpec { over: Box::new(over), mode, switch }));
                }
                let subject =
                    SubjectSpec::from_name(&key).ok_or_else(|| A::Error::unknown_variant(&key, &SUBJECTS))?;
                let SubjectSpec::FileSystem(FileSystemSpec { kind, .. }) = subject else {
                    return Err(A::Error::custom(format!(
                        "{} takes no options; write `subject: {0}`",
                        subject.name()
                    )));
                };
                let Options { mkfs, mount, data, metadata, existing } = map.next_value()?;
                if map.next_key::<String>()?.is_some() {
                    return Err(A::Error::custom("a trial has one subject"));
                }
                Ok(SubjectSpec::FileSystem(FileSystemSpec { kind, mkfs, mount, data, metadata, existing }))
            }
        }
        deserializer.deserialize_any(Subject)
    }
}

impl JsonSchema for SubjectSpec {
    fn schema_name() -> Cow<'static, str> {
        "Subject".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let options = generator.subschema_for::<Options>();
        let volume = generator.subschema_for::<VolumeSubjectSpec>();
        let zfs = generator.subschema_for::<ZfsSpec>();
        let (span, mode) = (generator.subschema_for::<Span>(), generator.subschema_for::<GuardMode>());
        let file_system = json_schema!({
            "anyOf": [
                { "enum": ["ext4", "xfs", "btrfs"] },
                {
                    "type": "object",
                    "properties": { "ext4": options, "xfs": options, "btrfs": options },
                    "additionalProperties": false,
                    "minProperties": 1,
                    "maxProperties": 1
                }
            ]
        });
        let of_machine = json_schema!({
            "anyOf": [
                { "enum": ["ext4", "xfs", "btrfs", "jfs", "f2fs"] },
                {
                    "type": "object",
                    "properties": {
                        "ext4": options, "xfs": options, "btrfs": options, "jfs": options, "f2fs": options
                    },
                    "additionalProperties": false,
                    "minProperties": 1,
                    "maxProperties": 1
                }
            ]
        });
        let machine = machine_schema(generator, &of_machine);
        let guard = json_schema!({
            "description": "A guard over the files of a file system or a machine, through its mount.",
            "type": "object",
            "properties": {
                "over": {
                    "anyOf": [
                        file_system,
                        {
                            "type": "object",
                            "properties": { "machine": machine },
                            "required": ["machine"],
                            "additionalProperties": false
                        }
                    ]
                },
                "mode": mode,
                "switch": span
            },
            "required": ["over"],
            "additionalProperties": false
        });
        json_schema!({
            "description": "What is on trial: the stack itself (raw), a FAT file system in process (fat), a loop device over the stack (device), a file system on that loop device, a pool of ZFS by a program (zfs), a file system of a guest kernel (machine), a guard over either, or the devices of the stack as a volume, alone or under one of the others.",
            "anyOf": [
                { "enum": SUBJECTS[..8] },
                {
                    "type": "object",
                    "properties": {
                        "ext4": options, "xfs": options, "btrfs": options,
                        "zfs": zfs,
                        "machine": machine,
                        "guard": guard,
                        "volume": volume
                    },
                    "additionalProperties": false,
                    "minProperties": 1,
                    "maxProperties": 1
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MachineDisk, MachineKind};

    fn read(yaml: &str) -> Result<SubjectSpec, String> {
        serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn a_subject_is_a_word_or_a_word_with_options_and_reads_back_as_written() {
        let options = FileSystemSpec {
            kind: FileSystem::Ext4,
            mkfs: vec!["-b".into(), "4096".into()],
            mount: vec!["noatime".into()],
            ..FileSystemSpec::new(FileSystem::Ext4)
        };
        let mirrored =
            FileSystemSpec { data: Some("raid1".into()), ..FileSystemSpec::new(FileSystem::Btrfs) };
        for (yaml, wanted) in [
            ("raw", SubjectSpec::Raw),
            ("fat", SubjectSpec::Fat),
            ("device", SubjectSpec::Device),
            ("{ xfs: {} }", SubjectSpec::from_name("xfs").expect("xfs is a subject")),
            ("ext4: { mkfs: [\"-b\", \"4096\"], mount: [noatime] }", SubjectSpec::FileSystem(options)),
            ("btrfs: { data: raid1 }", SubjectSpec::FileSystem(mirrored.clone())),
            ("zfs", SubjectSpec::Zfs(ZfsSpec::default())),
            (
                "zfs: { properties: [copies=2], pool: [failmode=wait] }",
                SubjectSpec::Zfs(ZfsSpec {
                    properties: vec!["copies=2".into()],
                    pool: vec!["failmode=wait".into()],
                }),
            ),
            ("volume", SubjectSpec::Volume(VolumeSubjectSpec::default())),
            (
                "machine: { kind: qemu, file_system: xfs, memory: 512MiB, kernel: bzImage, disk: vhost }",
                SubjectSpec::Machine(MachineSpec {
                    kind: MachineKind::Qemu,
                    file_system: FileSystemSpec::new(FileSystem::Xfs),
                    memory: Bytes(512 << 20),
                    holds_dirty: false,
                    kernel: Some("bzImage".into()),
                    modules: None,
                    disk: MachineDisk::Vhost,
                }),
            ),
            (
                "volume: { copies: 3, under: { btrfs: { data: raid1 } } }",
                SubjectSpec::Volume(VolumeSubjectSpec {
                    copies: 3,
                    under: Box::new(SubjectSpec::FileSystem(mirrored.clone())),
                    ..VolumeSubjectSpec::default()
                }),
            ),
            (
                "guard: { over: { btrfs: { data: raid1 } }, switch: 92s }",
                SubjectSpec::Guard(GuardSpec {
                    over: Box::new(SubjectSpec::FileSystem(mirrored)),
                    mode: GuardMode::Z2,
                    switch: Some("92s".parse().expect("a span")),
                }),
            ),
        ] {
            let subject = read(yaml).expect(yaml);
            assert_eq!(subject, wanted);
            let written = serde_saphyr::to_string(&subject).expect("a subject can be written");
            assert_eq!(read(&written), Ok(wanted), "{written}");
        }
    }

    #[test]
    fn unknown_subjects_misplaced_options_and_several_subjects_are_refused() {
        for (yaml, words) in [
            ("zfz", "unknown variant `zfz`"),
            ("{ zfs: { mkfs: [] } }", "unknown field `mkfs`"),
            ("{ raw: { mkfs: [] } }", "takes no options"),
            ("{ fat: { mkfs: [] } }", "fat takes no options"),
            ("{ ext4: {}, xfs: {} }", "one subject"),
            ("{ ext4: { mkf: [] } }", "unknown field `mkf`"),
            ("{}", "name one subject"),
            ("guard", "a guard is over something"),
            ("{ guard: { over: raw } }", "not raw"),
            ("{ guard: { over: ext4, mode: zfs } }", "unknown variant `zfs`"),
            ("{ volume: { under: { volume: {} } } }", "anything but another volume"),
            ("{ machine: { file_system: raw } }", "not raw"),
            ("{ machine: { file_system: reiserfs } }", "unknown variant `reiserfs`"),
            ("{ machine: { kind: kvm, file_system: ext4 } }", "unknown variant `kvm`"),
            ("{ volume: { copys: 2 } }", "unknown field `copys`"),
        ] {
            let error = read(yaml).expect_err(yaml);
            assert!(error.contains(words), "{yaml}: {error}");
        }
    }

    #[test]
    fn options_that_cannot_work_are_reported_with_their_place() {
        let mut problems = Problems::default();
        read("ext4: { mkfs: [\"\"], mount: [\"noatime,ro\"] }")
            .expect("well-formed")
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
            read(yaml).expect("well-formed").validate(&Path::root(), &mut problems);
            let found: Vec<_> = problems.into_iter().map(|problem| problem.message).collect();
            assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
        }
    }
}
