//! Guests of User Mode Linux and of QEMU as they really are. They need root, for the mount and the namespaces.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use rotproof_block::ContentHash;
use rotproof_guest::{
    Answer, CameUp, End, Guest, GuestDisk, GuestFolder, GuestKind, GuestOptions, Kernel, MEMORY_DEFAULT,
    Question, sum_of,
};
use rotproof_inject::{Memory, Needles, PageKind, apply};
use rotproof_machine::Cancel;
use rotproof_machine::process::Liveness;

/// A guest with a file system on a file of its own, shown in a folder.
struct Rig {
    folder: Option<GuestFolder>,
    guest: Guest,
    place: PathBuf,
    /// Until it answered, and until its disk was mounted.
    times: [Duration; 2],
    all: tempfile::TempDir,
}

/// What carries the guests: User Mode Linux, and QEMU with a kernel of Debian.
fn carriers(file_system: &'static str) -> [GuestKind; 2] {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-kernel");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guest/fetch-kernel");
    let status = Command::new(&script).arg(&folder).status().expect("bash starts");
    assert!(status.success(), "{} has not brought a kernel, see above", script.display());
    let kernel = Kernel::find(Some(&folder.join("vmlinuz")), Some(&folder), file_system)
        .unwrap_or_else(|error| panic!("{error}"));
    [GuestKind::Uml { file_system }, GuestKind::Qemu(kernel)]
}

impl Rig {
    fn new(kind: &str, carrier: &GuestKind) -> Self {
        let snapshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-snapshots");
        Self::from(kind, carrier, Some(&snapshots))
    }

    fn from(kind: &str, carrier: &GuestKind, snapshots: Option<&Path>) -> Self {
        let all = tempfile::tempdir().expect("a folder");
        let (disk, place) = (all.path().join("disk"), all.path().join("place"));
        fs::create_dir(&place).expect("a folder");
        File::create(&disk).and_then(|file| file.set_len(320 << 20)).expect("a disk");
        // Whoever can reach it may use it; nobody can but who is handed it.
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o666)).expect("ours");
        let force = if kind == "ext4" { "-F" } else { "-f" };
        let made =
            Command::new(format!("mkfs.{kind}")).args(["-q", force]).arg(&disk).output().expect("mkfs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let cancel = Cancel::new();
        let began = Instant::now();
        let guest = Guest::start(&GuestOptions {
            kind: carrier.clone(),
            disk: GuestDisk::File { path: &disk, block_bytes: 512 },
            memory_bytes: MEMORY_DEFAULT,
            console: &all.path().join("console"),
            scratch: all.path(),
            holds_dirty: true,
            writes_through: false,
            snapshots,
            cancel: &cancel,
        })
        .unwrap_or_else(|error| panic!("{error}"));
        let answers = began.elapsed();
        guest.mount(kind, "").unwrap_or_else(|error| panic!("{error}"));
        let times = [answers, began.elapsed()];
        let folder = guest.show(&place).unwrap_or_else(|error| panic!("{error}"));
        Self { folder: Some(folder), guest, place, times, all }
    }

    fn console(&self) -> PathBuf {
        self.all.path().join("console")
    }

    fn said(&self, words: &str) -> bool {
        fs::read_to_string(self.console()).expect("there").contains(words)
    }

    fn remount(&mut self, kind: &str) {
        self.folder.take().expect("shown").unmount().expect("nothing is open");
        self.guest.unmount().expect("nothing is open");
        self.guest.mount(kind, "").expect("as before");
        self.folder = Some(self.guest.show(&self.place).expect("shown again"));
    }

    fn flip(&self, address: u64, block: &[u8]) -> Vec<u8> {
        let mut wrong = block.to_vec();
        wrong[1234] ^= 0x10;
        apply(&**self.guest.memory().bytes(), address, block, &wrong).expect("it holds the block");
        wrong
    }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..4096)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

fn read_block(path: &Path, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    File::open(path).and_then(|file| file.read_exact_at(&mut bytes, block * 4096)).expect("it can be read");
    bytes
}

#[test]
fn files_of_a_guest_are_used_as_any_others() {
    carriers("ext4").iter().for_each(files_are_used);
}

