//! One injected fault, as the ledger keeps it.

use std::borrow::Cow;
use std::sync::Arc;

use rotproof_block::{ContentHash, Phase};
use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;
use crate::effect::Effect;
use crate::hash_text;
use crate::matching::OperationKind;

/// One line of `ledger.jsonl`: a hit, with everything needed to find its consequences and to inject it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// Number of the record in its ledger, from 0.
    pub sequence: u64,
    /// Position of the rule in the fault plan, from 0.
    pub rule: u32,
    /// Name of the rule.
    pub name: Arc<str>,
    /// Name of the place in the stack where it acted; absent for one without a name of its own.
    #[serde(default = "unnamed", skip_serializing_if = "is_unnamed")]
    pub on: Arc<str>,
    /// Which of the rule's aims was hit, the first if it was several at once; absent for a rule that hits anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetKey>,
    /// What the request was to do.
    pub operation: OperationKind,
    /// First byte concerned on the device under the faults layer.
    pub offset: u64,
    /// Bytes concerned: the touched part of one block for an effect on data, the whole request for an error or a
    /// delay; 0 for a flush.
    pub length: u64,
    /// What was done, in the words of the short form, with what chance decided filled in.
    #[serde(with = "effect_text")]
    pub effect: Effect,
    /// When, in nanoseconds since the run began.
    pub time_ns: u64,
    /// In which part of the trial.
    #[serde(with = "phase_text")]
    pub phase: Phase,
    /// Which meeting of a block with the rule was decided on: what a replay goes by. Absent for what a fault brought
    /// about later, such as a place that had been left bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visit: Option<Visit>,
    /// Id of the request in its context.
    pub request: u64,
    /// Tag of the request's context; absent without one.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub tag: Cow<'static, str>,
    /// Content hash of the whole block as it should be; absent for errors and delays.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_text::option")]
    pub before: Option<ContentHash>,
    /// Content hash of the whole block as it reads after this hit; absent for errors and delays.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_text::option")]
    pub after: Option<ContentHash>,
    /// Where parts of blocks are read, as of files ([`Engine::keep_sectors`](crate::Engine::keep_sectors)): [`sector_hashes`] of
    /// the block that `after` is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_sectors: Option<[u32; SECTORS]>,
    /// For errors and delays: the content of every whole block in the request, so that what happens to neighbours can
    /// be laid to this fault. Of a read, what the device really holds; of a write, what was to be written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<BlockContent>,
    /// Of a bad block that failed a request for more than itself: the same of the other whole blocks of that request. Of several
    /// bad blocks in one request the first has them. How requests are cut is the subject's, so equal runs may differ here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<BlockContent>,
    /// When a later write put the true content back, in nanoseconds since the run began; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired_at_ns: Option<u64>,
    /// When what took the true content's place first went up in a read that succeeded, in nanoseconds since the run began;
    /// absent if none has brought it, and for errors and delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_at_ns: Option<u64>,
    /// When the last of it was overwritten or discarded, but not put right, in nanoseconds since the run began; absent if some
    /// of it may still be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_at_ns: Option<u64>,
    /// Whether the load had made what the block should hold. `false` is the subject's own, such as metadata; absent where
    /// nobody could tell ([`Engine::set_recogniser`](crate::Engine::set_recogniser)), and for errors and delays, which have it
    /// for each block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_load: Option<bool>,
}

impl Injection {
    /// Whether a reader got what it did when it did it.
    pub(crate) fn is_served_at_once(&self) -> bool {
        self.served_at_ns == Some(self.time_ns)
    }
}

/// What a place where faults act is called if nobody gives it a name.
pub const UNNAMED_SITE: &str = "faults";

pub(crate) fn unnamed() -> Arc<str> {
    UNNAMED_SITE.into()
}

pub(crate) fn is_unnamed(on: &str) -> bool {
    on == UNNAMED_SITE
}

/// Sectors of 512 bytes in a block.
pub const SECTORS: usize = 8;

/// The low 32 bits of the content hash of each sector of a block; `None` for one that is not whole.
pub fn sector_hashes(block: &[u8]) -> Option<[u32; SECTORS]> {
    let sector_bytes = BLOCK_BYTES as usize / SECTORS;
    (block.len() == SECTORS * sector_bytes).then(|| {
        std::array::from_fn(|sector| {
            ContentHash::of(&block[sector * sector_bytes..][..sector_bytes]).0 as u32
        })
    })
}

/// One meeting of a block with a rule, told by its place, or by its content for a rule that goes by contents, as the
/// same content may lie elsewhere in another run. A flush has neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visit {
    /// First byte of the block; of a request that was hit as a whole, of the first that fulfilled the rule's
    /// conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Content of the block.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_text::option")]
    pub content: Option<ContentHash>,
    /// How many times it had met the rule by then, this time included.
    pub number: u32,
}

impl Visit {
    /// What stands for the block where chance decides.
    pub(crate) fn key(self) -> u64 {
        match (self.content, self.offset) {
            (Some(ContentHash(content)), _) => content as u64,
            (None, Some(offset)) => offset / BLOCK_BYTES,
            (None, None) => u64::MAX,
        }
    }
}

/// What of a rule's aims was hit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetKey {
    /// Start in bytes of the range, as the rule gives it, that the hit lies in.
    Offset(u64),
    /// A content.
    Content {
        /// XXH3-128 of the 4096 bytes.
        #[serde(with = "hash_text::plain")]
        hash: ContentHash,
        /// What it is to people; the hash itself for a rule that gives hashes.
        label: Arc<str>,
    },
}

impl TargetKey {
    pub(crate) fn content(hash: ContentHash, label: &Arc<str>) -> Self {
        Self::Content { hash, label: Arc::clone(label) }
    }
}

/// A block and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockContent {
    /// First byte of the block on the device.
    pub offset: u64,
    /// XXH3-128 of its 4096 bytes.
    #[serde(with = "hash_text::plain")]
    pub content: ContentHash,
    /// Whether the load had made it; absent where nobody could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_load: Option<bool>,
}

pub(crate) mod effect_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::effect::Effect;

    pub(crate) fn serialize<S: Serializer>(effect: &Effect, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(effect)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Effect, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

pub(crate) mod phase_text {
    use rotproof_block::Phase;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(phase: &Phase, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(phase.word())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Phase, D::Error> {
        let word = String::deserialize(deserializer)?;
        Phase::from_word(&word).ok_or_else(|| {
            let words = Phase::ALL.map(Phase::word).join(", ");
            serde::de::Error::custom(format_args!("unknown phase `{word}`, expected one of {words}"))
        })
    }
}
