//! What became of a block that failed, for people and programs: where, what it holds instead, and whose that is.

use rotproof_block::{ContentHash, ErrorKind, Phase, Time};
use serde::{Deserialize, Serialize};

use crate::content::{ContentId, SECTORS};
use crate::engine::LoadOperation;
use crate::evidence::BitPosition;
use crate::personality::FileOperation;

/// One block that failed, in one or several ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Failure {
    /// Position of the object among those of the load.
    pub object_index: u32,
    /// Its name.
    pub object: String,
    /// The block, counted within the object.
    pub block: u64,
    /// Where it begins in the object.
    pub offset_bytes: u64,
    /// How it failed, in the order in which it was seen. Never empty.
    pub ways: Vec<Way>,
}

impl Failure {
    /// The worst of the ways: the first wrong data that was handed out as if it were right, else the first error.
    pub fn worst(&self) -> &Way {
        self.ways.iter().find(|way| way.is_wrong_data()).unwrap_or(&self.ways[0])
    }
}

/// One way in which a block failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Way {
    /// In which phase.
    #[serde(with = "text::phase")]
    #[schemars(with = "String")]
    pub phase: Phase,
    /// When first.
    #[serde(with = "text::nanoseconds", rename = "time_ns")]
    #[schemars(with = "u64")]
    pub time: Time,
    /// What was being done.
    pub operation: LoadOperation,
    /// What it might have held, the last successful write first; for a write, what was to be written.
    pub expected: Vec<Version>,
    /// The hash of what it held; `None` after an error.
    #[serde(with = "text::hash")]
    #[schemars(with = "Option<String>")]
    pub found: Option<ContentHash>,
    /// Of what was read in part, as the end of a file: the low 32 bits of the hashes of its whole sectors of 512 bytes. Not among
    /// the results.
    #[serde(skip)]
    pub found_sectors: Option<Box<[Option<u32>; SECTORS]>>,
    /// What that is.
    pub what: Classification,
    /// How often it was seen.
    pub count: u64,
}

impl Way {
    /// Whether something wrong was handed out as if it were right, a file that is gone or has another length among it: no
    /// error, then or at a flush, has told of it.
    pub fn is_wrong_data(&self) -> bool {
        self.what.error().is_none() && !matches!(self.what, Classification::Unflushed(_))
    }
}

/// A content and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Version {
    /// Which content of the run.
    pub content: ContentId,
    /// Its hash; `None` for a block that was never written.
    #[serde(with = "text::hash")]
    #[schemars(with = "Option<String>")]
    pub hash: Option<ContentHash>,
}

/// What a failing block is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Classification {
    /// What is expected, but for some bits.
    FlippedBits {
        /// How many.
        count: u32,
        /// The first 64 of them.
        bits: Vec<BitPosition>,
    },
    /// Nothing but zeros.
    Zeroed,
    /// Nothing but ones.
    Ones,
    /// An earlier content of this very block.
    Stale(Stale),
    /// What was there before a write that was acknowledged, but whose flush failed: a loss that was told.
    Unflushed(Unflushed),
    /// The content of another place.
    Misdirected(Misdirected),
    /// Sectors of different contents, each where it would belong.
    Torn {
        /// What each sector holds.
        sectors: Vec<SectorFinding>,
    },
    /// Sectors of contents of this run, but not where they belong.
    Misplaced {
        /// What each sector holds.
        sectors: Vec<SectorFinding>,
    },
    /// Nothing that the load ever wrote.
    Noise,
    /// An error instead of data.
    Unreadable {
        /// Which.
        #[serde(with = "text::error")]
        #[schemars(with = "String")]
        error: ErrorKind,
    },
    /// A write that ended with an error.
    Unwritable {
        /// Which.
        #[serde(with = "text::error")]
        #[schemars(with = "String")]
        error: ErrorKind,
    },
    /// Another operation on a file that ended with an error.
    Refused {
        /// What was tried.
        operation: FileOperation,
        /// With what result.
        #[serde(with = "text::error")]
        #[schemars(with = "String")]
        error: ErrorKind,
    },
    /// A file that is not there, as if it had never been made.
    Lost,
    /// A file that is there, although it was deleted or never made.
    Undeleted,
    /// A file that ends where it should not.
    WrongSize {
        /// Where it should.
        expected_bytes: u64,
        /// Where it does.
        found_bytes: u64,
    },
}

impl Classification {
    /// The error that a request ended with, if that is what it was.
    pub fn error(&self) -> Option<ErrorKind> {
        match self {
            Self::Unreadable { error } | Self::Unwritable { error } | Self::Refused { error, .. } => {
                Some(*error)
            }
            _ => None,
        }
    }

    /// The name of the kind, as in the results.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::FlippedBits { .. } => "flipped_bits",
            Self::Zeroed => "zeroed",
            Self::Ones => "ones",
            Self::Stale(_) => "stale",
            Self::Unflushed(_) => "unflushed",
            Self::Misdirected(_) => "misdirected",
            Self::Torn { .. } => "torn",
            Self::Misplaced { .. } => "misplaced",
            Self::Noise => "noise",
            Self::Unreadable { .. } => "unreadable",
            Self::Unwritable { .. } => "unwritable",
            Self::Refused { .. } => "refused",
            Self::Lost => "lost",
            Self::Undeleted => "undeleted",
            Self::WrongSize { .. } => "wrong_size",
        }
    }
}

/// An earlier content of the same block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Stale {
    /// Which.
    pub content: ContentId,
    /// It was the write of this block with this number, counted from one (the last such write, if there were several).
    pub write: u64,
    /// Writes of this block in the whole run.
    pub writes: u64,
}