fn files_are_used(carrier: &GuestKind) {
    let rig = Rig::new("ext4", carrier);
    let path = |name: &str| rig.place.join(name);
    fs::create_dir(path("folder")).expect("made");
    fs::write(path("folder/one"), "text").expect("written");
    fs::rename(path("folder/one"), path("two")).expect("renamed");
    fs::hard_link(path("two"), path("three")).expect("linked");
    std::os::unix::fs::symlink("two", path("four")).expect("linked");
    assert_eq!(fs::read_to_string(path("three")).expect("there"), "text");
    assert_eq!(fs::read_to_string(path("four")).expect("there"), "text");
    assert_eq!(fs::remove_dir(path("two")).expect_err("a file").raw_os_error(), Some(libc::ENOTDIR));
    fs::remove_dir(path("folder")).expect("it is empty");
    let mut names: Vec<_> = fs::read_dir(&rig.place)
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    assert_eq!(names, ["four", "lost+found", "three", "two"]);
    let file = File::options().append(true).open(path("two")).expect("there");
    std::io::Write::write_all(&mut &file, b" and more").expect("appended");
    file.set_len(7).expect("cut");
    file.sync_all().expect("synced");
    drop(file);
    assert_eq!(fs::read(path("two")).expect("there"), b"text an");
    let large: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
    fs::write(path("large"), &large).expect("written");
    assert!(fs::read(path("large")).expect("there") == large);
    assert_eq!(rig.guest.end(), None);
    assert!(rig.guest.mount_options().expect("asked").expect("mounted").starts_with("rw"));
    all_at_once(&rig);
    attributes_are_served_if_asked_for(rig);
}

/// What one message says of many files is what they are.
fn all_at_once(rig: &Rig) {
    let of = str::to_owned;
    let mut sums = vec![Ok(sum_of(&fs::read(rig.place.join("large")).expect("there")[..4096]))];
    fs::write(rig.place.join("small"), [9; 5000]).expect("written");
    let questions = [
        Question::Names(String::new()),
        Question::Folder(of("two")),
        Question::Folder(of("lost+found")),
        Question::Link(of("four")),
        Question::Link(of("two")),
        Question::Content(of("small")),
        Question::Content(of("large")),
        Question::Content(of("nobody")),
        Question::Attribute(of("two")),
    ];
    let answers = rig.guest.look("user.some", &questions).expect("answered");
    let names = ["four", "large", "lost+found", "small", "three", "two"].map(of);
    let errno = |answer: &std::io::Result<Answer>| answer.as_ref().expect_err("none").raw_os_error();
    assert_eq!(answers[0].as_ref().expect("listed"), &Answer::Names(names.into_iter().collect()));
    assert_eq!(answers[1].as_ref().expect("there"), &Answer::Folder(false));
    assert_eq!(answers[2].as_ref().expect("there"), &Answer::Folder(true));
    assert_eq!(answers[3].as_ref().expect("there"), &Answer::Link(of("two")));
    assert_eq!(errno(&answers[4]), Some(libc::EINVAL));
    let small = Answer::Content(5000, vec![Ok(sum_of(&[9; 4096])), Ok(sum_of(&[9; 904]))]);
    assert_eq!(answers[5].as_ref().expect("there"), &small);
    let Ok(Answer::Content(1_000_000, blocks)) = &answers[6] else { panic!("{:?}", answers[6]) };
    sums.extend_from_slice(&blocks[1..]);
    assert!(blocks.len() == 245 && *blocks == sums);
    assert_eq!((errno(&answers[7]), errno(&answers[8])), (Some(libc::ENOENT), Some(libc::ENODATA)));
    rig.guest.sync_file_system().expect("written");
    rig.guest.look("user.some", &[Question::Content(of("two"))]).expect("answered");
}

/// Without being asked to, a folder has none, which the kernel then knows.
fn attributes_are_served_if_asked_for(mut rig: Rig) {
    let path = rig.place.join("two");
    let set = |value: &str| {
        let path = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no zero");
        let name = c"user.some".as_ptr();
        // SAFETY: both texts end with zero, and live across the call with the value, which is as long as told.
        unsafe { libc::setxattr(path.as_ptr(), name, value.as_ptr().cast(), value.len(), 0) }
    };
    assert_eq!(set("worth"), -1);
    rig.guest.serve_attributes().expect("told");
    rig.remount("ext4");
    assert_eq!(set("worth"), 0);
    let asked = [Question::Attribute("two".to_owned())];
    let found = rig.guest.look("user.some", &asked).expect("answered");
    assert_eq!(found[0].as_ref().expect("there"), &Answer::Attribute(5, sum_of(b"worth")));
    let listed = Command::new("python3")
        .args(["-c", "import os, sys; p = sys.argv[1]; print(os.listxattr(p), os.getxattr(p, 'user.some')); os.removexattr(p, 'user.some'); print(os.listxattr(p))"])
        .arg(&path)
        .output()
        .expect("python3");
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "['user.some'] b'worth'\n[]\n");
}

