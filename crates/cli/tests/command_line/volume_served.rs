//! What a user of a volume sees who changes its shape while it is served.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rotproof_block::leaf::NbdDevice;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Buffer, Context, Device, Request, Runtime};
use serde_json::Value;

use super::volume::{Served, Shelf};

impl Shelf {
    /// Serves a volume by a name, by which the other commands find it.
    fn serve_by_name(&self, name: &str, arguments: &[&str]) -> (Served, Value) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rotproof"))
            .args(["volume", "serve", "--json", "--name", name])
            .args(arguments)
            .current_dir(self.0.path())
            .env("ROTPROOF_STATE_DIR", self.path("state"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        (Served(child), serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
    }

    fn enlarge(&self, name: &str, mebibytes: u64) {
        let file = std::fs::File::options().write(true).open(self.path(name)).expect("a file");
        file.set_len(mebibytes << 20).expect("grows");
    }
}

/// Of what is served, the address of one way.
fn address(ready: &Value, way: &str) -> String {
    let exports = ready["exports"].as_array().expect("exports");
    let found = exports.iter().find(|export| export["as"] == way).expect("it is offered so");
    found["address"].as_str().expect("an address").to_owned()
}

fn content(block: u64, round: u64) -> Vec<u8> {
    (0..512).flat_map(|word: u64| (block << 40 | round << 12 | word).to_le_bytes()).collect()
}

/// Blocks that the load uses.
const BLOCKS: u64 = 256;

/// Writes each block of a file again and again, reads it back, and gives in which round it wrote last.
fn load(file: &Path, stops: &AtomicBool, rounds: &AtomicU64) {
    let file = std::fs::File::options().read(true).write(true).open(file).expect("opens");
    let mut round = 0;
    while !stops.load(Ordering::Relaxed) {
        round += 1;
        for block in 0..BLOCKS {
            file.write_all_at(&content(block, round), block * 4096).expect("is written");
            let mut back = vec![0; 4096];
            let other = (block * 7) % BLOCKS;
            file.read_exact_at(&mut back, other * 4096).expect("is read");
            let of = if other <= block { round } else { round - 1 };
            assert!(of == 0 || back == content(other, of), "block {other} in round {round}");
        }
        rounds.store(round, Ordering::Relaxed);
    }
}

#[test]
fn a_volume_gets_larger_and_other_copies_while_programs_use_it() {
    let shelf = Shelf::new(&["a", "b", "c", "d", "e", "f"]);
    shelf.passes(&["create", "a", "b", "--versions"]);
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let way = if is_root { "device" } else { "file" };
    let (served, ready) =
        shelf.serve_by_name("first", &["a", "b", "--as", "file", "--as", "nbd", "--as", way]);
    let (file, nbd) = (address(&ready, "file"), address(&ready, "nbd"));
    let size = ready["size_bytes"].as_u64().expect("a size");
    let (stops, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let after = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(Path::new(&file), &stops, &rounds));
        let further = |target: u64| {
            let known = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < known + target && !loading.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        further(1);
        let copied = shelf.passes(&["add", "a", "b", "--copy", "c"]);
        assert!(copied.contains("DONE"), "{copied}");
        further(1);
        for name in ["a", "b", "c"] {
            shelf.enlarge(name, 64);
        }
        let grown = shelf.volume(&["grow", "a", "b", "c", "--with", "d", "--with", "e", "--with", "f"]);
        assert!(grown.code == 0 && grown.stderr.contains("grown from"), "{}", grown.stderr);
        assert!(grown.stdout.contains("3 copies") && grown.stdout.contains("3 segments"), "{}", grown.stdout);
        further(1);
        let fewer = shelf.passes(&["remove", "a", "d", "--member", "0", "--member", "3"]);
        assert!(fewer.contains("2 copies"), "{fewer}");
        let refused = shelf.volume(&["grow", "b", "e"]);
        assert!(refused.stderr.contains("nothing to grow by"), "{}", refused.stderr);
        further(1);
        // One more device, which stays as the present was.
        assert_eq!(shelf.passes(&["capture", "b", "e"]), "version 1 is captured\n");
        let beside: Value =
            serde_json::from_str(&shelf.passes(&["versions", "b", "e", "--beside", "1", "--json"]))
                .expect("JSON");
        let again = shelf.volume(&["versions", "b", "e", "--beside", "1"]);
        assert!(again.stderr.contains("version-1 is offered already"), "{}", again.stderr);
        let version = address(&beside, "file");
        let held = std::fs::read(&version).expect("is read");
        further(1);
        assert!(std::fs::read(&version).expect("is read") == held, "it stays");
        assert!(!address(&beside, "nbd").is_empty());
        // Nobody's data are pulled away from below him.
        let busy = shelf.volume(&["destroy", "b", "e", "--yes"]);
        assert!(busy.code == 2 && busy.stderr.contains("the volume is in use"), "{}", busy.stderr);
        stops.store(true, Ordering::Relaxed);
        let after = shelf.status(&["b", "e"])["size_bytes"].as_u64().expect("a size");
        // Who has it open sees how large it is now; so does who comes now.
        assert_eq!(std::fs::metadata(&file).expect("is there").len(), after);
        assert_eq!(NbdDevice::connect(&nbd.parse().expect("a URI")).expect("connects").info().size, after);
        if is_root {
            let device = address(&ready, "device");
            let sectors = format!("/sys/class/block/{}/size", device.trim_start_matches("/dev/"));
            let sectors: u64 =
                std::fs::read_to_string(sectors).expect("is there").trim().parse().expect("a number");
            assert_eq!(sectors * 512, after);
        }
        after
    });
    assert!(after > size + (48 << 20), "{size} to {after}");
    let file = std::fs::File::options().read(true).write(true).open(&file).expect("opens");
    file.write_all_at(&[5; 4096], after - 4096).expect("what is new can be used");
    let (mut back, round) = (vec![0; 4096], rounds.load(Ordering::Relaxed));
    for block in 0..BLOCKS {
        file.read_exact_at(&mut back, block * 4096).expect("is read");
        assert!(back == content(block, round), "block {block}");
    }
    drop(file);
    let scrub = shelf.passes(&["scrub", "b", "e"]);
    assert!(scrub.contains("DONE"), "{scrub}");
    assert_eq!(served.end(), 130);
    let (served, ready) = shelf.serve_by_name("second", &["b", "c", "e", "f", "--as", "nbd"]);
    let device = NbdDevice::connect(&address(&ready, "nbd").parse().expect("a URI")).expect("connects");
    let busy = shelf.volume(&["destroy", "b", "e", "--yes"]);
    assert!(busy.stderr.contains("1 client over NBD"), "{}", busy.stderr);
    let read = |block: u64| -> Vec<u8> {
        let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("a runtime");
        let queue = device.open_queue(&runtime).expect("opens");
        let read = Request::read(block * 4096, Buffer::stale(4096), Context::default());
        let completion = runtime.block_on(queue.submit(read)).expect("completes");
        completion.result.expect("is read");
        completion.buffer.to_vec()
    };
    for block in 0..BLOCKS {
        assert!(read(block) == content(block, round), "block {block} after all was closed");
    }
    drop(device);
    // The server notices by itself that its client has left.
    let mut ended = shelf.volume(&["destroy", "b", "e", "--yes"]);
    for _ in 0..100 {
        if ended.code == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        ended = shelf.volume(&["destroy", "b", "e", "--yes"]);
    }
    assert!(ended.stdout.contains("is no more"), "{}", ended.stderr);
    let mut served = served;
    assert_eq!(served.0.wait().expect("it ends by itself").code(), Some(0));
    assert!(shelf.volume(&["status", "b", "c", "e", "f"]).stderr.contains("no member of a volume"));
}

/// Writes blocks in their order, with a flush after every few, until that fails; how many were flushed.
fn append(uri: &str, flushed: &AtomicU64) {
    const BETWEEN: u64 = 4;
    let device: Arc<NbdDevice> = NbdDevice::connect(&uri.parse().expect("a URI")).expect("connects");
    let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("a runtime");
    let queue = device.open_queue(&runtime).expect("opens");
    let ask = |request| runtime.block_on(queue.submit(request)).expect("completes").result;
    for block in 0..2048 {
        let write = Request::write(block * 4096, Buffer::copy_of(&content(block, 1)), Context::default());
        if ask(write).is_err() {
            return;
        }
        if block % BETWEEN == BETWEEN - 1 {
            if ask(Request::flush(Context::default())).is_err() {
                return;
            }
            flushed.store(block + 1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_change_leaves_a_volume_with_all_that_was_flushed() {
    let changes: [&[&str]; 3] = [
        &["grow", "a", "b", "--with", "c", "--with", "d"],
        &["add", "a", "b", "--copy", "c"],
        &["remove", "a", "b", "--member", "0"],
    ];
    for (number, change) in changes.iter().cycle().take(6).enumerate() {
        let shelf = Shelf::new(&["a", "b", "c", "d"]);
        shelf.passes(&["create", "a", "b"]);
        let (mut served, ready) = shelf.serve_by_name("killed", &["a", "b", "--as", "nbd"]);
        let (uri, flushed) = (address(&ready, "nbd"), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let load = scope.spawn(|| append(&uri, &flushed));
            while flushed.load(Ordering::Relaxed) < 40 && !load.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let changing = scope.spawn(|| shelf.volume(change));
            // Each time somewhere else; where is not said.
            std::thread::sleep(Duration::from_millis(3 + 17 * number as u64));
            served.0.kill().expect("a process");
            served.0.wait().expect("it has ended");
            changing.join().expect("the command ends");
        });
        let there = ["a", "b", "c", "d"]
            .into_iter()
            .filter(|name| !shelf.volume(&["status", name]).stderr.contains("no member of a volume"));
        let there: Vec<&str> = there.collect();
        let (served, ready) = shelf.serve_by_name("again", &[&there[..], &["--as", "nbd"]].concat());
        let device = NbdDevice::connect(&address(&ready, "nbd").parse().expect("a URI")).expect("connects");
        let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("a runtime");
        let queue = device.open_queue(&runtime).expect("opens");
        let promised = flushed.load(Ordering::Relaxed);
        assert!(promised >= 40, "{promised}");
        for block in 0..promised {
            let read = Request::read(block * 4096, Buffer::stale(4096), Context::default());
            let completion = runtime.block_on(queue.submit(read)).expect("completes");
            completion.result.unwrap_or_else(|error| panic!("{error}: block {block}, {change:?}, {there:?}"));
            assert!(completion.buffer[..] == content(block, 1), "block {block} of {promised}, {change:?}");
        }
        drop((queue, device));
        assert_eq!(served.end(), 130);
    }
}

/// A file system that is mounted until this is dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(device: &str, place: &'a Path) -> Self {
        let done = Command::new("mount").arg(device).arg(place).status().expect("mount runs, as root");
        assert!(done.success(), "{device} is mounted");
        Self(place)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// As root.
#[test]
fn a_guard_takes_what_is_wrong_from_the_other_copy_of_the_volume_below() {
    let shelf = Shelf::new(&["a", "b"]);
    shelf.passes(&["create", "a", "b", "--checksum", "none"]);
    let (served, ready) = shelf.serve_by_name("copies", &["a", "b", "--as", "device"]);
    let device = address(&ready, "device");
    assert!(Command::new("mkfs.ext4").args(["-q", &device]).status().expect("it runs").success());
    let place = shelf.path("mount");
    std::fs::create_dir(&place).expect("a folder");
    let data: Vec<u8> = (0..300u64).flat_map(|block| content(block, 1)).collect();
    let guard = |verb: &str, more: &[&str]| {
        let ended = Command::new(env!("CARGO_BIN_EXE_rotproof"))
            .args(["guard", verb, "mount/data"])
            .args(more)
            .current_dir(shelf.path("."))
            .env("ROTPROOF_STATE_DIR", shelf.path("state"))
            .output()
            .expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (ended.status.code(), text(ended.stdout), text(ended.stderr))
    };
    {
        let _mounted = Mounted::new(&device, &place);
        std::fs::create_dir(place.join("data")).expect("a folder");
        std::fs::write(place.join("data/file"), &data).expect("written");
        assert_eq!(guard("init", &["--quiet"]).0, Some(0));
    }
    // Of each block one copy rots, so whichever the volume reads, it reads wrong ones.
    let member = std::fs::read(shelf.path("a")).expect("a member");
    let first =
        member.windows(4096).step_by(512).position(|bytes| bytes == content(0, 1)).expect("it is there")
            * 512;
    let places: Vec<_> = (0..300u64)
        .map(|block| {
            let name = if block % 2 == 0 { "a" } else { "b" };
            let file =
                std::fs::File::options().read(true).write(true).open(shelf.path(name)).expect("a member");
            (file, first as u64 + block * 4096, content(block, 1))
        })
        .filter(|(_, at, wanted)| member.get(*at as usize..*at as usize + 4096) == Some(wanted))
        .collect();
    assert!(places.len() > 200, "the file lies in few pieces");
    for (file, at, _) in &places {
        file.write_all_at(b"rotten", at + 50).expect("written");
    }
    let mounted = Mounted::new(&device, &place);
    let refused = guard("repair", &["--volume", "nothing"]);
    assert_eq!(refused.0, Some(3), "{}", refused.2);
    assert!(refused.2.contains("no volume is served as nothing"), "{}", refused.2);
    let ended = guard("repair", &["--volume", "copies", "--quiet"]);
    assert_eq!(ended.0, Some(0), "{}{}", ended.1, ended.2);
    // Whichever copy of a block the volume read, the other one is right afterwards too.
    assert!(ended.1.contains(&format!("  repaired   {}\n", places.len())), "{}", ended.1);
    let again = guard("repair", &["--volume", "copies", "--json"]);
    let report: Value = serde_json::from_str(&again.1).expect("JSON");
    let counts = ["repaired_count", "rotten_count", "copies_unseen"].map(|key| report[key].as_u64());
    assert_eq!((again.0, counts), (Some(0), [Some(0); 3]), "{}", again.1);
    let (_, status, _) = guard("status", &["--json"]);
    assert!(status.contains("recovered_from_"), "{status}");
    drop(mounted);
    let mended = places.iter().filter(|(file, at, wanted)| {
        let mut now = vec![0; 4096];
        file.read_exact_at(&mut now, *at).expect("read");
        now == *wanted
    });
    assert_eq!(mended.count(), places.len(), "all copies are right again");
    assert_eq!(served.end(), 130);
    // One that has checksums mends its copies by itself.
    let shelf = Shelf::new(&["a", "b"]);
    shelf.passes(&["create", "a", "b"]);
    let (_served, ready) = shelf.serve_by_name("summed", &["a", "b", "--as", "file"]);
    let refused = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(["guard", "repair", ".", "--volume"])
        .arg(ready["control"].as_str().expect("a socket"))
        .current_dir(shelf.path("."))
        .env("ROTPROOF_STATE_DIR", shelf.path("state"))
        .output()
        .expect("it runs");
    let told = String::from_utf8(refused.stderr).expect("UTF-8");
    assert!(told.contains("mends its copies by itself"), "{told}");
}
