//! Looks at a state as its user would after the power came back: mounts it, so that recovery runs, looks at the files,
//! unmounts it and asks the file system's own checker.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::hash::mix;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_crash::{Check, Contents, Crash, Finding, ImageDevice, RecoveryWrite, second_cuts};
use rotproof_machine::registry::Run;
use rotproof_machine::{Cancel, Program};
use rotproof_subject::{FileSystem, MachineSpec};

use crate::guest_scene::GuestScene;
use crate::memory::SCRATCH_BYTES;
use crate::mounting::Mounting;
use crate::scene::Scene;

/// How long the kernel may hold a device that was unmounted.
const BUSY_MAX: Duration = Duration::from_secs(5);
const BUSY_INTERVAL: Duration = Duration::from_millis(10);
/// Signs that a checker could not look: the device is in use; an operational error, an error of use, cancelled (e2fsck(8));
/// a log that was not replayed, without which xfs_repair only guesses.
const NOT_LOOKED: [&str; 5] =
    ["resource busy", "exit code 8", "exit code 16", "exit code 32", "valuable metadata changes in a log"];
/// What the kernel says of a file system that is not whole, be it as a warning: btrfs tells so of checksums.
const COMPLAINTS: [&str; 11] = [
    "error",
    "corrupt",
    "bug",
    "panic",
    "inconsisten",
    "unmount and run",
    "shutting down",
    "csum failed",
    "verify failed",
    "checksum mismatch",
    "invalid checksum",
];
/// So many lines of a program or the kernel are told.
const LINES_MAX: usize = 6;

/// Looks at the files of a mounted state.
pub trait Oracle: Send {
    /// What is wrong with what is mounted at `mountpoint`, or with the file there where there is no file system; an error if that
    /// cannot be known.
    fn look(&mut self, mountpoint: &Path, crash: &Crash<'_>) -> Result<Vec<Finding>>;
}

/// An oracle that finds nothing wrong with any file.
pub struct NoOracle;

impl Oracle for NoOracle {
    fn look(&mut self, _: &Path, _: &Crash<'_>) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

/// Several oracles, each of which looks.
pub struct AllOracles(pub Vec<Box<dyn Oracle>>);

impl Oracle for AllOracles {
    fn look(&mut self, mountpoint: &Path, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for oracle in &mut self.0 {
            findings.extend(oracle.look(mountpoint, crash)?);
        }
        Ok(findings)
    }
}

/// See the head of the module. Its device stays attached from state to state.
pub struct MountCheck {
    image: Arc<ImageDevice>,
    scene: Box<dyn Mounting>,
    mount_options: Vec<String>,
    checker: Option<(Program, &'static [&'static str])>,
    oracle: Box<dyn Oracle>,
    /// So many further cuts while recovery is under way, and what they are drawn from.
    second_cuts: (u32, u64),
    /// What was written to this state by whoever recovered it.
    recovery: Option<Vec<RecoveryWrite>>,
    /// Why the device may still be written to by the file system of a state before, if it may.
    is_held: Option<String>,
}

impl MountCheck {
    /// A check whose scene is in the folder `name` of the run's scratch folder. `runs_checker` says whether the file
    /// system's own checker looks at it too, which takes longer than all the rest.
    pub fn new(
        run: &Run,
        name: &str,
        contents: Arc<Contents>,
        kind: FileSystem,
        runs_checker: bool,
        oracle: Box<dyn Oracle>,
    ) -> Result<Self> {
        Self::bounded(run, (name, contents, SCRATCH_BYTES), (kind, None), runs_checker, oracle)
    }

    /// The same, where recovery and the oracle may write so many bytes to a state; one that would take more is *unknown*. With a machine, guests as
    /// it describes them mount the states instead of the kernel of this machine.
    pub(crate) fn bounded(
        run: &Run,
        (name, contents, scratch_bytes_max): (&str, Arc<Contents>, u64),
        (kind, machine): (FileSystem, Option<(&MachineSpec, &Cancel)>),
        runs_checker: bool,
        oracle: Box<dyn Oracle>,
    ) -> Result<Self> {
        let checker = match kind {
            _ if !runs_checker => None,
            FileSystem::Ext4 => Some((Program::find("e2fsck", "e2fsprogs")?, &["-f", "-n"][..])),
            FileSystem::Xfs => Some((Program::find("xfs_repair", "xfsprogs")?, &["-n"][..])),
            FileSystem::Btrfs => Some((Program::find("btrfs", "btrfs-progs")?, &["check", "--readonly"][..])),
            FileSystem::Jfs => Some((Program::find("fsck.jfs", "jfsutils")?, &["-n", "-f"][..])),
            FileSystem::F2fs => Some((Program::find("fsck.f2fs", "f2fs-tools")?, &["--dry-run", "-f"][..])),
        };
        let image = ImageDevice::new(contents, scratch_bytes_max);
        let device = Arc::clone(&image) as Arc<dyn Device>;
        let scene: Box<dyn Mounting> = match machine {
            Some(machine) => Box::new(GuestScene::new(run, name, device, machine)?),
            None => Box::new(Scene::cached(run, name, device, kind)?),
        };
        Ok(Self {
            image,
            scene,
            mount_options: mount_options(kind),
            checker,
            oracle,
            second_cuts: (0, 0),
            recovery: None,
            is_held: None,
        })
    }

    /// Takes further mount options.
    #[must_use]
    pub fn with_mount_options(mut self, options: &[String]) -> Self {
        self.mount_options.extend_from_slice(options);
        self
    }