#[test]
fn a_page_that_rots_in_the_cache_is_handed_out_and_one_that_is_dirty_is_written_down() {
    for (kind, carrier) in
        ["ext4", "xfs", "btrfs"].into_iter().flat_map(|kind| carriers(kind).map(|carrier| (kind, carrier)))
    {
        let mut rig = Rig::new(kind, &carrier);
        let (path, blocks) = (rig.place.join("file"), [noise(1), noise(2), noise(3)]);
        let file = File::create(&path).expect("made");
        for (number, block) in blocks.iter().enumerate() {
            file.write_all_at(block, number as u64 * 4096).expect("written");
        }
        file.sync_all().expect("on the disk");
        let memory = rig.guest.memory().clone();
        // Clean, in the cache: the reader gets it.
        let needles = Needles::new(&[&blocks[0]]).expect("varied");
        let mut copies = Vec::new();
        for region in memory.bytes().regions().expect("asked") {
            memory.bytes().find(&region.range, &needles, &mut |_, at| copies.push(at)).expect("searched");
        }
        let address = memory.page_of("file", 0).expect("asked").expect("it is cached");
        assert!(copies.contains(&address), "{kind}: {address:#x} is none of {copies:x?}");
        let page_kind = |address: u64| memory.kinds(address / 4096, 1).expect("asked")[0];
        // Of its last pages the kernel says nothing.
        assert!(matches!(page_kind(address), Some(PageKind::PageCache) | None), "{kind}");
        let wrong = rig.flip(address, &blocks[0]);
        assert_eq!(ContentHash::of(&read_block(&path, 0)), ContentHash::of(&wrong), "{kind} says nothing");
        // Dirty: it is written down.
        let newer = noise(4);
        file.write_all_at(&newer, 4096).expect("written");
        let address = memory.page_of("file", 1).expect("asked").expect("it is cached");
        assert!(matches!(page_kind(address), Some(PageKind::Dirty) | None), "{kind}");
        let wrong_for_good = rig.flip(address, &newer);
        file.sync_all().expect("it is told that all is well");
        drop(file);
        rig.remount(kind);
        assert!(read_block(&path, 0) == blocks[0], "{kind}: the medium still has the right data");
        assert!(read_block(&path, 1) == wrong_for_good, "{kind}: the flip has been written, without a word");
        assert!(read_block(&path, 2) == blocks[2], "{kind}");
        assert!(memory.page_of("file", 9).expect("asked").is_none(), "there is no such block");
        assert_eq!(rig.guest.end(), None);
    }
}

#[test]
fn a_panic_and_a_kill_are_told_apart_and_nothing_is_left_running() {
    carriers("ext4").iter().for_each(ends_are_told_apart);
}

fn ends_are_told_apart(carrier: &GuestKind) {
    let rig = Rig::new("ext4", carrier);
    fs::write(rig.place.join("file"), "text").expect("written");
    // It does not come back to answer.
    assert!(rig.guest.set("/proc/sysrq-trigger", "c").is_err());
    match rig.guest.end() {
        Some(End::Panic(why)) => assert!(why.contains("sysrq"), "{why}"),
        other => panic!("{other:?}: {}", rig.guest.console_text()),
    }
    let error = fs::read(rig.place.join("file")).expect_err("the guest is gone");
    assert!(matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO)), "{error}");
    drop(rig);

    let rig = Rig::new("ext4", carrier);
    let kernel = rig.guest.identity();
    // SAFETY: takes numbers; the process is our guest's.
    unsafe { libc::kill(kernel.pid as i32, libc::SIGKILL) };
    let deadline = Instant::now() + Duration::from_secs(10);
    // The kernel of this machine ends the processes of a namespace one after the other.
    let end = loop {
        if let Some(end) = rig.guest.end() {
            break end;
        }
        assert!(Instant::now() < deadline, "it does not end");
    };
    assert!(matches!(end, End::Crash(_)), "{end:?}");
    while kernel.liveness() != Liveness::Gone {
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let of_guest = fs::read_dir("/proc").expect("there").flatten().filter(|entry| {
        let line = fs::read(entry.path().join("stat")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&format!(") S {} ", kernel.pid))
    });
    assert_eq!(of_guest.count(), 0, "processes of the guest are left");
}

