//! Snapshots of guests that have come up and have not met a disk yet, one file each: what QEMU keeps of the machine's devices,
//! and its memory. This file owns the form of such files and the folder that they are kept in.
//!
//! A file is a header and records. A record is its kind, its place and its length (three numbers of 64 bits, little endian), its
//! bytes, and the hash of all that; the last one says how many there were. A file that was cut, torn or changed
//! anywhere does not read back.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result};
use rotproof_machine::Cancel;

/// How a file begins. The number changes with its form, and with what a guest is told when it goes on.
const MAGIC: &[u8; 8] = b"RPGUEST1";
/// Bytes of a record at the most; memory comes in pieces of as many.
const PIECE_BYTES: usize = 256 << 10;
/// Snapshots that are kept; the one that was not used for longest goes first.
const KEPT_MAX: usize = 8;
/// How long somebody else may be making snapshots.
const LOCK_PATIENCE: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Part {
    End = 0,
    Devices = 1,
    Memory = 2,
    /// Memory that was written, and holds zeros.
    Zeros = 3,
    Console = 4,
}

/// A guest as it was saved.
pub(crate) struct Saved {
    /// What QEMU keeps of its devices; at its beginning.
    pub(crate) devices: File,
    /// Its memory, as a file without a name.
    pub(crate) memory: File,
    /// What it said while it came up.
    pub(crate) console: String,
}

/// The folder of this user for snapshots: `guests` in `$ROTPROOF_CACHE_DIR`, else in `rotproof` of `$XDG_CACHE_HOME`, of
/// `/var/cache` for root, or of `~/.cache`. `None` where there is no such place.
pub fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // SAFETY: takes nothing.
    let is_root = unsafe { libc::geteuid() } == 0;
    named("ROTPROOF_CACHE_DIR")
        .or_else(|| named("XDG_CACHE_HOME").map(|path| path.join("rotproof")))
        .or_else(|| is_root.then(|| PathBuf::from("/var/cache/rotproof")))
        .or_else(|| named("HOME").map(|path| path.join(".cache/rotproof")))
        .map(|path| path.join("guests"))
}

/// A file without a name that lives as long as it is open, for whoever is handed it.
pub(crate) fn anonymous(name: &std::ffi::CStr, length: u64) -> Result<File> {
    // SAFETY: a string with its zero byte, which lives across the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).doing(|| "making memory for a guest".into());
    }
    // SAFETY: just made, owned by nobody else.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(length).doing(|| "making memory for a guest".into())?;
    Ok(file)
}

/// The snapshots of one user.
pub(crate) struct Snapshots {
    folder: PathBuf,
}

impl Snapshots {
    /// Those in `folder`, which is made. A folder that somebody else can change is refused: a snapshot is a program.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let doing = || format!("the folder for snapshots of guests, {}", folder.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).doing(doing)?;
        let about = fs::symlink_metadata(folder).doing(doing)?;
        // SAFETY: takes nothing.
        let user = unsafe { libc::geteuid() };
        if !about.is_dir() || about.uid() != user || about.mode() & 0o022 != 0 {
            let context = format!("{} can be changed by others", doing());
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(Self { folder: folder.to_owned() })
    }

    fn path(&self, key: ContentHash) -> PathBuf {
        self.folder.join(format!("{key}.guest"))
    }

