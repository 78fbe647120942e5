//! What the tests with real mounts and loop devices share: a registry of their own, so that they can run side by
//! side; a device that misbehaves on demand; and a look at what is left on the machine.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use rotproof_attach::KINDS;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{
    Device, DeviceInfo, Error, Operation, Phase, Queue, Request, Result, Runtime, Submission,
};
use rotproof_machine::Cancel;
use rotproof_machine::mounts::mounts;
use rotproof_machine::registry::{Registry, Run};
use rotproof_subject::{
    Attached, ExportSpec, FileSystem, FileSystemSpec, Prepared, SubjectEnvironment, SubjectSpec, prepare,
};

/// A temporary folder with a registry in it.
pub struct Sandbox {
    folder: tempfile::TempDir,
    pub registry: Registry,
}

impl Sandbox {
    pub fn new() -> Self {
        let mut folder =
            tempfile::Builder::new().prefix("rotproof-test-").tempdir().expect("a temporary folder");
        // Removed only when nothing is mounted in it: a walk into a dead mount would hang.
        folder.disable_cleanup(true);
        let registry = Registry::at(&folder.path().join("registry")).expect("created");
        Self { folder, registry }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn environment(&self, seed: u64) -> SubjectEnvironment {
        environment(self.registry.begin().expect("begun"), seed)
    }

    /// Fails if anything of this sandbox's runs is left: mounts, loop devices, folders, records.
    pub fn assert_nothing_left(&self) {
        let left = leftovers(self.registry.folder());
        assert!(left.is_empty(), "left behind: {left:#?}");
    }
}

impl Drop for Sandbox {
    /// After a failed test: as much as can be done.
    fn drop(&mut self) {
        for mount in mounts().unwrap_or_default() {
            if mount.path.starts_with(self.path()) && mount.filesystem.starts_with("fuse") {
                let path = CString::new(mount.path.as_os_str().as_bytes()).expect("a path of the kernel's");
                // SAFETY: a string that ends with zero and lives across the call.
                unsafe { libc::umount2(path.as_ptr(), libc::MNT_FORCE) };
            }
        }
        let _ = self.registry.clean(&KINDS, false);
        if mounts_and_loops(self.path()).is_empty() {
            self.folder.disable_cleanup(false);
        }
    }
}

pub fn environment(run: Run, seed: u64) -> SubjectEnvironment {
    SubjectEnvironment {
        run,
        seed,
        epoch: Instant::now(),
        phase: Arc::new(AtomicU8::new(Phase::Setup as u8)),
        export: ExportSpec::Loop,
        export_threads: 2,
        cancel: Cancel::new(),
        is_recorded: false,
    }
}

/// Mounts and loop devices below `folder`, and what is in it.
pub fn leftovers(folder: &Path) -> Vec<String> {
    let mut left = mounts_and_loops(folder);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        left.push(format!("entry {}", entry.path().display()));
    }
    left
}

pub fn mounts_and_loops(folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for mount in mounts().expect("readable").into_iter().filter(|mount| mount.path.starts_with(folder)) {
        left.push(format!("mount {} ({})", mount.path.display(), mount.filesystem));
    }
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Ok(backing_file) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        if Path::new(backing_file.trim_end()).starts_with(folder) {
            left.push(format!("{} over {}", entry.file_name().to_string_lossy(), backing_file.trim_end()));
        }
    }
    left
}

pub fn file_system(kind: FileSystem, mkfs: &[&str], mount: &[&str]) -> SubjectSpec {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    SubjectSpec::FileSystem(FileSystemSpec {
        mkfs: owned(mkfs),
        mount: owned(mount),
        ..FileSystemSpec::new(kind)
    })
}

/// Makes the subject on one device, and brings it up.
pub fn prepare_on(
    spec: &SubjectSpec,
    device: Arc<dyn Device>,
    environment: &SubjectEnvironment,
) -> Result<Box<dyn Prepared>> {
    let mut subject = prepare(spec, vec![device], environment)?;
    match subject.attach()? {
        Attached::Up => Ok(subject),
        Attached::Refused(error) => Err(error),
    }
}

/// A memory stack of a size that suits the file system.
pub fn stack_for(kind: FileSystem) -> Arc<Rigged> {
    Rigged::new(match kind {
        FileSystem::Ext4 => 64 << 20,
        FileSystem::Xfs => 320 << 20,
        FileSystem::Btrfs => 256 << 20,
        FileSystem::Jfs | FileSystem::F2fs => panic!("{kind} is a file system of machines"),
    })
}

/// How a [`Rigged`] device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Behaviour {
    /// As memory does.
    Good,
    /// Every read gives zeros: nothing on it is recognisable any more.
    Blank,
    /// Every write and flush fails.
    FailsToWrite,
    /// No request ever completes.
    Silent,
    /// No write ever completes; all else does.
    SilentToWrites,
}

/// A memory device that counts, and misbehaves on demand.
pub struct Rigged {
    below: Arc<MemoryDevice>,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: AtomicU8,
    reads: [AtomicU64; 4],
    writes: [AtomicU64; 4],
    unanswered: AtomicU64,
}

impl Rigged {
    pub fn new(size_bytes: u64) -> Arc<Self> {
        let shared = Shared {
            behaviour: AtomicU8::new(Behaviour::Good as u8),
            reads: Default::default(),
            writes: Default::default(),
            unanswered: AtomicU64::new(0),
        };
        let below = MemoryDevice::new(size_bytes, 512).expect("memory");
        Arc::new(Self { below, shared: Arc::new(shared) })
    }

    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.behaviour.store(behaviour as u8, Ordering::SeqCst);
    }

    /// Reads that arrived in this phase.
    pub fn reads(&self, phase: Phase) -> u64 {
        self.shared.reads[phase as usize].load(Ordering::SeqCst)
    }

    /// Writes that arrived in this phase.
    pub fn writes(&self, phase: Phase) -> u64 {
        self.shared.writes[phase as usize].load(Ordering::SeqCst)
    }

    /// Requests that were never answered.
    pub fn unanswered(&self) -> u64 {
        self.shared.unanswered.load(Ordering::SeqCst)
    }
}

impl Device for Rigged {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.below.open_queue(runtime)?;
        Ok(Rc::new(RiggedQueue { below, shared: Arc::clone(&self.shared) }))
    }
}

struct RiggedQueue {
    below: Rc<dyn Queue>,
    shared: Arc<Shared>,
}

impl Queue for RiggedQueue {
    fn submit(&self, mut request: Request) -> Submission {
        let phase = request.context.phase as usize;
        if request.operation == Operation::Read {
            self.shared.reads[phase].fetch_add(1, Ordering::SeqCst);
        } else if request.operation.is_mutation() {
            self.shared.writes[phase].fetch_add(1, Ordering::SeqCst);
        }
        let behaviour = self.shared.behaviour.load(Ordering::SeqCst);
        let silent = behaviour == Behaviour::Silent as u8
            || behaviour == Behaviour::SilentToWrites as u8 && request.operation.is_mutation();
        if silent {
            self.shared.unanswered.fetch_add(1, Ordering::SeqCst);
            return Submission::pending(async move {
                std::future::pending::<()>().await;
                request.succeed()
            });
        }
        if behaviour == Behaviour::FailsToWrite as u8 && request.operation != Operation::Read {
            return request.fail(Error::medium()).into();
        }
        if behaviour == Behaviour::Blank as u8 && request.operation == Operation::Read {
            request.buffer.fill(0);
            return request.succeed().into();
        }
        self.below.submit(request)
    }
}
