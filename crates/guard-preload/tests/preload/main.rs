//! The preloaded library below real programs, unchanged, and below one that makes every call that it stands in front of.

mod calls;
mod crowd;
mod period;
mod programs;
mod rig;
#[path = "../../../guard-fuse/tests/mount/scripts.rs"]
mod scripts;
