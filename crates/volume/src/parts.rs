//! Bytes as a part of what the layers of this crate keep on a device: which part they are. For whoever looks at a device
//! without opening it, and for fuzzing.

use crate::table::sealed;
use crate::{table, versions};

/// A part of a table, of a list of versions, or of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The state of a table.
    State,
    /// A page of a table.
    Page,
    /// A block of the log of a table, with so many records.
    Log(usize),
    /// A list of so many versions.
    Versions(usize),
    /// A block of a history, with so many pairs.
    History(usize),
}

/// Which part these bytes are, if they are one whose sum is right; wherever it lies.
pub fn part_of(bytes: &[u8]) -> Option<Part> {
    match bytes.get(..8)? {
        b"rotpVERS" => versions::count_in_list(bytes).map(Part::Versions),
        b"rotpHIST" => versions::count_in_history(bytes).map(Part::History),
        _ => table::part_of(bytes),
    }
}

/// Puts the right sum into bytes that begin as a part does. Whether they do.
pub fn seal(bytes: &mut [u8]) -> bool {
    let at = match bytes.get(..8) {
        Some(b"rotpTABL" | b"rotpVERS") => 48,
        Some(b"rotpPAGE" | b"rotpLOG1" | b"rotpLOG2" | b"rotpHIST") => 40,
        _ => return false,
    };
    let fits = bytes.len() >= at + 8;
    if fits {
        sealed::seal(bytes, at);
    }
    fits
}