/// A call that does not come back holds its folder, until the guest is ended.
#[test]
fn a_call_that_is_under_way_is_known_and_ends_with_the_guest() {
    let [carrier, _] = carriers("ext4");
    let mut rig = Rig::new("ext4", &carrier);
    fs::write(rig.place.join("file"), "text").expect("written");
    let folder = rig.folder.take().expect("shown");
    assert!(folder.is_at_rest_within(Duration::from_secs(20)), "all calls have come back");
    let kernel = rig.guest.identity().pid.to_string();
    let stopped = Command::new("pkill").args(["-STOP", "--ns", &kernel, "--nslist", "pid", "."]).status();
    assert!(stopped.expect("pkill").success());
    let path = rig.place.join("file");
    let reader = std::thread::spawn(move || fs::read(path));
    let deadline = Instant::now() + Duration::from_secs(20);
    while folder.is_at_rest_within(Duration::ZERO) {
        assert!(Instant::now() < deadline, "the call does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!folder.is_at_rest_within(Duration::from_millis(100)));
    rig.guest.kill();
    reader.join().expect("no panic").expect_err("the guest is gone");
    folder.unmount().expect("nobody holds it");
}

#[test]
fn guests_from_one_snapshot_have_nothing_of_each_other() {
    let all = tempfile::tempdir().expect("a folder");
    let snapshots = all.path().join("guests");
    let [_, carrier] = carriers("ext4");
    let begun = SystemTime::now();
    let one = Rig::from("ext4", &carrier, Some(&snapshots));
    assert_eq!(*one.guest.came_up(), CameUp::Restored { is_new: true }, "{}", one.guest.console_text());
    let other = Rig::from("ext4", &carrier, Some(&snapshots));
    assert_eq!(*other.guest.came_up(), CameUp::Restored { is_new: false }, "{}", other.guest.console_text());
    // What was said while the snapshot was made stands before what is said since.
    let console = fs::read_to_string(other.console()).expect("there");
    assert!(console.contains("Linux version") && console.contains("the guest goes on from it"), "{console}");

    let block = noise(7);
    let written = |rig: &Rig| {
        let file = File::create(rig.place.join("file")).expect("made");
        file.write_all_at(&block, 0).and_then(|()| file.sync_all()).expect("written");
        file.metadata().and_then(|about| about.modified()).expect("asked")
    };
    let modified = written(&one);
    // A clock that stood still with the snapshot would be behind.
    assert!(
        modified + Duration::from_secs(1) >= begun && modified <= SystemTime::now() + Duration::from_secs(1)
    );
    assert!(!other.place.join("file").exists(), "its disk is another");
    written(&other);
    let address = one.guest.memory().page_of("file", 0).expect("asked").expect("it is cached");
    one.flip(address, &block);
    assert!(read_block(&one.place.join("file"), 0) != block);
    assert!(read_block(&other.place.join("file"), 0) == block, "its memory is another");
    let uuids = [&one, &other].map(|rig| rig.guest.random_uuid().expect("asked"));
    assert_ne!(uuids[0], uuids[1], "both draw the same");
    drop((one, other));

    // Damaged, it is made anew; where none can be kept, the guest boots.
    let kept = fs::read_dir(&snapshots).expect("listed").flatten().map(|entry| entry.path());
    let kept: Vec<_> = kept.filter(|path| path.extension().is_some_and(|ending| ending == "guest")).collect();
    let file = File::options().write(true).open(&kept[0]).expect("there");
    let middle = file.metadata().expect("there").len() / 2;
    file.write_all_at(b"rotten", middle).expect("damaged");
    let third = Rig::from("ext4", &carrier, Some(&snapshots));
    assert_eq!(*third.guest.came_up(), CameUp::Restored { is_new: true });
    assert!(third.said("is damaged"));
    drop(third);
    let fourth = Rig::from("ext4", &carrier, Some(&kept[0]));
    assert!(matches!(fourth.guest.came_up(), CameUp::BootedInstead(_)), "{:?}", fourth.guest.came_up());
    assert!(fourth.said("does not go on from a snapshot"));
    fs::write(fourth.place.join("file"), "text").expect("it is as good");
}

#[test]
#[ignore = "measures"]
#[expect(clippy::print_stdout, reason = "a measurement is read by somebody")]
fn how_long_a_guest_takes_until_it_answers() {
    let all = tempfile::tempdir().expect("a folder");
    let snapshots = all.path().join("guests");
    let [uml, qemu] = carriers("ext4");
    drop(Rig::from("ext4", &qemu, Some(&snapshots)));
    for (name, carrier, snapshots) in
        [("uml", &uml, None), ("qemu, boot", &qemu, None), ("qemu, snapshot", &qemu, Some(&*snapshots))]
    {
        let mut times: Vec<[Duration; 2]> = (0..7)
            .map(|_| {
                let rig = Rig::from("ext4", carrier, snapshots);
                rig.times
            })
            .collect();
        times.sort();
        let [answers, mounted] = times[3];
        println!(
            "{name}: answers after {answers:.2?}, has its disk mounted after {mounted:.2?} (median of 7)"
        );
    }
}
