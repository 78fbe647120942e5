//! What a file system has to do, beyond reading and writing.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use rotproof_guard::GuardedFile;
use rotproof_guard_fuse::MountOptions;

use crate::rig::{Rig, bytes};

#[test]
fn names_links_and_attributes_are_those_of_the_file_system_below() {
    let rig = Rig::new();
    fs::create_dir(rig.path("d")).expect("a folder");
    fs::write(rig.path("d/a"), b"one").expect("written");
    fs::hard_link(rig.path("d/a"), rig.path("b")).expect("a link");
    std::os::unix::fs::symlink("d/a", rig.path("s")).expect("a link");
    assert_eq!(fs::read(rig.path("s")).expect("read"), b"one");
    assert_eq!(fs::read_link(rig.path("s")).expect("read"), std::path::Path::new("d/a"));
    assert_eq!(fs::metadata(rig.path("b")).expect("stat").nlink(), 2);
    assert_eq!(
        fs::metadata(rig.path("b")).expect("stat").ino(),
        fs::metadata(rig.path("d/a")).expect("stat").ino()
    );
    fs::set_permissions(rig.path("b"), fs::Permissions::from_mode(0o640)).expect("chmod");
    assert_eq!(fs::metadata(rig.below("d/a")).expect("stat").permissions().mode() & 0o777, 0o640);
    fs::rename(rig.path("b"), rig.path("d/c")).expect("renamed");
    let mut names: Vec<_> = fs::read_dir(rig.path("d"))
        .expect("read")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "c"]);
    for entry in fs::read_dir(rig.path("d")).expect("read").map(|entry| entry.expect("an entry")) {
        use std::os::unix::fs::DirEntryExt;
        assert_eq!(entry.ino(), entry.metadata().expect("stat").ino(), "a folder lists what stat gives");
    }
    assert_eq!(fs::remove_dir(rig.path("d")).expect_err("not empty").raw_os_error(), Some(libc::ENOTEMPTY));
    let root: Vec<_> =
        fs::read_dir(rig.path("")).expect("read").map(|entry| entry.expect("an entry").file_name()).collect();
    assert!(!root.iter().any(|name| name == ".rotproof-guard"), "{root:?}");
    assert!(fs::metadata(rig.path(".rotproof-guard")).is_err());
    rig.assert_all_verified();
}

#[test]
fn a_file_that_is_open_survives_its_name_and_the_file_that_takes_its_place() {
    let rig = Rig::new();
    fs::write(rig.path("a"), b"old").expect("written");
    let mut open = OpenOptions::new().read(true).write(true).open(rig.path("a")).expect("open");
    fs::write(rig.path("new"), b"new").expect("written");
    fs::rename(rig.path("new"), rig.path("a")).expect("renamed over it");
    open.write_all(b"OLD and more").expect("written");
    open.rewind().expect("at the beginning");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("read");
    assert_eq!(text, "OLD and more");
    assert_eq!(fs::read(rig.path("a")).expect("read"), b"new");
    let open = File::open(rig.path("a")).expect("open");
    fs::remove_file(rig.path("a")).expect("removed");
    let mut byte = [0; 3];
    open.read_exact_at(&mut byte, 0).expect("still there");
    assert_eq!(&byte, b"new");
    rig.assert_all_verified();
}

#[test]
fn tables_go_with_their_files() {
    let mut rig = Rig::new();
    for name in ["a", "b", "c"] {
        fs::write(rig.path(name), bytes(1, 10_000)).expect("written");
        File::open(rig.path(name)).and_then(|file| file.sync_all()).expect("durable");
    }
    fs::remove_file(rig.path("a")).expect("removed");
    fs::rename(rig.path("b"), rig.path("c")).expect("renamed over it");
    rig.unmount();
    let slots: Vec<_> = fs::read_dir(rig.store.folder().join("slots")).expect("slots").flatten().collect();
    let used: usize = slots
        .iter()
        .map(|slots| {
            let bytes = fs::read(slots.path()).expect("read");
            bytes.chunks(512).filter(|sector| sector.iter().any(|byte| *byte != 0)).count()
        })
        .sum();
    assert!((1..=2).contains(&used), "{used} copies of records");
}

