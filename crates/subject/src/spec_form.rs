//! How a subject is written in a trial file: a word, or a word with options; and the schema of that.

use std::borrow::Cow;
use std::fmt;

use rotproof_spec::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::machine_spec::machine_schema;
use crate::spec::{GUARD, MACHINE, SUBJECTS, VOLUME, ZFS};
use crate::{FileSystemSpec, GuardMode, GuardSpec, MachineSpec, SubjectSpec, VolumeSubjectSpec, ZfsSpec};

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
    use rotproof_spec::Bytes;

    use super::*;
    use crate::{FileSystem, MachineDisk, MachineKind};

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
                    snapshot: true,
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
}
