//! Which requests a rule concerns.

use rotproof_block::{Context, Operation, Tag};
use rotproof_spec::ByteRange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hash_text::HashText;
use crate::memory::{Copies, MemoryKind};
use crate::one_or_many::OneOrMany;
use crate::origin::OriginMatch;
use crate::tag::TagPattern;
use crate::target::Target;

/// The conditions of a rule; all that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Which operation: read, write, flush, discard or any. Default: reads and writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationMatch>,
    /// Where on the device under the faults layer: a range 1MiB..2MiB, the offset of one block, or a list. In whole
    /// blocks of 4096 bytes.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub offset: OneOrMany<ByteRange>,
    /// XXH3-128 of the 4096 bytes of a block, 32 hexadecimal digits, or a list.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub content: OneOrMany<HashText>,
    /// A content that the load works out before it writes, or a block chosen from what has passed by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The tag of the request: the name of a file, or whatever its origin has marked it with; a pattern with * and ?,
    /// or a list.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub tag: OneOrMany<TagPattern>,
    /// Who made the request: host (the user of the stack), rebuild or scrub (a volume or mirror), or a list. Default: anybody.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub origin: OneOrMany<OriginMatch>,
    /// On memory: what the page is used for, or a list: of a machine page_cache, dirty, anonymous, kernel or free; of a process
    /// heap, stack, anonymous or file_backed. Default: anything.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub kind: OneOrMany<MemoryKind>,
    /// On memory: physical addresses, or those of a process, as offset is given.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub address: OneOrMany<ByteRange>,
    /// On memory: so many blocks of it, where chance says, at each look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<u64>,
    /// On memory: the copy of the block that is in use (one, the default), or all copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
    /// On memory of the processes of a command: the name of the process, as the kernel has it (15 characters at the most); a pattern
    /// with * and ?, or a list. Default: any.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub process: OneOrMany<TagPattern>,
}

impl Match {
    /// Whether blocks are chosen by what they contain.
    pub fn is_by_content(&self) -> bool {
        !self.content.is_empty() || self.target.as_ref().is_some_and(Target::is_by_content)
    }

    /// Whether a request of which this is known can match.
    pub(crate) fn permits(&self, context: &Context) -> bool {
        let is_of_origin =
            || self.origin.is_empty() || self.origin.iter().any(|origin| origin.is(context.origin));
        self.permits_tag(context.tag) && is_of_origin()
    }

    /// Whether a request with this tag can match.
    pub fn permits_tag(&self, tag: Tag) -> bool {
        self.tag.is_empty() || self.permits_tag_name(tag.name())
    }

    /// Whether a request with a tag of this name can match; an empty one is none.
    pub(crate) fn permits_tag_name(&self, name: &str) -> bool {
        self.tag.is_empty() || self.tag.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether a request needs a place on the device to match; a flush has none.
    pub fn is_by_place(&self) -> bool {
        !self.offset.is_empty() || !self.content.is_empty() || self.target.is_some()
    }
}

/// The operations a rule concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationMatch {
    /// Reads.
    Read,
    /// Writes; also writes of zeros without a payload.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
    /// Every operation.
    Any,
}

impl OperationMatch {
    /// The words they are written with, in the order of the variants.
    pub(crate) const WORDS: [(&'static str, OperationMatch); 5] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("flush", Self::Flush),
        ("discard", Self::Discard),
        ("any", Self::Any),
    ];

    /// The word it is written with.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

/// The kinds of operation that rules tell apart: the index of every table by operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// A read.
    Read,
    /// A write, or a write of zeros.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

impl OperationKind {
    /// All of them.
    pub const ALL: [OperationKind; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// Whether a rule with this condition concerns the operation.
    pub fn is_matched_by(self, wanted: Option<OperationMatch>) -> bool {
        match wanted {
            None => matches!(self, Self::Read | Self::Write),
            Some(OperationMatch::Read) => self == Self::Read,
            Some(OperationMatch::Write) => self == Self::Write,
            Some(OperationMatch::Flush) => self == Self::Flush,
            Some(OperationMatch::Discard) => self == Self::Discard,
            Some(OperationMatch::Any) => true,
        }
    }
}

impl OperationKind {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

impl From<Operation> for OperationKind {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write { .. } | Operation::WriteZeroes => Self::Write,
            Operation::Flush => Self::Flush,
            Operation::Discard => Self::Discard,
        }
    }
}
