//! Layers over devices, the description of a stack, and the factory that opens it.
//!
//! Each kind of device is a file: its word, its options, how it is opened ([`Kind`]), and for a layer the device itself, unless that
//! is in `rotproof-volume`. `stats.rs` is a small one to copy. A new kind is a file and a line in the list below; it is then read,
//! checked, described by the schema and opened like the others. A [`StackSpec`] is what a trial file says of the stack, and [`open`]
//! is the only way from there to devices.
//!
//! This crate does not know what a trial is.

/// Every kind of device: its module, and its options as a type, which implement [`Kind`]. **A new one is a line here.** The schema
/// and messages name them in this order.
macro_rules! for_each_kind {
    ($use_them:ident) => {
        $use_them! {
            memory: Memory(MemorySpec),
            file: File(FileSpec),
            nbd: Nbd(NbdSpec),
            disk: Disk(DiskSpec),
            concat: Concat(ConcatSpec),
            stripe: Stripe(StripeSpec),
            mirror: Mirror(MirrorSpec),
            volume: Volume(VolumeSpec),
            faults: Faults(FaultsSpec),
            stats: Stats(StatsSpec),
            dedup_spec: Dedup(DedupSpec),
            write_cache_spec: WriteCache(WriteCacheSpec),
            record_spec: Record(RecordDeviceSpec),
            checksum: Checksum(ChecksumSpec),
            versions: Versions(VersionsSpec),
        }
    };
}

/// The modules of the kinds.
macro_rules! modules {
    ($($module:ident: $kind:ident($options:ident),)*) => { $(mod $module;)* };
}
for_each_kind!(modules);

mod below;
mod dedup;
mod device_spec;
mod kind;
mod open;
mod record;
mod snapshot;
mod stack_check;
mod stack_form;
mod stack_spec;
mod write_cache;

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
