//! A user without root mounts through `fusermount3` and uses the file as any other.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use rotproof_block::leaf::MemoryDevice;
use rotproof_export::{FuseExport, FuseOptions, unmount_path};

const NOBODY: libc::c_long = 65534;

/// Runs a test on a thread that has become `nobody`; the system calls, unlike the library's functions of the same
/// name, change one thread only, and its children inherit. The thread has mounts of its own, and there a `/dev/fuse`
/// that everybody may open, as udev makes it.
fn as_nobody(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            let text = |text: &str| CString::new(text).expect("no zero byte");
            let (root, none, tmpfs, fuse) = (text("/"), text("none"), text("tmpfs"), text("/dev/fuse"));
            let directory = text(scratch.path().to_str().expect("plain text"));
            let node = text(scratch.path().join("fuse").to_str().expect("plain text"));
            let no_text = std::ptr::null();
            // SAFETY: the strings have their zero byte and live across the calls; the rest are plain numbers.
            unsafe {
                done(libc::unshare(libc::CLONE_NEWNS).into());
                let private = libc::MS_REC | libc::MS_PRIVATE;
                done(libc::mount(none.as_ptr(), root.as_ptr(), no_text, private, no_text.cast()).into());
                done(
                    libc::mount(none.as_ptr(), directory.as_ptr(), tmpfs.as_ptr(), 0, no_text.cast()).into(),
                );
                done(libc::mknod(node.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(10, 229)).into());
                done(libc::chmod(node.as_ptr(), 0o666).into());
                done(
                    libc::mount(node.as_ptr(), fuse.as_ptr(), no_text, libc::MS_BIND, no_text.cast()).into(),
                );
                done(libc::umount2(directory.as_ptr(), libc::MNT_DETACH).into());
            }
            scratch.close().expect("the bind mount keeps the node");
            // SAFETY: plain numbers, and no groups; the thread ends as nobody.
            unsafe {
                done(libc::syscall(libc::SYS_setgroups, 0, no_text));
                done(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY));
                done(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY));
            }
            test();
        });
        thread.join().expect("the test passes");
    });
}

fn done(answer: libc::c_long) {
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_user_without_root_mounts_uses_and_unmounts() {
    as_nobody(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let memory = MemoryDevice::new(1 << 20, 512).expect("sizes that fit");
        let export =
            FuseExport::mount(memory, directory.path(), FuseOptions::default()).expect("fusermount3 works");
        let file = OpenOptions::new().read(true).write(true).open(export.path()).expect("it is the user's");
        file.write_all_at(b"without root", 100).expect("written");
        let mut seen = [0; 12];
        file.read_exact_at(&mut seen, 100).expect("read");
        assert_eq!(&seen, b"without root");
        let busy = export.unmount().expect_err("it is open");
        assert_eq!(busy.kind(), rotproof_block::ErrorKind::Os(libc::EBUSY));
        drop(file);
        export.unmount().expect("closed now");
        let error = unmount_path(directory.path(), false).expect_err("nothing is mounted any more");
        assert_eq!(error.kind(), rotproof_block::ErrorKind::Os(libc::EINVAL));
        directory.close().expect("an empty directory is left");
    });
}

#[test]
fn dropping_an_export_in_use_leaves_no_mount_without_root_either() {
    as_nobody(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let memory = MemoryDevice::new(1 << 20, 512).expect("sizes that fit");
        let export =
            FuseExport::mount(memory, directory.path(), FuseOptions::default()).expect("fusermount3 works");
        let file = OpenOptions::new().read(true).open(export.path()).expect("it is the user's");
        drop(export);
        assert!(file.read_at(&mut [0; 512], 0).is_err(), "nobody serves it any more");
        drop(file);
        directory.close().expect("an empty directory is left");
    });
}
