//! The description of a stack: its devices from bottom to top, the first one the leaf.
//!
//! Owns the words of `stack:` and what makes no sense in them. It does not know how anything is opened; that is the
//! factory's.

use std::borrow::Cow;
use std::path::PathBuf;

use rotproof_block::leaf::NbdUri;
use rotproof_spec::{Bytes, Path, Problems, WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

use crate::dedup_spec::DedupSpec;
use crate::disk_spec::DiskSpec;

/// Devices bottom to top: a leaf, then layers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct StackSpec(pub Vec<DeviceSpec>);

/// One device of a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceSpec {
    /// RAM of this process.
    Memory(MemorySpec),
    /// A file or block device.
    File(FileSpec),
    /// An export of an NBD server.
    Nbd(NbdSpec),
    /// A simulated disk over RAM.
    Disk(DiskSpec),
    /// The place where the fault plan acts.
    Faults,
    /// Counts what passes.
    Stats(StatsSpec),
    /// Stores equal blocks once.
    Dedup(DedupSpec),
}

/// A leaf in RAM; its content is gone afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySpec {
    /// Capacity.
    pub size: Bytes,
    /// Unit of addressing: 512 to 4096, a power of two. Default 512.
    #[serde(default = "block_size_default")]
    pub block_size: Bytes,
}

fn block_size_default() -> Bytes {
    Bytes(512)
}

/// A leaf in a file or on a block device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// The file; one that does not exist is created sparse, and then the size is needed.
    pub path: PathBuf,
    /// Capacity. Default: the size of the file that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Past the page cache (O_DIRECT). Default true.
    #[serde(default = "direct_default")]
    pub direct: bool,
}

fn direct_default() -> bool {
    true
}

/// A leaf on an export of an NBD server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NbdSpec {
    /// Where it is: nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH.
    pub uri: String,
}

/// The layer that counts requests and bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatsSpec {
    /// How results call it. Default: stats-1, stats-2, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl WordOrMap for DeviceSpec {
    const WORDS: &'static [&'static str] = &["memory", "file", "nbd", "disk", "faults", "stats", "dedup"];
    const EXPECTING: &'static str = "a device: { memory: { size: 256MiB } }, { file: { path: disk.img } }, { nbd: { uri: \"nbd://localhost/\" } }, { disk: { profile: nvme, size: 1GiB } }, faults, stats or dedup";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        let needs = |example: &str| Some(Err(format!("`{word}` needs more: {example}")));
        match word {
            "memory" => needs("{ memory: { size: 256MiB } }"),
            "file" => needs("{ file: { path: disk.img, size: 1GiB } }"),
            "nbd" => needs("{ nbd: { uri: \"nbd+unix:///?socket=disk.sock\" } }"),
            "disk" => needs("{ disk: { profile: nvme, size: 1GiB } }"),
            "faults" => Some(Ok(Self::Faults)),
            "stats" => Some(Ok(Self::Stats(StatsSpec::default()))),
            "dedup" => Some(Ok(Self::Dedup(DedupSpec::default()))),
            _ => None,
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        match key {
            "memory" => map.next_value().map(Self::Memory),
            "file" => map.next_value().map(Self::File),
            "nbd" => map.next_value().map(Self::Nbd),
            "disk" => map.next_value().map(Self::Disk),
            "stats" => map.next_value().map(Self::Stats),
            "dedup" => map.next_value().map(Self::Dedup),
            word => Err(A::Error::custom(format!("`{word}` takes no options; write `- {word}`"))),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for DeviceSpec {
    fn schema_name() -> Cow<'static, str> {
        "DeviceSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let with_options = |word: &str, description: &str, options: Schema| {
            json_schema!({
                "description": description,
                "type": "object",
                "properties": { word: options },
                "required": [word],
                "additionalProperties": false
            })
        };
        let memory = generator.subschema_for::<MemorySpec>();
        let file = generator.subschema_for::<FileSpec>();
        let nbd = generator.subschema_for::<NbdSpec>();
        let disk = generator.subschema_for::<DiskSpec>();
        let stats = generator.subschema_for::<StatsSpec>();
        let dedup = generator.subschema_for::<DedupSpec>();
        json_schema!({
            "description": "One device of the stack: first a leaf, then layers.",
            "anyOf": [
                {
                    "description": "faults: where the fault plan acts. stats: counts what passes. dedup: stores equal blocks once.",
                    "enum": ["faults", "stats", "dedup"]
                },
                with_options("memory", "Leaf: RAM of this process.", memory),
                with_options("file", "Leaf: a file or block device.", file),
                with_options("nbd", "Leaf: an export of an NBD server.", nbd),
                with_options("disk", "Leaf: a simulated disk over RAM.", disk),
                with_options("stats", "Layer: counts requests and bytes.", stats),
                with_options("dedup", "Layer: stores equal blocks of 4 KiB once.", dedup)
            ]
        })
    }
}

