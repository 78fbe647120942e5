//! The right to use a file, device or export: the one rule by which trials, loads and served stacks come to what they write
//! to, or are refused it.
//!
//! - What somebody uses is refused always: mounted, swap, part of another device, locked by another program or by another
//!   Rotproof. The claim itself is such a lock, for as long as it lasts; those who only read share it.
//! - What is neither blank nor known as left by Rotproof itself is refused unless `--overwrite` permits to destroy it.
//! - A file does not become larger unless Rotproof made it or `--overwrite` permits it.
//!
//! How something is found to be in use, or not blank, is known in `in_use`; how a file is known again, in `made_mark`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::hash::ContentHash;
use rotproof_block::leaf::NbdDevice;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_spec::Bytes;

use crate::in_use::{DeviceUse, claim_device, content_of, content_of_export, use_of_file};
use crate::lock::{LockFile, Locked, holder_of_range, is_at, lock};
use crate::made_mark::{self, Filled};

/// What something is claimed for.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// What it will be filled with; `None` if it is only read.
    pub fills: Option<Filled>,
    /// What it holds may be destroyed.
    pub overwrite: bool,
    /// Together with others of the same load, which have claimed it alike.
    pub is_shared: bool,
    /// How large a file shall be; one that does not exist is made if something fills it.
    pub size: Option<u64>,
}

impl Use {
    /// To read, beside others that only read.
    pub const READ: Self = Self { fills: None, overwrite: false, is_shared: true, size: None };

    /// To fill, alone.
    pub fn fill(fills: Filled, overwrite: bool) -> Self {
        Self { fills: Some(fills), overwrite, is_shared: false, size: None }
    }

    fn shares_lock(self) -> bool {
        self.is_shared || self.fills.is_none()
    }
}

/// The right to use something, until it is dropped. It must outlive what was opened for that use.
#[derive(Debug, Default)]
pub struct Claim {
    file: Option<Locked>,
    /// The kernel's own claim of a block device.
    device: Option<File>,
    /// The lock of what has no file here.
    lock_file: Option<LockFile>,
    /// What is to be remembered in the end.
    filling: Option<Filling>,
    /// The path of a file that did not exist.
    made: Option<PathBuf>,
}

#[derive(Debug)]
struct Filling {
    fills: Filled,
    /// What it held may be destroyed, whosever it was.
    over_foreign: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A file, as it was.
    File { size: u64, modified: (i64, i64) },
    /// A block device by its number, as it was.
    Device { number: u64, state: String },
    /// An export, by a name that no other has.
    Export(String),
}

/// How often a path is looked at where it names another file each time.
const ATTEMPTS: usize = 100;

/// Devices and exports that this process has filled: they bear no mark, and a trial may be repeated. Those of devices say how
/// much had been written to them then, so that nobody else's writes are taken for ours.
static FILLED_HERE: Mutex<BTreeMap<String, Filled>> = Mutex::new(BTreeMap::new());