    /// Keeps others from making one until the file is dropped.
    pub(crate) fn lock(&self, cancel: &Cancel) -> Result<File> {
        let path = self.folder.join("lock");
        let doing = || format!("locking {}", path.display());
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path).doing(doing)?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error).doing(doing),
                Err(TryLockError::WouldBlock) => {}
            }
            cancel.check()?;
            if Instant::now() >= deadline {
                let context = "another run has been making a snapshot for too long";
                return Err(Error::new(ErrorKind::TimedOut, context));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The snapshot with that key, its memory in a file of its own; `None` if there is none.
    ///
    /// Fails with [`ErrorKind::Invalid`] if it does not read back as it was written.
    pub(crate) fn load(&self, key: ContentHash) -> Result<Option<Saved>> {
        let path = self.path(key);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing(|| format!("opening {}", path.display())),
        };
        let saved = read(&file, key).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("the snapshot {} is damaged", path.display()))
                .caused_by(error)
        })?;
        // What was used last is kept longest; where that cannot be noted, another goes first.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some(saved))
    }

    /// Keeps a snapshot: `memory` by its parts that were ever written.
    pub(crate) fn store(&self, key: ContentHash, devices: &[u8], memory: &File, console: &str) -> Result<()> {
        let doing = || format!("keeping a snapshot in {}", self.folder.display());
        let unfinished = self.folder.join("unfinished");
        // Only who has the lock is here, so what is there was left by one that was killed.
        let _ = fs::remove_file(&unfinished);
        let file =
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(&unfinished).doing(doing)?;
        let written = write(&file, key, devices, memory, console)
            .and_then(|()| fs::rename(&unfinished, self.path(key)).doing(doing));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written?;
        self.prune();
        Ok(())
    }

    /// Removes a snapshot, if it is there.
    pub(crate) fn remove(&self, key: ContentHash) {
        let _ = fs::remove_file(self.path(key));
    }

    fn prune(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut kept: Vec<(SystemTime, PathBuf)> = entries
            .filter(|entry| entry.path().extension().is_some_and(|ending| ending == "guest"))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        kept.sort();
        let over = kept.len().saturating_sub(KEPT_MAX);
        for (_, path) in &kept[..over] {
            let _ = fs::remove_file(path);
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

/// A header, or the header of a record: three numbers.
fn numbers(values: [u64; 3]) -> [u8; 24] {
    let mut bytes = [0; 24];
    for (to, value) in bytes.chunks_exact_mut(8).zip(values) {
        to.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn write(file: &File, key: ContentHash, devices: &[u8], memory: &File, console: &str) -> Result<()> {
    let doing = || "writing a snapshot".to_owned();
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let length = memory.metadata().doing(doing)?.len();
    let mut head = MAGIC.to_vec();
    head.extend(key.0.to_le_bytes());
    head.extend(length.to_le_bytes());
    let sum = ContentHash::of(&head);
    head.extend(sum.0.to_le_bytes());
    out.write_all(&head).doing(doing)?;
    let mut count = 0;
    let mut buffer = Vec::with_capacity(24 + PIECE_BYTES);
    let mut record = |part: Part, place: u64, length: u64, bytes: &[u8]| -> Result<()> {
        buffer.clear();
        buffer.extend(numbers([part as u64, place, length]));
        buffer.extend_from_slice(bytes);
        count += 1;
        let sum = ContentHash::of(&buffer);
        out.write_all(&buffer).and_then(|()| out.write_all(&sum.0.to_le_bytes())).doing(doing)
    };
    for (part, bytes) in [(Part::Console, console.as_bytes()), (Part::Devices, devices)] {
        for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            record(part, (number * PIECE_BYTES) as u64, piece.len() as u64, piece)?;
        }
    }
    let mut piece = vec![0; PIECE_BYTES];
    for (start, end) in stretches(memory, length).doing(doing)? {
        let mut at = start;
        while at < end {
            let bytes = &mut piece[..(end - at).min(PIECE_BYTES as u64) as usize];
            memory.read_exact_at(bytes, at).doing(doing)?;
            if bytes.iter().all(|&byte| byte == 0) {
                record(Part::Zeros, at, bytes.len() as u64, &[])?;
            } else {
                record(Part::Memory, at, bytes.len() as u64, bytes)?;
            }
            at += bytes.len() as u64;
        }
    }
    let mut end = numbers([Part::End as u64, count, 0]).to_vec();
    let sum = ContentHash::of(&end);
    end.extend(sum.0.to_le_bytes());
    out.write_all(&end).and_then(|()| out.flush()).doing(doing)
}

/// The stretches of a sparse file that were ever written.
fn stretches(file: &File, length: u64) -> std::io::Result<Vec<(u64, u64)>> {
    let seek = |from: u64, whence: i32| -> std::io::Result<Option<u64>> {
        // SAFETY: takes numbers.
        match unsafe { libc::lseek(file.as_raw_fd(), from as i64, whence) } {
            -1 => match std::io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
                error => Err(error),
            },
            at => Ok(u64::try_from(at).ok()),
        }
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < length
        && let Some(start) = seek(at, libc::SEEK_DATA)?
    {
        let end = seek(start, libc::SEEK_HOLE)?.unwrap_or(length);
        found.push((start, end));
        at = end;
    }
    Ok(found)
}

fn read(file: &File, key: ContentHash) -> Result<Saved> {
    let doing = || "reading it".to_owned();
    let mut source = BufReader::with_capacity(2 * PIECE_BYTES, file);
    let mut head = [0; 48];
    source.read_exact(&mut head).doing(doing)?;
    let sum = ContentHash::of(&head[..32]);
    if &head[..8] != MAGIC || head[8..24] != key.0.to_le_bytes() || head[32..] != sum.0.to_le_bytes() {
        return Err(invalid("its header is not as it was written"));
    }
    let length = u64::from_le_bytes(head[24..32].try_into().expect("8 bytes"));
    let memory = anonymous(c"memory", length)?;
    let devices = anonymous(c"devices", 0)?;
    let (mut console, mut devices_end) = (Vec::new(), 0);
    let (mut buffer, zeros) = (vec![0; 24 + PIECE_BYTES + 16], vec![0; PIECE_BYTES]);
    for count in 0_u64.. {
        source.read_exact(&mut buffer[..24]).doing(doing)?;
        let number = |at: usize| u64::from_le_bytes(buffer[at..at + 8].try_into().expect("8 bytes"));
        let (part, place, of) = (number(0), number(8), number(16));
        let stored = if part == Part::Zeros as u64 { 0 } else { of };
        if of > PIECE_BYTES as u64 {
            return Err(invalid("a record is too long"));
        }
        let end = 24 + stored as usize;
        source.read_exact(&mut buffer[24..end + 16]).doing(doing)?;
        if buffer[end..end + 16] != ContentHash::of(&buffer[..end]).0.to_le_bytes() {
            return Err(invalid(&format!("record {count} is not as it was written")));
        }
        let bytes = &buffer[24..end];
        let is_inside = place.checked_add(of).is_some_and(|end| end <= length);
        match part {
            part if part == Part::End as u64 => {
                if place != count {
                    return Err(invalid("records are missing"));
                }
                let console = String::from_utf8_lossy(&console).into_owned();
                return Ok(Saved { devices, memory, console });
            }
            part if part == Part::Console as u64 => console.extend_from_slice(bytes),
            part if part == Part::Devices as u64 && place == devices_end => {
                devices.write_all_at(bytes, place).doing(doing)?;
                devices_end += of;
            }
            part if part == Part::Memory as u64 && is_inside => {
                memory.write_all_at(bytes, place).doing(doing)?;
            }
            // Written, so that it counts as used, as it was.
            part if part == Part::Zeros as u64 && is_inside => {
                memory.write_all_at(&zeros[..of as usize], place).doing(doing)?;
            }
            _ => return Err(invalid("a record says what cannot be")),
        }
    }
    Err(invalid("it has no end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ContentHash = ContentHash(7);

    fn memory() -> File {
        let memory = anonymous(c"test", 8 << 20).expect("memory");
        memory.write_all_at(&[5; 4096], 1 << 20).expect("written");
        memory.write_all_at(&[0; 4096], 2 << 20).expect("written");
        memory.write_all_at(&vec![9; PIECE_BYTES + 4096], 4 << 20).expect("written");
        memory
    }

    fn kept() -> (tempfile::TempDir, Snapshots) {
        let folder = tempfile::tempdir().expect("a folder");
        let snapshots = Snapshots::open(&folder.path().join("guests")).expect("made");
        let devices = vec![3; PIECE_BYTES + 1];
        snapshots.store(KEY, &devices, &memory(), "it came up\n").expect("kept");
        (folder, snapshots)
    }

    #[test]
    fn what_was_kept_reads_back_in_files_of_its_own() {
        let (_folder, snapshots) = kept();
        assert!(snapshots.load(ContentHash(8)).expect("looked").is_none());
        let [one, other] = [(); 2].map(|()| snapshots.load(KEY).expect("whole").expect("there"));
        assert_eq!(one.console, "it came up\n");
        let mut devices = Vec::new();
        let mut file = &one.devices;
        std::io::Seek::rewind(&mut file).and_then(|()| file.read_to_end(&mut devices)).expect("read");
        assert_eq!(devices, vec![3; PIECE_BYTES + 1]);
        let bytes = |file: &File| {
            let mut bytes = vec![1; 8 << 20];
            file.read_exact_at(&mut bytes, 0).expect("read");
            bytes
        };
        assert!(bytes(&one.memory) == bytes(&memory()));
        assert_eq!(
            stretches(&one.memory, 8 << 20).expect("asked"),
            stretches(&memory(), 8 << 20).expect("asked"),
            "zeros that were written are not holes"
        );
        one.memory.write_all_at(b"mine", 0).expect("written");
        assert!(bytes(&other.memory) == bytes(&memory()), "one does not see the other");
    }

    #[test]
    fn a_file_that_is_damaged_anywhere_does_not_read_back() {
        let (_folder, snapshots) = kept();
        let path = snapshots.path(KEY);
        let whole = fs::read(&path).expect("there");
        let refused = |bytes: &[u8], what: &str| {
            fs::write(&path, bytes).expect("written");
            match snapshots.load(KEY) {
                Err(error) if error.kind() == ErrorKind::Invalid => {}
                other => panic!("{what}: {:?}", other.map(|saved| saved.is_some())),
            }
        };
        let step = whole.len() / 61;
        for at in (0..whole.len()).step_by(step).chain(0..72).chain(whole.len() - 40..whole.len()) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            refused(&bytes, &format!("a flip at {at}"));
            refused(&whole[..at], &format!("cut at {at}"));
        }
        // A record that is gone, with the rest whole.
        let record = 24 + 11 + 16;
        refused(&[&whole[..48], &whole[48 + record..]].concat(), "without its console");
        fs::write(&path, &whole).expect("written");
        assert!(snapshots.load(KEY).expect("whole again").is_some());
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("guests");
        Snapshots::open(&path).expect("ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(Snapshots::open(&path).is_err());
    }

    #[test]
    fn only_the_last_used_are_kept() {
        let (_folder, snapshots) = kept();
        let memory = anonymous(c"test", 4096).expect("memory");
        for key in 100..100 + KEPT_MAX as u128 {
            snapshots.store(ContentHash(key), b"devices", &memory, "").expect("kept");
        }
        let count = fs::read_dir(&snapshots.folder).expect("listed").flatten();
        let count = count.filter(|entry| entry.file_name().to_string_lossy().ends_with(".guest")).count();
        assert_eq!(count, KEPT_MAX);
        assert!(snapshots.load(KEY).expect("looked").is_none(), "the oldest is gone");
    }
}
