//! The way of one request through the engine, step by step, without I/O:
//!
//! ```text
//! way ──> Past       nothing can happen to it: pass it on as it is
//!     ──> Look       a read of which only the data may concern a rule: pass it on, then ask `look` with them
//!     ──> Through    a Passage: do what `next` says, until it says how to complete:
//!
//! write, discard, flush: wait, hang, complete with an error, or
//!                        read what it replaces, submit, read what it touches in part, complete
//! read:                  submit, read what it touches in part, wait, hang, complete
//! ```
//!
//! Reading below, submitting and waiting are the caller's: the engine knows no device and no clock. A passage holds the
//! rules that it began with: a rule that comes or goes while a request is under way concerns the next one.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Buffer, Operation, Time};

use crate::decided::Decided;
use crate::engine::Engine;
use crate::errno::Errno;
use crate::evaluator::{Decision, Evaluator, Piece};
use crate::geometry::Header;
use crate::hang::Hang;
use crate::injection::ReadOutcome;
use crate::rule_set::RuleSet;

/// Where the requests of one queue begin. Not shared between threads: it keeps a copy of the pointer to the rules, and
/// memory to work in.
#[derive(Clone)]
pub struct Gate(Rc<Evaluator>);

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self(Rc::new(Evaluator::new(engine)))
    }

    /// Decides on a request that is about to be passed on, and counts its matches. `payload` is the data of a write,
    /// empty otherwise. The request must be one that the device below accepts.
    pub fn way(&self, header: &Header, payload: &[u8]) -> Way {
        match self.0.decide(header, payload) {
            Decision::Pass => Way::Past,
            Decision::Look(rules) => Way::Look(Look(rules)),
            Decision::Inspect(rules) => Way::Through(self.passage(header, rules.into(), true)),
            Decision::Act(decided) => Way::Through(self.passage(header, decided, false)),
        }
    }

    /// The same for who takes every request that something can happen to through its steps. `None`: nothing can, and it is passed
    /// on as it is.
    pub fn begin(&self, header: &Header, payload: &[u8]) -> Option<Passage> {
        match self.way(header, payload) {
            Way::Past => None,
            Way::Look(Look(rules)) => Some(self.passage(header, rules.into(), true)),
            Way::Through(passage) => Some(passage),
        }
    }

    /// Looks at the `data` that a read has brought. `None`: they concern no rule, and it completes as it is; else the rest of its
    /// way, after the device below has answered.
    pub fn look(&self, look: Look, header: &Header, data: &[u8]) -> Option<Passage> {
        if !self.0.concerns_read(header, &look.0, data) {
            return None;
        }
        let mut passage = self.passage(header, look.0.into(), true);
        passage.submitted(true);
        Some(passage)
    }

    fn passage(&self, header: &Header, decided: Decided, is_quiet: bool) -> Passage {
        Passage {
            evaluator: Rc::clone(&self.0),
            header: *header,
            decided,
            is_quiet,
            stage: Stage::Begin,
            wanted: VecDeque::new(),
            stale: Vec::new(),
            edges: Vec::new(),
            hangs: VecDeque::new(),
            end: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn evaluator(&self) -> &Evaluator {
        &self.0
    }
}

/// The way that a request takes.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and a box would be an allocation a request"
)]
pub enum Way {
    /// Nothing can happen to it: it is passed on as it is.
    Past,
    /// A read to which nothing happens before it is passed on; of what it brings [`Gate::look`] says whether that concerns a rule.
    Look(Look),
    /// Step by step.
    Through(Passage),
}

/// What a read goes by that is to be looked at: a pointer, where a [`Passage`] is hundreds of bytes. Nearly all reads concern no rule,
/// and are done with it.
#[derive(Debug)]
pub struct Look(RuleSet);

/// What is to be done next with a request.
#[derive(Debug)]
pub enum Step {
    /// Read this range of the device below, and say with [`Passage::answer`] what it holds.
    Read(Range<u64>),
    /// Let this span pass.
    Wait(Duration),
    /// Let time pass until this is released, or its span is over.
    Hang(Hang),
    /// Pass the request on to the device below, and say with [`Passage::submitted`] how it went. Comes once at the most.
    Submit,
    /// Complete the request towards whoever made it.
    Complete(End),
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As the device below has answered.
    AsBelow,
    /// With this error, in the place of that answer if there is one.
    Fails(Errno),
}

