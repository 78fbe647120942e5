//! The steps of one request, told to the caller one by one.
//!
//! The order is that of `Evaluator`: a write, discard or flush waits, fails or is passed on with what it replaces read
//! first; a read is passed on and then shown as the reader is to see it, late, or as an error. [`Carried`] knows it
//! and is safe; the functions around it turn pointers into what it takes.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use fault::{Errno, Evaluator, Hang, Header, Piece, ReadOutcome, Verdict};
use rotproof_block::{Buffer, Operation, Time};

use crate::status::{Failure, guard, rotproof_status};

/// A request to which something happens. Used by one thread at a time, together with its queue.
#[expect(non_camel_case_types, reason = "its name in C")]
pub struct rotproof_request {
    carried: Carried,
    write_data: *const u8,
    read_data: *mut u8,
}

/// What is to be done next with a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rotproof_step_kind {
    /// Read `length` bytes at `offset` from the device below into `data`, and say with `rotproof_step_done` how it went.
    /// An error is no harm.
    ReadBelow = 0,
    /// Let `duration_ns` pass.
    Wait = 1,
    /// Let time pass until `rotproof_is_released` says so, or `duration_ns` are over, which may be `ROTPROOF_FOREVER`.
    Hang = 2,
    /// Pass the request on to the device below: a read into `data`, which need not be that of the request; a write from
    /// the data of the request. Then say with `rotproof_step_done` how it went.
    Submit = 3,
    /// Complete the request towards whoever made it, with `error`, and free it.
    Complete = 4,
}

/// The span of a hang that does not end by itself.
pub const ROTPROOF_FOREVER: u64 = u64::MAX;

/// What is to be done next with a request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rotproof_step {
    /// What.
    pub kind: rotproof_step_kind,
    /// For `READ_BELOW`: the first byte on the device.
    pub offset: u64,
    /// For `READ_BELOW`: how many bytes.
    pub length: u64,
    /// For `READ_BELOW`, and for `SUBMIT` of a read: where the data go. Good until the next step. At multiples of 4096,
    /// unless it is that of the request.
    pub data: *mut u8,
    /// For `WAIT` and `HANG`: how long, in nanoseconds.
    pub duration_ns: u64,
    /// For `COMPLETE`: 0, or the number of the error, as in errno.h of Linux.
    pub error: i32,
}

impl rotproof_request {
    pub(crate) fn new(carried: Carried, write_data: *const u8, read_data: *mut u8) -> Self {
        Self { carried, write_data, read_data }
    }
}

/// Says what is to be done next, in `step`. `now_ns` is the time, for the ledger.
///
/// # Safety
/// `request` was given by `rotproof_begin`, its data are still there, and no other thread uses it or its queue
/// meanwhile; `step` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_next(
    request: *mut rotproof_request,
    now_ns: u64,
    step: *mut rotproof_step,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let request = unsafe { request_of(request) }?;
        // SAFETY: as the caller promises.
        let out =
            unsafe { step.as_mut() }.ok_or_else(|| Failure::invalid("the place for the step is NULL"))?;
        let length = request.carried.header.length as usize;
        let data = match request.carried.header.operation {
            Operation::Write { .. } => {
                // SAFETY: checked when it began not to be NULL, and so long and still there, says the caller.
                Data::Write(unsafe { std::slice::from_raw_parts(request.write_data, length) })
            }
            Operation::Read => {
                // SAFETY: the same, and nobody else uses it between two steps.
                Data::Read(unsafe { std::slice::from_raw_parts_mut(request.read_data, length) })
            }
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => Data::None,
        };
        let next = request.carried.next(data, Time(now_ns))?;
        let mut told = rotproof_step {
            kind: rotproof_step_kind::Complete,
            offset: 0,
            length: 0,
            data: std::ptr::null_mut(),
            duration_ns: 0,
            error: 0,
        };
        match next {
            Step::ReadBelow(range) => {
                told.kind = rotproof_step_kind::ReadBelow;
                (told.offset, told.length) = (range.start, range.end - range.start);
                told.data = request.carried.below().map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr);
            }
            Step::Wait(duration_ns) => {
                told.kind = rotproof_step_kind::Wait;
                told.duration_ns = duration_ns;
            }
            Step::Hang(duration_ns) => {
                told.kind = rotproof_step_kind::Hang;
                told.duration_ns = duration_ns.unwrap_or(ROTPROOF_FOREVER);
            }
            Step::Submit => {
                told.kind = rotproof_step_kind::Submit;
                told.data = match request.carried.aside() {
                    Some(aside) => aside.as_mut_ptr(),
                    None => request.read_data,
                };
            }
            Step::Complete(error) => told.error = error,
        }
        *out = told;
        Ok(())
    })
}

