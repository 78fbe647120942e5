//! A load on a given target: everything about it that is known before the first request.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_spec::{Bytes, Path, Problems, Span};

use crate::BLOCK_BYTES;
use crate::content::{Content, ContentId, Stage};
use crate::job::JobSpec;
use crate::layout::{Layout, Part};
use crate::object::{ObjectInfo, content_bytes};
use crate::pace::RampUp;
use crate::parts::{Parts, WorkerPart, no_room};
use crate::replay::Source;
use crate::spec::LoadSpec;
use crate::stream::{
    Amount, Described, DescribedOptions, Mixture, Plan, Replayed, ReplayedOptions, Stream, TraceReport,
};

/// Longer than a disk takes that has to be woken, or tries again and again.
pub(crate) const HUNG_AFTER_DEFAULT: Duration = Duration::from_secs(30);

/// A described load, its seed and the objects it works on. Clones share everything.
///
/// Its workers may be spread over several machines: each then has a workload of all of them, of which it runs some
/// ([`Workload::running_only`]). What a worker does depends on nothing but the load, the seed and its number, so together
/// they are the same load as on one machine.
#[derive(Clone)]
pub struct Workload(Arc<Inner>, Range<u16>);

struct Inner {
    spec: LoadSpec,
    seed: u64,
    objects: Vec<ObjectInfo>,
    jobs: Vec<JobSpec>,
    parts: Parts,
    /// Of single blocks.
    layout: Arc<Layout>,
    content: Content,
    mixture: Arc<Mixture>,
    /// Where its requests come from, if not from its jobs.
    trace: Option<Source>,
}

impl Workload {
    /// Puts a load onto a target. Fails with [`ErrorKind::Invalid`] if the description makes no sense, or not on
    /// these objects.
    pub fn new(spec: &LoadSpec, seed: u64, objects: &[ObjectInfo]) -> Result<Self> {
        let mut problems = Problems::default();
        spec.validate(&Path::root().key("load"), &mut problems);
        if let Some(problem) = problems.into_iter().next() {
            return Err(Error::new(ErrorKind::Invalid, format!("{}: {}", problem.path, problem.message)));
        }
        let layout = Layout::new(objects, BLOCK_BYTES as u64)?;
        if let Some(no_room) = no_room(spec, objects) {
            return Err(Error::new(ErrorKind::Invalid, format!("{}; {}", no_room.message, no_room.help)));
        }
        let jobs = spec.jobs();
        let inner = Inner {
            spec: spec.resolve(objects),
            seed,
            objects: objects.to_vec(),
            parts: Parts::new(&jobs, objects)?,
            jobs,
            layout: Arc::new(layout),
            content: Content::new(seed).compressible(spec.compressible.0),
            mixture: Arc::new(Mixture::new(&spec.duplicates.distribution()?)),
            trace: spec.trace.as_ref().map(Source::open).transpose()?,
        };
        let all = 0..u16::try_from(inner.parts.workers.len()).expect("validated to be at most 256");
        Ok(Self(Arc::new(inner), all))
    }

    /// The same load, of which only these workers are run here; the others are somewhere else. Workers that it does not
    /// have are left out.
    #[must_use]
    pub fn running_only(self, workers: Range<u16>) -> Self {
        let end = workers.end.min(self.workers());
        Self(self.0, workers.start.min(end)..end)
    }

    /// The workers that are run here: all, unless told otherwise.
    pub fn running(&self) -> Range<u16> {
        self.1.clone()
    }

    /// The description with every default filled in.
    pub fn spec(&self) -> &LoadSpec {
        &self.0.spec
    }

    /// What everything is derived from.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// What the load works on.
    pub fn objects(&self) -> &[ObjectInfo] {
        &self.0.objects
    }

    /// Where blocks lie on the objects.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// What blocks hold.
    pub fn content(&self) -> &Content {
        &self.0.content
    }

    /// Share of the written blocks that are to repeat others.
    pub fn duplicates(&self) -> f64 {
        self.0.mixture.savable()
    }

