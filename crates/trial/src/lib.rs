//! What a trial is: its file, its subjects, its runner and its verdict.

pub mod control;
pub mod expect;
pub mod file;
pub mod fleet_file;
mod ground;
pub mod import;
pub mod load;
pub mod metrics;
pub mod path_file;
pub mod runner;
pub mod serve;
pub mod subject;
pub mod verdict;
