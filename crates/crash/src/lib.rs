//! Power loss: what a device was asked is recorded, and from the recording come the states in which a crash may have left
//! it.
//!
//! [`recording`] is the file. This crate knows nothing of file systems, trials or descriptions of either.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "sets of sectors are lists of ranges, of which there may be one"
)]

mod check;
mod contents;
mod explore;
mod image;
mod point;
mod ranges;
pub mod recording;
mod recovery;
mod snapshot;
mod state;
mod states;
mod story;
mod survey;
mod together;
mod ways;
mod window;
mod witness;

pub use check::{Check, Crash, Finding, Mark, marks};
pub use contents::Contents;
pub use explore::{
    Ended, Exploration, ExploreOptions, FailingState, MakeCheck, Pace, Progress, ToldWitness, Unknown,
    WayReport, explore, write_exploration,
};
pub use image::ImageDevice;
pub use point::{CrashImage, Point, Survivor};
pub use recovery::{RecoveryWrite, SecondCut, second_cuts};
pub use snapshot::Snapshot;
pub use state::{CrashState, StateDescription, point_at};
pub use states::{RecoveryProbe, StateOptions, States, WayCount};
pub use story::story;
pub use survey::{CrashReport, RecordingReport, Stretch, survey};
pub use together::{JointPoint, Together};
pub use ways::{Choice, Role, Way, WayLimits};
pub use window::{Volatile, Window};
pub use witness::{Reference, Witness, reduce};