impl DeviceSpec {
    /// Whether it can stand at the bottom, and only there.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::File(_) | Self::Nbd(_) | Self::Disk(_))
    }

    /// The word it is written with.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::File(_) => "file",
            Self::Nbd(_) => "nbd",
            Self::Disk(_) => "disk",
            Self::Faults => "faults",
            Self::Stats(_) => "stats",
            Self::Dedup(_) => "dedup",
        }
    }
}

impl StackSpec {
    /// The leaf, if the description begins with one.
    pub fn leaf(&self) -> Option<&DeviceSpec> {
        self.0.first().filter(|device| device.is_leaf())
    }

    /// The size in bytes of the leaf, as far as it is known before that is opened: a file without `size` is as large
    /// as it is found.
    pub fn leaf_size(&self) -> Option<u64> {
        match self.leaf()? {
            DeviceSpec::Memory(memory) => Some(memory.size.0),
            DeviceSpec::Disk(disk) => Some(disk.size.0),
            DeviceSpec::File(file) => file.size.map(|size| size.0),
            // As large as the server says.
            DeviceSpec::Nbd(_) | DeviceSpec::Faults | DeviceSpec::Stats(_) | DeviceSpec::Dedup(_) => None,
        }
    }

    /// The size in bytes of the device on top, over a leaf of `leaf_size`.
    pub fn top_size(&self, leaf_size: Option<u64>) -> Option<u64> {
        size_over(&self.0, leaf_size)
    }

    /// The size in bytes of the device on which faults act, which is what their offsets mean.
    pub fn faulty_size(&self, leaf_size: Option<u64>) -> Option<u64> {
        size_over(&self.0[..self.place_of_faults()], leaf_size)
    }

    /// Whether what lies at an offset of the device on top lies at the same offset where faults act.
    pub fn keeps_offsets(&self) -> bool {
        !self.0[self.place_of_faults()..].iter().any(|device| matches!(device, DeviceSpec::Dedup(_)))
    }

    /// How many devices are below the faults: the leaf, if the description names no place for them.
    fn place_of_faults(&self) -> usize {
        let named = self.0.iter().position(|device| *device == DeviceSpec::Faults);
        named.unwrap_or(self.0.len().min(1))
    }

    /// Reports everything that makes no sense. `path` is where the list stands in the document.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        let Some(first) = self.0.first() else {
            problems.add_with_help(
                path,
                "the stack is empty",
                "begin with a leaf: - memory: { size: 256MiB }",
            );
            return;
        };
        if !first.is_leaf() {
            problems.add_with_help(
                &path.index(0),
                format!("a stack begins with a leaf, and {} is none", first.word()),
                "begin with memory, file, nbd or disk",
            );
        }
        let mut faults_at = None;
        let mut dedup_at = None;
        let mut names: Vec<String> = Vec::new();
        for (index, device) in self.0.iter().enumerate() {
            let place = path.index(index);
            if index > 0 && device.is_leaf() {
                problems.add_with_help(
                    &place,
                    format!("{} is a leaf and can only be at the bottom", device.word()),
                    "a stack has one leaf, its first entry",
                );
            }
            let place = place.key(device.word());
            match device {
                DeviceSpec::Memory(memory) => memory.validate(&place, problems),
                DeviceSpec::File(file) => file.validate(&place, problems),
                DeviceSpec::Nbd(nbd) => nbd.validate(&place, problems),
                DeviceSpec::Disk(disk) => disk.validate(&place, problems),
                DeviceSpec::Faults => {
                    if let Some(before) = faults_at.replace(index) {
                        problems.add_with_help(
                            &path.index(index),
                            format!("faults stands at entry {} already", before + 1),
                            "a trial has one fault plan, which acts in one place",
                        );
                    }
                }
                DeviceSpec::Stats(stats) => {
                    let name = stats.name_or_default(names.len());
                    if name.is_empty() {
                        problems.add(&place.key("name"), "the name is empty");
                    } else if names.contains(&name) {
                        problems
                            .add(&place.key("name"), format!("another stats layer is called `{name}` too"));
                    }
                    names.push(name);
                }
                DeviceSpec::Dedup(dedup) => {
                    if let Some(before) = dedup_at.replace(index) {
                        problems.add_with_help(
                            &path.index(index),
                            format!("dedup stands at entry {} already", before + 1),
                            "what has been deduplicated has no duplicates left",
                        );
                    }
                    let below = size_over(&self.0[..index], self.leaf_size());
                    dedup.validate(below, &place, problems);
                }
            }
        }
    }
}

