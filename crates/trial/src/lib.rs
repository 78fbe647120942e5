//! What a trial is: its file, its subjects, its runner and its verdict.

pub mod control;
pub mod expect;
pub mod file;
mod ground;
pub mod metrics;
pub mod runner;
pub mod serve;
pub mod verdict;
