//! The program inside a guest kernel: its first process. It mounts what it is told to, and carries out there what the
//! host asks of the file system.
//!
//! It is built apart from the workspace (`build.rs`), as one static program with the standard library alone, and is
//! all that the guest's initial file system holds. The host speaks to it over a line (`line`), in frames (`link`):
//! file operations are messages of FUSE, which it answers itself (`server`); everything else is a line of text
//! (`control`).
//!
//! What passes over the line is masked, and buffers with plain data are wiped: whoever looks for a block in the
//! memory of the guest shall find the copies of the kernel, not ours.

mod control;
mod line;
mod link;
mod look;
mod modules;
mod nodes;
mod pages;
mod reply;
mod server;
mod sys;

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

/// Requests carried out at the same time: one that hangs in a device must not hold up all.
const WORKERS: usize = 12;

fn main() {
    sys::mount("devtmpfs", "/dev", "devtmpfs", "");
    sys::mount("proc", "/proc", "proc", "");
    sys::mount("sysfs", "/sys", "sysfs", "");
    sys::raise_file_limit();
    modules::load();
    let link = Arc::new(link::Link::new(line::open()));
    let (sender, receiver) = mpsc::channel::<link::Frame>();
    let receiver = Arc::new(Mutex::new(receiver));
    let server = Arc::new(server::Server::default());
    for _ in 0..WORKERS {
        let (receiver, link, server) = (Arc::clone(&receiver), Arc::clone(&link), Arc::clone(&server));
        std::thread::spawn(move || {
            loop {
                let next = receiver.lock().expect("no worker panics with the lock").recv();
                let Ok(mut frame) = next else { return };
                let answer = match frame.kind {
                    link::FUSE => server.answer(&mut frame.payload),
                    _ => Some(control::answer(&frame.payload, &server)),
                };
                sys::wipe(&mut frame.payload);
                if let Some(mut answer) = answer {
                    link.send(frame.kind, &mut answer);
                    sys::wipe(&mut answer);
                }
            }
        });
    }
    link.send(link::CONTROL, &mut b"0\tready".to_vec());
    while let Some(frame) = link.receive() {
        if sender.send(frame).is_err() {
            break;
        }
    }
    // The host has gone.
    sys::power_off();
}
