//! `latest` in a folder of results: a link to what was written there last.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::Path;

/// What the link is called.
const NAME: &str = "latest";

/// Lets the link in `results` name `folder`, which is in it. What is called so and is no link stays; where no link can be
/// made there is none, since nothing depends on it.
pub fn point_to(results: &Path, folder: &Path) {
    let Some(name) = folder.file_name() else { return };
    if name == OsStr::new(NAME) {
        return;
    }
    let link = results.join(NAME);
    if link.symlink_metadata().is_ok_and(|about| !about.file_type().is_symlink()) {
        return;
    }
    // Made beside it and renamed, so that at no moment there is none.
    let made = results.join(format!(".{NAME}.{}", std::process::id()));
    if symlink(name, &made).is_ok() && std::fs::rename(&made, &link).is_err() {
        let _ = std::fs::remove_file(&made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_follows_and_a_folder_of_that_name_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        for name in ["one", "two"] {
            point_to(at, &at.join(name));
            assert_eq!(std::fs::read_link(at.join("latest")).ok().as_deref(), Some(Path::new(name)));
        }
        std::fs::remove_file(at.join("latest")).expect("a link");
        std::fs::create_dir(at.join("latest")).expect("made");
        point_to(at, &at.join("one"));
        assert!(at.join("latest").is_dir() && std::fs::read_link(at.join("latest")).is_err());
        assert_eq!(std::fs::read_dir(at).expect("readable").count(), 1, "nothing else is left");
    }
}
