//! The rotproof command.

fn main() {}
