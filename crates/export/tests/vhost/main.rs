//! The vhost-user-blk server as its clients see it, through a frontend that says exactly what it is told, in the order
//! in which SPDK's initiator says it; and as QEMU sees it. Needs no root, and qemu-system-x86_64.

#[path = "../it/scripted.rs"]
mod scripted;

mod conformance;
mod drain;
mod driver;
mod foreign;
mod frontend;
mod hostile;
mod protocol;
mod server;