/// The data of a request, while one of its steps is worked out.
#[derive(Debug)]
pub enum Data<'a> {
    /// It carries none.
    None,
    /// What a write carries down.
    Write(&'a [u8]),
    /// Where a read brings its data.
    Read(&'a mut [u8]),
}

impl<'a> Data<'a> {
    /// Of a request whose buffer is `buffer`.
    pub fn of(header: &Header, buffer: &'a mut [u8]) -> Self {
        match header.operation {
            Operation::Read => Self::Read(buffer),
            Operation::Write { .. } => Self::Write(buffer),
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => Self::None,
        }
    }

    fn payload(&self) -> &[u8] {
        match self {
            Self::Write(payload) => payload,
            Self::None | Self::Read(_) => &[],
        }
    }
}

/// What comes next, once the last step is done.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Begin,
    /// The delay is over.
    Delayed,
    /// Something may still hold it back.
    Hanging,
    /// What it replaces is to be read.
    Replaced,
    Submit,
    /// The device below has it.
    Below,
    /// The device below has answered: whether it succeeded.
    Returned(bool),
    /// What it touches in part is to be read.
    Edges,
    Over(End),
}

/// A request on its way. Given up, it has happened as far as it got.
#[derive(Debug)]
pub struct Passage {
    evaluator: Rc<Evaluator>,
    header: Header,
    decided: Decided,
    /// Nothing was decided before it was passed on.
    is_quiet: bool,
    stage: Stage,
    /// What is still to be read below; the first is being read.
    wanted: VecDeque<Range<u64>>,
    /// What the write replaces, where a read may show that later.
    stale: Vec<Piece>,
    /// Whole blocks that the request touches in part.
    edges: Vec<Piece>,
    hangs: VecDeque<Hang>,
    /// How a read ends, once that is known.
    end: Option<End>,
}

impl Passage {
    /// The request.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether nothing happens before it is passed on: it may be submitted at once, and what it brings back or leaves
    /// behind is looked at.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Of a read that is to be submitted: whether its data are for the engine alone, and the reader's are to stay as they are.
    pub fn is_aside(&self) -> bool {
        self.header.operation == Operation::Read && self.decided.failure().is_some()
    }

    /// Of a request that is to be submitted: ranges that will be wanted once it has succeeded. Who can read them meanwhile, or
    /// with a read as one, saves time, and says so with [`Passage::give`] before [`Passage::submitted`]. At most two, nearly always
    /// none; what is not given is asked for.
    pub fn beside(&self) -> Vec<Range<u64>> {
        let leaves_known_data = !matches!(self.header.operation, Operation::Discard | Operation::Flush);
        if leaves_known_data && !self.is_aside() {
            self.evaluator.edges(&self.header, Some(&self.decided))
        } else {
            Vec::new()
        }
    }

    /// What the device holds from `offset` on, one of [`Passage::beside`]; beside a write, what it held at any time since that began.
    pub fn give(&mut self, offset: u64, bytes: Buffer) {
        self.edges.push(Piece { offset, bytes });
    }

    /// What the device holds in the range that was to be read; `None` if it cannot be read, which is no harm.
    pub fn answer(&mut self, bytes: Option<Buffer>) {
        let Some((range, bytes)) = self.wanted.pop_front().zip(bytes) else { return };
        let mut piece = Piece { offset: range.start, bytes };
        if matches!(self.stage, Stage::Replaced) {
            self.evaluator.make_stale(&mut piece);
            self.stale.push(piece);
        } else {
            self.edges.push(piece);
        }
    }

    /// The device below has answered.
    pub fn submitted(&mut self, has_succeeded: bool) {
        self.stage = Stage::Returned(has_succeeded);
    }

    /// What is to be done next, once the step before is done. `data` are those of the request, but those that were read for the
    /// engine alone, where [`Passage::is_aside`] says so. `now` tells the time, for the ledger.
    pub fn next(&mut self, mut data: Data<'_>, now: impl Fn() -> Time) -> Step {
        loop {
            if let Some(step) = self.advance(&mut data, &now) {
                return step;
            }
        }
    }

