//! The session of a guard: processes that share its memory, from the first that opens it to the last that closes it.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::lock::lock_file;
use crate::seats;
use crate::store::hex;

/// Where memory that processes share lies.
const SHARED_MEMORY: &str = "/dev/shm";
/// How the names of its folders begin: another way for each layout of what lies in them, so that no two versions of Rotproof ever share
/// one. The folders of earlier ones are cleared away too.
const PREFIX: &str = "rotproof-guards-2-";
const PREFIXES: [&str; 2] = [PREFIX, "rotproof-guard-"];
/// Has the path of the guard's folder.
const OF: &str = "of";

/// The file of the session in the folder of the guard.
pub const SESSION: &str = "session";

/// What the file of the session has: its name, the start of the machine that it belongs to, and whether its shared memory was
/// empty when the last process took it away.
pub struct Session {
    /// Its name.
    pub id: [u8; 16],
    /// The start of the machine.
    pub boot: [u8; 16],
    /// Nothing was left in memory.
    pub is_empty: bool,
}

impl Session {
    const BYTES: usize = 33;

    pub fn read(file: &mut File) -> Option<Self> {
        let mut bytes = [0; Self::BYTES];
        file.rewind().and_then(|()| file.read_exact(&mut bytes)).ok()?;
        let (id, rest) = bytes.split_first_chunk()?;
        let (boot, rest) = rest.split_first_chunk()?;
        Some(Self { id: *id, boot: *boot, is_empty: rest == [1] })
    }

    pub fn write(&self, file: &mut File) -> std::io::Result<()> {
        let bytes = [&self.id[..], &self.boot[..], &[u8::from(self.is_empty)]].concat();
        file.rewind()?;
        file.write_all(&bytes)
    }
}

/// Names this start of the machine; zeros where the kernel does not tell, which then is no start that is known.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// Joins the session that lives, or begins one. The caller holds the lock of sessions. Of a guard that has an old format
/// (`is_old`) nobody may live, and what was left in memory is given up, as if the machine had gone down.
pub fn join_session(folder: &Path, alive: &mut File, is_old: bool) -> Result<([u8; 16], PathBuf)> {
    let doing = || format!("joining the session of the guard in {}", folder.display());
    let boot = boot_id();
    let known = Session::read(alive).filter(|known| known.boot == boot && boot != [0; 16]);
    let place = |id: [u8; 16]| Path::new(SHARED_MEMORY).join(format!("{PREFIX}{}", hex(&id)));
    let is_alone = lock_file(alive, libc::LOCK_EX | libc::LOCK_NB, doing)?;
    if is_old && !is_alone {
        let what = format!(
            "{} has the format of an older Rotproof, which is using it; end that one, and the guard is brought up to date",
            folder.display()
        );
        return Err(Error::new(ErrorKind::Refused, what));
    }
    if let Some(known) = known.as_ref().filter(|_| is_old) {
        let _ = std::fs::remove_dir_all(place(known.id));
    }
    let session = match known {
        Some(known) if place(known.id).is_dir() => known,
        _ if !is_alone => {
            let what = format!(
                "{} is in use by a process whose shared memory cannot be seen from here (another container, or another \
                 version of Rotproof?); end it, or let both see one {SHARED_MEMORY}",
                folder.display()
            );
            return Err(Error::new(ErrorKind::Refused, what));
        }
        known => {
            // Of a session that was left with nothing in memory, the tables on the disk know all.
            let left = known.filter(|known| known.is_empty);
            let id = left.map_or_else(random_id, |left| Ok(left.id))?;
            let shared = place(id);
            std::fs::create_dir(&shared).doing(doing)?;
            let mode = folder.metadata().doing(doing)?.permissions().mode() & 0o777;
            std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(mode)).doing(doing)?;
            let session = Session { id, boot, is_empty: false };
            // Durable before anything is changed in its name: tables name the session that wrote them, and one that is
            // found later under the same name must be the same.
            session.write(alive).and_then(|()| alive.sync_all()).doing(doing)?;
            // Last, since whoever finds it looks whether the session is the one that the guard names.
            let of = shared.join("of.new");
            let absolute = folder.canonicalize().doing(doing)?;
            std::fs::write(&of, absolute.as_os_str().as_encoded_bytes()).doing(doing)?;
            std::fs::rename(&of, shared.join(OF)).doing(doing)?;
            clear_left_behind();
            session
        }
    };
    lock_file(alive, libc::LOCK_SH, doing)?;
    Ok((session.id, place(session.id)))
}

/// Sixteen random bytes of the kernel.
pub fn random_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    // SAFETY: writes 16 bytes into an array of 16.
    let answer = unsafe { libc::getrandom(id.as_mut_ptr().cast(), id.len(), 0) };
    if answer == 16 {
        Ok(id)
    } else {
        Err(std::io::Error::last_os_error()).doing(|| "asking the kernel for random bytes".to_owned())
    }
}

/// Takes away the memory of guards of which all processes were killed, and which name another session since or are gone. Memory
/// that a guard still names has sums that are not on its disk, and stays for whoever opens it.
fn clear_left_behind() {
    let Ok(entries) = std::fs::read_dir(SHARED_MEMORY) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let id = |prefix| name.to_str().and_then(|name| name.strip_prefix(prefix));
        let Some(id) = PREFIXES.into_iter().find_map(id) else { continue };
        let shared = entry.path();
        // One that says nothing is of another version, or is being made.
        let Ok(folder) = std::fs::read(shared.join(OF)) else { continue };
        let folder = Path::new(std::ffi::OsStr::from_bytes(&folder));
        if !folder.is_absolute() {
            continue;
        }
        let named = File::open(folder.join(SESSION)).map(|mut file| Session::read(&mut file));
        let is_named = match named {
            Ok(session) => session.is_none_or(|session| hex(&session.id) == id),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        if !is_named && !seats::is_in_use(&shared) {
            let _ = std::fs::remove_dir_all(&shared);
        }
    }
}
