//! Modules of the kernel that came with the initial file system: loaded in the order of their names, and forgotten.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use crate::sys;

const FOLDER: &str = "/modules";
/// How a file begins that is a program for Linux; a module that does not is compressed.
const ELF: &[u8] = b"\x7fELF";

/// Loads them. One that the kernel refuses is named on the console: what needed it will say so as well.
pub fn load() {
    let mut paths: Vec<_> =
        fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let is_plain = fs::read(&path).is_ok_and(|bytes| bytes.starts_with(ELF));
        let loaded = File::open(&path)
            .map_err(|error| sys::errno(&error))
            .and_then(|file| sys::load_module(file.as_raw_fd(), !is_plain));
        if let Err(errno) = loaded {
            eprintln!("rotproof: the kernel refuses the module {}: error {errno}", path.display());
        }
        // It would stay in memory otherwise.
        let _ = fs::remove_file(&path);
    }
}
