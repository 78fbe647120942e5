//! What a served stack is called, and where the socket of a name is.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::registry::{self, CleanupStack};

const PREFIX: &str = "serve-";
const SUFFIX: &str = ".sock";

/// Characters of a name.
const LENGTH_MAX: usize = 48;

/// Ok if a served stack can be called so: letters, digits, dots, dashes and underscores, beginning with a letter or a
/// digit. Fails with [`ErrorKind::Invalid`].
pub fn check_name(name: &str) -> Result<()> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins_well && name.len() <= LENGTH_MAX && name.chars().all(is_good) {
        return Ok(());
    }
    let message = format!(
        "nothing can be served as {name:?}; a name has 1 to {LENGTH_MAX} letters, digits, dots, dashes and \
         underscores, and begins with a letter or digit"
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

/// A name made of that of a trial: with dashes for what cannot be part of one.
pub fn name_of(trial: &str) -> String {
    let name: String = trial
        .chars()
        .take(LENGTH_MAX)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' })
        .collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() { "stack".to_owned() } else { name.to_owned() }
}

/// Where the socket of the stack that is served as `name` is, if it has its record in `folder`.
pub fn socket_of_name(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{PREFIX}{name}{SUFFIX}"))
}

/// The name and the socket of every stack that this user serves, or was serving when it was killed. Those with a
/// socket elsewhere are not among them.
pub fn sockets() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for folder in registry::folders() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            let name = file_name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
            found.extend(name.map(|name| (name.to_owned(), entry.path())));
        }
    }
    found.sort();
    found
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

/// Listens at `path`. Fails with [`ErrorKind::Refused`] if the place is taken, and says by whom.
pub(crate) fn listen(cleanup: &mut CleanupStack, name: &str, path: &Path) -> Result<UnixListener> {
    let error = match cleanup.create_socket(path) {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    let place = path.display();
    let message = match error.kind() {
        ErrorKind::Os(libc::ENAMETOOLONG) => {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "the path {place} is too long for a socket (107 bytes); give a shorter one with --socket"
                ),
            ));
        }
        ErrorKind::Os(libc::EADDRINUSE) if !is_socket(path) => {
            format!("{place} exists and is no socket; give another one with --socket")
        }
        ErrorKind::Os(libc::EADDRINUSE) => match UnixStream::connect(path) {
            Ok(_) => {
                format!("something is served as {name} already ({place}); give this another name with --name")
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => format!(
                "{place} was left by one that was killed; `rotproof clean` removes it, or give another name with \
                 --name"
            ),
            Err(error) => format!("{place} is taken ({error}); give another one with --socket"),
        },
        _ => return Err(error),
    };
    Err(Error::new(ErrorKind::Refused, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trial_is_called_makes_a_name() {
        for (trial, name) in
            [("nightly", "nightly"), ("über die Maße", "ber-die-Ma-e"), ("../x", "x"), ("--", "stack")]
        {
            assert_eq!(name_of(trial), name);
            check_name(name).expect(name);
        }
        check_name(&name_of(&"a".repeat(500))).expect("cut");
        for bad in ["", ".x", "a/b", "a b", "ä", &"a".repeat(49)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
