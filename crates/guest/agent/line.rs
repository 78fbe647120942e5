//! The line to the host: the first serial line, or where the kernel's command line says `rotproof.line=port` the port of
//! virtio whose name is `rotproof`.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::Duration;

use crate::sys;

const PORTS: &str = "/sys/class/virtio-ports";
const NAME: &str = "rotproof";
/// How long a port may take to be there, in steps of [`STEP`].
const STEPS: u32 = 6000;
const STEP: Duration = Duration::from_millis(5);

/// Opens it, when the host is at its other end.
pub fn open() -> File {
    let is_port = fs::read_to_string("/proc/cmdline").is_ok_and(|words| words.contains("rotproof.line=port"));
    if !is_port {
        let line = opened("/dev/ttyS0").expect("the serial line is there");
        sys::make_raw(line.as_raw_fd());
        return line;
    }
    for _ in 0..STEPS {
        if let Some(port) = port().and_then(|name| opened(&format!("/dev/{name}"))) {
            // Before the host has said that it is there, a read would tell of its end.
            while sys::has_hung_up(port.as_raw_fd()) {
                sleep(STEP);
            }
            return port;
        }
        sleep(STEP);
    }
    panic!("there is no port of virtio with the name {NAME}");
}

/// What the kernel calls the port.
fn port() -> Option<String> {
    let entries = fs::read_dir(PORTS).ok()?.flatten();
    let is_ours = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim_end() == NAME)
    };
    entries.filter(is_ours).next()?.file_name().into_string().ok()
}

fn opened(path: &str) -> Option<File> {
    OpenOptions::new().read(true).write(true).open(path).ok()
}