#[test]
fn holes_and_appends_and_truncation_are_right() {
    let rig = Rig::new();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(rig.path("a"))
        .expect("open");
    file.write_all_at(b"end", 10 << 20).expect("far away");
    assert!(fs::metadata(rig.below("a")).expect("stat").blocks() < 100, "sparse");
    let mut read = vec![1; 8192];
    file.read_exact_at(&mut read, 5 << 20).expect("a hole");
    assert!(read == vec![0; 8192]);
    // SAFETY: an open descriptor and numbers.
    let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
    assert_eq!(hole, 10 << 20);
    file.set_len(5000).expect("cut");
    file.set_len(9000).expect("grown");
    assert!(fs::read(rig.path("a")).expect("read") == vec![0; 9000]);
    let mut appending = OpenOptions::new().append(true).open(rig.path("a")).expect("open");
    let mut other = OpenOptions::new().append(true).open(rig.path("a")).expect("open");
    for _ in 0..50 {
        appending.write_all(&[1; 100]).expect("appended");
        other.write_all(&[2; 100]).expect("appended");
    }
    let all = fs::read(rig.path("a")).expect("read");
    assert_eq!((all.len(), all[9000], all[9100], all[18_900]), (19_000, 1, 2, 2));
    // SAFETY: an open descriptor and numbers.
    let punched = unsafe {
        libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 9000, 5000)
    };
    assert_eq!(punched, 0);
    assert!(fs::read(rig.path("a")).expect("read")[9000..14_000] == [0; 5000]);
    rig.assert_all_verified();
}

#[test]
fn mappings_are_read_and_written() {
    let rig = Rig::new();
    fs::write(rig.path("a"), bytes(2, 20_000)).expect("written");
    let file = OpenOptions::new().read(true).write(true).open(rig.path("a")).expect("open");
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of an open file, used within its length and undone.
    unsafe {
        let start =
            libc::mmap(std::ptr::null_mut(), 20_000, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let mapped = std::slice::from_raw_parts_mut(start.cast::<u8>(), 20_000);
        assert!(*mapped == bytes(2, 20_000)[..]);
        mapped[5000..5005].copy_from_slice(b"hello");
        assert_eq!(libc::msync(start, 20_000, libc::MS_SYNC), 0);
        libc::munmap(start, 20_000);
    }
    assert_eq!(&fs::read(rig.path("a")).expect("read")[5000..5005], b"hello");
    assert_eq!(&fs::read(rig.below("a")).expect("read")[5000..5005], b"hello");
    rig.assert_all_verified();
}

#[test]
fn extended_attributes_locks_and_direct_io_work() {
    let rig = Rig::new();
    let file = File::create_new(rig.path("a")).expect("made");
    let path = std::ffi::CString::new(rig.path("a").into_os_string().into_encoded_bytes()).expect("a path");
    let mut value = [0u8; 8];
    // SAFETY: texts that end with zero, buffers as long as told, open descriptors.
    unsafe {
        assert_eq!(libc::setxattr(path.as_ptr(), c"user.x".as_ptr(), b"value".as_ptr().cast(), 5, 0), 0);
        assert_eq!(libc::getxattr(path.as_ptr(), c"user.x".as_ptr(), value.as_mut_ptr().cast(), 8), 5);
        assert_eq!(libc::flock(file.as_raw_fd(), libc::LOCK_EX), 0);
        let other = File::open(rig.path("a")).expect("open");
        assert_eq!(libc::flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB), -1);
    }
    assert_eq!(&value[..5], b"value");
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(rig.path("a"))
        .expect("open");
    let buffer = vec![7u8; 3 * 4096];
    let start = buffer.as_ptr().align_offset(4096);
    direct.write_all_at(&buffer[start..start + 4096], 0).expect("written");
    assert!(fs::read(rig.path("a")).expect("read") == vec![7; 4096]);
    rig.assert_all_verified();
}

#[test]
fn both_doors_see_the_same_file_at_the_same_time() {
    let rig = Rig::new();
    fs::write(rig.path("a"), bytes(3, 50_000)).expect("written");
    let below = OpenOptions::new().read(true).write(true).open(rig.below("a")).expect("open");
    // Another process: a store of its own.
    let store = rotproof_guard::Store::open(rig.store.root(), None).expect("a guard");
    let library =
        GuardedFile::open(&store, below.as_raw_fd(), true, &rig.below("a")).expect("a guarded file");
    let mount = OpenOptions::new().read(true).write(true).open(rig.path("a")).expect("open");
    let mut read = vec![0; 100];
    for round in 0..200u64 {
        let data = bytes(round, 100);
        library.write_at(&data, round * 211).expect("written");
        mount.read_exact_at(&mut read, round * 211).expect("read");
        assert!(read == data);
        mount.write_all_at(&data, round * 97 + 5).expect("written");
        assert_eq!(library.read_at(&mut read, round * 97 + 5).expect("read"), 100);
        assert!(read == data);
    }
    library.append(b"more", None).expect("appended");
    assert_eq!(fs::metadata(rig.path("a")).expect("stat").len(), 50_004);
    rig.assert_all_verified();
}

