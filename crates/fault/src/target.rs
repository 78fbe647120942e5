//! Blocks that a rule names by what they are: contents that the load works out before it writes, so that a fault
//! follows a file's block to wherever the stack puts it, and blocks that the engine chooses from what it has seen.
//! Source: AchillesBench, whose benchmark tells its injector what it will write.

use std::borrow::Cow;

use rotproof_spec::{Bytes, Span, WordOrMap, deserialize_word_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::seen::{BLOCKS, OPTIONS, Seen, SeenParts};

/// A symbolic choice of blocks. The load resolves those that it knows ([`Target::is_known_to_load`]), to the hashes of a
/// [`ResolvedRule`](crate::ResolvedRule).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The contents written most often.
    MostDuplicated {
        /// How many contents.
        count: u64,
    },
    /// Contents written exactly once.
    Unique {
        /// How many contents.
        count: u64,
    },
    /// What the load first writes to a block of one of its files (or to its device).
    File {
        /// Name of the file: a, b, c, ...
        file: String,
        /// Block of the file, from 0.
        block: u64,
    },
    /// The place on the device where a block of a file lies already, which whoever knows the file system says before the
    /// rule acts ([`Engine::set_place`](crate::Engine::set_place)).
    Extent {
        /// Name of the file: a, b, c, ...
        file: String,
        /// Block of the file, from 0.
        block: u64,
    },
    /// Blocks of a file system by what they are, at the places where whoever can read it finds them before the rule acts
    /// ([`Engine::set_places`](crate::Engine::set_places)).
    Type {
        /// The word of a kind, or of several, as `rotproof_kinds::words` has them.
        kind: String,
        /// Whether only the first copy of what is kept more than once.
        copies: KindCopies,
        /// Only blocks of that file: a, b, c, ...
        file: Option<String>,
    },
    /// The last block of each stretch of that many bytes of every file (or of the device).
    LastBlockOfEvery(Bytes),
    /// What the engine chooses from the requests that it has seen.
    Seen(Seen),
}

/// Which copies of a block that is kept more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KindCopies {
    /// The first alone.
    One,
    /// All of them.
    #[default]
    All,
}

impl KindCopies {
    pub(crate) fn word(self) -> &'static str {
        match self {
            KindCopies::One => "one",
            KindCopies::All => "all",
        }
    }

    pub(crate) fn from_word(word: &str) -> Result<Self, String> {
        match word {
            "one" => Ok(KindCopies::One),
            "all" => Ok(KindCopies::All),
            other => Err(format!("`copies` is one or all, not `{other}`")),
        }
    }
}

impl Target {
    /// Whether blocks are recognised by what they contain.
    pub fn is_by_content(&self) -> bool {
        match self {
            Self::MostDuplicated { .. }
            | Self::Unique { .. }
            | Self::File { .. }
            | Self::LastBlockOfEvery(_) => true,
            Self::Extent { .. } | Self::Type { .. } => false,
            Self::Seen(seen) => seen.is_by_content(),
        }
    }

    /// Whether only a trial can say what is meant: it knows its load, and where the files of that lie.
    pub fn needs_trial(&self) -> bool {
        !matches!(self, Self::Seen(_))
    }

    /// Whether the load can say, before it writes, what is meant.
    pub fn is_known_to_load(&self) -> bool {
        !matches!(self, Self::Seen(_) | Self::Extent { .. } | Self::Type { .. })
    }
}

impl Target {
    /// A block of a file, recognised as `by` says: by its content if it is not given.
    pub(crate) fn of_file(file: String, block: u64, by: Option<&str>) -> Result<Self, String> {
        match by {
            None | Some("content") => Ok(Self::File { file, block }),
            Some("extent") => Ok(Self::Extent { file, block }),
            Some(other) => Err(format!("`by` of a block of a file is content or extent, not `{other}`")),
        }
    }
}

