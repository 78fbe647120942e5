//! Exports: the ways for other programs to reach a stack. A file in a FUSE file system and, over it, a loop device,
//! which is the block device a real file system can be put on; a block device of the kernel's driver for servers like
//! this (ublk); a network block device (NBD); a disk of a virtual machine (vhost-user-blk).
//!
//! An export turns a protocol's requests into requests of a device and errors into errnos ([`errno`]). It knows
//! nothing of faults, trials or the layers of the stack; it sees a [`rotproof_block::Device`].

mod byte_queue;
mod clients;
pub mod errno;
pub mod fuse;
mod loop_device;
pub mod nbd;
mod patience;
mod private_socket;
mod stripes;
mod system;
mod ublk;
pub mod vhost;

pub use fuse::{ForwardedMount, FuseExport, FuseOptions, abort_path, unmount_path, unmount_when_free};
pub use loop_device::{LoopDevice, LoopEntry, LoopOptions, detach_path, find_by_backing_file};
pub use nbd::{NbdAddress, NbdExport, NbdOptions, NbdServer, nbd_tls, serve_nbd_client};
pub use ublk::{UblkDevice, UblkInfo, UblkOptions, check_ublk, find_ublk, free_ublk_number, remove_ublk};
pub use vhost::{VhostExport, VhostOptions, VhostServer};