    /// Does what can be done here; gives the step that is the caller's, if it has come to one.
    fn advance(&mut self, data: &mut Data<'_>, now: &impl Fn() -> Time) -> Option<Step> {
        let is_read = self.header.operation == Operation::Read;
        match self.stage {
            Stage::Begin if self.is_quiet => self.stage = Stage::Submit,
            Stage::Begin if is_read => {
                let dark = self.decided.failure().filter(|_| self.decided.is_dark());
                if dark.is_some() {
                    self.evaluator.record_requests(&self.header, &self.decided, &[], now());
                }
                self.stage = dark.map_or(Stage::Submit, |errno| Stage::Over(End::Fails(errno)));
            }
            Stage::Begin => {
                self.evaluator.record_requests(&self.header, &self.decided, data.payload(), now());
                self.stage = Stage::Delayed;
                return self.decided.delay().map(Step::Wait);
            }
            Stage::Delayed => {
                self.hangs = self.evaluator.hangs(&self.decided).into();
                self.stage = Stage::Hanging;
            }
            Stage::Hanging => match (self.hangs.pop_front(), self.end, self.decided.failure()) {
                (Some(hang), _, _) => return Some(Step::Hang(hang)),
                (None, Some(end), _) => self.stage = Stage::Over(end),
                (None, None, Some(errno)) => self.stage = Stage::Over(End::Fails(errno)),
                (None, None, None) => {
                    self.wanted = self.decided.lost_ranges(&self.header).into();
                    self.stage = Stage::Replaced;
                }
            },
            Stage::Replaced => match self.wanted.front() {
                Some(range) => return Some(Step::Read(range.clone())),
                None => self.stage = Stage::Submit,
            },
            Stage::Submit => {
                self.stage = Stage::Below;
                return Some(Step::Submit);
            }
            // Not told yet how it went.
            Stage::Below => return Some(Step::Submit),
            Stage::Returned(false) => self.stage = Stage::Over(End::AsBelow),
            Stage::Returned(true) => self.look_at_what_is_left(data),
            Stage::Edges => match self.wanted.front() {
                Some(range) => return Some(Step::Read(range.clone())),
                None if is_read => return self.finish_read(data, now()),
                None => self.finish_mutation(data, now()),
            },
            Stage::Over(end) => return Some(Step::Complete(end)),
        }
        None
    }

    /// The device below has carried it out: what else is to be known?
    fn look_at_what_is_left(&mut self, data: &Data<'_>) {
        let rules = &self.decided.rules;
        if let Data::Read(data) = data
            && self.is_quiet
            && !self.evaluator.concerns_read(&self.header, rules, data)
        {
            self.stage = Stage::Over(End::AsBelow);
            return;
        }
        if self.header.operation.is_mutation() {
            for piece in &mut self.edges {
                overwrite(piece, &self.header, data.payload());
            }
        }
        let mut wanted = self.evaluator.edges(&self.header, Some(&self.decided));
        wanted.retain(|range| self.edges.iter().all(|piece| piece.offset != range.start));
        self.wanted = wanted.into();
        self.stage = Stage::Edges;
    }

    fn finish_mutation(&mut self, data: &Data<'_>, now: Time) {
        if self.header.operation.is_mutation() {
            let (stale, edges) = (&self.stale, &self.edges);
            self.evaluator.mutation_done(&self.header, &self.decided, data.payload(), stale, edges, now);
        }
        self.stage = Stage::Over(end(self.decided.late_failure()));
    }

    /// Makes of a read what the reader is to see, and when.
    fn finish_read(&mut self, data: &mut Data<'_>, now: Time) -> Option<Step> {
        let is_aside = self.is_aside();
        let shown = match data {
            Data::Read(own) => &mut **own,
            Data::None | Data::Write(_) => &mut [],
        };
        let outcome = self.evaluator.read_done(&self.header, &mut self.decided, shown, &self.edges, now);
        let ReadOutcome { failure, transfers, delay, hangs } = outcome;
        if failure.is_some() && !transfers && !is_aside {
            // A reader that overlooks the error must not find the right data all the same.
            shown.fill(0);
        }
        self.end = Some(end(failure));
        self.hangs = hangs.into();
        self.stage = Stage::Hanging;
        delay.map(Step::Wait)
    }
}

fn end(failure: Option<Errno>) -> End {
    failure.map_or(End::AsBelow, End::Fails)
}

/// Makes of what a piece held while it was being written what it holds now.
fn overwrite(piece: &mut Piece, header: &Header, data: &[u8]) {
    let start = header.offset.max(piece.offset);
    let end = header.end().min(piece.offset + piece.bytes.len() as u64);
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
