//! The guard behind a C interface (`docs/guard-library.md`): reads and writes that take and give checksums.
//!
//! `directory` opens a guard, `file` reads and writes its files; `status` sees that no panic and no error gets across the
//! boundary but as a number and a text. Types and functions that C sees begin with `rotproof_guard`; the header is
//! generated from them.
//!
//! It adds nothing to what `rotproof_guard` does, which other doors to the same files do too.

mod directory;
mod file;
mod status;
