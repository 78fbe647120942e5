//! The number of a content: says in which stage, by which worker, and as which of its contents it was made.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names one content of one run. Eight bytes, so the oracle needs no more for a block.
///
/// The layout, from the top: 2 bits that are free for the oracle, 6 bits stage, 16 bits worker, 40 bits index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId(pub u64);

impl schemars::JsonSchema for ContentId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ContentId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "description": "Names one content of one run.", "type": "string" })
    }
}

/// A block of a version of a file: what the contents of loads of files are named by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InFile {
    /// Number of the file.
    pub file: u32,
    /// Which of its versions, counted from one.
    pub version: u32,
    /// Which block of it.
    pub block: u64,
}

/// A part of a run that writes contents of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Stage {
    /// Everything is written once, before the load.
    Prefill = 1,
    /// The load itself.
    Run = 2,
}

const INDEX_BITS: u32 = 40;
const WORKER_BITS: u32 = 16;

/// What stands in the place of the stage in a content of a file; the 56 bits below are file, version and block.
const IN_FILE: u64 = 3;
const VERSION_BITS: u32 = 20;
const BLOCK_BITS: u32 = 18;
const FILE_BITS: u32 = 18;

/// Files of a load of files, at most.
pub const FILES_END: u32 = 1 << FILE_BITS;
/// Versions of a file, at most, and the number zero that none has.
pub const VERSIONS_END: u32 = 1 << VERSION_BITS;
/// Blocks of such a file, at most.
pub const FILE_BLOCKS_MAX: u64 = 1 << BLOCK_BITS;

impl ContentId {
    /// What a block has that was never written: no content at all.
    pub const NEVER_WRITTEN: ContentId = ContentId(0);

    /// Content number `index` of a worker; below 2^40.
    pub fn new(stage: Stage, worker: u16, index: u64) -> Self {
        debug_assert!(index < 1 << INDEX_BITS, "4 PiB of contents");
        Self((stage as u64) << (INDEX_BITS + WORKER_BITS) | u64::from(worker) << INDEX_BITS | index)
    }

    /// The content of a block of a version of a file.
    pub fn of_file(file: u32, version: u32, block: u64) -> Self {
        debug_assert!(file < FILES_END && version < VERSIONS_END && block < FILE_BLOCKS_MAX);
        let name = u64::from(file) << (VERSION_BITS + BLOCK_BITS) | u64::from(version) << BLOCK_BITS | block;
        Self(IN_FILE << (INDEX_BITS + WORKER_BITS) | name)
    }

    /// Which block of a file it is of, if it is of one.
    pub fn in_file(self) -> Option<InFile> {
        (self.0 >> (INDEX_BITS + WORKER_BITS) == IN_FILE).then_some(InFile {
            file: (self.0 >> (VERSION_BITS + BLOCK_BITS)) as u32 & (FILES_END - 1),
            version: (self.0 >> BLOCK_BITS) as u32 & (VERSIONS_END - 1),
            block: self.0 & (FILE_BLOCKS_MAX - 1),
        })
    }

    /// Which stage made it; `None` if none did, and so no run of ours.
    pub fn stage(self) -> Option<Stage> {
        match self.0 >> (INDEX_BITS + WORKER_BITS) {
            1 => Some(Stage::Prefill),
            2 => Some(Stage::Run),
            _ => None,
        }
    }

    /// Which worker made it.
    pub fn worker(self) -> u16 {
        (self.0 >> INDEX_BITS) as u16
    }

    /// Its number among the contents of that worker in that stage, counted from zero.
    pub fn index(self) -> u64 {
        self.0 & ((1 << INDEX_BITS) - 1)
    }
}

impl fmt::Display for ContentId {
    /// `run:0:17`: stage, worker, index; `file:12:3:7`: file, version, block.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(InFile { file, version, block }) = self.in_file() {
            return f.pad(&format!("file:{file}:{version}:{block}"));
        }
        let stage = match self.stage() {
            Some(Stage::Prefill) => "prefill",
            Some(Stage::Run) => "run",
            None if *self == Self::NEVER_WRITTEN => return f.pad("never written"),
            None => "unknown",
        };
        f.pad(&format!("{stage}:{}:{}", self.worker(), self.index()))
    }
}

impl FromStr for ContentId {
    type Err = String;

    /// From what `Display` prints.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` names no content");
        if text == "never written" {
            return Ok(Self::NEVER_WRITTEN);
        }
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let numbers: Vec<u64> = parts.map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let below = |number: u64, end: u64| if number < end { Ok(number) } else { Err(wrong()) };
        match (kind, &numbers[..]) {
            ("prefill" | "run", &[worker, index]) => {
                let stage = if kind == "run" { Stage::Run } else { Stage::Prefill };
                let worker = below(worker, 1 << WORKER_BITS)? as u16;
                Ok(Self::new(stage, worker, below(index, 1 << INDEX_BITS)?))
            }
            ("file", &[file, version, block]) => Ok(Self::of_file(
                below(file, FILES_END.into())? as u32,
                below(version, VERSIONS_END.into())? as u32,
                below(block, FILE_BLOCKS_MAX)?,
            )),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({self})")
    }
}

impl Serialize for ContentId {
    /// As `Display` has it: numbers of 64 bits do not survive every reader of JSON.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text() {
        for id in [
            ContentId::NEVER_WRITTEN,
            ContentId::new(Stage::Run, 7, 12),
            ContentId::new(Stage::Prefill, u16::MAX, (1 << 40) - 1),
            ContentId::of_file(3, 4, 5),
        ] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for wrong in
            ["", "run", "run:1", "run:65536:1", "run:0:1099511627776", "walk:0:1", "file:1:2", "run:-1:1"]
        {
            assert!(wrong.parse::<ContentId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_id_tells_its_stage_worker_and_index() {
        for stage in [Stage::Prefill, Stage::Run] {
            for (worker, index) in [(0, 0), (7, 12), (u16::MAX, (1 << 40) - 1)] {
                let id = ContentId::new(stage, worker, index);
                assert_eq!((id.stage(), id.worker(), id.index()), (Some(stage), worker, index));
                assert!(id.0 < 1 << 62 && id != ContentId::NEVER_WRITTEN, "the oracle needs the upper bits");
            }
        }
        assert_eq!(ContentId::new(Stage::Run, 3, 17).to_string(), "run:3:17");
        assert_eq!(ContentId::NEVER_WRITTEN.stage(), None);
        let last = ContentId::of_file(FILES_END - 1, VERSIONS_END - 1, FILE_BLOCKS_MAX - 1);
        assert!(last.0 < 1 << 62 && last.stage().is_none());
        let last = last.in_file().expect("of a file");
        assert_eq!(
            (last.file, last.version, last.block),
            (FILES_END - 1, VERSIONS_END - 1, FILE_BLOCKS_MAX - 1)
        );
        assert_eq!(ContentId::of_file(12, 3, 7).to_string(), "file:12:3:7");
        assert_eq!(ContentId::new(Stage::Run, 3, 17).in_file(), None);
    }
}
