//! Guard: integrity of the files of a directory, from the writer's memory to the reader's.
//!
//! The data stay ordinary files. For each block of 4 KiB two checksums are kept beside them: a light one, which is verified
//! on every read, and a strong one, which is verified when the block comes from the disk and when it has been in memory for
//! long. After Y. Zhang, *Cooperative Data Protection*, chapters 2 to 5 (Z2FS, ViewBox).
//!
//! | module | what |
//! |---|---|
//! | [`sum`] | the checksums |
//! | [`chain`] | the order of making and verifying them where data cross a boundary |
//! | [`format`](mod@format) | what lies on the disk, as bytes |
//! | [`record`] | the sums of a small file, as bytes |
//! | [`copies`] | the copies of a volume below |
//! | [`store`] | the folder of a guard, its settings, its session |
//!
//! It knows nothing of FUSE, of preloading, or of the terminal.

mod all_copies;
mod arena;
mod bits;
pub mod chain;
pub mod check;
pub mod clock;
pub mod copies;
mod copy;
pub mod counts;
#[cfg(test)]
mod died_tests;
pub mod fault;
mod file;
pub mod fork;
pub mod format;
mod head;
mod heal;
mod home;
mod in_place;
pub mod journal;
mod kept;
mod leave;
mod live;
mod lock;
mod mapped;
mod opened;
mod orphan;
mod read;
pub mod record;
mod resize;
mod rooms;
mod save;
mod seats;
mod session;
mod settle;
pub mod simulate;
mod slots;
mod snapshot;
pub mod stat;
pub mod status;
pub mod store;
pub mod sum;
pub mod switch;
mod sync;
mod table;
pub mod take;
#[cfg(test)]
mod testing;
mod trouble;
mod view;
pub mod walk;
mod write;

pub use counts::{Counts, CountsNow};
pub use file::GuardedFile;
pub use format::Pair;
pub use store::{Store, StoreOptions};
pub use sum::{Algorithm, BLOCK};
pub use trouble::{Outcome, Trouble};
