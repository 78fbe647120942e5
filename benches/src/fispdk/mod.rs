//! What contexts and faults by file cost, in the seven set-ups of FISPDK's experiments, and its experiment with three files
//! at full size.
//!
//! Source: A. Miranda, Realistic Fault Assessment in SPDK-enabled Storage Stacks.

mod overhead;
mod three_files;

use rotproof_block::Result;

use crate::Effort;
use crate::figure::Figure;

/// Measures everything; hands out each figure as soon as it is known.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    overhead::run(effort, found)?;
    three_files::run(effort, found)
}
