//! Devices that protect what they hold. Each is a layer of its own over the devices below, usable alone.
//!
//! Source: M. Fountoulakis, *DARC: Design and Evaluation of an I/O Controller for Data Protection*. Unlike there, metadata are
//! protected themselves and survive a power loss.

// Lists of ranges of bytes, of which there is often one.
#![cfg_attr(test, allow(clippy::single_range_in_vec_init))]

pub mod checksum;
mod claims;
pub mod concat;
pub mod copies;
mod io;
pub mod live;
pub mod member;
pub mod mirror;
pub mod parts;
pub mod stripe;
mod table;
pub mod volume;
mod window;

#[cfg(test)]
mod faulty;
#[cfg(test)]
mod testing;
pub mod versions;
