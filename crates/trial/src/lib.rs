//! What a trial is: its file, its subjects, its runner and its verdict.

pub mod backing;
pub mod expect;
pub mod file;
pub mod gate;
pub mod runner;
pub mod verdict;
