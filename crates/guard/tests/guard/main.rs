//! A guard of real files in a scratch directory.

mod rig;

mod files;
mod random;
mod rot;
mod small;
#[path = "../../src/testing.rs"]
mod testing;
mod verbs;
