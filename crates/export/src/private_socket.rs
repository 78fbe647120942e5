//! Unix sockets that only this user can connect to.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

/// Binds a socket that only this user can connect to, from its first moment on: it gets its mode under another name
/// before it gets its own, which also keeps it from replacing anything. Fails with [`ErrorKind::Refused`] where
/// something stands in its place.
pub(crate) fn bind_private(path: &Path) -> Result<UnixListener> {
    let listening = || format!("listening at unix:{}", path.display());
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(format!(".{}", std::process::id()));
    let hidden = PathBuf::from(hidden);
    let socket = UnixListener::bind(&hidden).doing(listening)?;
    let placed = std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::hard_link(&hidden, path));
    let _ = std::fs::remove_file(&hidden);
    match placed {
        Ok(()) => Ok(socket),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(Error::new(
            ErrorKind::Refused,
            format!("{} is there already; remove it or choose another path for the socket", path.display()),
        )),
        Err(error) => Err(error).doing(listening),
    }
}
