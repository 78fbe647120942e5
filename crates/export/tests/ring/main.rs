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
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use rotproof_export::FuseExport;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Who puts the switch back to what it said before, if there is one.
///
/// A process of its own, which waits for the end of this one: a server that dies while the switch is on can leave
/// requests in the kernel that nothing ends, so it must go back after a kill, too. Nobody takes it out of the static,
/// so the pipe that it reads is closed by the kernel, when this process is gone.
static BEFORE: LazyLock<Option<Child>> = LazyLock::new(|| {
    let Ok(before) = fs::read_to_string(SWITCH) else {
        println!("{SWITCH} is not there: this kernel sends FUSE requests by the device only");
        return None;
    };
    let restorer = Command::new("sh")
        .args(["-c", "trap '' INT TERM HUP; cat; echo \"$1\" >\"$2\"", "restore", before.trim(), SWITCH])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell starts");
    fs::write(SWITCH, "Y").expect("root may switch it on");
    Some(restorer)
});

/// Called before a file is mounted.
fn prepare() {
    LazyLock::force(&BEFORE);
}

/// Called with what was mounted.
fn inspect(export: &FuseExport) {
    assert_eq!(export.is_over_ring(), BEFORE.is_some(), "the way of the requests");
}
