//! Devices that protect what they hold. Each is a layer of its own over the devices below, usable alone.
//!
//! Source: M. Fountoulakis, *DARC: Design and Evaluation of an I/O Controller for Data Protection*. Unlike there, metadata are
//! protected themselves and survive a power loss.

pub mod checksum;
mod claims;
pub mod copies;
mod io;
mod table;
