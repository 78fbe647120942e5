//! Layers over devices, the description of a stack, and the factory that opens it.
//!
//! Each kind of device has a file: its word, its options, how it is opened ([`Kind`]), and for a layer how it works. The
//! list of them is in `device_spec.rs`. [`FaultDevice`] makes the device below lie, [`StatsDevice`] counts,
//! [`DedupDevice`] stores equal blocks once, [`ConcatSpec`] is several devices; it, a stripe and a mirror are those of `rotproof-volume`, [`WriteCacheDevice`] holds what a power cut loses,
//! [`RecordDevice`] records. A [`StackSpec`] is what a trial file says
//! of the stack, and [`open`] is the only way from there to devices.
//!
//! This crate does not know what a trial is.

mod below;
mod checksum;
mod concat;
mod dedup;
mod dedup_spec;
mod device_spec;
mod disk;
mod faults;
mod file;
mod kind;
mod memory;
mod mirror;
mod nbd;
mod open;
mod record;
mod record_spec;
mod snapshot;
mod stack_check;
mod stack_form;
mod stack_spec;
mod stats;
mod stripe;
mod versions;
mod volume;
mod write_cache;
mod write_cache_spec;

pub use checksum::{ChecksumKindSpec, ChecksumLayerReport, ChecksumSpec};
pub use concat::ConcatSpec;
pub use dedup::{DedupDevice, DedupOptions, DedupReport};
pub use dedup_spec::DedupSpec;
pub use device_spec::DeviceSpec;
pub use disk::{DiskProfile, DiskSpec};
pub use faults::{FaultDevice, FaultsSpec};
pub use file::FileSpec;
pub use kind::{Kind, Stands};
pub use memory::MemorySpec;
pub use mirror::{MirrorMember, MirrorReport, MirrorSpec};
pub use nbd::NbdSpec;
pub use open::{LayerReport, NamedDevice, Opening, Stack, StackEnvironment, open};
pub use record::{RecordDevice, header_of};
pub use record_spec::{RecordDeviceSpec, StackRecording};
pub use stack_spec::{Chain, Legs, StackSpec};
pub use stats::{StatsDevice, StatsReport, StatsRow, StatsSpec};
pub use stripe::StripeSpec;
pub use versions::VersionsSpec;
pub use volume::{VolumeChecksum, VolumeReport, VolumeSpec, VolumeVersions};
pub use write_cache::{Lies, WriteBack, WriteCacheDevice, WriteCacheOptions};
pub use write_cache_spec::{Ignores, WriteBackSpec, WriteCacheSpec};
