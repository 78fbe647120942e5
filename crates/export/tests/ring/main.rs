//! What programs see of the FUSE file must be the same where the kernel sends requests by io_uring: the same tests once
//! more, that way. A program of its own, because the kernel's switch concerns every connection that begins while it is on.
//! Needs root. A kernel without the switch (before Linux 6.14) has only the other way, and this says so.
#![expect(clippy::print_stdout, reason = "says what it cannot test")]

#[path = "../it/conformance.rs"]
mod conformance;
#[path = "../it/failures.rs"]
mod failures;
#[path = "../it/file_systems.rs"]
mod file_systems;
#[path = "../it/loop_device.rs"]
mod loop_device;
#[path = "../it/places.rs"]
mod places;
#[path = "../it/plain_file.rs"]
mod plain_file;
#[path = "../it/scripted.rs"]
mod scripted;
#[path = "../it/shadow.rs"]
mod shadow;

use std::fs;
use std::sync::LazyLock;

use rotproof_export::FuseExport;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What the switch said before, if there is one.
static BEFORE: LazyLock<Option<Vec<u8>>> = LazyLock::new(|| {
    let Ok(before) = fs::read(SWITCH) else {
        println!("{SWITCH} is not there: this kernel sends FUSE requests by the device only");
        return None;
    };
    fs::write(SWITCH, "Y").expect("root may switch it on");
    // SAFETY: the function takes nothing, and does nothing but write a file.
    assert_eq!(unsafe { libc::atexit(restore) }, 0, "it will be switched back");
    Some(before)
});

extern "C" fn restore() {
    if let Some(before) = &*BEFORE {
        let _ = fs::write(SWITCH, before);
    }
}

/// Called before a file is mounted.
fn prepare() {
    LazyLock::force(&BEFORE);
}

/// Called with what was mounted.
fn inspect(export: &FuseExport) {
    assert_eq!(export.is_over_ring(), BEFORE.is_some(), "the way of the requests");
}
