//! A Linux guest on our exports: a virtual machine boots with a disk of ours over vhost-user, connects its kernel's NBD
//! client to our server, serves itself a stack by ublk, has its kernel record a device for us, and reports on its console. This program is
//! also what runs there as the first process.
//!
//! `outside` starts the machine and listens, `image` makes what it boots from, `inside` is what happens in it, with
//! `disk` for what every disk must stand and `nbd_client` for the kernel's, `ublk` and `ublk_trial` for our own command there, and
//! `log_writes` for what the kernel's dm-log-writes has recorded. The machine is emulated (TCG).

mod disk;
mod image;
mod inside;
mod log_writes;
mod nbd_client;
mod outside;
#[path = "../stage/mod.rs"]
mod stage;
mod ublk;
mod ublk_trial;

fn main() {
    if std::process::id() == 1 {
        inside::main();
    } else {
        outside::main();
    }
}