/// Says that the step is done: with 0, or for `READ_BELOW` and `SUBMIT` with the number of the error that the device
/// below gave.
///
/// # Safety
/// `request` was given by `rotproof_begin`, and no other thread uses it or its queue meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_step_done(request: *mut rotproof_request, error: i32) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { request_of(request) }?.carried.step_done(error)
    })
}

/// Whether a request that hangs was let go; true also for one that does not hang.
///
/// # Safety
/// `request` was given by `rotproof_begin`, and no other thread uses it or its queue meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_is_released(request: *const rotproof_request) -> bool {
    let mut is_released = true;
    guard(|| {
        // SAFETY: as the caller promises.
        let request = unsafe { request.as_ref() }.ok_or_else(|| Failure::invalid("the request is NULL"))?;
        is_released = request.carried.hang.as_ref().is_none_or(Hang::is_released);
        Ok(())
    });
    is_released
}

/// Frees a request, at its end or before: one that is given up has happened as far as it got. NULL is nothing to free.
///
/// # Safety
/// `request` is NULL, or was given by `rotproof_begin` and has not been freed; no other thread uses its queue
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_request_free(request: *mut rotproof_request) {
    if !request.is_null() {
        guard(|| {
            // SAFETY: it came from `Box::into_raw`, says the caller, and nobody uses it any more.
            drop(unsafe { Box::from_raw(request) });
            Ok(())
        });
    }
}

/// The request behind a pointer from C.
///
/// # Safety
/// `request` is NULL or was given by `rotproof_begin`, is not freed during `'a`, and nobody else uses it.
unsafe fn request_of<'a>(request: *mut rotproof_request) -> Result<&'a mut rotproof_request, Failure> {
    // SAFETY: as the caller promises.
    unsafe { request.as_mut() }.ok_or_else(|| Failure::invalid("the request is NULL"))
}

/// The data of a request, while one of its steps is worked out.
pub(crate) enum Data<'a> {
    None,
    Write(&'a [u8]),
    Read(&'a mut [u8]),
}

impl Data<'_> {
    fn payload(&self) -> &[u8] {
        match self {
            Data::Write(payload) => payload,
            Data::None | Data::Read(_) => &[],
        }
    }
}

/// A step, without pointers. Spans are in nanoseconds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    ReadBelow(Range<u64>),
    Wait(u64),
    Hang(Option<u64>),
    Submit,
    Complete(i32),
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
    /// The device below has answered.
    Submitted,
    /// What it has touched in part is to be read.
    Edges,
    Over(i32),
}

/// A request on its way.
pub(crate) struct Carried {
    evaluator: Rc<Evaluator>,
    header: Header,
    /// Gone with the end of a read.
    verdict: Option<Verdict>,
    /// Something was decided before it was passed on.
    has_hit: bool,
    stage: Stage,
    /// A step was told and is not done.
    is_out: bool,
    to_read: VecDeque<Range<u64>>,
    reading: Option<Piece>,
    stale: Vec<Piece>,
    edges: Vec<Piece>,
    /// What the device gives to a reader who is to see none of it.
    aside: Option<Buffer>,
    hangs: VecDeque<Hang>,
    hang: Option<Hang>,
    /// How a read ends.
    outcome: Option<i32>,
    /// What the device below said last.
    below: i32,
}

fn number(errno: Option<Errno>) -> i32 {
    errno.map_or(0, Errno::number)
}

impl Carried {
    pub(crate) fn new(evaluator: Rc<Evaluator>, header: Header, verdict: Verdict, has_hit: bool) -> Self {
        Self {
            evaluator,
            header,
            verdict: Some(verdict),
            has_hit,
            stage: Stage::Begin,
            is_out: false,
            to_read: VecDeque::new(),
            reading: None,
            stale: Vec::new(),
            edges: Vec::new(),
            aside: None,
            hangs: VecDeque::new(),
            hang: None,
            outcome: None,
            below: 0,
        }
    }

    /// Where what is read below goes.
    fn below(&mut self) -> Option<&mut [u8]> {
        self.reading.as_mut().map(|piece| &mut *piece.bytes)
    }

    /// Where the data of a read go instead of to the reader.
    fn aside(&mut self) -> Option<&mut [u8]> {
        self.aside.as_deref_mut()
    }

    fn step_done(&mut self, error: i32) -> Result<(), Failure> {
        if !std::mem::take(&mut self.is_out) {
            return Err(Failure::invalid("no step is under way; ask for the next one first"));
        }
        self.below = error;
        self.hang = None;
        if let Some(piece) = self.reading.take().filter(|_| error == 0) {
            match self.stage {
                Stage::Replaced => {
                    let mut piece = piece;
                    self.evaluator.make_stale(&mut piece);
                    self.stale.push(piece);
                }
                _ => self.edges.push(piece),
            }
        }
        Ok(())
    }

