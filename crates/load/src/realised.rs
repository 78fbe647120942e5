//! What the load really wrote: how much of it repeated, beside what was asked for.

use serde::Serialize;

use crate::content::Stage;
use crate::oracle::Oracle;
use crate::stream::Step;
use crate::workload::Workload;

/// The contents of a run in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct RealisedContent {
    /// Blocks of 4 KiB that the load wrote, all stages together.
    pub written_blocks: u64,
    /// Different contents among them.
    pub distinct_contents: u64,
    /// Share of the blocks that repeat another one, asked for.
    pub duplicates_wanted: f64,
    /// And as it is.
    pub duplicates: f64,
    /// How much of each block a compressor is to save.
    pub compressible: f64,
}

/// Counts what was drawn of the streams of a run, without writing it again.
pub fn realised(workload: &Workload, oracle: &Oracle) -> RealisedContent {
    let (mut written_blocks, mut distinct_contents) = (0, 0);
    for stage in [Stage::Prefill, Stage::Run] {
        for worker in 0..workload.workers() {
            let drawn = oracle.drawn().iter().filter(|drawn| drawn.stage == stage);
            let requests = drawn.filter_map(|drawn| drawn.requests.get(usize::from(worker))).sum();
            let stream = workload.stream(stage, worker).ending_after(requests);
            let contents = stream.contents();
            let blocks = stream.map(|step| match step {
                Step::Write { extent, .. } => u64::from(extent.blocks),
                Step::Read(_) | Step::Discard(_) | Step::Flush => 0,
            });
            let blocks = blocks.sum();
            written_blocks += blocks;
            distinct_contents += contents.distinct(blocks);
        }
    }
    let repeated = (written_blocks - distinct_contents) as f64;
    RealisedContent {
        written_blocks,
        distinct_contents,
        duplicates_wanted: workload.duplicates(),
        duplicates: if written_blocks > 0 { repeated / written_blocks as f64 } else { 0.0 },
        compressible: workload.spec().compressible.0,
    }
}