#[test]
fn a_flip_on_the_disk_is_an_error_of_the_block_and_of_no_other() {
    for is_cached in [false, true] {
        let rig = Rig::with(MountOptions { is_cached, ..MountOptions::default() });
        let data = bytes(4, 200_000);
        fs::write(rig.path("a"), &data).expect("written");
        File::open(rig.path("a")).and_then(|file| file.sync_all()).expect("durable");
        rig.flip_on_disk("a", 30 * 4096 * 8 + 3);
        let error = fs::read(rig.path("a")).expect_err("not handed out");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        if !is_cached {
            let mut file = File::open(rig.path("a")).expect("open");
            file.seek(SeekFrom::Start(31 * 4096)).expect("behind it");
            let mut rest = Vec::new();
            file.read_to_end(&mut rest).expect("the rest");
            assert!(rest == data[31 * 4096..]);
        }
        assert_eq!(fs::read(rig.below("a")).expect("silent below").len(), 200_000);
    }
}

#[test]
fn times_that_a_program_sets_are_no_change_behind_the_guards_back() {
    let mut rig = Rig::new();
    fs::write(rig.path("a"), bytes(5, 10_000)).expect("written");
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    File::options().write(true).open(rig.path("a")).and_then(|file| file.set_modified(past)).expect("set");
    assert_eq!(fs::metadata(rig.below("a")).and_then(|metadata| metadata.modified()).expect("times"), past);
    rig.unmount();
    let status = rotproof_guard::status::status(&rig.store).expect("status");
    assert_eq!((status.guarded, status.foreign.len()), (1, 0), "{status:?}");
}

#[test]
fn permissions_are_what_the_program_asked_for_whatever_the_umask_of_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    let script = "umask 0; mkdir -m 773 folder; : > file; mkfifo pipe; umask 027; : > masked";
    let done = std::process::Command::new("sh").args(["-ec", script]).current_dir(rig.path("")).status();
    assert!(done.expect("a shell").success());
    let mode = |name: &str| fs::metadata(rig.below(name)).expect(name).permissions().mode() & 0o777;
    assert_eq!(["folder", "file", "pipe", "masked"].map(mode), [0o773, 0o666, 0o666, 0o640]);
}

#[test]
fn a_write_by_somebody_else_takes_away_the_right_to_run_as_the_owner() {
    use std::os::unix::process::CommandExt;
    let rig = Rig::with(MountOptions { allow_other: true, ..MountOptions::default() });
    for path in [rig.path("above"), rig.below("below")] {
        fs::write(&path, b"program").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("chmod");
        let write = |user| {
            let file = OpenOptions::new().append(true).open(&path).expect("open");
            let done = std::process::Command::new("echo").arg("x").uid(user).gid(user).stdout(file).status();
            assert!(done.expect("echo").success());
            fs::metadata(&path).expect("stat").mode() & 0o7777
        };
        assert_eq!((write(0), write(65534)), (0o6777, 0o777), "{}", path.display());
    }
}

#[test]
fn an_acl_of_a_folder_decides_in_place_of_the_umask() {
    // Version 2; then the owner, the group and others, each with a tag, permissions and no number.
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions) in [(1u16, 7u16), (4, 7), (0x20, 5)] {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(u32::MAX.to_le_bytes());
    }
    let rig = Rig::new();
    let modes = |folder: std::path::PathBuf| -> Vec<u32> {
        fs::create_dir(&folder).expect("a folder");
        let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).expect("a text");
        // SAFETY: texts that end with zero, and a value as long as told.
        let set = unsafe {
            libc::setxattr(
                path.as_ptr(),
                c"system.posix_acl_default".as_ptr(),
                acl.as_ptr().cast(),
                acl.len(),
                0,
            )
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        let script = "umask 077; : > file; mkdir folder; mkfifo pipe; cd ..; umask 027; : > other";
        let done = std::process::Command::new("sh").args(["-ec", script]).current_dir(&folder).status();
        assert!(done.expect("a shell").success());
        ["file", "folder", "pipe", "../other"]
            .map(|name| fs::metadata(folder.join(name)).expect("stat").mode() & 0o7777)
            .to_vec()
    };
    let above = modes(rig.path("above"));
    fs::remove_file(rig.path("other")).expect("it is there");
    assert_eq!(above, modes(rig.below("below")));
    assert_eq!(above, [0o664, 0o775, 0o664, 0o640]);
}
