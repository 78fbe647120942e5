//! Faults in memory: of a process, or of a machine whose memory is a file that this one can map.
//!
//! [`Needles`] finds blocks by their content, several at once and faster than all bytes can be read. A [`Memory`] says
//! which parts there are, reads them and changes them in place, while whoever owns it goes on. Nothing is stopped.
//!
//! This crate changes what it is told to, and says what it has changed. Which block is meant, when, and what became of
//! it others know.

mod flip;
mod maps;
mod memory;
mod needle;
mod pages;
mod process;
mod shared;

pub use flip::{Change, apply, set_bit};
pub use maps::{Mapping, MappingKind, parse_maps};
pub use memory::{Memory, Region};
pub use needle::{Needles, PAGE_BYTES};
pub use pages::{PageKind, page_kind};
pub use process::ProcessMemory;
pub use shared::SharedMemory;
