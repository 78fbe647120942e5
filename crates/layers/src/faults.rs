//! The layer that makes the device below it lie, fail and be slow, as its fault engine decides.
//!
//! It owns the way of a request: what is read below for the engine, when to wait, what to answer. It does not know
//! how anything is decided. A request that nothing can happen to is the submission of the device below, unwrapped.
//!
//! The device below always gets the pristine data; what is wrong with them lies in the engine's overlay.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use rotproof_block::ability::{self, Ability, Wanted};
use rotproof_block::{
    Buffer, Completion, Context, Device, DeviceInfo, Operation, Power, Queue, Request, Result, Runtime,
    Submission,
};
use rotproof_fault::{Decision, Engine, Evaluator, Hang, Header, Piece, ReadOutcome, RuleSet, Verdict};
use rotproof_spec::{Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::below::ability_below;
use crate::kind::{Kind, Stands};
use crate::open::Opening;

/// A place where faults act, as a stack has it: `faults`, or `faults: { name: left }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultsSpec {
    /// What rules call it in `on`. Default: the name of the device that it is a part of, if that has one, else faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Kind for FaultsSpec {
    const WORD: &'static str = "faults";
    const EXAMPLE: &'static str = "faults";
    const SUMMARY: &'static str = "where faults act";
    const STANDS: Stands = Stands::OnOne;

    fn bare() -> Option<Self> {
        Some(Self::default())
    }

    fn is_bare(&self) -> bool {
        self.name.is_none()
    }

    fn validate(&self, _below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            problems.add(&path.key("name"), "the name is empty");
        }
    }

    fn describe(&self) -> String {
        self.name.clone().unwrap_or_default()
    }

    fn open(&self, mut below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let below = opening.one(&mut below)?;
        let engine = opening.site(below.info().size)?;
        if let Some(power) = ability::find::<dyn Power>(&*below) {
            engine.set_power(power);
        }
        Ok(FaultDevice::new(below, engine))
    }
}

/// A device with faults.
pub struct FaultDevice {
    below: Arc<dyn Device>,
    engine: Arc<Engine>,
}

impl FaultDevice {
    /// Faults as `engine` decides over `below`, for whose size the engine was made.
    pub fn new(below: Arc<dyn Device>, engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self { below, engine })
    }
}

impl Device for FaultDevice {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let lane = Lane {
            below: self.below.open_queue(runtime)?,
            info: self.below.info(),
            evaluator: self.engine.evaluator(),
            runtime: runtime.clone(),
            children: Cell::new(FIRST_CHILD),
        };
        Ok(Rc::new(FaultQueue(Rc::new(lane))))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        ability_below(&*self.below, wanted)
    }
}

impl fmt::Debug for FaultDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultDevice({:?})", self.info())
    }
}

/// Ids of requests that this layer makes start here, far above those that origins count.
const FIRST_CHILD: u64 = 1 << 63;

struct FaultQueue(Rc<Lane>);

/// What the requests of one queue need while they are under way.
struct Lane {
    below: Rc<dyn Queue>,
    info: DeviceInfo,
    evaluator: Evaluator,
    runtime: Runtime,
    children: Cell<u64>,
}

impl Queue for FaultQueue {
    fn submit(&self, request: Request) -> Submission {
        let lane = &self.0;
        // A request that cannot be carried out matches nothing; the device below says what is wrong with it.
        if lane.info.check(&request).is_err() {
            return lane.below.submit(request);
        }
        let header = Header::of(&request);
        match lane.evaluator.decide(&header, payload(&header, &request.buffer)) {
            Decision::Pass => lane.below.submit(request),
            Decision::Inspect(rules) => inspect(lane, header, rules, request),
            Decision::Act(verdict) => {
                let lane = Rc::clone(lane);
                if header.operation == Operation::Read {
                    Submission::pending(async move { lane.read(header, *verdict, request).await })
                } else {
                    Submission::pending(async move { lane.mutate(header, verdict, request).await })
                }
            }
        }
    }
}

/// The data that a request carries down.
fn payload<'a>(header: &Header, buffer: &'a [u8]) -> &'a [u8] {
    if matches!(header.operation, Operation::Write { .. }) { buffer } else { &[] }
}

