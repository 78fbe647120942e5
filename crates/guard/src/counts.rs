//! How many verifications of which kind there were, and what came of them.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counters of a process.
        #[derive(Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: AtomicU64,)+
        }

        /// Their values at a moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct CountsNow {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counts {
            /// Their values.
            pub fn now(&self) -> CountsNow {
                CountsNow { $($name: self.$name.load(Ordering::Relaxed),)+ }
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
