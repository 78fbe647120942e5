//! What a trial is: its file, its subjects, its runner and its verdict.

pub mod expect;
pub mod file;
pub mod gate;
pub mod ground;
pub mod runner;
pub mod verdict;
