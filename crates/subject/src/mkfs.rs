//! Making file systems: which program, from which package, with which arguments.
//!
//! What would be random or lazy is fixed: identifiers come from the seed, times are constant, and nothing is left for
//! the kernel to initialise later, so that two runs send the same requests. Nothing is discarded first, as the stack
//! is new. The user's arguments come last and win where the program lets them.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::process::Liveness;
use rotproof_machine::registry::{Process, Run};
use rotproof_machine::{Cancel, Program};

use crate::{FileSystem, FileSystemSpec};

/// Volume label of everything we make.
const LABEL: &str = "rotproof";
/// Streams of [`mix`]: one for each identifier.
const STREAM_VOLUME: u64 = 0x766f_6c75;
const STREAM_DIRECTORY_HASH: u64 = 0x6469_7268;
/// The time that every new file system carries, 2023-11-14: any that is the same each time.
const CREATION_TIME: &str = "1700000000";

/// What mkfs.btrfs says when it looks at the files of all loop devices, and one of them lies on a dead FUSE mount.
const DEAD_MOUNT: &str = "Transport endpoint is not connected";

/// How long a program may wait in the kernel without a break, before it is asked whether a run that is stuck is why.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// What mkfs.btrfs says of an identifier that another device on this machine has.
const TAKEN: &str = "non-unique UUID";
/// How many runs of one seed can have a btrfs at the same time.
const CLAIMS_MAX: u64 = 256;

/// What is particular to a file system.
pub(crate) struct Recipe {
    /// The program that makes it.
    pub(crate) program: &'static str,
    /// The package that has it, in Debian and Fedora.
    pub(crate) package: &'static str,
    /// The argument that asks for its version.
    version: &'static str,
    /// Mount options that are always needed.
    pub(crate) mount: &'static [&'static str],
}

impl Recipe {
    pub(crate) fn of(kind: FileSystem) -> Self {
        match kind {
            FileSystem::Ext4 => {
                Self { program: "mkfs.ext4", package: "e2fsprogs", version: "-V", mount: &[] }
            }
            // With identifiers from the seed, two runs at once have the same one, which XFS would refuse.
            FileSystem::Xfs => {
                Self { program: "mkfs.xfs", package: "xfsprogs", version: "-V", mount: &["nouuid"] }
            }
            FileSystem::Btrfs => {
                Self { program: "mkfs.btrfs", package: "btrfs-progs", version: "-V", mount: &[] }
            }
            FileSystem::Jfs => Self { program: "mkfs.jfs", package: "jfsutils", version: "-V", mount: &[] },
            FileSystem::F2fs => {
                Self { program: "mkfs.f2fs", package: "f2fs-tools", version: "-V", mount: &[] }
            }
        }
    }
}

/// What was made, for the results.
pub(crate) struct Made {
    /// Version of the program.
    pub(crate) tool: Option<String>,
    /// Its command line, with `DEVICE` for the device.
    pub(crate) command_line: String,
    /// Keeps other runs from the file system's identifier for as long as it exists.
    _claim: Option<Claim>,
}

/// The identifier of a btrfs, which the kernel wants to be the only one on the machine. Held as a name of the network
/// namespace, which the kernel frees however the process ends.
struct Claim(#[expect(dead_code, reason = "held, not used")] UnixListener);

impl Claim {
    /// `None` if a run that is under way has it.
    fn take(identifier: &str) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("rotproof-btrfs-{identifier}")).ok()?;
        UnixListener::bind_addr(&name).ok().map(Self)
    }
}

/// Makes the file system on `devices`, of which only btrfs takes several, which it overwrites. The program is recorded with `run` while it works. If it
/// fails, what it said is in the error.
pub(crate) fn make(
    spec: &FileSystemSpec,
    devices: &[&Path],
    seed: u64,
    run: &Run,
    cancel: &Cancel,
) -> Result<Made> {
    if spec.kind != FileSystem::Btrfs {
        return make_with(spec, devices, (seed, &uuid(seed, STREAM_VOLUME)), None, run, cancel);
    }
    // Where runs of one seed are under way at the same time, all but the first get other identifiers.
    for attempt in 0..CLAIMS_MAX {
        let volume = uuid(seed, STREAM_VOLUME.wrapping_add(attempt));
        let Some(claim) = Claim::take(&volume) else { continue };
        match make_with(spec, devices, (seed, &volume), Some(claim), run, cancel) {
            Err(error) if error.to_string().contains(TAKEN) => {}
            made => return made,
        }
    }
    Err(Error::new(
        ErrorKind::Missing,
        format!("{CLAIMS_MAX} file systems of seed {seed} exist already; remove some, or take another seed"),
    ))
}

