//! How many verifications of which kind there were, and what came of them: in a process, in the memory that processes share, and in a file
//! of the guard's folder.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counters of a process.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct Counts {
            $($(#[$doc])* pub $name: AtomicU64,)+
        }

        /// Their values at a moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct CountsNow {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counts {
            /// Their values.
            pub fn now(&self) -> CountsNow {
                CountsNow { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }

            /// Adds values.
            pub(crate) fn add(&self, more: &CountsNow) {
                $(add(&self.$name, more.$name);)+
            }
        }

        impl CountsNow {
            /// These and others.
            #[must_use]
            pub fn plus(&self, more: &Self) -> Self {
                Self { $($name: self.$name + more.$name,)+ }
            }

            /// What has come since.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)+ }
            }
        }
    };
}

counts! {
    /// Blocks verified by the light sum.
    light,
    /// Blocks verified by the strong sum.
    strong,
    /// Blocks handed out that nothing vouches for.
    unvouched,
    /// Verifications before data went to the file system below.
    boundary,
    /// Blocks that failed a verification at first.
    mismatches,
    /// Of these: read again below a writer, and right.
    races,
    /// Of these: the cache was wrong, the disk right.
    from_disk,
    /// Of these: the disk was wrong, the cache right, and was written back.
    from_cache,
    /// Of these: taken from the mirror.
    from_mirror,
    /// Of these: taken from another copy of the volume below.
    from_copy,
    /// Of these: a sum was wrong, the data right by the other one.
    sums_mended,
    /// Of these: left by a crash, and taken in.
    torn,
    /// Of these: could not be mended, and were refused.
    refused,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// The file.
const COUNTS: &str = "counts";

/// What the processes of former sessions have counted, as far as that is known.
pub(crate) fn of_file(folder: &Path) -> CountsNow {
    let bytes = std::fs::read(folder.join(COUNTS)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Writes it anew. What a crash takes of it are figures, on which nothing hangs.
pub(crate) fn write_file(folder: &Path, counts: &CountsNow) -> std::io::Result<()> {
    let new = folder.join("counts.new");
    std::fs::write(&new, serde_json::to_vec(counts)?)?;
    std::fs::rename(new, folder.join(COUNTS))
}