/// What was there before writes that lost their flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unflushed {
    /// It holds the write of this block with this number, counted from one; `None` if it holds what was there before
    /// the first of them, or sectors of several.
    pub write: Option<u64>,
    /// Writes of this block in the whole run.
    pub writes: u64,
}

/// A content of another block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Misdirected {
    /// Which; its worker and stage are part of its name.
    pub content: ContentId,
    /// The first few places where the load put it.
    pub places: Vec<NamedBlock>,
    /// In how many writes.
    pub writes: u64,
}

/// A block of an object, and the request that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NamedBlock {
    /// Name of the object.
    pub object: String,
    /// The block, counted within the object.
    pub block: u64,
    /// Which request of the content's worker, counted from zero.
    pub request: u64,
}

/// What one sector of 512 bytes holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SectorFinding {
    /// What it should, perhaps but for a few bits.
    Expected,
    /// Nothing but zeros.
    Zeros,
    /// Nothing but ones.
    Ones,
    /// A sector of an earlier content of this very block.
    Stale {
        /// Which content.
        content: ContentId,
        /// Which sector of it.
        sector: u8,
        /// Which write of this block, counted from one.
        write: u64,
    },
    /// A sector of a content of another place.
    Misdirected {
        /// Which content.
        content: ContentId,
        /// Which sector of it.
        sector: u8,
        /// Where the load first put it.
        place: Option<NamedBlock>,
    },
    /// Nothing that the load makes.
    Noise,
}

/// How the types of other crates stand in results.
pub(crate) mod text {
    use std::fmt::Display;

    use serde::{Deserialize, Deserializer, Serializer};

    fn unknown<E: serde::de::Error>(what: &str, text: impl Display) -> E {
        E::custom(format!("`{text}` is no {what}"))
    }

    pub(crate) mod phase {
        use super::*;
        use rotproof_block::Phase;

        pub(crate) fn serialize<S: Serializer>(phase: &Phase, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(phase.word())
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Phase, D::Error> {
            let word = String::deserialize(deserializer)?;
            Phase::ALL.into_iter().find(|phase| phase.word() == word).ok_or_else(|| unknown("phase", word))
        }
    }

    pub(crate) mod nanoseconds {
        use super::*;
        use rotproof_block::Time;

        pub(crate) fn serialize<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u64(time.0)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
            u64::deserialize(deserializer).map(Time)
        }
    }

    pub(crate) mod hash {
        use super::*;
        use rotproof_block::ContentHash;

        pub(crate) fn serialize<S: Serializer>(
            hash: &Option<ContentHash>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match hash {
                Some(hash) => serializer.collect_str(hash),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<ContentHash>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| ContentHash::parse(&text).ok_or_else(|| unknown("hash", text))).transpose()
        }
    }

    pub(crate) mod error {
        use super::*;
        use crate::failure::{error_name, error_named};
        use rotproof_block::ErrorKind;

        pub(crate) fn serialize<S: Serializer>(error: &ErrorKind, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(&error_name(*error))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ErrorKind, D::Error> {
            let name = String::deserialize(deserializer)?;
            error_named(&name).ok_or_else(|| unknown("kind of error", name))
        }
    }
}

/// The kind of error that [`error_name`] gives this name.
pub(crate) fn error_named(name: &str) -> Option<ErrorKind> {
    if let Some((_, errno)) = ERRNO_NAMES.iter().find(|(known, _)| *known == name) {
        return Some(ErrorKind::Os(*errno));
    }
    match name.strip_prefix("errno_") {
        Some(number) => number.parse().ok().map(ErrorKind::Os),
        None => ErrorKind::PLAIN.into_iter().find(|kind| kind.word() == name),
    }
}

/// The name of a kind of error in results.
pub fn error_name(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::Os(errno) => match ERRNO_NAMES.iter().find(|(_, known)| *known == errno) {
            Some((name, _)) => (*name).to_owned(),
            None => format!("errno_{errno}"),
        },
        kind => kind.word().to_owned(),
    }
}

/// Errors of file systems and block devices by the names of the kernel (`errno(3)`); others keep their number.
const ERRNO_NAMES: [(&str, i32); 33] = [
    ("EPERM", libc::EPERM),
    ("ENOENT", libc::ENOENT),
    ("EINTR", libc::EINTR),
    ("EIO", libc::EIO),
    ("ENXIO", libc::ENXIO),
    ("EBADF", libc::EBADF),
    ("EAGAIN", libc::EAGAIN),
    ("ENOMEM", libc::ENOMEM),
    ("EACCES", libc::EACCES),
    ("EFAULT", libc::EFAULT),
    ("EBUSY", libc::EBUSY),
    ("EEXIST", libc::EEXIST),
    ("ENOTDIR", libc::ENOTDIR),
    ("EISDIR", libc::EISDIR),
    ("EINVAL", libc::EINVAL),
    ("ENFILE", libc::ENFILE),
    ("EMFILE", libc::EMFILE),
    ("EFBIG", libc::EFBIG),
    ("EPIPE", libc::EPIPE),
    ("ENAMETOOLONG", libc::ENAMETOOLONG),
    ("ENOTEMPTY", libc::ENOTEMPTY),
    ("ELOOP", libc::ELOOP),
    ("ENODATA", libc::ENODATA),
    ("EPROTO", libc::EPROTO),
    ("EBADMSG", libc::EBADMSG),
    ("EILSEQ", libc::EILSEQ),
    ("ENOTCONN", libc::ENOTCONN),
    ("ECONNABORTED", libc::ECONNABORTED),
    ("ECONNRESET", libc::ECONNRESET),
    ("ESTALE", libc::ESTALE),
    ("EUCLEAN", libc::EUCLEAN),
    ("EREMOTEIO", libc::EREMOTEIO),
    ("EDQUOT", libc::EDQUOT),
];