impl Claim {
    /// Of a file or block device. A file that does not exist is made, empty, if it is to be filled and its size is given;
    /// otherwise there is nothing to claim.
    ///
    /// Fails with [`ErrorKind::Refused`] and a text that says what was found and what permits it, or with
    /// [`ErrorKind::Invalid`] if the path is neither file nor block device.
    pub fn of_path(path: &Path, wanted: &Use) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let metadata = match fs::metadata(path) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if wanted.fills.is_none() || wanted.size.is_none() {
                        return Ok(Self::default());
                    }
                    match Self::make(path, wanted)? {
                        Some(claim) => return Ok(claim),
                        // Somebody else has, this very moment.
                        None => continue,
                    }
                }
                Err(error) => return Err(error).doing(|| format!("looking at {}", path.display())),
            };
            let kind = metadata.file_type();
            if !kind.is_file() && !kind.is_block_device() {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("{} is neither a file nor a block device; give the path of one", path.display()),
                ));
            }
            // A file system of other machines locks for writing only what is open for that.
            let options =
                OpenOptions::new().read(true).write(wanted.fills.is_some() && kind.is_file()).clone();
            let file = options.open(path).doing(|| format!("opening {}", path.display()))?;
            match lock(file, path, wanted.shares_lock())? {
                Err(holder) => return Err(in_use(path.display(), &used_by(&holder), wanted)),
                Ok(file) if is_at(&file, path) => return Self::of_locked(path, file, &metadata, wanted),
                // Another one is there by now.
                Ok(_) => {}
            }
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{} is a link to nothing, or another file each time it is looked at", path.display()),
        ))
    }

    fn make(path: &Path, wanted: &Use) -> Result<Option<Self>> {
        let made = match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => made.doing(|| format!("making {}", path.display()))?,
        };
        let made = lock(made, path, wanted.shares_lock())?
            .map_err(|holder| in_use(path.display(), &used_by(&holder), wanted))?;
        let metadata = made.metadata().doing(|| format!("looking at {}", path.display()))?;
        let filling =
            wanted.fills.map(|fills| Filling { fills, over_foreign: false, kind: of_file(&metadata) });
        let mut claim = Self::default();
        (claim.file, claim.filling, claim.made) = (Some(made), filling, Some(path.to_owned()));
        Ok(Some(claim))
    }

    fn of_locked(path: &Path, file: Locked, metadata: &Metadata, wanted: &Use) -> Result<Self> {
        let mut claim = Self::default();
        let Some(fills) = wanted.fills else {
            claim.file = Some(file);
            return Ok(claim);
        };
        let (filled, kind) = if metadata.is_file() {
            let found = match use_of_file(path, metadata)? {
                Some(found) => Some(found),
                None => holder_of_range(&file).map(|holder| used_by(&holder)),
            };
            if let Some(found) = found {
                return Err(in_use(path.display(), &found, wanted));
            }
            (made_mark::read(&file), of_file(metadata))
        } else {
            // Several of one load have it together, so none of them has it alone.
            if !wanted.is_shared {
                match claim_device(path, metadata)? {
                    DeviceUse::InUse(found) => return Err(in_use(path.display(), &found, wanted)),
                    DeviceUse::Claimed(claimed) => claim.device = Some(claimed),
                }
            }
            let number = metadata.rdev();
            let state = state_of_device(number);
            (FILLED_HERE.lock().get(&state).copied(), Kind::Device { number, state })
        };
        let is_ours = is_ours(filled, fills);
        if !wanted.overwrite && !is_ours {
            refuse_content(path.display(), content_of(path, metadata)?)?;
            refuse_growth(path, metadata, wanted)?;
        }
        let over_foreign = wanted.overwrite && !is_ours;
        claim.filling = Some(Filling { fills, over_foreign, kind });
        claim.file = Some(file);
        Ok(claim)
    }

    /// Of an export of an NBD server, for whoever calls it by the same address. `locks` is a folder of this user's.
    pub fn of_export(device: &NbdDevice, wanted: &Use, locks: &Path) -> Result<Self> {
        let uri = device.uri();
        let hash = ContentHash::of(uri.identity().as_bytes());
        let mut claim = Self::default();
        match LockFile::lock(&locks.join(format!("nbd-{hash}.lock")), wanted.shares_lock())? {
            Ok(locked) => claim.lock_file = Some(locked),
            Err(holder) => return Err(in_use(uri, &used_by(&holder), wanted)),
        }
        let Some(fills) = wanted.fills else { return Ok(claim) };
        let name = format!("nbd {}", uri.identity());
        let is_ours = is_ours(FILLED_HERE.lock().get(&name).copied(), fills);
        if !wanted.overwrite && !is_ours {
            refuse_content(uri, content_of_export(device)?)?;
        }
        let over_foreign = wanted.overwrite && !is_ours;
        claim.filling = Some(Filling { fills, over_foreign, kind: Kind::Export(name) });
        Ok(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let (Some(path), Some(file)) = (&self.made, &self.file)
            && is_at(file, path)
            && file.metadata().is_ok_and(|metadata| metadata.len() == 0)
        {
            // Nothing came of it. If it cannot be removed, an empty file is no harm.
            let _ = fs::remove_file(path);
            return;
        }
        let Some(Filling { fills, over_foreign, kind }) = &self.filling else { return };
        // A client may have kept what was there before.
        if *over_foreign && *fills == Filled::ByClients {
            return;
        }
        match (kind, &self.file) {
            (Kind::File { size, modified }, Some(file)) => {
                let Ok(now) = file.metadata() else { return };
                // What nobody has written to is what it was.
                if self.made.is_some() || *size != now.len() || *modified != modified_at(&now) {
                    made_mark::write(file, *fills);
                }
            }
            (Kind::Device { number, state }, Some(file)) => {
                // What is still in the cache would be written later, and count as somebody else's.
                if file.sync_all().is_ok() {
                    let now = state_of_device(*number);
                    if now != *state {
                        FILLED_HERE.lock().insert(now, *fills);
                    }
                }
            }
            (Kind::Export(name), _) => _ = FILLED_HERE.lock().insert(name.clone(), *fills),
            (Kind::File { .. } | Kind::Device { .. }, None) => {}
        }
    }
}

