//! A guarded scratch directory, and programs that run with the library in front of the C library.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use rotproof_guard::check::{CheckOptions, CheckProgress, CheckReport, check};
use rotproof_guard::status::{Status, status};
use rotproof_guard::{Store, StoreOptions};
use tempfile::TempDir;

use crate::scripts::run;

pub struct Rig {
    folder: TempDir,
    pub mirror: Option<PathBuf>,
}

impl Rig {
    pub fn new() -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        std::fs::create_dir(folder.path().join("data")).expect("a folder");
        drop(Store::init(&folder.path().join("data"), None, StoreOptions::default()).expect("a guard"));
        Self { folder, mirror: None }
    }

    /// The guarded directory.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A folder beside it, which is not guarded.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn store(&self) -> Arc<Store> {
        Store::open(&self.root(), None).expect("the guard")
    }

    /// Runs a script in the guarded directory.
    pub fn run(&self, script: &str) -> (bool, String) {
        self.run_in(&self.root(), script)
    }

    pub fn run_in(&self, folder: &Path, script: &str) -> (bool, String) {
        let root = self.root().display().to_string();
        let library = library().display().to_string();
        let mirror = self.mirror.as_ref().map_or(String::new(), |mirror| mirror.display().to_string());
        let environment = [
            ("LD_PRELOAD", library.as_str()),
            ("ROTPROOF_GUARD_ROOT", root.as_str()),
            ("ROTPROOF_GUARD_MIRROR", mirror.as_str()),
        ];
        run(folder, &environment, script)
    }

    pub fn good(&self, script: &str) -> String {
        let (is_good, text) = self.run(script);
        assert!(is_good, "{script}: {text}");
        text
    }

    /// Flips a bit on the disk, with nothing of the file left in the cache, and its times as they were.
    pub fn flip_on_disk(&self, name: &str, bit: u64) {
        let path = self.root().join(name);
        let file = std::fs::File::options().read(true).write(true).open(path).expect("the file");
        let modified = file.metadata().and_then(|metadata| metadata.modified()).expect("times");
        let mut byte = [0];
        file.read_exact_at(&mut byte, bit / 8).expect("a byte");
        file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).expect("flipped");
        file.set_modified(modified).expect("times");
        file.sync_all().expect("on the disk");
        // SAFETY: takes an open descriptor.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    pub fn check(&self) -> CheckReport {
        let options = CheckOptions { rate_max: None, threads: 1 };
        check(&self.store(), &[self.root()], options, &CheckProgress::default(), &AtomicBool::new(false))
            .expect("a report")
    }

    /// A check that takes wrong blocks from a second copy.
    pub fn repair(&self, mirror: &Path) -> CheckReport {
        let store = self.store();
        store.set_mirror(Some(mirror.to_owned()));
        let options = CheckOptions { rate_max: None, threads: 1 };
        check(&store, &[self.root()], options, &CheckProgress::default(), &AtomicBool::new(false))
            .expect("a report")
    }

    pub fn status(&self) -> Status {
        status(&self.store()).expect("a status")
    }

    /// Everything that was written went through the guard: each file is known to it as a whole, as it is on the disk, and
    /// nothing is left in memory.
    pub fn assert_all_guarded(&self) {
        let status = self.status();
        assert_eq!((&status.foreign, &status.unguarded), (&vec![], &vec![]));
        assert_eq!((status.guarded, status.open), (status.files, 0), "{status:?}");
        assert!(status.events.is_empty() && status.errors.is_empty(), "{status:?}");
        let report = self.check();
        assert!(report.is_clean() && report.torn == 0, "{report:?}");
    }
}

/// The library, which cargo makes if need be. The command is named beside it because it asks for the features of dependencies
/// that a build of the whole workspace has; with others cargo would make everything below once more.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["build", "--package", "rotproof-guard-preload", "--package", "rotproof-cli", "--lib"])
            .args(["--message-format=json", "--quiet"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .output()
            .expect("cargo starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let messages = String::from_utf8(output.stdout).expect("UTF-8");
        let files = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["reason"] == "compiler-artifact")
            .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
        let library = files
            .filter_map(|file| file.as_str().map(PathBuf::from))
            .find(|file| file.ends_with("librotproof_guard_preload.so"));
        library.expect("cargo says where the library is")
    })
}