/// The size of the topmost of `devices` over a leaf of `leaf_size`: of all layers, only dedup has one of its own.
fn size_over(devices: &[DeviceSpec], leaf_size: Option<u64>) -> Option<u64> {
    devices.iter().fold(leaf_size, |below, device| match device {
        DeviceSpec::Dedup(dedup) => dedup.size_over(below),
        _ => below,
    })
}

impl StatsSpec {
    /// The name, or what a layer without one is called that has `below` stats layers below it.
    pub(crate) fn name_or_default(&self, below: usize) -> String {
        self.name.clone().unwrap_or_else(|| format!("stats-{}", below + 1))
    }
}

impl NbdSpec {
    fn validate(&self, path: &Path, problems: &mut Problems) {
        if let Err(error) = self.uri.parse::<NbdUri>() {
            problems.add(&path.key("uri"), error.context());
        }
    }
}

impl MemorySpec {
    fn validate(&self, path: &Path, problems: &mut Problems) {
        let Bytes(block_size) = self.block_size;
        if !block_size.is_power_of_two() || !(512..=4096).contains(&block_size) {
            problems.add(
                &path.key("block_size"),
                format!("a block of {block_size} bytes; it must be 512, 1024, 2048 or 4096"),
            );
            return;
        }
        validate_size(self.size, block_size, path, problems);
    }
}

impl FileSpec {
    fn validate(&self, path: &Path, problems: &mut Problems) {
        if self.path.as_os_str().is_empty() {
            problems.add(&path.key("path"), "the path is empty");
        }
        if let Some(size) = self.size {
            validate_size(size, 512, path, problems);
        }
    }
}

/// The kernel counts file offsets in signed 64-bit numbers; this is far below, so that no sum of an offset and a
/// length can overflow.
const SIZE_MAX: u64 = 1 << 60;

