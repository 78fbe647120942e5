//! A guarded directory through its mount, as programs see it. Needs root and FUSE.

mod folders;
mod programs;
mod random;
mod rig;
mod scripts;
mod semantics;