impl WordOrMap for Target {
    const WORDS: &'static [&'static str] = &[
        "most_duplicated",
        "unique",
        "file",
        "block",
        "last_block_of_every",
        "seen",
        "after",
        "at",
        "by",
        "apart",
        "type",
        "copies",
    ];
    const EXPECTING: &'static str = "a target: most_duplicated, unique, { file: a, block: 7 }, { file: a, block: 7, by: extent }, \
         { last_block_of_every: 64MiB }, { type: inode_table } or { seen: most_duplicated, after: 1000 }";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        match word {
            "most_duplicated" => Some(Ok(Self::MostDuplicated { count: 1 })),
            "unique" => Some(Ok(Self::Unique { count: 1 })),
            "file" | "block" => Some(Err(format!("`{word}` needs values: {{ file: a, block: 7 }}"))),
            "last_block_of_every" => {
                Some(Err("`last_block_of_every` needs a size: { last_block_of_every: 64MiB }".to_owned()))
            }
            "type" | "copies" => {
                Some(Err(format!("`{word}` needs a kind of block: {{ type: inode_table, copies: all }}")))
            }
            "seen" => Some(Err(format!("`seen` needs what was seen: {{ seen: {} }}", BLOCKS[0]))),
            word if OPTIONS.contains(&word) => {
                Some(Err(format!("`{word}` needs what was seen: {{ seen: {}, {word}: ... }}", BLOCKS[0])))
            }
            _ => None,
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        match key {
            "most_duplicated" => map.next_value().map(|count| Self::MostDuplicated { count }),
            "unique" => map.next_value().map(|count| Self::Unique { count }),
            "last_block_of_every" => map.next_value().map(Self::LastBlockOfEvery),
            _ => block_from_map(key, map),
        }
    }
}

/// A block of a file, or one that was seen, with their options in any order; `first` has been read already. Takes every
/// key that there is.
fn block_from_map<'de, A: MapAccess<'de>>(first: &str, map: &mut A) -> Result<Target, A::Error> {
    let (mut file, mut block) = (None, None);
    let (mut kind, mut copies) = (None, None);
    let mut parts = SeenParts::default();
    let mut next = Some(first.to_owned());
    while let Some(key) = next {
        let is_given = match key.as_str() {
            "file" => file.replace(map.next_value::<String>()?).is_some(),
            "block" => block.replace(map.next_value::<u64>()?).is_some(),
            "type" => kind.replace(map.next_value::<String>()?).is_some(),
            "copies" => copies.replace(map.next_value::<String>()?).is_some(),
            "seen" => parts.block.replace(map.next_value()?).is_some(),
            "after" => parts.after.replace(map.next_value()?).is_some(),
            "at" => parts.at.replace(map.next_value()?).is_some(),
            "by" => parts.by.replace(map.next_value()?).is_some(),
            "apart" => parts.apart.replace(map.next_value()?).is_some(),
            other if <Target as WordOrMap>::WORDS.contains(&other) => {
                return Err(A::Error::custom(format!("`{other}` beside `{first}`: only one of them can be")));
            }
            other if kind.is_some() || copies.is_some() => {
                return Err(A::Error::unknown_field(other, &["type", "copies", "file"]));
            }
            other if file.is_some() || block.is_some() => {
                return Err(A::Error::unknown_field(other, &["file", "block", "by"]));
            }
            other => return Err(A::Error::unknown_field(other, &["seen", "after", "at", "by", "apart"])),
        };
        if is_given {
            return Err(A::Error::custom(format!("`{key}` is given twice")));
        }
        next = map.next_key()?;
    }
    if kind.is_some() || copies.is_some() {
        let beside = [
            ("block", block.is_some()),
            ("seen", parts.block.is_some()),
            ("after", parts.after.is_some()),
            ("at", parts.at.is_some()),
            ("by", parts.by.is_some()),
            ("apart", parts.apart.is_some()),
        ];
        if let Some((key, _)) = beside.into_iter().find(|(_, is_given)| *is_given) {
            return Err(A::Error::custom(format!("`{key}` beside a kind of block: only one of them can be")));
        }
        let kind =
            kind.ok_or_else(|| A::Error::custom("`type` is missing: { type: inode_table, copies: all }"))?;
        let copies = copies.map_or(Ok(KindCopies::default()), |word| KindCopies::from_word(&word));
        return Ok(Target::Type { kind, copies: copies.map_err(A::Error::custom)?, file });
    }
    if file.is_none() && block.is_none() {
        return parts.build().map(Target::Seen).map_err(A::Error::custom);
    }
    let beside = [
        ("seen", parts.block.is_some()),
        ("after", parts.after.is_some()),
        ("at", parts.at.is_some()),
        ("apart", parts.apart.is_some()),
    ];
    if let Some((key, _)) = beside.into_iter().find(|(_, is_given)| *is_given) {
        return Err(A::Error::custom(format!("`{key}` beside a block of a file: only one of them can be")));
    }
    let file = file.ok_or_else(|| A::Error::missing_field("file"))?;
    let block = block.ok_or_else(|| A::Error::missing_field("block"))?;
    Target::of_file(file, block, parts.by.as_deref()).map_err(A::Error::custom)
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::MostDuplicated { count } => map.serialize_entry("most_duplicated", count)?,
            Self::Unique { count } => map.serialize_entry("unique", count)?,
            Self::File { file, block } => {
                map.serialize_entry("file", file)?;
                map.serialize_entry("block", block)?;
            }
            Self::Extent { file, block } => {
                map.serialize_entry("file", file)?;
                map.serialize_entry("block", block)?;
                map.serialize_entry("by", "extent")?;
            }
            Self::Type { kind, copies, file } => {
                map.serialize_entry("type", kind)?;
                map.serialize_entry("copies", copies.word())?;
                if let Some(file) = file {
                    map.serialize_entry("file", file)?;
                }
            }
            Self::LastBlockOfEvery(bytes) => map.serialize_entry("last_block_of_every", bytes)?,
            Self::Seen(seen) => seen.write_map(&mut map)?,
        }
        map.end()
    }
}

