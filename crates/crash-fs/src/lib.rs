//! Power loss under real file systems: a state of a crash is mounted, so that recovery runs, and looked at.
//!
//! [`Scene`] is a device that the kernel sees; [`MountCheck`] puts states on it. [`operations`] enumerates what is done to
//! files, [`model`] knows what each of it must leave behind, and [`run_sequence`] does it to a real file system whose
//! device is recorded. This crate needs root, and knows nothing of trials or their files.

mod blank;
mod campaign;
mod check;
mod command_oracle;
mod doer;
mod guest_scene;
mod image_check;
mod kept;
mod memory;
pub mod model;
mod mounting;
pub mod operations;
mod promise;
mod raw_check;
mod recorded;
mod scene;
mod sequence;
mod tree_oracle;

pub use blank::Blank;
pub use campaign::{
    CAMPAIGN_PROGRESS, Campaign, CampaignHead, CampaignOptions, Suspect, Tally, explore_sequences,
};
pub use check::{AllOracles, MountCheck, NoOracle, Oracle};
pub use command_oracle::{CommandOracle, CommandWords};
pub use guest_scene::GuestScene;
pub use image_check::{ImageCheck, ImageOracle};
pub use kept::{BASE, RECORDING, base_beside, state_name, write_state};
pub use memory::{MEMORY_MIN_BYTES, MemoryBound};
pub use mounting::Mounting;
pub use promise::{MODES, Mode, Promise, promise_table};
pub use raw_check::RawCheck;
pub use recorded::{BEGINS, Looks, MakeOracle, begin_behind, explore_and_keep, explore_recording};
pub use scene::Scene;
pub use sequence::{SequenceOptions, SequenceRun, run_sequence};
pub use tree_oracle::TreeOracle;
