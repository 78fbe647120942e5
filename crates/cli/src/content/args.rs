//! The command line of `rotproof content`.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use rotproof_spec::Bytes;

/// `rotproof content`.
#[derive(Clone, Debug, Args)]
pub struct ContentArgs {
    #[command(subcommand)]
    pub verb: ContentVerb,
}

/// What can be done with contents and their distributions.
#[derive(Clone, Debug, Subcommand)]
pub enum ContentVerb {
    /// Count how often the blocks of files, folders or devices repeat
    #[command(next_line_help = true)]
    Scan(ScanArgs),
    /// Add up distributions
    Merge(MergeArgs),
    /// Print the hashes of a file's blocks, for `content:` of a rule
    Hash(HashArgs),
}

/// `rotproof content scan`.
#[derive(Clone, Debug, Args)]
pub struct ScanArgs {
    /// Files, folders with all that is below them, or block devices
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Write the distribution to this file, for `duplicates:`
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// For counting; beyond that a sample is counted
    #[arg(long, value_name = "BYTES", default_value = "1GiB")]
    pub memory: Bytes,

    /// Threads; default: one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,

    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof content merge`.
#[derive(Clone, Debug, Args)]
pub struct MergeArgs {
    /// Distributions: lines of duplicates and contents
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Write the sum to this file
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof content hash`.
#[derive(Clone, Debug, Args)]
pub struct HashArgs {
    /// A file or block device
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Which blocks of 4 KiB, such as 0,16..32; default: all
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',', value_parser = blocks)]
    pub blocks: Vec<Range<u64>>,

    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// A block's number, or a range of them without its end.
fn blocks(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| {
        text.trim().parse::<u64>().ok().filter(|number| *number <= BLOCK_MAX).ok_or_else(|| {
            format!("`{text}` is no number of a block; give one, such as 7, or a range, such as 16..32")
        })
    };
    let Some((first, end)) = text.split_once("..") else {
        let block = number(text)?;
        return Ok(block..block + 1);
    };
    let range = number(first)?..number(end)?;
    if range.is_empty() {
        return Err(format!("{text} has no block: the end of a range is not in it"));
    }
    Ok(range)
}

/// The last block of 4 KiB that a file can have.
const BLOCK_MAX: u64 = i64::MAX as u64 >> 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_numbers_and_ranges_without_their_end() {
        assert_eq!(blocks("7"), Ok(7..8));
        assert_eq!(blocks("16..32"), Ok(16..32));
        for wrong in ["", "x", "-1", "3..3", "4..3", "..", "1..", "..2", "99999999999999999999", "1..=2"] {
            assert!(blocks(wrong).is_err(), "{wrong}");
        }
    }
}
