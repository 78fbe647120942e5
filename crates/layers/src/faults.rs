//! The layer that makes the device below it lie, fail and be slow, as its fault engine decides.
//!
//! It carries requests as their [`Passage`] says: reads below for the engine, waits, submits, completes. It does not know how
//! anything is decided, nor in which order. A request that nothing can happen to is the submission of the device below, unwrapped.
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
use rotproof_fault::{Data, End, Engine, Gate, Hang, Header, Look, Passage, Step, Way};
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
        let queue = QueueState {
            below: self.below.open_queue(runtime)?,
            info: self.below.info(),
            gate: self.engine.gate(),
            runtime: runtime.clone(),
            children: Cell::new(FIRST_CHILD),
        };
        Ok(Rc::new(FaultQueue(Rc::new(queue))))
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

struct FaultQueue(Rc<QueueState>);

/// What the requests of one queue need while they are under way.
struct QueueState {
    below: Rc<dyn Queue>,
    info: DeviceInfo,
    gate: Gate,
    runtime: Runtime,
    children: Cell<u64>,
}

impl Queue for FaultQueue {
    fn submit(&self, request: Request) -> Submission {
        let queue = &self.0;
        // A request that cannot be carried out matches nothing; the device below says what is wrong with it.
        if queue.info.check(&request).is_err() {
            return queue.below.submit(request);
        }
        let header = Header::of(&request);
        let is_write = matches!(header.operation, Operation::Write { .. });
        let payload: &[u8] = if is_write { &request.buffer } else { &[] };
        let passage = match queue.gate.way(&header, payload) {
            Way::Past => return queue.below.submit(request),
            Way::Look(look) => return queue.look_at_data(look, header, request),
            Way::Through(passage) => passage,
        };
        if passage.is_quiet() && passage.beside().is_empty() {
            return queue.look_at(passage, request);
        }
        Submission::pending(carry(Rc::clone(queue), passage, request))
    }
}

/// Takes a request its whole way.
async fn carry(queue: Rc<QueueState>, mut passage: Passage, mut request: Request) -> Completion {
    if let Some(end) = queue.go_down(&mut passage, &mut request).await {
        return end.of(request.succeed());
    }
    let (completion, untouched) = queue.submit(&mut passage, request).await;
    queue.come_up(&mut passage, completion, untouched).await
}

/// What becomes of a completion at the end.
trait Ending {
    fn of(self, completion: Completion) -> Completion;
}

impl Ending for End {
    fn of(self, mut completion: Completion) -> Completion {
        if let End::Fails(errno) = self {
            completion.result = Err(errno.error());
        }
        completion
    }
}

impl QueueState {
    /// Passes a read on and looks at what it brings; at once, where the device below is done at once.
    fn look_at_data(self: &Rc<Self>, look: Look, header: Header, request: Request) -> Submission {
        let completion = match self.below.submit(request).try_take() {
            Ok(completion) => completion,
            Err(submission) => {
                let queue = Rc::clone(self);
                return Submission::pending(async move {
                    let completion = submission.await;
                    match queue.concerned(look, &header, &completion) {
                        Some(mut passage) => queue.come_up(&mut passage, completion, None).await,
                        None => completion,
                    }
                });
            }
        };
        match self.concerned(look, &header, &completion) {
            Some(passage) => self.go_on(passage, completion),
            None => completion.into(),
        }
    }

    /// The rest of the way of a read, if what it has brought concerns a rule.
    fn concerned(&self, look: Look, header: &Header, completion: &Completion) -> Option<Passage> {
        completion.result.as_ref().ok().and_then(|()| self.gate.look(look, header, &completion.buffer))
    }

    /// Passes a request on and looks at it afterwards; at once, where the device below is done at once.
    fn look_at(self: &Rc<Self>, mut passage: Passage, request: Request) -> Submission {
        match self.below.submit(request).try_take() {
            Ok(completion) => {
                passage.submitted(completion.result.is_ok());
                self.go_on(passage, completion)
            }
            Err(submission) => {
                let queue = Rc::clone(self);
                Submission::pending(async move {
                    let completion = submission.await;
                    passage.submitted(completion.result.is_ok());
                    queue.come_up(&mut passage, completion, None).await
                })
            }
        }
    }

    /// Takes a request that has come back to its end; at once, where nothing is waited for.
    fn go_on(self: &Rc<Self>, mut passage: Passage, mut completion: Completion) -> Submission {
        match self.next(&mut passage, &mut completion.buffer) {
            Step::Complete(end) => end.of(completion).into(),
            step => {
                let queue = Rc::clone(self);
                Submission::pending(async move {
                    queue.do_step(&mut passage, step).await;
                    queue.come_up(&mut passage, completion, None).await
                })
            }
        }
    }

    fn next(&self, passage: &mut Passage, buffer: &mut Buffer) -> Step {
        let header = *passage.header();
        passage.next(Data::of(&header, buffer), || self.runtime.now())
    }

    /// Takes a request to where it is to be submitted; else gives how it ends without that.
    async fn go_down(&self, passage: &mut Passage, request: &mut Request) -> Option<End> {
        loop {
            match self.next(passage, &mut request.buffer) {
                Step::Submit => return None,
                Step::Complete(end) => return Some(end),
                step => self.do_step(passage, step).await,
            }
        }
    }