    /// Lets the power go again while recovery is under way, so often for each state, drawn from the seed.
    #[must_use]
    pub fn with_second_cuts(mut self, count: u32, seed: u64) -> Self {
        self.second_cuts = (count, seed);
        self
    }

    /// Runs the file system's checker on the device.
    fn run_checker(&self) -> Result<Option<Finding>> {
        let Some((program, arguments)) = &self.checker else { return Ok(None) };
        self.scene.forget()?;
        let device = self.scene.device().to_string_lossy().into_owned();
        let arguments: Vec<&str> = arguments.iter().copied().chain([device.as_str()]).collect();
        let deadline = Instant::now() + BUSY_MAX;
        loop {
            let Err(error) = program.start(&arguments)?.wait(&Cancel::new()) else { return Ok(None) };
            let words = error.to_string();
            // The kernel lets go of a device a moment after it was unmounted.
            if words.contains("resource busy") && Instant::now() < deadline {
                std::thread::sleep(BUSY_INTERVAL);
                continue;
            }
            // It ran to its end and did not like what it saw. If it saw nothing, nobody knows.
            let has_looked = error.kind() == ErrorKind::Missing
                && NOT_LOOKED.iter().all(|sign| !words.contains(sign))
                && words.contains("exit code");
            return if has_looked { Ok(Some(Finding::new("checker", words))) } else { Err(error) };
        }
    }

    /// Looks at the state, and at what a second cut during its recovery leaves of it.
    fn look(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        let (count, seed) = self.second_cuts;
        if count == 0 {
            // Only where a second cut may come does it matter what was flushed before.
            self.scene.needs_no_flushes();
            return self.look_once(crash);
        }
        let snapshot = self.image.snapshot();
        self.image.note_writes();
        let findings = self.look_once(crash)?;
        let writes = self.recovery.take().unwrap_or_default();
        if !findings.is_empty() {
            return Ok(findings);
        }
        let seed = mix(seed, crash.state.position, crash.state.survivors.len() as u64);
        for cut in second_cuts(&writes, count, seed) {
            self.scene.unmount()?;
            // Showing another state forgets that a request has failed for no fault of this one.
            self.image.check()?;
            self.image.show(snapshot.clone());
            for &write in &cut.kept {
                self.image.write_again(&writes[write])?;
            }
            let again = self.look_once(crash)?;
            if !again.is_empty() {
                let told = |finding: Finding| {
                    let kind = format!("{} after a second cut", finding.kind);
                    Finding::new(kind, format!("{}: {}", cut.words(), finding.words))
                };
                return Ok(again.into_iter().map(told).collect());
            }
        }
        Ok(Vec::new())
    }

    fn look_once(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        // Who wants to know what recovery reads must see every read.
        self.scene.keep_reads(!self.image.notes_reads())?;
        self.scene.changed(&self.image.take_changed(), &self.image)?;
        self.scene.forget()?;
        self.scene.kernel_words();
        if let Err(error) = self.scene.mount(&self.mount_options) {
            // Two of the same identifier were mounted at one moment, or this machine has no room, which says nothing of what is on it.
            let is_of_others = matches!(
                error.kind(),
                ErrorKind::Os(libc::EEXIST | libc::ENOMEM | libc::EMFILE | libc::ENFILE)
            );
            if error.kind() == ErrorKind::TimedOut || is_of_others {
                return Err(error);
            }
            let said = self.scene.kernel_words();
            let words = format!("it cannot be mounted: {error}; the kernel says: {}", last(&said));
            self.recovery = None;
            return Ok(vec![Finding::new("mount", words)]);
        }
        let looked = self.oracle.look(self.scene.mountpoint(), crash);
        self.scene.unmount()?;
        // The file system recovers in the mount, a store above it when the oracle opens it.
        self.recovery = Some(self.image.writes());
        let mut findings = looked?;
        let complaints: Vec<String> =
            self.scene.kernel_words().into_iter().filter(|line| is_complaint(line)).collect();
        if !complaints.is_empty() {
            findings.push(Finding::new("kernel", format!("the kernel says: {}", last(&complaints))));
        }
        findings.extend(self.run_checker()?);
        Ok(findings)
    }
}

/// Options without which states cannot be mounted side by side: they all have the identifiers of one file system.
pub(crate) fn mount_options(kind: FileSystem) -> Vec<String> {
    match kind {
        FileSystem::Xfs => vec!["nouuid".to_owned()],
        FileSystem::Ext4 | FileSystem::Btrfs | FileSystem::Jfs | FileSystem::F2fs => Vec::new(),
    }
}

fn last(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(LINES_MAX)..].join(" | ")
}

/// Lines that a file system which is whole does not say.
fn is_complaint(line: &str) -> bool {
    let line = line.to_lowercase();
    COMPLAINTS.iter().any(|word| line.contains(word))
        // Says what it does in case of errors, whether there are any or not.
        && !line.contains("errors=")
}

impl Check for MountCheck {
    fn image(&self) -> &Arc<ImageDevice> {
        &self.image
    }

    fn check(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        if let Some(why) = &self.is_held {
            return Err(Error::new(
                ErrorKind::TimedOut,
                format!("no state can be looked at any more: {why}"),
            ));
        }
        let looked = self.look(crash);
        // Whatever happened, the next state finds nothing mounted.
        let unmounted = self.scene.unmount().and_then(|()| self.scene.wait_until_free());
        match unmounted {
            // A device that failed on the way, or is no longer ours, shows nothing of the state.
            Ok(()) => looked.and_then(|findings| self.scene.check(&self.image).map(|()| findings)),
            Err(error) => {
                self.is_held = Some(error.to_string());
                Err(error.while_doing("leaving a state"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
