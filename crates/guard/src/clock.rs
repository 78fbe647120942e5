//! The clocks that a guard reads, all of the machine, so that processes agree.

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into a structure of this frame; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}

/// Seconds since the machine started; one more than that, so that 0 means never.
pub fn seconds() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE).tv_sec as u64 + 1
}

/// Nanoseconds since 1970, as time stamps of files count.
pub fn wall_nanoseconds() -> u64 {
    let time = read(libc::CLOCK_REALTIME);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
