//! Many files looked at in one go: what the host would ask file by file, with sums of their blocks instead of what they hold.
//!
//! A question is a letter, a colon and a path below the root. Answers come in the same order, parted by zero bytes, their fields by
//! slashes: an error is `!` and its number.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use crate::nodes::ROOT;
use crate::sys::{self, EINVAL, errno};

const BLOCK: usize = 4096;
/// After so many blocks of a file that could not be read, no more of it is.
const FAILURES_MAX: usize = 10;
/// The attribute that is asked for has less.
const ATTRIBUTE_BYTES_MAX: usize = 1 << 16;

/// Answers questions; of an attribute, the one of that name.
pub fn look(attribute: &str, questions: &[&str]) -> String {
    let answers = questions.iter().map(|question| match answer(attribute, question) {
        Ok(said) => said,
        Err(errno) => format!("!{errno}"),
    });
    answers.collect::<Vec<_>>().join("\0")
}

fn answer(attribute: &str, question: &str) -> Result<String, i32> {
    let (what, path) = question.split_once(':').ok_or(EINVAL)?;
    let path = format!("{ROOT}/{path}");
    match what {
        "names" => {
            let mut said = "names".to_owned();
            for entry in io(fs::read_dir(&path))? {
                said.push('/');
                said += &String::from_utf8_lossy(io(entry)?.file_name().as_bytes());
            }
            Ok(said)
        }
        "folder" => io(fs::metadata(&path)).map(|about| format!("folder/{}", u8::from(about.is_dir()))),
        "link" => io(fs::read_link(&path)).map(|target| format!("link/{}", target.to_string_lossy())),
        "content" => content(&path),
        "attribute" => {
            let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
            let length = sys::attribute(&path, attribute, &mut value)?;
            let said = format!("attribute/{length}/{:x}", sum(&value[..length]));
            sys::wipe(&mut value);
            Ok(said)
        }
        _ => Err(EINVAL),
    }
}

/// Its length and a sum of each block. What lies behind a block that could not be read is looked at too.
fn content(path: &str) -> Result<String, i32> {
    let file = io(File::open(path))?;
    let length = io(file.metadata())?.len();
    let mut said = format!("content/{length}");
    let (mut bytes, mut failures) = (vec![0; BLOCK], 0);
    for block in 0..length.div_ceil(BLOCK as u64) {
        let at = block * BLOCK as u64;
        let part = (length - at).min(BLOCK as u64) as usize;
        // Writing to a string cannot fail.
        let _ = match file.read_exact_at(&mut bytes[..part], at) {
            Ok(()) => write!(said, "/{:x}", sum(&bytes[..part])),
            Err(error) => {
                failures += 1;
                // Fewer bytes than the length says, and no error: that is no report of one.
                let ended = error.kind() == std::io::ErrorKind::UnexpectedEof;
                write!(said, "/!{}", if ended { 0 } else { errno(&error) })
            }
        };
        if failures == FAILURES_MAX {
            break;
        }
    }
    sys::wipe(&mut bytes);
    Ok(said)
}

/// As `rotproof_guest::sum_of`.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |sum, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        let mixed = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 32
    })
}

fn io<T>(result: std::io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| errno(&error))
}