pub(crate) fn validate_size(size: Bytes, block_size: u64, path: &Path, problems: &mut Problems) {
    let Bytes(bytes) = size;
    if bytes == 0 {
        problems.add(&path.key("size"), "a device without any block");
    } else if bytes > SIZE_MAX {
        problems
            .add(&path.key("size"), format!("{size} is more than a device can have ({})", Bytes(SIZE_MAX)));
    } else if !bytes.is_multiple_of(block_size) {
        problems.add_with_help(
            &path.key("size"),
            format!("{bytes} bytes are no multiple of the block of {block_size} bytes"),
            format!("write {} or {}", bytes - bytes % block_size, bytes.next_multiple_of(block_size)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> StackSpec {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    fn problems(json: &str) -> Vec<String> {
        let mut problems = Problems::default();
        spec(json).validate(&Path::root().key("stack"), &mut problems);
        problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn a_stack_survives_its_text_with_every_default_filled_in() {
        for (short, long) in [
            (
                r#"[{"memory":{"size":"256MiB"}},"faults",{"stats":{"name":"below_fs"}}]"#,
                r#"[{"memory":{"size":"256MiB","block_size":"512"}},"faults",{"stats":{"name":"below_fs"}}]"#,
            ),
            (
                r#"[{"file":{"path":"disk.img"}},"stats"]"#,
                r#"[{"file":{"path":"disk.img","direct":true}},{"stats":{}}]"#,
            ),
            (
                r#"[{"memory":{"size":"1GiB"}},"dedup"]"#,
                r#"[{"memory":{"size":"1GiB","block_size":"512"}},{"dedup":{"verify":false}}]"#,
            ),
            (
                r#"[{"disk":{"profile":"hdd","size":"1GiB","seek_max":"8ms"}}]"#,
                r#"[{"disk":{"profile":"hdd","size":"1GiB","seek_max":"8ms"}}]"#,
            ),
        ] {
            let stack = spec(short);
            assert_eq!(serde_json::to_string(&stack).expect("plain data"), long);
            assert_eq!(spec(long), stack);
            assert_eq!(problems(short), [] as [String; 0]);
        }
    }

    #[test]
    fn the_size_is_known_where_the_leaf_tells_it() {
        assert_eq!(spec(r#"[{"memory":{"size":"1MiB"}}, "faults"]"#).leaf_size(), Some(1 << 20));
        assert_eq!(spec(r#"[{"disk":{"profile":"ssd","size":"1MiB"}}]"#).leaf_size(), Some(1 << 20));
        assert_eq!(spec(r#"[{"file":{"path":"x","size":"1MiB"}}]"#).leaf_size(), Some(1 << 20));
        assert_eq!(spec(r#"[{"file":{"path":"x"}}]"#).leaf_size(), None);
        assert_eq!(spec(r#"["faults"]"#).leaf_size(), None);
    }

    #[test]
    fn a_dedup_layer_has_a_size_of_its_own_and_moves_what_lies_below_it() {
        const MIB: u64 = 1 << 20;
        for (layers, top, faulty, keeps_offsets) in [
            (r#""stats""#, Some(MIB), Some(MIB), true),
            (r#""dedup""#, Some(MIB), Some(MIB), false),
            (r#""faults",{"dedup":{"size":"4MiB"}},"stats""#, Some(4 * MIB), Some(MIB), false),
            (r#"{"dedup":{"size":"4MiB"}},"stats","faults""#, Some(4 * MIB), Some(4 * MIB), true),
        ] {
            let spec = spec(&format!(r#"[{{"memory":{{"size":"1MiB"}}}},{layers}]"#));
            let leaf = spec.leaf_size();
            assert_eq!((spec.top_size(leaf), spec.faulty_size(leaf)), (top, faulty), "{layers}");
            assert_eq!(spec.keeps_offsets(), keeps_offsets, "{layers}");
        }
        let file = spec(r#"[{"file":{"path":"x"}},"dedup"]"#);
        assert_eq!((file.top_size(None), file.top_size(Some(4096 * 3 + 512))), (None, Some(4096 * 3)));
    }

    #[test]
    fn what_makes_no_sense_is_reported_at_its_place() {
        for (json, place, part) in [
            ("[]", "stack", "empty"),
            (r#"["faults"]"#, "stack[0]", "begins with a leaf"),
            (r#"[{"memory":{"size":"1MiB"}},{"file":{"path":"x"}}]"#, "stack[1]", "only be at the bottom"),
            (r#"[{"memory":{"size":"1MiB"}},"faults","stats","faults"]"#, "stack[3]", "entry 2"),
            (r#"[{"memory":{"size":0}}]"#, "stack[0].memory.size", "without any block"),
            (r#"[{"memory":{"size":1000}}]"#, "stack[0].memory.size", "no multiple"),
            (r#"[{"memory":{"size":18446744073709551615}}]"#, "stack[0].memory.size", "more than a device"),
            (
                r#"[{"memory":{"size":"1MiB","block_size":1000}}]"#,
                "stack[0].memory.block_size",
                "must be 512",
            ),
            (
                r#"[{"memory":{"size":"1MiB","block_size":8192}}]"#,
                "stack[0].memory.block_size",
                "must be 512",
            ),
            (r#"[{"memory":{"size":512,"block_size":4096}}]"#, "stack[0].memory.size", "no multiple"),
            (r#"[{"file":{"path":""}}]"#, "stack[0].file.path", "empty"),
            (
                r#"[{"memory":{"size":512}},{"stats":{"name":"a"}},{"stats":{"name":"a"}}]"#,
                "stack[2].stats.name",
                "called `a`",
            ),
            (r#"["dedup"]"#, "stack[0]", "begins with a leaf"),
            (r#"[{"memory":{"size":"1MiB"}},"dedup","stats","dedup"]"#, "stack[3]", "entry 2"),
            (r#"[{"memory":{"size":512}},"dedup"]"#, "stack[1].dedup", "needs 4096"),
            (r#"[{"file":{"path":"x","size":"9TiB"}},"dedup"]"#, "stack[1].dedup", "can map"),
            (r#"[{"memory":{"size":"1MiB"}},{"dedup":{"size":0}}]"#, "stack[1].dedup.size", "without any"),
            (r#"[{"memory":{"size":"1MiB"}},{"dedup":{"size":5000}}]"#, "stack[1].dedup.size", "no multiple"),
            (r#"[{"memory":{"size":"1MiB"}},{"dedup":{"size":"9TiB"}}]"#, "stack[1].dedup.size", "can map"),
        ] {
            let found = problems(json);
            assert_eq!(found.len(), 1, "{json}: {found:?}");
            assert!(
                found[0].starts_with(&format!("{place}: ")) && found[0].contains(part),
                "{json}: {found:?}"
            );
        }
    }

    #[test]
    fn a_word_that_needs_more_or_does_not_exist_is_explained() {
        let complaint = |json| serde_json::from_str::<StackSpec>(json).expect_err(json).to_string();
        assert!(complaint(r#"["memory"]"#).contains("{ memory: { size: 256MiB } }"));
        assert!(complaint(r#"[{"faults": 3}]"#).contains("takes no options"));
        assert!(complaint(r#"["fautls"]"#).contains("unknown variant"));
        assert!(complaint(r#"[{"memory": {"sise": 3}}]"#).contains("unknown field"));
    }
}