    fn next(&mut self, mut data: Data<'_>, now: Time) -> Result<Step, Failure> {
        if self.is_out {
            return Err(Failure::invalid("the step before is not done; say so with rotproof_step_done"));
        }
        loop {
            if let Some(step) = self.advance(&mut data, now) {
                self.is_out = !matches!(step, Step::Complete(_));
                return Ok(step);
            }
        }
    }

    /// Does what can be done here; gives the step that is the caller's, if it has come to one.
    fn advance(&mut self, data: &mut Data<'_>, now: Time) -> Option<Step> {
        let is_read = self.header.operation == Operation::Read;
        match self.stage {
            Stage::Begin if is_read => {
                let fails = self.verdict.as_ref().is_some_and(|verdict| verdict.failure().is_some());
                // The ledger wants what the device really holds; the reader's data stay as they are.
                self.aside = fails.then(|| Buffer::stale(self.header.length as usize));
                self.stage = Stage::Submit;
            }
            Stage::Begin => {
                self.stage = Stage::Delayed;
                let verdict = self.verdict.as_ref()?;
                if self.has_hit {
                    self.evaluator.before_submit(&self.header, verdict, data.payload(), now);
                }
                let delay = verdict.delay()?;
                return Some(wait(delay));
            }
            Stage::Delayed => {
                let hangs = self.verdict.as_ref().map(|verdict| self.evaluator.hangs(verdict));
                self.hangs.extend(hangs.into_iter().flatten());
                self.stage = Stage::Hanging;
            }
            Stage::Hanging => {
                if let Some(hang) = self.hangs.pop_front() {
                    let span = hang.span().map(nanoseconds);
                    self.hang = Some(hang);
                    return Some(Step::Hang(span));
                }
                self.stage = match (self.outcome, &self.verdict) {
                    (Some(error), _) => Stage::Over(error),
                    (None, Some(verdict)) => match verdict.failure() {
                        Some(errno) => Stage::Over(errno.number()),
                        None => {
                            self.to_read = verdict.lost_ranges(&self.header).into();
                            Stage::Replaced
                        }
                    },
                    (None, None) => Stage::Submit,
                };
            }
            Stage::Replaced => match self.read_next() {
                Some(step) => return Some(step),
                None => self.stage = Stage::Submit,
            },
            Stage::Submit => {
                self.stage = Stage::Submitted;
                return Some(Step::Submit);
            }
            Stage::Submitted if self.below != 0 => self.stage = Stage::Over(self.below),
            Stage::Submitted => {
                if is_read || self.header.operation.is_mutation() {
                    self.to_read = self.evaluator.edges(&self.header, self.verdict.as_ref()).into();
                }
                self.stage = Stage::Edges;
            }
            Stage::Edges => match self.read_next() {
                Some(step) => return Some(step),
                None if is_read => return self.finish_read(data, now),
                None => self.finish_mutation(data, now),
            },
            Stage::Over(error) => return Some(Step::Complete(error)),
        }
        None
    }

    fn read_next(&mut self) -> Option<Step> {
        let range = self.to_read.pop_front()?;
        let bytes = Buffer::stale((range.end - range.start) as usize);
        self.reading = Some(Piece { offset: range.start, bytes });
        Some(Step::ReadBelow(range))
    }

    fn finish_mutation(&mut self, data: &Data<'_>, now: Time) {
        let late = self.verdict.as_ref().and_then(|verdict| {
            if self.header.operation.is_mutation() {
                let (stale, edges) = (&self.stale, &self.edges);
                self.evaluator.mutation_done(&self.header, verdict, data.payload(), stale, edges, now);
            }
            verdict.late_failure()
        });
        self.stage = Stage::Over(number(late));
    }

    /// Makes of a read what the reader is to see, and when.
    fn finish_read(&mut self, data: &mut Data<'_>, now: Time) -> Option<Step> {
        self.stage = Stage::Hanging;
        let own = match data {
            Data::Read(own) => &mut **own,
            Data::None | Data::Write(_) => &mut [],
        };
        let shown = self.aside.as_deref_mut().unwrap_or(own);
        let verdict = self.verdict.take()?;
        let outcome = self.evaluator.read_done(&self.header, verdict, shown, &self.edges, now);
        let ReadOutcome { failure, transfers, delay, hangs } = outcome;
        if failure.is_some() && !transfers {
            // A reader that overlooks the error must not find the right data all the same.
            shown.fill(0);
        }
        self.outcome = Some(number(failure));
        self.hangs = hangs.into();
        delay.map(wait)
    }
}

fn nanoseconds(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX - 1)
}

fn wait(span: std::time::Duration) -> Step {
    Step::Wait(nanoseconds(span))
}
