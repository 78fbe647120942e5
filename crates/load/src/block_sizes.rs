//! How large the requests of a load are, as a trial file says it: one size, or several with their shares, for all
//! requests or for reads and writes apart.

use std::borrow::Cow;
use std::fmt;

use rotproof_spec::{Bytes, Path, Percent, Problems};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{BLOCK_BYTES, MAX_REQUEST_BYTES};

/// Sizes of a mix; nobody has use for more.
const SIZES_MAX: usize = 64;

/// `4KiB`, `{ 4KiB: 60%, 64KiB: 40% }`, or `{ reads: ..., writes: ... }` with either of them.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockSizes {
    /// The same for all requests.
    All(SizeMix),
    /// Reads and writes apart.
    Split {
        /// Of the requests that read.
        reads: SizeMix,
        /// Of those that write.
        writes: SizeMix,
    },
}

/// Sizes and the share of the requests that each has.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeMix(pub Vec<(Bytes, Percent)>);

impl From<Bytes> for BlockSizes {
    fn from(size: Bytes) -> Self {
        Self::All(SizeMix::one(size))
    }
}

impl Default for BlockSizes {
    fn default() -> Self {
        Bytes(BLOCK_BYTES as u64).into()
    }
}

impl SizeMix {
    /// Every request of this size.
    pub fn one(size: Bytes) -> Self {
        Self(vec![(size, Percent(1.0))])
    }

    /// The mean of the sizes, in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.0.iter().map(|(size, share)| size.0 as f64 * share.0).sum()
    }

    fn validate(&self, path: &Path, problems: &mut Problems) {
        for (size, _) in &self.0 {
            if !size.0.is_power_of_two() || !(BLOCK_BYTES as u64..=MAX_REQUEST_BYTES).contains(&size.0) {
                problems.add_with_help(
                    path,
                    format!("a request of {size} is not possible"),
                    format!(
                        "give a power of two from {} to {}",
                        Bytes(BLOCK_BYTES as u64),
                        Bytes(MAX_REQUEST_BYTES)
                    ),
                );
            }
        }
        if self.0.len() > SIZES_MAX {
            problems.add(path, format!("{} sizes are too many; at most {SIZES_MAX}", self.0.len()));
        }
        let sum: f64 = self.0.iter().map(|(_, share)| share.0).sum();
        if (sum - 1.0).abs() > 1e-6 {
            problems.add_with_help(
                path,
                format!("the sizes share out {} of the requests; it must be 100%", Percent(sum)),
                "give shares that add up to 100%, as in { 4KiB: 60%, 64KiB: 40% }",
            );
        }
    }
}

impl fmt::Display for SizeMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(size, _)] = self.0.as_slice() {
            return size.fmt(f);
        }
        for (index, (size, share)) in self.0.iter().enumerate() {
            write!(f, "{}{size} {share}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for BlockSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(mix) => mix.fmt(f),
            Self::Split { reads, writes } => write!(f, "reads of {reads}; writes of {writes}"),
        }
    }
}

impl BlockSizes {
    /// Those of reads, and those of writes.
    pub fn split(&self) -> (&SizeMix, &SizeMix) {
        match self {
            Self::All(mix) => (mix, mix),
            Self::Split { reads, writes } => (reads, writes),
        }
    }

    fn bytes(&self) -> impl Iterator<Item = u64> + '_ {
        let (reads, writes) = self.split();
        reads.0.iter().chain(&writes.0).map(|(size, _)| size.0)
    }

    /// The smallest of all, in bytes: as they are powers of two, every one is a multiple of it.
    pub fn smallest_bytes(&self) -> u64 {
        self.bytes().min().unwrap_or(BLOCK_BYTES as u64)
    }

    /// The largest of all, in bytes.
    pub fn largest_bytes(&self) -> u64 {
        self.bytes().max().unwrap_or(BLOCK_BYTES as u64)
    }

    /// Whether there is but one size.
    pub fn is_one(&self) -> bool {
        self.smallest_bytes() == self.largest_bytes()
    }

    /// Reports what is no size, and shares that do not add up.
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        match self {
            Self::All(mix) => mix.validate(path, problems),
            Self::Split { reads, writes } => {
                reads.validate(&path.key("reads"), problems);
                writes.validate(&path.key("writes"), problems);
            }
        }
    }
}

impl Serialize for SizeMix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let [(size, share)] = self.0.as_slice()
            && *share == Percent(1.0)
        {
            return size.serialize(serializer);
        }
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (size, share) in &self.0 {
            map.serialize_entry(&size.to_string(), share)?;
        }
        map.end()
    }
}

impl Serialize for BlockSizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(mix) => mix.serialize(serializer),
            Self::Split { reads, writes } => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("reads", reads)?;
                map.serialize_entry("writes", writes)?;
                map.end()
            }
        }
    }
}

const EXPECTING: &str = "a size such as 4KiB, sizes with their shares such as { 4KiB: 60%, 64KiB: 40% }, or \
     { reads: 4KiB, writes: 64KiB }";

/// The rest of a mix whose first key has been read.
fn mix_from<'de, A: MapAccess<'de>>(first: &str, map: &mut A) -> Result<SizeMix, A::Error> {
    let mut sizes: Vec<(Bytes, Percent)> = Vec::new();
    let mut key = first.to_owned();
    loop {
        let size: Bytes = key.parse().map_err(A::Error::custom)?;
        if sizes.iter().any(|(known, _)| *known == size) {
            return Err(A::Error::custom(format!("the size {size} is given twice")));
        }
        sizes.push((size, map.next_value()?));
        match map.next_key()? {
            Some(next) => key = next,
            None => return Ok(SizeMix(sizes)),
        }
    }
}

