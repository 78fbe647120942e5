//! Which program this is.

/// The version, and the commit where the program was built from a checkout: `0.1.0 (1a2b3c4d5e)`.
pub const LONG: &str = env!("ROTPROOF_VERSION");
