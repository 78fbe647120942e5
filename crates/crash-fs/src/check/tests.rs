//! What a check makes of a scene that is no file system, and fails as it is told to.

use std::ops::Range;

use rotproof_block::Tag;
use rotproof_crash::recording::{Header, Recorder, RecorderOptions};
use rotproof_crash::{StateDescription, Way};

use super::*;

/// Mounts nothing, and says what it is given to say.
#[derive(Default)]
struct Stage {
    words: Vec<String>,
    /// How a mount ends, where it fails.
    mount_fails: Option<ErrorKind>,
    /// What became of the device by the end, where nobody knows what it has shown.
    is_in_doubt: Option<ErrorKind>,
}

impl Mounting for Stage {
    fn changed(&self, _: &[Range<u64>], _: &ImageDevice) -> Result<()> {
        Ok(())
    }

    fn needs_no_flushes(&self) {}

    fn keep_reads(&mut self, _: bool) -> Result<()> {
        Ok(())
    }

    fn check(&self, _: &ImageDevice) -> Result<()> {
        self.is_in_doubt.map_or(Ok(()), |kind| Err(Error::new(kind, "the guest is gone")))
    }

    fn device(&self) -> &Path {
        Path::new("/dev/null")
    }

    fn mountpoint(&self) -> &Path {
        Path::new("/")
    }

    fn mount(&mut self, _: &[String]) -> Result<()> {
        self.mount_fails.map_or(Ok(()), |kind| Err(Error::new(kind, "mounting")))
    }

    fn unmount(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait_until_free(&self) -> Result<()> {
        Ok(())
    }

    fn forget(&self) -> Result<()> {
        Ok(())
    }

    fn kernel_words(&mut self) -> Vec<String> {
        self.words.clone()
    }
}

/// Writes to the state when it looks first, as a store does that recovers, and finds nothing wrong.
struct Writer {
    image: Arc<ImageDevice>,
    pages: u64,
}

impl Oracle for Writer {
    fn look(&mut self, _: &Path, _: &Crash<'_>) -> Result<Vec<Finding>> {
        let runtime = rotproof_block::Runtime::simulated(1);
        let queue = self.image.open_queue(&runtime).expect("a queue");
        for page in 0..std::mem::take(&mut self.pages) {
            let buffer = rotproof_block::Buffer::zeroed(4096);
            let request =
                rotproof_block::Request::write(page * 4096, buffer, rotproof_block::Context::default());
            // A store that takes no notice of it.
            let _ = runtime.block_on(queue.submit(request)).expect("it ends").result;
        }
        Ok(Vec::new())
    }
}

fn check(pages: u64, second_cuts: u32, words: &[&str]) -> Result<Vec<Finding>> {
    let words = words.iter().map(|&line| line.to_owned()).collect();
    check_on(Stage { words, ..Stage::default() }, pages, second_cuts)
}

fn check_on(stage: Stage, pages: u64, second_cuts: u32) -> Result<Vec<Finding>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    let header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 4096, id: 1 };
    let recorder = Recorder::create(&path, header, RecorderOptions::default()).expect("a new file");
    recorder.done(0, recorder.write(0, 0, false, Tag::NONE, &[1; 4096]), true);
    recorder.finish().expect("it is whole");
    let contents = Arc::new(Contents::open(&path, header, None).expect("a recording"));
    let image = ImageDevice::new(contents, 4 * 4096);
    let mut check = MountCheck {
        scene: Box::new(stage),
        mount_options: Vec::new(),
        checker: None,
        oracle: Box::new(Writer { image: Arc::clone(&image), pages }),
        second_cuts: (second_cuts, 1),
        recovery: None,
        is_held: None,
        image: Arc::clone(&image),
    };
    let state = StateDescription {
        recording: String::new(),
        way: Way::Subsets,
        position: 0,
        epoch: 0,
        marks: 0,
        unit_bytes: 4096,
        volatile: 0,
        survivors: Vec::new(),
    };
    let looked = check.check(&Crash { state: &state, marks: &[] });
    // As whoever explores does.
    image.check().and(looked)
}

#[test]
fn a_write_that_found_no_memory_leaves_the_state_unknown_also_where_a_second_cut_follows() {
    for second_cuts in [0, 3] {
        assert_eq!(check(4, second_cuts, &[]).expect("there is room"), [], "{second_cuts}");
        let error = check(8, second_cuts, &[]).expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{second_cuts}: {error}");
    }
}

#[test]
fn what_the_kernel_says_of_damage_fails_a_state_and_what_it_says_of_any_mount_does_not() {
    for (line, is_complaint) in [
        ("EXT4-fs (loop3): mounted filesystem with ordered data mode. Opts: errors=continue", false),
        ("EXT4-fs (loop3): recovery complete", false),
        ("BTRFS info (device loop3): using crc32c (crc32c-intel) checksum algorithm", false),
        ("XFS (loop3): Starting recovery (logdev: internal)", false),
        (
            "EXT4-fs error (device loop3): ext4_lookup:1855: inode #2: comm ls: deleted inode referenced: 12",
            true,
        ),
        (
            "BTRFS warning (device loop3): csum failed root 5 ino 257 off 0 csum 0x1 expected csum 0x2 mirror 1",
            true,
        ),
        ("BTRFS warning (device loop3): checksum verify failed on logical 30408704 mirror 1", true),
        ("XFS (loop3): Metadata corruption detected at xfs_agi_verify", true),
    ] {
        let found = check(0, 0, &[line]).expect("it can be looked at");
        assert_eq!(found.iter().any(|finding| finding.kind == "kernel"), is_complaint, "{line}: {found:?}");
    }
}

#[test]
fn a_mount_that_fails_for_want_of_what_this_machine_has_is_unknown_and_one_that_fails_for_the_state_is_a_failure()
 {
    for errno in [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EEXIST] {
        let stage = Stage { mount_fails: Some(ErrorKind::Os(errno)), ..Stage::default() };
        let error = check_on(stage, 0, 0).expect_err("it says nothing of the state");
        assert_eq!(error.kind(), ErrorKind::Os(errno), "{error}");
    }
    let stage = Stage { mount_fails: Some(ErrorKind::TimedOut), ..Stage::default() };
    assert_eq!(check_on(stage, 0, 0).expect_err("somebody holds it").kind(), ErrorKind::TimedOut);
    for errno in [libc::EINVAL, libc::EUCLEAN, libc::EIO, libc::ENOSPC] {
        let stage = Stage { mount_fails: Some(ErrorKind::Os(errno)), ..Stage::default() };
        let found = check_on(stage, 0, 0).expect("the file system does not like it");
        assert_eq!(found.first().map(|finding| finding.kind.as_str()), Some("mount"), "{errno}: {found:?}");
    }
}

#[test]
fn a_state_is_unknown_if_nobody_knows_in_the_end_what_was_shown_of_it() {
    for second_cuts in [0, 2] {
        let stage = Stage { is_in_doubt: Some(ErrorKind::Gone), ..Stage::default() };
        let error = check_on(stage, 2, second_cuts).expect_err("its guest may have been ended");
        assert_eq!(error.kind(), ErrorKind::Gone, "{second_cuts}: {error}");
    }
}