fn make_with(
    spec: &FileSystemSpec,
    devices: &[&Path],
    (seed, volume): (u64, &str),
    claim: Option<Claim>,
    run: &Run,
    cancel: &Cancel,
) -> Result<Made> {
    let recipe = Recipe::of(spec.kind);
    let program = Program::find(recipe.program, recipe.package)?;
    let mut arguments = arguments(spec, seed, volume);
    let command_line =
        format!("{} {}{}", recipe.program, arguments.join(" "), " DEVICE".repeat(devices.len()));
    arguments.extend(devices.iter().map(|device| device.to_string_lossy().into_owned()));
    let environment = [
        // Honoured by libext2fs, and by newer versions of e2fsprogs and xfsprogs.
        ("E2FSPROGS_FAKE_TIME", CREATION_TIME),
        ("SOURCE_DATE_EPOCH", CREATION_TIME),
        ("DETERMINISTIC_SEED", "1"),
        // libblkid believes what it has cached for some seconds, so that mkfs.btrfs would find the identifier of the
        // run before on a loop device that is long another's.
        ("BLKID_FILE", "/dev/null"),
    ];
    let running = program.start_with(&arguments, &environment)?;
    let process = running.identity()?;
    let entry = run.record(Process(process))?;
    let result = running.wait_while(cancel, |waits| match waits >= STUCK_AFTER {
        true => run.refuse_stuck(recipe.program, &rotproof_attach::KINDS),
        false => Ok(()),
    });
    // One that could not even be killed stays on record.
    if process.liveness() != Liveness::Ending {
        run.gone(entry)?;
    }
    result.map_err(|error| {
        if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::TimedOut) {
            return error;
        }
        let advice = if error.context().contains(DEAD_MOUNT) {
            "a killed run has left a dead mount, into which the program looks; remove it with `rotproof clean`"
        } else {
            "check the mkfs options and the size"
        };
        let what = format!("no {} could be made (`{command_line}`); {advice}", spec.kind);
        Error::new(ErrorKind::Missing, what).caused_by(error)
    })?;
    Ok(Made { tool: program.version(recipe.version), command_line, _claim: claim })
}

fn arguments(spec: &FileSystemSpec, seed: u64, volume: &str) -> Vec<String> {
    let mut own = vec!["-q".to_owned()];
    match spec.kind {
        FileSystem::Ext4 => {
            // Only the last `-E` counts, so the user's and ours are one. Of two equal keys in it, the last counts.
            let (extended, user) = take_option(&spec.mkfs, "-E");
            let mut keys = vec![
                format!("hash_seed={}", uuid(seed, STREAM_DIRECTORY_HASH)),
                "lazy_itable_init=0,lazy_journal_init=0,nodiscard".to_owned(),
            ];
            keys.extend(extended);
            own.extend(["-F", "-L", LABEL, "-U", volume, "-E", &keys.join(",")].map(str::to_owned));
            // On a small device mkfs.ext4 would take 1 KiB, and a block of the load would lie across two of the device.
            if !user.iter().any(|argument| argument.starts_with("-b")) {
                own.extend(["-b", "4096"].map(str::to_owned));
            }
            own.extend(user);
        }
        FileSystem::Xfs => {
            own.extend(["-f", "-K", "-L", LABEL].map(str::to_owned));
            // Given twice it is an error, and the user's counts.
            if !spec.mkfs.iter().any(|argument| argument.contains("uuid=")) {
                own.extend(["-m".into(), format!("uuid={volume}")]);
            }
            own.extend(spec.mkfs.iter().cloned());
        }
        FileSystem::Btrfs => {
            own.extend(["-f", "-K", "-L", LABEL, "-U"].map(str::to_owned));
            own.push(volume.to_owned());
            if let Some(data) = &spec.data {
                own.extend(["-d".to_owned(), data.clone()]);
            }
            if let Some(metadata) = spec.metadata.as_ref().or(spec.data.as_ref()) {
                own.extend(["-m".to_owned(), metadata.clone()]);
            }
            own.extend(spec.mkfs.iter().cloned());
        }
        // Its identifiers are random: the program takes none.
        FileSystem::Jfs => {
            own.extend(["-L", LABEL].map(str::to_owned));
            own.extend(spec.mkfs.iter().cloned());
        }
        FileSystem::F2fs => {
            own.extend(
                ["-f", "-r", "-t", "0", "-T", CREATION_TIME, "-l", LABEL, "-U", volume].map(str::to_owned),
            );
            own.extend(spec.mkfs.iter().cloned());
        }
    }
    own
}

