//! The volume: several devices that remember together what they are.
//!
//! Members are mirrored in groups, the mirrors striped, and over it lies a checksum of every block if it was made so. That is a
//! *segment*; a volume that has grown has several, one behind the other. Over them all it may keep versions. What binds the
//! members is a record on every one (`member`): who belongs to it, who has missed what, where writes were under way. Owns the
//! order in which these layers stand, and what is on record when; how each works is its own.

mod assemble;
mod book;
mod copy;
mod create;
mod inspect;
mod intent;
mod open;
pub(crate) mod part;
mod replace;
mod reshape;
mod status;
#[cfg(test)]
mod tests;
mod upkeep;
mod versioned;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::{Device, DeviceInfo, Queue, Result, Runtime};

use book::Book;
pub use create::forget;
pub use inspect::{Inspection, inspect};
pub use open::{Candidate, read_record};
pub use reshape::{Grown, add_copy, grow, remove_copy};
pub use status::{SegmentStatus, VolumeMember, VolumeStatus};
pub use upkeep::Upkeep;

use crate::checksum::{ChecksumDevice, ChecksumKind};
use crate::member::VersionsPolicy;
use crate::mirror::MirrorDevice;
use crate::stripe::CHUNK_BYTES_DEFAULT;
use crate::versions::VersionsDevice;

/// How a volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Copies of everything: 1 to 3. So many members in a row keep the same.
    pub ways: u8,
    /// Bytes of a chunk, where there is more than one mirror.
    pub chunk_bytes: u32,
    /// The checksum over it all.
    pub checksum: Option<ChecksumKind>,
    /// The versions over it all.
    pub versions: Option<VersionsPolicy>,
}

impl Default for VolumeOptions {
    /// Two copies, chunks of 64 KiB, CRC-32C, no versions.
    fn default() -> Self {
        let checksum = Some(ChecksumKind::default());
        Self { ways: 2, chunk_bytes: CHUNK_BYTES_DEFAULT, checksum, versions: None }
    }
}

/// What a volume is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// How long a member may take to answer.
    pub patience: Duration,
    /// Nanoseconds since 1970 at time zero of the runtimes that use it, for the times of automatic versions.
    pub epoch_ns: u64,
    /// Whom it may be opened without.
    pub without: Without,
}

/// Which missing members a volume may be opened without although they had part in what the others wrote last. If they have been used
/// alone since, the others are old, and do not know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Without {
    /// None: it is not opened.
    #[default]
    Nobody,
    /// The one of this number, which is given up.
    Member(usize),
    /// Any: they are lost.
    Anybody,
}

impl OpenOptions {
    /// With so much patience; times count from time zero of the runtime; without nobody.
    pub fn with_patience(patience: Duration) -> Self {
        Self { patience, epoch_ns: 0, without: Without::Nobody }
    }

    /// The same, also if members that are missing had part in what was done last: see [`Without::Anybody`].
    #[must_use]
    pub fn degraded(self) -> Self {
        Self { without: Without::Anybody, ..self }
    }
}

/// A volume that is open; the device that it is.
pub struct Volume {
    top: Arc<dyn Device>,
    mirrors: Vec<Option<Arc<MirrorDevice>>>,
    /// Of each segment; none of them if it has none.
    checksums: Vec<Arc<ChecksumDevice>>,
    versions: Option<Arc<VersionsDevice>>,
    /// All segments, one behind the other: what lies below the versions.
    base: Arc<dyn Device>,
    /// Each segment without marks of what is being written, where nothing but mirrors and stripes is above them: copies are read
    /// there. None elsewhere.
    bare: Vec<Arc<dyn Device>>,
    book: Arc<Book>,
    names: Mutex<Vec<Result<String, String>>>,
    notes: Vec<String>,
}

impl Volume {
    /// Opens the volume that these devices are, in any order.
    ///
    /// After an end that was not clean copies are made equal where writes were under way, or, with checksums, believed only
    /// with their checksum.
    ///
    /// Fails with [`rotproof_block::ErrorKind::Invalid`] if one is no member of it, `Missing` if a mirror has no member left, or if
    /// those that are missing may have been used without these and the options do not give them up, and `Refused` if two members have gone on apart.
    pub async fn open(
        candidates: Vec<Candidate>,
        options: OpenOptions,
        runtime: &Runtime,
    ) -> Result<Arc<Self>> {
        let found = open::assemble(candidates, runtime).await?;
        found.refuse_behind(|member| match options.without {
            Without::Nobody => false,
            Without::Member(lost) => lost == member,
            Without::Anybody => true,
        })?;
        Self::open_assembled(found, options, runtime).await
    }

    /// [`Volume::open`] of one that is known: it must be this volume, and in no state before that one. A device that was once a member
    /// may still say so, and would be taken for the volume as it was then if no member of today answers.
    ///
    /// Fails, before anything is written, with [`rotproof_block::ErrorKind::Missing`] if only something older is there.
    pub(crate) async fn open_again(
        candidates: Vec<Candidate>,
        options: OpenOptions,
        before: &VolumeStatus,
        runtime: &Runtime,
    ) -> Result<Arc<Self>> {
        let found = open::assemble(candidates, runtime).await?;
        found.refuse_older(before.id, before.generation)?;
        Self::open_assembled(found, options, runtime).await
    }

    async fn open_assembled(
        found: open::Assembled,
        options: OpenOptions,
        runtime: &Runtime,
    ) -> Result<Arc<Self>> {
        let volume = Self::assembled(found, options, None, runtime).await?;
        // What is to be made equal must not be forgotten with the marks.
        volume.record_missed(runtime).await?;
        volume.book.set_open(runtime, true).await?;
        Ok(Arc::new(volume))
    }

    /// How it was made.
    pub fn options(&self) -> VolumeOptions {
        let layout = &self.book.layout;
        let checksum = layout.checksum.checked_sub(1).and_then(ChecksumKind::from_number);
        let versions = layout.versions;
        VolumeOptions { ways: layout.ways, chunk_bytes: layout.chunk_bytes, checksum, versions }
    }

    /// What people should know of how it was opened.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Device for Volume {
    fn info(&self) -> DeviceInfo {
        self.top.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.top.open_queue(runtime)
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        self.top.ability(wanted)
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({:032x}, {:?})", self.book.volume, self.names.lock())
    }
}