    /// Has the device below carry it out. What the reader's buffer holds comes along where that is to stay as it is.
    async fn submit(&self, passage: &mut Passage, mut request: Request) -> (Completion, Option<Buffer>) {
        let header = *passage.header();
        let untouched = passage
            .is_aside()
            .then(|| std::mem::replace(&mut request.buffer, Buffer::stale(header.length as usize)));
        let beside = passage.beside();
        let completion = if beside.is_empty() {
            self.below.submit(request).await
        } else if header.operation == Operation::Read {
            match self.read_wide(passage, &beside, &mut request).await {
                true => request.succeed(),
                false => self.below.submit(request).await,
            }
        } else {
            // What lies beside data that are known need not wait for them to be written.
            let reads = async {
                let mut pieces = Vec::new();
                for range in beside {
                    let bytes = self.read_below(range.clone(), header.context).await;
                    pieces.extend(bytes.map(|bytes| (range.start, bytes)));
                }
                pieces
            };
            let (completion, pieces) = both(self.below.submit(request), reads).await;
            pieces.into_iter().for_each(|(offset, bytes)| passage.give(offset, bytes));
            completion
        };
        passage.submitted(completion.result.is_ok());
        (completion, untouched)
    }

    /// Takes a request that has come back to its end.
    async fn come_up(
        &self,
        passage: &mut Passage,
        mut completion: Completion,
        untouched: Option<Buffer>,
    ) -> Completion {
        loop {
            match self.next(passage, &mut completion.buffer) {
                Step::Complete(end) => {
                    let completion = end.of(completion);
                    return match untouched {
                        Some(buffer) => Completion { buffer, ..completion },
                        None => completion,
                    };
                }
                step => self.do_step(passage, step).await,
            }
        }
    }

    /// Does what a step asks for besides submitting and completing.
    async fn do_step(&self, passage: &mut Passage, step: Step) {
        match step {
            Step::Read(range) => {
                let bytes = self.read_below(range, passage.header().context).await;
                passage.answer(bytes);
            }
            Step::Wait(span) => self.runtime.sleep(span).await,
            Step::Hang(hang) => self.hang(hang).await,
            Step::Submit | Step::Complete(_) => unreachable!("whoever carries it sees to these"),
        }
    }

    /// Reads a request together with the rest of blocks that it touches in part, as one read instead of two. Gives whether that
    /// has worked: if not, that says nothing about the narrower read.
    async fn read_wide(&self, passage: &mut Passage, edges: &[Range<u64>], request: &mut Request) -> bool {
        let header = *passage.header();
        let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return false };
        let (start, end) = (first.start.min(header.offset), last.end.max(header.end()));
        let buffer = Buffer::stale((end - start) as usize);
        let wide = Request { offset: start, length: end - start, buffer, ..*request };
        if self.info.check(&wide).is_err() {
            return false;
        }
        let Completion { result: Ok(()), buffer, .. } = self.below.submit(wide).await else { return false };
        let within =
            |range: Range<u64>| &buffer[(range.start - start) as usize..(range.end - start) as usize];
        request.buffer.copy_from_slice(within(header.offset..header.end()));
        edges.iter().for_each(|edge| passage.give(edge.start, Buffer::copy_of(within(edge.clone()))));
        true
    }

    /// Waits until nothing holds the request back any more.
    async fn hang(&self, hang: Hang) {
        let mut end = hang.span().map(|span| self.runtime.sleep(span));
        std::future::poll_fn(|context| {
            if hang.poll_released(context.waker()).is_ready() {
                return Poll::Ready(());
            }
            end.as_mut().map_or(Poll::Pending, |end| Pin::new(end).poll(context))
        })
        .await;
    }

    /// What the device below holds in a range; `None` if it cannot be read.
    async fn read_below(&self, range: Range<u64>, context: Context) -> Option<Buffer> {
        let id = self.children.get();
        self.children.set(id + 1);
        let buffer = Buffer::stale((range.end - range.start) as usize);
        let completion = self.below.submit(Request::read(range.start, buffer, context.child(id))).await;
        completion.result.is_ok().then_some(completion.buffer)
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

#[cfg(test)]
mod tests {
    use rotproof_block::Phase;
    use rotproof_block::leaf::MemoryDevice;
    use rotproof_fault::{EngineOptions, Rule};

    use super::*;

    /// Memory of futures comes from lists of a few sizes; what is larger is allocated for each request.
    const LARGEST_OF_THE_LISTS: usize = 2048;

    #[test]
    fn a_request_on_its_way_fits_into_the_lists_of_the_thread() {
        let below = MemoryDevice::new(1 << 20, 512).expect("memory");
        let rule: Rule = "write: lost_write".parse().expect("a rule");
        let engine = Engine::new(vec![rule.into()], EngineOptions { seed: 1, device_size: 1 << 20 });
        let runtime = Runtime::simulated(1);
        let queue = Rc::new(QueueState {
            below: below.open_queue(&runtime).expect("a queue"),
            info: below.info(),
            gate: engine.gate(),
            runtime,
            children: Cell::new(FIRST_CHILD),
        });
        let context = Context { phase: Phase::Run, ..Context::default() };
        let request = Request::write(0, Buffer::zeroed(4096), context);
        let passage = queue.gate.begin(&Header::of(&request), &request.buffer).expect("it is hit");
        let bytes = size_of_val(&carry(queue, passage, request));
        assert!(bytes <= LARGEST_OF_THE_LISTS, "{bytes} bytes");
    }
}
