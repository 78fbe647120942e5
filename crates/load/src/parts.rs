//! Which worker owns which part of the target: each job its share, each worker of it a share of that.
//!
//! Parts never overlap, so requests of different workers cannot either, and the oracle needs no lock.

use std::sync::Arc;

use rotproof_block::Result;
use rotproof_spec::Bytes;

use crate::job::JobSpec;
use crate::layout::{Layout, Part};
use crate::object::ObjectInfo;
use crate::spec::LoadSpec;

/// How a target is shared out.
#[derive(Clone, Debug)]
pub struct Parts {
    /// By worker, in the order of the target.
    pub(crate) workers: Vec<WorkerPart>,
}

/// What one worker is and has.
#[derive(Clone, Debug)]
pub(crate) struct WorkerPart {
    /// Which job it belongs to.
    pub(crate) job: usize,
    /// Its number within the job, from zero.
    pub(crate) number: u32,
    /// Places as far apart as its requests may begin.
    pub(crate) layout: Arc<Layout>,
    /// What it owns.
    pub(crate) part: Part,
}

/// Why a target is too small to be shared out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Which job.
    pub job: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: &'static str,
}

/// In whole pieces of this size the target is shared out, in bytes: as all sizes are powers of two, every request of
/// any job fits one, and every alignment divides it.
fn piece_bytes(jobs: &[JobSpec]) -> u64 {
    let largest = |job: &JobSpec| job.align_bytes().max(job.block_size.largest_bytes());
    jobs.iter().map(largest).max().unwrap_or(crate::BLOCK_BYTES as u64)
}

/// The pieces of each job, by the shares of the space.
fn pieces_of(jobs: &[JobSpec], pieces: u64) -> Vec<std::ops::Range<u64>> {
    let given: f64 = jobs.iter().filter_map(|job| job.space).map(|share| share.0).sum();
    let sharing: u32 = jobs.iter().filter(|job| job.space.is_none()).map(|job| job.workers).sum();
    let (mut until, mut start) = (0.0, 0);
    let ranges = jobs.iter().map(|job| {
        until += match job.space {
            Some(share) => share.0,
            None => (1.0 - given).max(0.0) * f64::from(job.workers) / f64::from(sharing),
        };
        let is_all = until >= 1.0 - 1e-9;
        let end = if is_all { pieces } else { (pieces as f64 * until).round() as u64 }.clamp(start, pieces);
        let range = start..end;
        start = end;
        range
    });
    ranges.collect()
}

/// Why this target is too small for the workers of a load that makes sense otherwise, if it is.
pub fn no_room(spec: &LoadSpec, objects: &[ObjectInfo]) -> Option<NoRoom> {
    let jobs = spec.jobs();
    // A target without room for a single request is reported by whoever knows why.
    let coarse = Layout::new(objects, piece_bytes(&jobs)).ok()?;
    let pieces = pieces_of(&jobs, coarse.places());
    let (job, found) = jobs.iter().zip(&pieces).enumerate().find_map(|(index, (job, pieces))| {
        let count = pieces.end - pieces.start;
        (count < u64::from(job.workers)).then_some((index, count))
    })?;
    let size = Bytes(piece_bytes(&jobs));
    let workers = jobs[job].workers;
    let message = if jobs.len() == 1 {
        let requests = if found == 1 { "1 request".to_owned() } else { format!("{found} requests") };
        format!("{workers} workers cannot share {requests} of {size}")
    } else {
        let workers = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
        format!("the space of this job is {found} times {size}, too little for {workers}")
    };
    Some(NoRoom { job, message, help: "take fewer workers, smaller requests or a larger target" })
}

impl Parts {
    /// Shares out a target that has room ([`no_room`]).
    pub(crate) fn new(jobs: &[JobSpec], objects: &[ObjectInfo]) -> Result<Self> {
        let coarse = Layout::new(objects, piece_bytes(jobs))?;
        let mut workers = Vec::new();
        for (index, (job, pieces)) in jobs.iter().zip(pieces_of(jobs, coarse.places())).enumerate() {
            let layout = Arc::new(Layout::new(objects, job.align_bytes())?);
            for number in 0..job.workers {
                let blocks = coarse.part(&pieces, number, job.workers).blocks;
                let part = layout.part_of_blocks(&blocks);
                workers.push(WorkerPart { job: index, number, layout: Arc::clone(&layout), part });
            }
        }
        Ok(Self { workers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rotproof_spec::Percent;

    fn job(workers: u32, block_size: u64, space: Option<f64>) -> JobSpec {
        JobSpec {
            workers,
            block_size: Bytes(block_size).into(),
            space: space.map(Percent),
            ..JobSpec::default()
        }
    }

    #[test]
    fn jobs_get_the_space_they_ask_for_and_the_others_share_the_rest_by_their_workers() {
        let objects = [ObjectInfo::new("device", 1000 << 16)];
        let jobs = [job(1, 4096, None), job(2, 65536, Some(0.4)), job(3, 16384, None)];
        let parts = Parts::new(&jobs, &objects).expect("room");
        let blocks: Vec<u64> = parts
            .workers
            .iter()
            .map(|worker| (worker.part.blocks.end - worker.part.blocks.start) / 16)
            .collect();
        assert_eq!(blocks, [150, 200, 200, 150, 150, 150]);
        assert_eq!(parts.workers.iter().map(|worker| worker.job).collect::<Vec<_>>(), [0, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn a_target_that_is_too_small_says_for_whom() {
        let objects = [ObjectInfo::new("device", 64 << 10)];
        let single = LoadSpec { workers: 20, ..LoadSpec::default() };
        let found = no_room(&single, &objects).expect("too small");
        assert_eq!(found.message, "20 workers cannot share 16 requests of 4KiB");
        let jobs = vec![job(1, 4096, Some(0.9)), job(2, 16384, None)];
        let found = no_room(&LoadSpec { jobs, ..LoadSpec::default() }, &objects).expect("too small");
        assert_eq!(found.job, 1);
        assert_eq!(found.message, "the space of this job is 0 times 16KiB, too little for 2 workers");
        assert_eq!(no_room(&LoadSpec::default(), &objects), None);
    }

    proptest! {
        #[test]
        fn parts_follow_each_other_and_begin_where_requests_of_every_job_may(
            sizes in prop::collection::vec(1u64..2000, 1..4),
            jobs in prop::collection::vec((1u32..4, 12u32..17), 1..4),
        ) {
            let objects: Vec<_> = sizes.iter().map(|&blocks| ObjectInfo::new("x", blocks * 4096)).collect();
            let jobs: Vec<_> = jobs.into_iter().map(|(workers, shift)| job(workers, 1 << shift, None)).collect();
            if no_room(&LoadSpec { jobs: jobs.clone(), ..LoadSpec::default() }, &objects).is_some() {
                return Ok(());
            }
            let parts = Parts::new(&jobs, &objects).expect("room");
            let mut next = 0;
            for worker in &parts.workers {
                prop_assert_eq!(worker.part.blocks.start, next);
                next = worker.part.blocks.end;
                prop_assert!(next > worker.part.blocks.start);
                let places = &worker.part.places;
                prop_assert_eq!(worker.layout.extent(places.start).first_block, worker.part.blocks.start);
                let last = worker.layout.extent(places.end - 1);
                prop_assert_eq!(last.target_blocks().end, next);
            }
            prop_assert_eq!(next, sizes.iter().sum::<u64>());
        }
    }
}
