//! The description of a volume, as a stack has it: `volume: { of: [[...], [...]], copies: 2, checksum: crc32c }`.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Queue, Result, Runtime};
use rotproof_spec::{Bytes, Path, Problems, Span};
use rotproof_volume::checksum::{ChecksumDevice, ChecksumKind};
use rotproof_volume::live::LiveVolume;
use rotproof_volume::member::{MARGIN_BYTES, MEMBERS_MAX, VersionsPolicy, data_bytes};
use rotproof_volume::mirror::MirrorOptions;
use rotproof_volume::stripe::{CHUNK_BYTES_DEFAULT, stripe_place};
use rotproof_volume::versions::VersionsDevice;
use rotproof_volume::volume::{Candidate, OpenOptions, Volume, VolumeOptions, Without, read_record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::below::ability_below;
use crate::kind::{Kind, Stands};
use crate::mirror::MirrorMember;
use crate::open::{LayerReport, Opening};
use crate::stack_spec::Legs;

/// Several devices that are a volume: mirrored, striped, with a checksum of every block, and a record of it all on each. One is
/// made where none of them is a member of any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// The stacks. So many in a row as there are copies keep the same.
    pub of: Legs,
    /// Copies of everything: 1 to 3. Default 2.
    #[serde(default = "copies_default")]
    pub copies: u8,
    /// Bytes of a chunk of the stripe over the mirrors. Default 64KiB.
    #[serde(default = "chunk_default")]
    pub chunk: Bytes,
    /// Which checksum. Default crc32c.
    #[serde(default)]
    pub checksum: VolumeChecksum,
    /// How long a member may take to answer. Default 500ms.
    #[serde(default = "patience_default")]
    pub patience: Span,
    /// Keep versions. Default: none are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<VolumeVersions>,
    /// Be the version of this number, which can only be read. Default: the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Open the volume that is there, however it was made: members may be missing, and the others stand in any order. Nothing
    /// is made. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub existing: bool,
    /// Open it also if members are missing that had part in what was done last: they are lost. Were they used without the others since,
    /// the volume would be an old one. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub degraded: bool,
}

/// How a volume keeps versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VolumeVersions {
    /// How often a version is captured by itself, as long as somebody writes. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// How many automatic versions are kept. Default 24.
    pub keep: u32,
    /// Percent of the room that are kept for versions, 1 to 90. Default 20.
    pub reserve: u8,
}

impl Default for VolumeVersions {
    fn default() -> Self {
        let VersionsPolicy { reserve_percent, keep, .. } = VersionsPolicy::default();
        Self { every: None, keep, reserve: reserve_percent }
    }
}

impl VolumeVersions {
    fn policy(self) -> VersionsPolicy {
        let every = self.every.map_or(0, |every| every.0.as_millis().try_into().unwrap_or(u64::MAX));
        VersionsPolicy { reserve_percent: self.reserve, every_ms: every, keep: self.keep }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_false(switch: &bool) -> bool {
    !switch
}

/// Which checksum a volume has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeChecksum {
    /// CRC-32C.
    #[default]
    Crc32c,
    /// XXH3-64.
    Xxh3,
    /// BLAKE3.
    Blake3,
    /// None: it cannot tell which of two copies is right.
    None,
}

impl VolumeChecksum {
    /// As the volume has it.
    pub fn kind(self) -> Option<ChecksumKind> {
        match self {
            Self::Crc32c => Some(ChecksumKind::Crc32c),
            Self::Xxh3 => Some(ChecksumKind::Xxh3),
            Self::Blake3 => Some(ChecksumKind::Blake3),
            Self::None => None,
        }
    }
}

fn copies_default() -> u8 {
    2
}

fn chunk_default() -> Bytes {
    Bytes(CHUNK_BYTES_DEFAULT.into())
}

fn patience_default() -> Span {
    Span(MirrorOptions::default().patience)
}

/// What a volume has done, and what its members are like.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct VolumeReport {
    /// The word of the layer.
    pub name: String,
    /// Its members, mirror by mirror; none where it keeps one copy.
    pub members: Vec<MirrorMember>,
    /// What its checksums have found and mended, if it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<rotproof_volume::checksum::ChecksumReport>,
    /// How many versions there are, if it keeps some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<usize>,
}

