//! Maps of real file systems against what their own tools, and the kernel, say of the same images.

mod btrfs;
mod ext4;
mod image;
mod lmdb;
mod postgres;
mod seeds;
mod speed;
mod sqlite;
mod xfs;
mod zfs;
