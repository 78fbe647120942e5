//! The exports as programs see them: real mounts, real loop devices, real file systems. Needs root, FUSE, loop
//! devices, `mkfs.ext4`, `mkfs.xfs`, `mkfs.btrfs` and coreutils.

mod conformance;
mod failures;
mod file_systems;
mod loop_device;
mod parser;
mod places;
mod plain_file;
mod scripted;
mod shadow;
mod unprivileged;

use rotproof_export::FuseExport;

/// Called before a file is mounted.
fn prepare() {}

/// Called with what was mounted: requests come as the kernel wants them to.
fn inspect(_: &FuseExport) {}