/// Passes a request on and looks at it afterwards; at once, where the device below is done at once.
fn inspect(lane: &Rc<Lane>, header: Header, rules: RuleSet, request: Request) -> Submission {
    if header.operation.is_mutation() && !lane.evaluator.edges(&header, None).is_empty() {
        let lane = Rc::clone(lane);
        return Submission::pending(
            async move { lane.mutate(header, Box::new(rules.into()), request).await },
        );
    }
    let mut completion = match lane.below.submit(request).try_take() {
        Ok(completion) => completion,
        Err(submission) => {
            let lane = Rc::clone(lane);
            return Submission::pending(async move {
                let completion = submission.await;
                if completion.result.is_err() {
                    completion
                } else {
                    lane.finish(header, rules, completion).await
                }
            });
        }
    };
    let is_read = header.operation == Operation::Read;
    if completion.result.is_err()
        || is_read && !lane.evaluator.concerns_read(&header, &rules, &completion.buffer)
    {
        return completion.into();
    }
    let lane = Rc::clone(lane);
    if !lane.evaluator.edges(&header, None).is_empty() {
        return Submission::pending(async move { lane.finish(header, rules, completion).await });
    }
    if !is_read {
        lane.finish_mutation(&header, &rules.into(), &completion.buffer, &[], &[]);
        return completion.into();
    }
    let outcome =
        lane.evaluator.read_done(&header, rules.into(), &mut completion.buffer, &[], lane.runtime.now());
    if outcome.is_nothing() {
        return completion.into();
    }
    Submission::pending(async move { lane.conclude(outcome, completion).await })
}

impl Lane {
    /// Finishes a request that has succeeded below and on which nothing was decided before.
    async fn finish(&self, header: Header, rules: RuleSet, completion: Completion) -> Completion {
        if header.operation == Operation::Read {
            return self.finish_read(header, rules.into(), completion, Vec::new()).await;
        }
        let edges = self.read_missing(Vec::new(), &header, None).await;
        self.finish_mutation(&header, &rules.into(), &completion.buffer, &[], &edges);
        completion
    }

    /// A write, write of zeros, discard or flush to which something happens.
    async fn mutate(&self, header: Header, verdict: Box<Verdict>, request: Request) -> Completion {
        let data = payload(&header, &request.buffer);
        self.evaluator.before_submit(&header, &verdict, data, self.runtime.now());
        if let Some(delay) = verdict.delay() {
            self.runtime.sleep(delay).await;
        }
        self.hang(self.evaluator.hangs(&verdict)).await;
        if let Some(errno) = verdict.failure() {
            return request.fail(errno.error());
        }
        let mut stale = self.read_below(verdict.lost_ranges(&header), header.context).await;
        for piece in &mut stale {
            self.evaluator.make_stale(piece);
        }
        // What lies beside data that are known need not wait for them to be written.
        let leaves_known_data = matches!(header.operation, Operation::Write { .. } | Operation::WriteZeroes);
        let beside =
            if leaves_known_data { self.evaluator.edges(&header, Some(&verdict)) } else { Vec::new() };
        let (mut completion, mut edges) = if beside.is_empty() {
            (self.below.submit(request).await, Vec::new())
        } else {
            both(self.below.submit(request), self.read_below(beside, header.context)).await
        };
        if completion.result.is_ok() {
            if header.operation.is_mutation() {
                for piece in &mut edges {
                    overwrite(piece, &header, &completion.buffer);
                }
                let edges = self.read_missing(edges, &header, Some(&verdict)).await;
                self.finish_mutation(&header, &verdict, &completion.buffer, &stale, &edges);
            }
            if let Some(errno) = verdict.late_failure() {
                completion.result = Err(errno.error());
            }
        }
        completion
    }

    fn finish_mutation(
        &self,
        header: &Header,
        verdict: &Verdict,
        buffer: &[u8],
        stale: &[Piece],
        edges: &[Piece],
    ) {
        let data = payload(header, buffer);
        self.evaluator.mutation_done(header, verdict, data, stale, edges, self.runtime.now());
    }

    /// A read to which something happens.
    async fn read(&self, header: Header, verdict: Verdict, mut request: Request) -> Completion {
        if let (true, Some(errno)) = (verdict.is_dark(), verdict.failure()) {
            self.evaluator.before_submit(&header, &verdict, &[], self.runtime.now());
            return request.fail(errno.error());
        }
        if verdict.failure().is_none() {
            let edges = self.read_wide(&header, &verdict, &mut request).await;
            if !edges.is_empty() {
                return self.finish_read(header, verdict, request.succeed(), edges).await;
            }
            let completion = self.below.submit(request).await;
            return match completion.result {
                Ok(()) => self.finish_read(header, verdict, completion, Vec::new()).await,
                Err(_) => completion,
            };
        }
        // The ledger wants what the device really holds; the reader's buffer stays as it is.
        let untouched = std::mem::replace(&mut request.buffer, Buffer::stale(header.length as usize));
        let completion = self.below.submit(request).await;
        let completion = match completion.result {
            Ok(()) => self.finish_read(header, verdict, completion, Vec::new()).await,
            Err(_) => completion,
        };
        Completion { buffer: untouched, ..completion }
    }