struct MixForm;

impl<'de> Visitor<'de> for MixForm {
    type Value = SizeMix;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as 4KiB, or sizes with their shares such as { 4KiB: 60%, 64KiB: 40% }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SizeMix, E> {
        text.parse().map(SizeMix::one).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<SizeMix, E> {
        Ok(SizeMix::one(Bytes(number)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SizeMix, A::Error> {
        match map.next_key::<String>()? {
            Some(first) => mix_from(&first, &mut map),
            None => Err(A::Error::custom("no sizes; give for example { 4KiB: 60%, 64KiB: 40% }")),
        }
    }
}

impl<'de> Deserialize<'de> for SizeMix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MixForm)
    }
}

struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = BlockSizes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTING)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<BlockSizes, E> {
        MixForm.visit_str(text).map(BlockSizes::All)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<BlockSizes, E> {
        MixForm.visit_u64(number).map(BlockSizes::All)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BlockSizes, A::Error> {
        let (mut reads, mut writes) = (None, None);
        let mut key: Option<String> = map.next_key()?;
        match key.as_deref() {
            None => return Err(A::Error::custom(format!("an empty map; give {EXPECTING}"))),
            Some("reads" | "writes") => {}
            Some(first) => return mix_from(first, &mut map).map(BlockSizes::All),
        }
        while let Some(word) = key {
            match word.as_str() {
                "reads" => reads = Some(map.next_value()?),
                "writes" => writes = Some(map.next_value()?),
                other => return Err(A::Error::unknown_field(other, &["reads", "writes"])),
            }
            key = map.next_key()?;
        }
        match (reads, writes) {
            (Some(reads), Some(writes)) => Ok(BlockSizes::Split { reads, writes }),
            (Some(_), None) => Err(A::Error::missing_field("writes")),
            _ => Err(A::Error::missing_field("reads")),
        }
    }
}

impl<'de> Deserialize<'de> for BlockSizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for BlockSizes {
    fn schema_name() -> Cow<'static, str> {
        "BlockSizes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let bytes = generator.subschema_for::<Bytes>();
        let percent = generator.subschema_for::<Percent>();
        let mix = json_schema!({
            "description": "Sizes with their shares of the requests, which add up to 100%: { 4KiB: 60%, 64KiB: 40% }.",
            "type": "object",
            "patternProperties": { "^[0-9]": percent },
            "additionalProperties": false,
            "minProperties": 1
        });
        let one_or_mix =
            json_schema!({ "description": "One size, or several.", "anyOf": [bytes.clone(), mix.clone()] });
        json_schema!({
            "description": "Bytes of one request, powers of two from 4KiB to 4MiB.",
            "anyOf": [
                bytes,
                mix,
                {
                    "description": "Reads and writes apart.",
                    "type": "object",
                    "properties": { "reads": one_or_mix.clone(), "writes": one_or_mix },
                    "required": ["reads", "writes"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(json: &str) -> Vec<String> {
        let sizes: BlockSizes = serde_json::from_str(json).expect(json);
        let mut problems = Problems::default();
        sizes.validate(&Path::root().key("block_size"), &mut problems);
        problems.iter().map(|problem| problem.path.to_string()).collect()
    }

    #[test]
    fn every_form_reads_and_survives_its_text() {
        for (json, text) in [
            (r#""4KiB""#, "4KiB"),
            ("65536", "64KiB"),
            (r#"{"4KiB":"60%","64KiB":"40%"}"#, "4KiB 60%, 64KiB 40%"),
            (
                r#"{"reads":"4KiB","writes":{"8KiB":0.5,"16KiB":0.5}}"#,
                "reads of 4KiB; writes of 8KiB 50%, 16KiB 50%",
            ),
        ] {
            let sizes: BlockSizes = serde_json::from_str(json).expect(json);
            assert!(problems_of(json).is_empty(), "{json}");
            assert_eq!(sizes.to_string(), text);
            let again = serde_json::to_string(&sizes).expect("can be written");
            assert_eq!(serde_json::from_str::<BlockSizes>(&again).expect("and read"), sizes, "{again}");
        }
    }

    #[test]
    fn what_is_no_size_or_no_share_is_told() {
        for json in [
            "{}",
            r#""apple""#,
            r#"{"apple":1}"#,
            r#"{"4KiB":2}"#,
            r#"{"4KiB":0.5,"4096":0.5}"#,
            r#"{"reads":"4KiB"}"#,
            r#"{"writes":"4KiB"}"#,
            r#"{"reads":"4KiB","writes":"4KiB","flushes":"4KiB"}"#,
            r#"{"reads":"4KiB","4KiB":1}"#,
            "true",
        ] {
            serde_json::from_str::<BlockSizes>(json).expect_err(json);
        }
        for (json, place) in [
            (r#"{"4KiB":"60%","64KiB":"30%"}"#, "block_size"),
            (r#"{"4KiB":"60%","6KiB":"40%"}"#, "block_size"),
            (r#"{"reads":"4KiB","writes":{"8KiB":"90%"}}"#, "block_size.writes"),
        ] {
            assert_eq!(problems_of(json), [place], "{json}");
        }
    }

    #[test]
    fn the_mean_weighs_sizes_by_their_shares() {
        let sizes: BlockSizes =
            serde_json::from_str(r#"{"reads":"4KiB","writes":{"8KiB":0.25,"16KiB":0.75}}"#).expect("sizes");
        let (reads, writes) = sizes.split();
        assert_eq!((reads.mean_bytes(), writes.mean_bytes()), (4096.0, 14336.0));
        assert_eq!((sizes.smallest_bytes(), sizes.largest_bytes(), sizes.is_one()), (4096, 16384, false));
    }
}
