//! Whole trials over ublk in the guest: `export: ublk` with a file system and with the device itself, faults in them, their
//! verdicts; one that is killed, and what is cleaned up after it.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ublk::{self, assert_gone, end};

const PATIENCE: Duration = Duration::from_secs(60);

/// A bit flips in the last block of every 4 MiB of the files, wherever ext4 puts it. ext4 keeps no checksums of data.
const EXT4: &str = "\
stack: [memory: { size: 48MiB }, faults]
subject: ext4
export: ublk
load: { pattern: sequential, total: 8MiB, block_size: 64KiB, files: { count: 2, size: 4MiB } }
faults:
  - { name: rot, match: { operation: write, target: { last_block_of_every: 4MiB } }, effect: bit_flip }
";
/// The device itself: reads of one block fail, and its bytes come as they are elsewhere.
const DEVICE: &str = "\
stack: [memory: { size: 8MiB }, faults]
subject: device
export: ublk
load: { pattern: random, reads: 50%, block_size: 4KiB, requests: 2000, prefill: true }
faults: ['name=bad, read, offset=4MiB..4100KiB: error']
expect: { failures: 1, errors: '>= 1', reported: 1 }
";
/// What is in caches when the subject is killed does not come to the stack, and what was flushed is there.
const KILLED: &str = "\
stack: [memory: { size: 48MiB }, faults]
subject: ext4
export: ublk
stop: kill
load: { pattern: random, reads: 30%, total: 4MiB, block_size: 4KiB, prefill: true, files: { count: 1, size: 4MiB } }
";
/// One that goes on until it is ended.
const LONG: &str = "\
stack: [memory: { size: 48MiB }, faults]
subject: ext4
export: ublk
load: { pattern: random, reads: 50%, duration: 600s, block_size: 4KiB, files: { count: 1, size: 4MiB } }
";

fn write(name: &str, yaml: &str) {
    std::fs::write(format!("/run/{name}.yaml"), yaml).expect("written");
}

/// Runs a trial: its exit code, and what it says of itself.
fn run(name: &str, yaml: &str) -> (Option<i32>, Value) {
    write(name, yaml);
    let ended = ublk::output(&["run", &format!("{name}.yaml"), "--json"]);
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let said = serde_json::from_str(&text);
    let said = said
        .unwrap_or_else(|error| panic!("{name}: {error}: {text}{}", String::from_utf8_lossy(&ended.stderr)));
    (ended.status.code(), said)
}

/// A kernel without the driver: it is said before anything is made.
pub fn without_the_driver() {
    write("early", DEVICE);
    let refused = ublk::output(&["run", "early.yaml"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(text.contains("export: ublk") && text.contains("modprobe ublk_drv"), "{text}");
    assert!(!Path::new("/run/results").exists(), "nothing has been made");
}

/// Faults below it come up through ublk, and the verdict tells each.
pub fn verdicts() {
    // With nothing allowed, corruption that is handed out fails the trial.
    let (code, said) = run("ext4", EXT4);
    assert_eq!(code, Some(1), "{said}");
    let counts = &said["counts"];
    let found = ["injections", "failures", "silent", "unexplained"].map(|name| counts[name].as_u64());
    assert_eq!(found, [Some(2), Some(2), Some(2), Some(0)], "{said}");
    assert_eq!(said["subject"]["export"], "ublk", "{said}");
    assert_gone();
    let (code, said) = run("device", DEVICE);
    assert_eq!(code, Some(0), "{said}");
    assert_gone();
    let (code, said) = run("killed", KILLED);
    assert_eq!(code, Some(0), "{said}");
    assert_gone();
}

/// A run is killed; its device and its mount go with `rotproof clean`.
pub fn clean() {
    write("long", LONG);
    let mut child: Child = ublk::rotproof(&["run", "long.yaml"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let deadline = Instant::now() + PATIENCE;
    let is_mounted = || std::fs::read_to_string("/proc/mounts").expect("readable").contains("/dev/ublkb0 ");
    while !is_mounted() {
        assert!(Instant::now() < deadline, "nothing is mounted");
        std::thread::sleep(Duration::from_millis(20));
    }
    // In the middle of its load.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(end(&mut child, libc::SIGKILL), None);
    let cleaned = ublk::output(&["clean"]);
    let text = String::from_utf8_lossy(&[cleaned.stdout, cleaned.stderr].concat()).into_owned();
    assert!(cleaned.status.success() && text.contains("the ublk device 0"), "{text}");
    assert!(text.contains("ext4 mount"), "{text}");
    assert!(!is_mounted(), "still mounted");
    assert_gone();
}