    /// Reads a request that is smaller than the blocks that the ledger wants together with the rest of those blocks, as
    /// one read instead of two. Gives these blocks; none if there is nothing to gain, or the wider read has failed,
    /// which says nothing about the narrower.
    async fn read_wide(&self, header: &Header, verdict: &Verdict, request: &mut Request) -> Vec<Piece> {
        let edges = self.evaluator.edges(header, Some(verdict));
        let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return Vec::new() };
        let (start, end) = (first.start.min(header.offset), last.end.max(header.offset + header.length));
        let buffer = Buffer::stale((end - start) as usize);
        let wide = Request { offset: start, length: end - start, buffer, ..*request };
        if self.info.check(&wide).is_err() {
            return Vec::new();
        }
        let Completion { result: Ok(()), buffer, .. } = self.below.submit(wide).await else {
            return Vec::new();
        };
        let within =
            |range: Range<u64>| &buffer[(range.start - start) as usize..(range.end - start) as usize];
        request.buffer.copy_from_slice(within(header.offset..header.offset + header.length));
        edges
            .into_iter()
            .map(|edge| Piece { offset: edge.start, bytes: Buffer::copy_of(within(edge)) })
            .collect()
    }

    /// Makes of a read that has succeeded below what the reader is to see.
    async fn finish_read(
        &self,
        header: Header,
        verdict: Verdict,
        mut completion: Completion,
        edges: Vec<Piece>,
    ) -> Completion {
        let edges = self.read_missing(edges, &header, Some(&verdict)).await;
        let now = self.runtime.now();
        let outcome = self.evaluator.read_done(&header, verdict, &mut completion.buffer, &edges, now);
        self.conclude(outcome, completion).await
    }

    async fn conclude(&self, outcome: ReadOutcome, mut completion: Completion) -> Completion {
        if let Some(delay) = outcome.delay {
            self.runtime.sleep(delay).await;
        }
        self.hang(outcome.hangs).await;
        if let Some(errno) = outcome.failure {
            if !outcome.transfers {
                // A reader that overlooks the error must not find the right data all the same.
                completion.buffer.fill(0);
            }
            completion.result = Err(errno.error());
        }
        completion
    }

    /// Waits until nothing holds the request back any more.
    async fn hang(&self, hangs: Vec<Hang>) {
        for hang in hangs {
            let mut end = hang.span().map(|span| self.runtime.sleep(span));
            std::future::poll_fn(|context| {
                if hang.poll_released(context.waker()).is_ready() {
                    return Poll::Ready(());
                }
                end.as_mut().map_or(Poll::Pending, |end| Pin::new(end).poll(context))
            })
            .await;
        }
    }

    /// The blocks that the ledger wants whole, as the request has left them; `edges` are those that are known.
    async fn read_missing(
        &self,
        mut edges: Vec<Piece>,
        header: &Header,
        verdict: Option<&Verdict>,
    ) -> Vec<Piece> {
        let mut missing = self.evaluator.edges(header, verdict);
        missing.retain(|range| edges.iter().all(|piece| piece.offset != range.start));
        edges.extend(self.read_below(missing, header.context).await);
        edges
    }

    /// What the device below holds in `ranges`; one that cannot be read is left out.
    async fn read_below(&self, ranges: Vec<Range<u64>>, context: Context) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for range in ranges {
            let id = self.children.get();
            self.children.set(id + 1);
            let buffer = Buffer::stale((range.end - range.start) as usize);
            let completion = self.below.submit(Request::read(range.start, buffer, context.child(id))).await;
            if completion.result.is_ok() {
                pieces.push(Piece { offset: range.start, bytes: completion.buffer });
            }
        }
        pieces
    }
}

/// Makes of what a piece held while it was being written what it holds now.
fn overwrite(piece: &mut Piece, header: &Header, data: &[u8]) {
    let start = header.offset.max(piece.offset);
    let end = (header.offset + header.length).min(piece.offset + piece.bytes.len() as u64);
    if start >= end {
        return;
    }
    let changed = &mut piece.bytes[(start - piece.offset) as usize..(end - piece.offset) as usize];
    match header.operation {
        Operation::Write { .. } => {
            changed.copy_from_slice(&data[(start - header.offset) as usize..(end - header.offset) as usize]);
        }
        _ => changed.fill(0),
    }
}

/// Waits for two futures at once.
async fn both<A: Future, B: Future>(one: A, other: B) -> (A::Output, B::Output) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let (mut of_one, mut of_other) = (None, None);
    std::future::poll_fn(|context| {
        if of_one.is_none() {
            of_one = poll_now(one.as_mut(), context);
        }
        if of_other.is_none() {
            of_other = poll_now(other.as_mut(), context);
        }
        if of_one.is_none() || of_other.is_none() { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    (of_one.expect("it has ended"), of_other.expect("it has ended"))
}

fn poll_now<F: Future>(future: Pin<&mut F>, context: &mut std::task::Context<'_>) -> Option<F::Output> {
    match future.poll(context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