/// Whether what was filled like this may be filled so.
fn is_ours(filled: Option<Filled>, fills: Filled) -> bool {
    filled.is_some_and(|filled| filled == Filled::ByLoad || fills == Filled::ByClients)
}

fn of_file(metadata: &Metadata) -> Kind {
    Kind::File { size: metadata.len(), modified: modified_at(metadata) }
}

fn modified_at(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// Names a block device as it is now. Its number may be another's later; that of its medium, where the kernel counts them, is
/// not. The seventh figure of its statistics is how many sectors have been written.
fn state_of_device(device: u64) -> String {
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    let read = |name: &str| fs::read_to_string(format!("/sys/dev/block/{number}/{name}")).unwrap_or_default();
    let statistics = read("stat");
    let written = statistics.split_ascii_whitespace().nth(6).unwrap_or_default();
    format!("block device {number} {} {written}", read("diskseq").trim())
}

/// Locks a folder for as long as what this gives is kept. Fails with [`ErrorKind::Refused`] if somebody has.
pub fn lock_folder(path: &Path) -> Result<Locked> {
    let folder = File::open(path).doing(|| format!("opening {}", path.display()))?;
    lock(folder, path, false)?
        .map_err(|holder| in_use(path.display(), &used_by(&holder), &Use::fill(Filled::ByLoad, false)))
}

fn used_by(holder: &str) -> String {
    format!("is in use by {holder}")
}

fn in_use(what: impl Display, found: &str, wanted: &Use) -> Error {
    let doing = if wanted.fills.is_some() { "write on" } else { "read" };
    let message = format!(
        "refusing to {doing} {what}: it {found}; end that use first (--overwrite does not permit this)"
    );
    Error::new(ErrorKind::Refused, message)
}

fn refuse_content(what: impl Display, found: Option<String>) -> Result<()> {
    let Some(found) = found else { return Ok(()) };
    let message = format!(
        "refusing to write on {what}: it holds {found}; if all of it may be destroyed, say so with --overwrite"
    );
    Err(Error::new(ErrorKind::Refused, message))
}

fn refuse_growth(path: &Path, metadata: &Metadata, wanted: &Use) -> Result<()> {
    let (Some(size), true) = (wanted.size, metadata.is_file()) else { return Ok(()) };
    if metadata.len() == 0 || size <= metadata.len() {
        return Ok(());
    }
    let message = format!(
        "refusing to make {} larger: it has {}, and {} are asked for; ask for no more, name a file that does not exist, or \
         permit it with --overwrite",
        path.display(),
        Bytes(metadata.len()),
        Bytes(size),
    );
    Err(Error::new(ErrorKind::Refused, message))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const LOAD: Use = Use { fills: Some(Filled::ByLoad), overwrite: false, is_shared: false, size: None };
    const SERVE: Use = Use { fills: Some(Filled::ByClients), ..LOAD };
    const OVERWRITE: Use = Use { overwrite: true, ..LOAD };

    fn refusal(path: &Path, wanted: &Use) -> String {
        let error = Claim::of_path(path, wanted).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        error.to_string()
    }

    fn write(path: &Path, offset: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(path).expect("there");
        file.write_all_at(bytes, offset).expect("written");
        // A clock may stand still between two writes.
        let modified = file.metadata().and_then(|about| about.modified()).expect("known");
        file.set_modified(modified + std::time::Duration::from_millis(10)).expect("set");
    }

    fn sparse(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        File::create_new(&path).and_then(|file| file.set_len(1 << 20)).expect("made");
        path
    }

    #[test]
    fn what_is_blank_is_free_and_what_holds_anything_needs_permission() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("disk.img");
        Claim::of_path(&image, &LOAD).expect("it does not exist");
        assert!(!image.exists(), "nobody said how large");
        fs::write(&image, b"").expect("written");
        Claim::of_path(&image, &LOAD).expect("it is empty");
        fs::write(&image, vec![0; 1 << 20]).expect("written");
        Claim::of_path(&image, &LOAD).expect("only zeros");
        for (content, words) in [
            (vec![0xa5; 1 << 20], "it holds data"),
            ([vec![0; 700_000], vec![1], vec![0; 1024 * 1024 - 700_001]].concat(), "it holds data"),
            ([&b"XFSB"[..], &vec![0; (1 << 20) - 4]].concat(), "an XFS file system"),
            (b"Dear reader,".to_vec(), "no disk image"),
            (b"Dear reader,".repeat(512 * 3), "it holds data"),
        ] {
            fs::write(&image, &content).expect("written");
            for wanted in [LOAD, SERVE] {
                let text = refusal(&image, &wanted);
                assert!(text.contains(words) && text.contains("--overwrite"), "{text}");
            }
            Claim::of_path(&image, &Use::READ).expect("reading harms nobody");
            Claim::of_path(&image, &OVERWRITE).expect("permitted");
            refusal(&image, &LOAD);
        }
        for path in ["/", "/dev/null"] {
            let error = Claim::of_path(Path::new(path), &OVERWRITE).expect_err("neither file nor device");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn what_a_load_has_left_is_free_until_somebody_else_writes_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = sparse(folder.path(), "disk.img");
        let claim = Claim::of_path(&image, &LOAD).expect("blank");
        write(&image, 5000, b"XFSB of a trial");
        drop(claim);
        for wanted in [LOAD, SERVE] {
            Claim::of_path(&image, &wanted).expect("ours");
        }
        write(&image, 9000, b"a user's");
        refusal(&image, &LOAD);
        let claim = Claim::of_path(&image, &OVERWRITE).expect("permitted");
        drop(claim);
        refusal(&image, &LOAD);
        let claim = Claim::of_path(&image, &OVERWRITE).expect("permitted");
        write(&image, 0, b"a load's");
        drop(claim);
        Claim::of_path(&image, &LOAD).expect("it was permitted to destroy everything");
    }

    #[test]
    fn what_clients_have_left_is_only_served_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = sparse(folder.path(), "disk.img");
        let claim = Claim::of_path(&image, &SERVE).expect("blank");
        write(&image, 5000, b"a client's");
        drop(claim);
        Claim::of_path(&image, &SERVE).expect("served again");
        refusal(&image, &LOAD);
        // A user's, served with permission, is the user's afterwards.
        write(&image, 6000, b"a user's");
        refusal(&image, &SERVE);
        let claim = Claim::of_path(&image, &Use { overwrite: true, ..SERVE }).expect("permitted");
        write(&image, 7000, b"a client's");
        drop(claim);
        refusal(&image, &SERVE);
    }

    #[test]
    fn two_at_once_are_refused_with_the_holder_and_readers_share() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = sparse(folder.path(), "disk.img");
        let writer = Claim::of_path(&image, &LOAD).expect("free");
        let me = format!("is in use by process {}", std::process::id());
        for wanted in [LOAD, SERVE, OVERWRITE, Use::READ] {
            let text = refusal(&image, &wanted);
            assert!(text.contains(&me) && text.contains("--overwrite does not permit"), "{text}");
        }
        drop(writer);
        let readers = [(); 2].map(|()| Claim::of_path(&image, &Use::READ).expect("shared"));
        refusal(&image, &OVERWRITE);
        drop(readers);
        let together =
            [(); 2].map(|()| Claim::of_path(&image, &Use { is_shared: true, ..LOAD }).expect("shared"));
        refusal(&image, &LOAD);
        drop(together);
        Claim::of_path(&image, &LOAD).expect("free again");
    }

    #[test]
    fn a_file_is_made_under_the_claim_and_gone_if_nothing_came_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("disk.img");
        let sized = Use { size: Some(1 << 20), ..LOAD };
        let claim = Claim::of_path(&image, &sized).expect("made");
        assert!(image.exists());
        refusal(&image, &sized);
        drop(claim);
        assert!(!image.exists(), "nothing came of it");
        let claim = Claim::of_path(&image, &sized).expect("made");
        fs::write(&image, vec![7; 1 << 20]).expect("written");
        drop(claim);
        Claim::of_path(&image, &sized).expect("ours");
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).expect("linked");
        let error = Claim::of_path(&folder.path().join("link"), &sized).expect_err("it leads nowhere");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let read = Use { size: Some(1 << 20), ..Use::READ };
        Claim::of_path(&folder.path().join("none"), &read).expect("nothing to claim");
        assert!(!folder.path().join("none").exists());
    }

    #[test]
    fn a_file_grows_only_if_it_is_ours_or_with_permission() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = sparse(folder.path(), "disk.img");
        let larger = Use { size: Some(4 << 20), ..LOAD };
        let text = refusal(&image, &larger);
        assert!(text.contains("1MiB") && text.contains("4MiB") && text.contains("--overwrite"), "{text}");
        Claim::of_path(&image, &Use { size: Some(1 << 20), ..LOAD }).expect("as large as it is");
        Claim::of_path(&image, &Use { overwrite: true, ..larger }).expect("permitted");
        let claim = Claim::of_path(&image, &LOAD).expect("blank");
        write(&image, 0, b"a load's");
        drop(claim);
        Claim::of_path(&image, &larger).expect("ours");
    }
}