/// Splits the values of `option` (`-E a`, `-Eb`) from the other arguments.
fn take_option(arguments: &[String], option: &str) -> (Vec<String>, Vec<String>) {
    let (mut values, mut others) = (Vec::new(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.strip_prefix(option) {
            Some("") => values.extend(rest.next().cloned()),
            Some(value) => values.push(value.trim().to_owned()),
            None => others.push(argument.clone()),
        }
    }
    (values, others)
}

/// A random (version 4) identifier of RFC 9562, from the seed.
fn uuid(seed: u64, stream: u64) -> String {
    let high = mix(seed, stream, 0) & !0xf000 | 0x4000;
    let low = mix(seed, stream, 1) & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: FileSystem, mkfs: &[&str]) -> FileSystemSpec {
        FileSystemSpec {
            mkfs: mkfs.iter().map(|&text| text.to_owned()).collect(),
            ..FileSystemSpec::new(kind)
        }
    }

    #[test]
    fn an_identifier_has_the_form_of_version_4_and_depends_on_the_seed() {
        let one = uuid(1, STREAM_VOLUME);
        assert_eq!(one, uuid(1, STREAM_VOLUME));
        assert_ne!(one, uuid(2, STREAM_VOLUME));
        assert_ne!(one, uuid(1, STREAM_DIRECTORY_HASH));
        assert_eq!(one.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "4");
        assert!(matches!(&one[19..20], "8" | "9" | "a" | "b"), "{one}");
    }

    #[test]
    fn two_ext4_images_from_one_seed_are_identical_to_the_byte() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let registry =
            rotproof_machine::registry::Registry::at(&folder.path().join("registry")).expect("created");
        let run = registry.begin().expect("begun");
        let image = |name: &str, seed| {
            let path = folder.path().join(name);
            std::fs::File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a sparse image");
            let made = make(&spec(FileSystem::Ext4, &[]), &[&path], seed, &run, &Cancel::new())
                .expect("mkfs.ext4 works");
            assert!(made.command_line.ends_with("DEVICE") && made.tool.is_some());
            std::fs::read(&path).expect("readable")
        };
        let one = image("one", 7);
        assert!(one == image("two", 7), "mkfs.ext4 is not deterministic");
        assert!(one != image("three", 8));
        let failures = run.finish();
        assert!(failures.is_empty(), "the program is still recorded: {failures:?}");
    }

    #[test]
    fn the_users_extended_options_of_ext4_join_ours() {
        let user = ["-E", "stride=4", "-b", "1024", "-Ediscard"];
        let arguments = arguments(&spec(FileSystem::Ext4, &user), 1, "volume");
        assert_eq!(arguments.iter().filter(|argument| *argument == "-E").count(), 1);
        assert!(
            arguments.iter().any(|argument| argument.ends_with("nodiscard,stride=4,discard")),
            "{arguments:?}"
        );
        assert_eq!(arguments[arguments.len() - 2..], ["-b", "1024"]);
        assert_eq!(arguments.iter().filter(|argument| *argument == "-b").count(), 1);
    }

    #[test]
    fn two_runs_of_one_seed_can_have_a_btrfs_at_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let registry =
            rotproof_machine::registry::Registry::at(&folder.path().join("registry")).expect("created");
        let run = registry.begin().expect("begun");
        let image = |name: &str| {
            let path = folder.path().join(name);
            std::fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).expect("a sparse image");
            make(&spec(FileSystem::Btrfs, &[]), &[&path], 11, &run, &Cancel::new()).expect("mkfs.btrfs works")
        };
        let first = image("one");
        let second = image("two");
        assert_ne!(first.command_line, second.command_line, "the identifier of the first is taken");
        let identifier = first.command_line.clone();
        drop(first);
        // A process that another test is just starting has all our files open, until it has become its program.
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while image("three").command_line != identifier {
            assert!(std::time::Instant::now() < until, "it is not free again");
        }
        assert!(run.finish().is_empty());
    }

    #[test]
    fn the_users_identifier_of_xfs_replaces_ours() {
        let given = "uuid=00000000-0000-4000-8000-000000000001";
        let with = arguments(&spec(FileSystem::Xfs, &["-m", given]), 1, "volume");
        assert_eq!(with.iter().filter(|argument| argument.contains("uuid=")).count(), 1);
        let without = arguments(&spec(FileSystem::Xfs, &[]), 1, "volume");
        assert_eq!(without.iter().filter(|argument| argument.contains("uuid=")).count(), 1);
    }
}