impl JsonSchema for Target {
    fn schema_name() -> Cow<'static, str> {
        "Target".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let bytes = generator.subschema_for::<Bytes>();
        let span = generator.subschema_for::<Span>();
        let after = json_schema!({
            "description": "Chosen after so many reads and writes in phases in which the rule is enabled. Default 0.",
            "type": "integer",
            "minimum": 0
        });
        let kinds = kinds();
        let with_count = |word: &str, description: &str| {
            json_schema!({
                "description": description,
                "type": "object",
                "properties": { word: { "type": "integer", "minimum": 1 } },
                "required": [word],
                "additionalProperties": false
            })
        };
        json_schema!({
            "description": "A content that the load works out before it writes, so that the fault follows it to wherever the stack puts it; or a block chosen from what has passed by.",
            "anyOf": [
                {
                    "description": "most_duplicated: the content written most often. unique: one written exactly once.",
                    "enum": ["most_duplicated", "unique"]
                },
                with_count("most_duplicated", "That many of the contents written most often."),
                with_count("unique", "That many contents written exactly once."),
                {
                    "description": "That block of that file: what the load first writes to it, wherever that goes; or with `by: extent` the place where it lies when the rule begins to act.",
                    "type": "object",
                    "properties": {
                        "file": { "description": "Name of the file: a, b, c, ...", "type": "string" },
                        "block": { "description": "Block of the file, from 0.", "type": "integer", "minimum": 0 },
                        "by": { "description": "How it is recognised. Default content.", "enum": ["content", "extent"] }
                    },
                    "required": ["file", "block"],
                    "additionalProperties": false
                },
                {
                    "description": "Blocks of a file system by what they are, where they lie when the rule begins to act.",
                    "type": "object",
                    "properties": {
                        "type": { "description": "A kind of block, or a word for several, as `rotproof map` has them.", "enum": kinds },
                        "copies": { "description": "Which copies of what is kept more than once. Default all.", "enum": ["one", "all"] },
                        "file": { "description": "Only blocks of that file: a, b, c, ...", "type": "string" }
                    },
                    "required": ["type"],
                    "additionalProperties": false
                },
                {
                    "description": "The last block of each stretch of that many bytes.",
                    "type": "object",
                    "properties": { "last_block_of_every": bytes },
                    "required": ["last_block_of_every"],
                    "additionalProperties": false
                },
                {
                    "description": "A content that is chosen at a moment, from what has been written until then.",
                    "type": "object",
                    "properties": {
                        "seen": { "description": "The content written most often, or one written once.", "enum": ["most_duplicated", "unique"] },
                        "after": after,
                        "at": span,
                        "by": { "description": "How it is recognised.", "const": "content" },
                        "apart": { "description": "Only one that no other rule has chosen. Default false.", "type": "boolean" }
                    },
                    "required": ["seen"],
                    "not": { "required": ["after", "at"] },
                    "additionalProperties": false
                },
                {
                    "description": "A block that is chosen at a moment: the last that was written by then, or the next.",
                    "type": "object",
                    "properties": {
                        "seen": { "description": "Which.", "enum": ["last_written", "next_written"] },
                        "after": after,
                        "at": span,
                        "by": { "description": "How it is recognised. Default place.", "enum": ["place", "content"] }
                    },
                    "required": ["seen"],
                    "not": { "required": ["after", "at"] },
                    "additionalProperties": false
                }
            ]
        })
    }
}

