//! The fault matrix of what stands beside a volume: btrfs as RAID-1 by this machine's kernel, and a ZFS mirror by `zfs-fuse`.
//!
//! [`peer_cell`] does a cell of `rotproof_matrix` on two members of RAM, below each the same faults, which a kernel or a daemon
//! sees as files or loop devices. Both write everything to new places, so a fault follows its block: [`aim`] knows by what is
//! written where it lies now. Time is real here, and so is what chance does; nothing here knows trials.

mod aim;
mod btrfs;
mod course;
mod members;
mod peer;
mod rules;
mod zfs;

pub use course::peer_cell;
pub use peer::Peer;
