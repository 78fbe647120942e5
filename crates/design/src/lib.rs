//! Designs that the reliability model reckons with, as people write them: [`path_file`]s and [`fleet_file`]s.
//!
//! It knows what they mean for `rotproof_model`, which itself knows no files.

pub mod fleet_file;
pub mod path_file;
