//! How file systems and databases react to damage: for each kind of block, effect and operation one cell, done on a real kernel, by
//! zfs-fuse, or by the program of a database.
//!
//! After Prabhakaran et al., *IRON File Systems* (SOSP 2005), section 4: a block is failed by what it is, and what the file
//! system does is seen from outside. [`react`] does the cells; [`table`], [`page`] and [`picture`] show them.
//!
//! This crate needs root, and knows nothing of trials or their files.

mod act;
mod campaign;
mod cell;
mod database;
mod effect;
mod file_system;
mod files;
mod fsync_failure;
mod guest_stage;
mod image;
mod judge;
mod medium;
mod operation;
mod scout;
mod show;
mod stage;
mod system;
mod tools;
mod tree;
mod worker;
mod zfs_stage;

pub use campaign::{Campaign, CampaignOptions, Head, Progress, react};
pub use cell::{Cell, Copies, Done, Outcome};
pub use effect::Effect;
pub use fsync_failure::{
    BlockKind, Change, FailureCell, FsyncFailure, Holds, Moment, Often, failure_cells, fsync_failure_page,
    fsync_failure_table, fsync_failures,
};
pub use judge::{Noticed, Reaction};
pub use operation::Operation;
pub use show::{page, picture, table, write_results};
pub use system::{Database, System};
