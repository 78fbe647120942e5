//! What tests have in common, those inside of this crate and those beside it.

/// Acts in a child of this process, which then ends at once, as if it was killed: nothing that it holds is let go in order.
pub fn in_child(act: impl FnOnce()) {
    // SAFETY: the child does what the test says, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "what the child says is above");
}