/// The words of kinds of blocks that can be a target. Of what is unknown nobody can say that it is what was meant.
pub(crate) fn kinds() -> Vec<&'static str> {
    let mut words = rotproof_kinds::words();
    words.retain(|word| !matches!(*word, "unknown" | "unused"));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::{By, Moment, SeenBlock};

    #[test]
    fn a_target_survives_json() {
        for target in [
            Target::MostDuplicated { count: 3 },
            Target::Unique { count: 1 },
            Target::File { file: "a".to_owned(), block: 7 },
            Target::Extent { file: "a".to_owned(), block: 7 },
            Target::LastBlockOfEvery(Bytes(64 << 20)),
            Target::Type { kind: "inode_table".to_owned(), copies: KindCopies::One, file: None },
            Target::Type { kind: "data".to_owned(), copies: KindCopies::All, file: Some("a".to_owned()) },
            Target::Seen(Seen { block: SeenBlock::Unique { apart: true }, moment: Moment::After(7) }),
            Target::Seen(Seen {
                block: SeenBlock::LastWritten { by: By::Content },
                moment: Moment::At("10s".parse().expect("a span")),
            }),
        ] {
            let text = serde_json::to_string(&target).expect("plain data");
            assert_eq!(serde_json::from_str::<Target>(&text).expect(&text), target);
        }
        let bare: Target = serde_json::from_str("\"most_duplicated\"").expect("the word alone");
        assert_eq!(bare, Target::MostDuplicated { count: 1 });
        let turned: Target = serde_json::from_str("{\"block\": 7, \"file\": \"a\"}").expect("any order");
        assert_eq!(turned, Target::File { file: "a".to_owned(), block: 7 });
        let by = |how| format!("{{\"by\": \"{how}\", \"file\": \"a\", \"block\": 7}}");
        assert_eq!(serde_json::from_str::<Target>(&by("content")).expect("the default"), turned);
        let extent: Target = serde_json::from_str(&by("extent")).expect("any order");
        assert_eq!(extent, Target::Extent { file: "a".to_owned(), block: 7 });
    }

    #[test]
    fn half_a_target_is_explained() {
        let complaint = |text| serde_json::from_str::<Target>(text).expect_err(text).to_string();
        assert!(complaint("{\"file\": \"a\"}").contains("missing field `block`"));
        assert!(complaint("{\"copies\": \"one\"}").contains("`type` is missing"));
        assert!(complaint("{\"type\": \"data\", \"copies\": \"two\"}").contains("one or all"));
        assert!(complaint("{\"type\": \"data\", \"block\": 7}").contains("only one"));
        assert!(complaint("{\"type\": \"data\", \"blok\": 7}").contains("unknown field"));
        assert!(complaint("{\"file\": \"a\", \"blok\": 7}").contains("unknown field"));
        assert!(complaint("{\"file\": \"a\", \"file\": \"b\"}").contains("twice"));
        assert!(complaint("\"last_block_of_every\"").contains("64MiB"));
        assert!(complaint("\"seen\"").contains("{ seen: most_duplicated }"));
        assert!(complaint("{\"after\": 3}").contains("`seen` is missing"));
        assert!(complaint("{\"seen\": \"unique\", \"aftr\": 3}").contains("unknown field"));
        assert!(complaint("{\"seen\": \"unique\", \"after\": 3, \"at\": \"3s\"}").contains("keep one"));
        assert!(complaint("{\"file\": \"a\", \"block\": 7, \"unique\": 1}").contains("only one"));
        assert!(complaint("{\"file\": \"a\", \"block\": 7, \"at\": \"3s\"}").contains("only one"));
        assert!(
            complaint("{\"file\": \"a\", \"block\": 7, \"by\": \"place\"}").contains("content or extent")
        );
    }
}
