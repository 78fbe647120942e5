//! Reading a file as text.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostic::Diagnostics;
use crate::source::{Location, Source};

/// A trial file is refused beyond this size in bytes: 10,000 rules of a hundred bytes each take a sixteenth.
const SIZE_MAX: u64 = 16 << 20;

/// Reads the file at `path` as text.
pub fn read_source(path: &Path) -> Result<Arc<Source>, Diagnostics> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(SIZE_MAX + 1).read_to_end(&mut bytes)).map_err(|error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "check the path; `rotproof help run` shows how to name a trial file"
            }
            _ => "give a trial file that you may read",
        };
        Diagnostics::one(&name, format!("cannot read {name}: {}", plain(&error)), Some(help), None)
    })?;
    if bytes.len() as u64 > SIZE_MAX {
        let message = format!("{name} is larger than {} MiB, which no trial file is", SIZE_MAX >> 20);
        return Err(Diagnostics::one(&name, message, Some("give a trial file"), None));
    }
    source_from_bytes(&name, bytes)
}

/// The text of `bytes`, which must be UTF-8.
pub fn source_from_bytes(name: &str, bytes: Vec<u8>) -> Result<Arc<Source>, Diagnostics> {
    let valid = |text: &str| Arc::new(Source { name: name.to_owned(), text: text.to_owned() });
    match String::from_utf8(bytes) {
        Ok(text) => Ok(valid(text.strip_prefix('\u{feff}').unwrap_or(&text))),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let shown = valid(&String::from_utf8_lossy(error.as_bytes()));
            let place = Location::new(&shown, at..at + 1);
            let message = format!("byte {at} (0x{:02x}) is not UTF-8", error.as_bytes()[at]);
            Err(Diagnostics::one(name, message, Some("save the file as UTF-8 text"), Some(place)))
        }
    }
}

/// The words of the operating system, without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
