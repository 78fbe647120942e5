//! How many calls into the kernel a thread has made to move requests, and to wait for them: what drives I/O counts its
//! own, so that whoever measures a load can say how many a request took.
//!
//! What does no I/O, such as to read a clock or to get memory, is not among them.

use std::cell::Cell;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Calls that the calling thread has made since it began.
pub fn made() -> u64 {
    MADE.get()
}

/// Counts one call of the calling thread. Costs an addition, beside the call itself.
#[inline]
pub fn count_one() {
    MADE.set(MADE.get() + 1);
}