    /// How many workers there are.
    pub fn workers(&self) -> u16 {
        u16::try_from(self.0.parts.workers.len()).expect("validated to be at most 256")
    }

    /// Whether everything is written once before the load.
    pub fn has_prefill(&self) -> bool {
        self.0.spec.prefill == Some(true)
    }

    /// The stages that write, in their order.
    pub fn stages(&self) -> &'static [Stage] {
        if self.has_prefill() { &[Stage::Prefill, Stage::Run] } else { &[Stage::Run] }
    }

    /// The buffers that a worker has registered with the kernel before it begins, and their size in bytes, if it is to.
    pub fn fixed_buffers(&self, worker: u16) -> Option<(u32, usize)> {
        let job = self.job(worker);
        let bytes = usize::try_from(job.block_size.largest_bytes()).unwrap_or(BLOCK_BYTES);
        self.0.spec.fixed_buffers.then_some((job.queue_depth, bytes))
    }

    /// How long a request may be under way before it is told of.
    pub fn hung_after(&self) -> Duration {
        self.0.spec.hung_after.map_or(HUNG_AFTER_DEFAULT, |span| span.0)
    }

    /// How long the load runs at the most, if it may end by time.
    pub fn duration(&self) -> Option<Span> {
        self.0.spec.duration
    }

    /// Bytes that a stage will move at the most, if that is known beforehand, with sizes that differ about so many; flushes
    /// move none.
    pub fn planned_bytes(&self, stage: Stage) -> Option<u64> {
        if stage == Stage::Prefill {
            return Some(content_bytes(&self.0.objects));
        }
        let LoadSpec { total, requests, .. } = &self.0.spec;
        let by_requests = requests.filter(|_| self.0.trace.is_none()).map(|requests| {
            let shares =
                self.0.parts.workers.iter().map(|worker| self.0.jobs[worker.job].mean_request_bytes());
            let mean = shares.sum::<f64>() / f64::from(self.workers());
            (requests as f64 * mean) as u64
        });
        total.map(|Bytes(bytes)| bytes).into_iter().chain(by_requests).min()
    }

    /// What belongs to a worker.
    pub fn part(&self, worker: u16) -> Part {
        self.worker(worker).part.clone()
    }

    fn worker(&self, worker: u16) -> &WorkerPart {
        &self.0.parts.workers[usize::from(worker)]
    }

    /// The job that a worker belongs to.
    pub fn job(&self, worker: u16) -> &JobSpec {
        &self.0.jobs[self.worker(worker).job]
    }

    /// Everything that a worker does in a stage.
    pub fn stream(&self, stage: Stage, worker: u16) -> Stream {
        let Inner { seed, .. } = &*self.0;
        let WorkerPart { number, layout, part, .. } = self.worker(worker);
        if let (Stage::Run, Some(source)) = (stage, &self.0.trace) {
            return self.replayed(source, worker).into();
        }
        let options = DescribedOptions {
            seed: *seed,
            stage,
            worker,
            number: *number,
            layout: Arc::clone(layout),
            part: part.clone(),
            job: self.job(worker),
            mixture: Arc::clone(&self.0.mixture),
            plan: self.plan(|amount| self.share_of(amount, worker)),
        };
        Described::new(options).into()
    }

    /// What a worker does of a trace. How far that is replayed, all workers see alike.
    fn replayed(&self, source: &Source, worker: u16) -> Replayed {
        let Inner { seed, layout, mixture, .. } = &*self.0;
        Replayed::new(ReplayedOptions {
            seed: *seed,
            worker,
            source,
            layout: Arc::clone(layout),
            part: self.part(worker).blocks,
            mixture: Arc::clone(mixture),
            plan: self.plan(|amount| amount),
        })
    }

    /// Fails if the trace that is replayed is no longer what it was.
    pub(crate) fn check_trace(&self) -> Result<()> {
        self.0.trace.as_ref().map_or(Ok(()), Source::check_unchanged)
    }

    /// Fails if nothing of the trace that was to be replayed was carried out.
    pub(crate) fn check_replayed(&self, report: Option<&TraceReport>) -> Result<()> {
        match (&self.0.trace, report) {
            (Some(source), Some(report)) => source.check_replayed(report),
            _ => Ok(()),
        }
    }

    /// For how long nothing is recorded, if the ramp-up is a time.
    pub fn ramp_up_time(&self) -> Option<Span> {
        self.0.spec.ramp_up.and_then(RampUp::time)
    }

    /// For how long the load goes on with faults off, if the cool-down is a time.
    pub fn cool_down_time(&self) -> Option<Span> {
        self.0.spec.cool_down.and_then(RampUp::time)
    }

    /// How far the load goes, as far as it is counted; `of` says what falls to one of an amount that is all workers'.
    fn plan(&self, of: impl Fn(Amount) -> Amount) -> Plan {
        let LoadSpec { total, requests, ramp_up, cool_down, .. } = &self.0.spec;
        let counted = |ramp_up: &Option<RampUp>| match *ramp_up {
            Some(RampUp::Requests(requests)) => of(Amount { requests, bytes: 0 }),
            Some(RampUp::Bytes(Bytes(bytes))) => of(Amount { requests: 0, bytes }),
            Some(RampUp::Time(_)) | None => Amount::default(),
        };
        let cool_down = match cool_down {
            // Goes on for its time, which the engine sees to, also where the load has come to a counted end.
            Some(RampUp::Time(_)) => Amount::ENDLESS,
            counted_or_none => counted(counted_or_none),
        };
        let all =
            of(Amount { requests: requests.unwrap_or(0), bytes: total.map_or(0, |Bytes(bytes)| bytes) });
        Plan {
            ramp_up: counted(ramp_up),
            end: Amount {
                requests: requests.map_or(u64::MAX, |_| all.requests),
                bytes: total.map_or(u64::MAX, |_| all.bytes),
            },
            cool_down,
        }
    }

    /// The worker's share of an amount. Bytes are shared by the size of the parts, so that a load as large as its target
    /// covers it exactly; requests equally.
    fn share_of(&self, amount: Amount, worker: u16) -> Amount {
        let blocks = self.part(worker).blocks;
        let all = self.0.parts.workers.last().map_or(0, |last| last.part.blocks.end);
        let (worker, workers) = (u64::from(worker), u64::from(self.workers()));
        let of = |total, (start, end), whole| share(total, end, whole) - share(total, start, whole);
        Amount {
            requests: of(amount.requests, (worker, worker + 1), workers),
            bytes: of(amount.bytes, (blocks.start, blocks.end), all),
        }
    }

    /// Who owns a block of the target.
    pub fn worker_of_block(&self, block: u64) -> u16 {
        let workers = self.workers();
        // Parts are of nearly equal numbers of places; a binary search over their ends is exact.
        let (mut low, mut high) = (0, workers - 1);
        while low < high {
            let middle = low.midpoint(high);
            if self.part(middle).blocks.end > block { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// A block of the target as people name it: `a: block 7`.
    pub fn name_of_block(&self, block: u64) -> String {
        let (object, block) = self.0.layout.locate(block);
        format!("{}: block {block}", self.0.objects[object as usize].name)
    }

    /// Whether a content can have come from this load at all: one of its workers makes such.
    pub fn may_have_made(&self, id: ContentId) -> bool {
        id.stage().is_some() && id.worker() < self.workers()
    }
}

/// The part of `total` up to `until` of `whole`, rounded down.
fn share(total: u64, until: u64, whole: u64) -> u64 {
    let amount = u128::from(total) * u128::from(until) / u128::from(whole);
    u64::try_from(amount).expect("a fraction of a u64")
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workload")
            .field("seed", &self.0.seed)
            .field("spec", &self.0.spec)
            .finish_non_exhaustive()
    }
}
