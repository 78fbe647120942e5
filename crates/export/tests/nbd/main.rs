//! The NBD server as clients see it: our own leaf, a client that says exactly what it is told, and the programs that
//! people use. Needs no root; needs libnbd's and QEMU's tools, fio and openssl.

#[path = "../it/scripted.rs"]
mod scripted;

mod client;
mod conformance;
mod drain;
mod foreign;
mod hostile;
mod protocol;
mod server;
mod shadow;
mod tls;
