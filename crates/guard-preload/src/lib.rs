//! The guard below unmodified dynamic programs: functions of the C library that move data of files, with the same names, in
//! front of it (`LD_PRELOAD`). `rotproof guard run` sets it up; how it works and what it cannot do: `docs/guard-run.md`.
//!
//! | module | what |
//! |---|---|
//! | [`guarded`] | which guard, which descriptors are its files |
//! | [`raw`] | the system calls themselves |
//! | [`descriptors`] | open, close, dup |
//! | [`data`] | read and write |
//! | [`length`] | truncate, allocate, sync |
//! | [`names`] | unlink, rename, times, permissions |
//! | [`streams`] | stdio |
//! | [`mappings`] | mmap, and the signal of its faults |
//! | [`past`] | what would go past the guard, and is refused |
//! | [`process`] | begin, fork, end |
//!
//! A descriptor is looked at when data first move through it, so it does not matter how a program came by it: opened,
//! inherited, received. The kernel keeps positions, names and attributes; only data and lengths pass through the guard. While
//! a thread is in the guard's own code, these functions are the plain system calls.

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

/// The same function by several names.
macro_rules! same {
    ($name:ident $(, $more:ident)* => $inner:path, $arguments:tt -> $answer:ty) => {
        one!($name => $inner, $arguments -> $answer);
        $(one!($more => $inner, $arguments -> $answer);)*
    };
}

/// A function by one name.
macro_rules! one {
    ($name:ident => $inner:path, ($($argument:ident: $kind:ty),*) -> $answer:ty) => {
        /// # Safety
        /// As the function of the C library by this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $answer {
            // SAFETY: the caller's word.
            unsafe { $inner($($argument),*) }
        }
    };
}

mod data;
mod descriptors;
mod guarded;
mod length;
mod mappings;
mod names;
mod past;
mod process;
mod raw;
mod streams;