impl VolumeSpec {
    /// Over these stacks, with every default.
    pub fn over(of: Legs) -> Self {
        Self {
            of,
            copies: copies_default(),
            chunk: chunk_default(),
            checksum: VolumeChecksum::default(),
            patience: patience_default(),
            versions: None,
            version: None,
            existing: false,
            degraded: false,
        }
    }

    fn options(&self) -> VolumeOptions {
        VolumeOptions {
            ways: self.copies,
            chunk_bytes: u32::try_from(self.chunk.0).unwrap_or(u32::MAX),
            checksum: self.checksum.kind(),
            versions: self.versions.map(VolumeVersions::policy),
        }
    }

    /// Bytes of data of each member.
    fn data_of(below: &[u64]) -> Option<u64> {
        data_bytes(*below.iter().min()?)
    }

    /// Bytes below the checksums, over members of these sizes.
    fn whole(&self, below: &[u64]) -> Option<u64> {
        let mirrors = below.len() as u64 / u64::from(self.copies.max(1));
        Self::data_of(below)?.checked_mul(mirrors)
    }
}

impl Kind for VolumeSpec {
    const WORD: &'static str = "volume";
    const EXAMPLE: &'static str =
        "{ volume: { of: [[memory: { size: 64MiB }], [memory: { size: 64MiB }]] } }";
    const SUMMARY: &'static str =
        "several devices that keep copies and checksums, and remember together what they are";
    const STANDS: Stands = Stands::OnSeveral;
    const OUTLIVES_POWER: bool = true;
    const KEEPS_COPIES: bool = true;

    fn legs(&self) -> Option<&Legs> {
        Some(&self.of)
    }

    fn size(&self, below: &[Option<u64>]) -> Option<u64> {
        if self.existing {
            return None;
        }
        let sizes: Vec<u64> = below.iter().copied().collect::<Option<_>>()?;
        let whole = self.whole(&sizes)?;
        let whole = match self.checksum.kind() {
            Some(kind) => ChecksumDevice::place_on(whole, kind).ok()?.1,
            None => whole,
        };
        match self.versions {
            Some(versions) => VersionsDevice::place_on(whole, versions.reserve).ok().map(|(_, size)| size),
            None => Some(whole),
        }
    }

    /// Where a block is in a volume with versions changes with time.
    fn keeps_places(&self) -> bool {
        self.versions.is_none() && !self.existing
    }

    fn up(&self, leg: usize, offset: u64, below: &[u64]) -> Option<u64> {
        let data = Self::data_of(below).filter(|_| self.keeps_places())?;
        let offset = offset.checked_sub(MARGIN_BYTES).filter(|offset| *offset < data)?;
        let copies = usize::from(self.copies.max(1));
        let chunk = u32::try_from(self.chunk.0).ok()?;
        let offset = match below.len() / copies {
            0 | 1 => offset,
            mirrors => stripe_place(leg / copies, offset, &vec![data; mirrors], chunk)?,
        };
        let Some(kind) = self.checksum.kind() else { return Some(offset) };
        let (first, size) = ChecksumDevice::place_on(self.whole(below)?, kind).ok()?;
        offset.checked_sub(first).filter(|offset| *offset < size)
    }

    fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if !(1..=3).contains(&self.copies) {
            problems.add(&path.key("copies"), format!("{} copies; there are 1 to 3", self.copies));
        } else if below.is_empty()
            || below.len() > MEMBERS_MAX
            || !self.existing && !below.len().is_multiple_of(self.copies.into())
        {
            problems.add_with_help(
                &path.key("of"),
                format!("{} devices do not make up mirrors of {}", below.len(), self.copies),
                format!("give 1 to {MEMBERS_MAX} stacks, a multiple of the copies"),
            );
        }
        if !self.chunk.0.is_power_of_two() || !(4096..=64 << 20).contains(&self.chunk.0) {
            problems.add_with_help(
                &path.key("chunk"),
                format!("a chunk of {} bytes", self.chunk.0),
                "write a power of two from 4KiB to 64MiB",
            );
        }
        if let Some(small) = below.iter().flatten().find(|size| data_bytes(**size).is_none()) {
            problems.add(&path.key("of"), format!("a member of {small} bytes; it needs 3MiB at least"));
        }
        if let Some(versions) = self.versions {
            let path = path.key("versions");
            if !(1..=90).contains(&versions.reserve) {
                problems.add(&path.key("reserve"), format!("{}% for versions; 1 to 90", versions.reserve));
            }
            if versions.keep == 0 {
                let help = "keep 1 at least, or leave `every` out";
                problems.add_with_help(&path.key("keep"), "no version is kept", help);
            }
            if versions.every.is_some_and(|every| every.0.as_millis() == 0) {
                problems.add_with_help(
                    &path.key("every"),
                    "less than a millisecond",
                    "give a time such as 60s",
                );
            }
        }
        if self.version.is_some() && !self.existing {
            let help = "say `existing: true`, of a volume that keeps versions";
            problems.add_with_help(&path.key("version"), "a volume that is made has no versions yet", help);
        }
        if self.patience.0.is_zero() {
            problems.add(&path.key("patience"), "no time at all to answer");
        }
    }

    fn describe(&self) -> String {
        let checksum = self.checksum.kind().map_or("no checksums", ChecksumKind::word);
        let copies = if self.copies == 1 { "one copy".to_owned() } else { format!("{} copies", self.copies) };
        let versions = if self.versions.is_some() { ", versions" } else { "" };
        format!("{} members, {copies}, {checksum}{versions}", self.of.0.len())
    }

    fn open(&self, below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let names = self.of.0.iter().enumerate();
        let names =
            names.map(|(number, (name, _))| name.clone().unwrap_or_else(|| format!("member {number}")));
        let candidates: Vec<Candidate> =
            names.zip(below).map(|(name, device)| Candidate { name, device }).collect();
        let runtime =
            Runtime::uring(RuntimeOptions::new(0)).or_else(|_| Ok::<_, Error>(Runtime::simulated(0)))?;
        let id = opening.identity();
        let options = OpenOptions {
            patience: self.patience.0,
            epoch_ns: opening.epoch_ns(),
            without: if self.degraded { Without::Anybody } else { Without::Nobody },
        };
        let volume = runtime.block_on(self.open_or_make(candidates, options, id, &runtime))??;
        let volume = LiveVolume::new(volume, options);
        let reporter = Arc::clone(&volume);
        opening.reports(move || {
            let volume = reporter.volume();
            let members = volume.reports().into_iter().map(MirrorMember::from).collect();
            let checksum = volume.checksum_report();
            let versions = volume.versions().ok().map(|versions| versions.names().len());
            LayerReport::Volume(VolumeReport { name: Self::WORD.to_owned(), members, checksum, versions })
        });
        opening.has_volume(Arc::clone(&volume));
        let top: Arc<dyn Device> = match self.version {
            Some(version) => volume.version(version)?,
            None => volume.present(),
        };
        Ok(Arc::new(Opened { top, volume }))
    }
}

impl VolumeSpec {
    async fn open_or_make(
        &self,
        candidates: Vec<Candidate>,
        options: OpenOptions,
        id: u128,
        runtime: &Runtime,
    ) -> Result<Arc<Volume>> {
        let mut has_record = false;
        for candidate in &candidates {
            has_record |= read_record(candidate, runtime).await?.is_some();
        }
        if !has_record && !self.existing {
            Volume::create(&candidates, self.options(), id, runtime).await?;
        }
        let volume = Volume::open(candidates, options, runtime).await?;
        let (found, wanted) = (volume.options(), self.options());
        if found != wanted && !self.existing {
            let context =
                format!("the volume that is there is another than described: {found:?}, not {wanted:?}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(volume)
    }
}

/// A volume that is closed in order when nobody uses it any more.
struct Opened {
    /// The volume, or a version of it.
    top: Arc<dyn Device>,
    volume: Arc<LiveVolume>,
}

/// How long a volume may take to be closed; one that is not is none the worse, but for what it does when it is opened again.
const CLOSING: Duration = Duration::from_secs(30);

impl Device for Opened {
    fn info(&self) -> DeviceInfo {
        self.top.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.top.open_queue(runtime)
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        ability_below(&*self.top, wanted)
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.volume.fmt(f)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let Ok(runtime) = Runtime::uring(RuntimeOptions::new(0)) else { return };
        let (volume, own) = (Arc::clone(&self.volume), runtime.clone());
        let closing = runtime.spawn(async move { volume.close(&own).await });
        let _ = runtime.block_on(first_of(closing, runtime.sleep(CLOSING)));
        runtime.abandon_tasks();
    }
}

/// Waits for one or the other.
async fn first_of<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| {
        let is_over = one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready();
        if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
