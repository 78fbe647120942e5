//! The steps of one request, told to the caller one by one.
//!
//! Their order is that of the engine's `Passage`, which knows no pointers. [`Carried`] holds it together with the memory that
//! a caller in C is lent; the functions around it turn pointers into what it takes.

use std::ops::Range;

use fault::{Data, End, Hang, Header, Passage, Step};
use rotproof_block::{Buffer, Operation, Time};

use crate::status::{CallError, guard, rotproof_status};

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
            unsafe { step.as_mut() }.ok_or_else(|| CallError::invalid("the place for the step is NULL"))?;
        let length = request.carried.header().length as usize;
        let data = match request.carried.header().operation {
            Operation::Write { .. } => {
                // SAFETY: checked when it began not to be NULL, and so long and still there, says the caller.
                Data::Write(unsafe { std::slice::from_raw_parts(request.write_data, length) })
            }
            // Before the device below has filled it, it may be memory that nobody has written.
            Operation::Read if request.carried.is_filled => {
                // SAFETY: the same; the device below has filled it, says the caller, and nobody else uses it between two steps.
                Data::Read(unsafe { std::slice::from_raw_parts_mut(request.read_data, length) })
            }
            Operation::Read | Operation::Flush | Operation::Discard | Operation::WriteZeroes => Data::None,
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
            Told::ReadBelow(range) => {
                told.kind = rotproof_step_kind::ReadBelow;
                (told.offset, told.length) = (range.start, range.end - range.start);
                told.data =
                    request.carried.reading.as_deref_mut().map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr);
            }
            Told::Wait(duration_ns) => {
                told.kind = rotproof_step_kind::Wait;
                told.duration_ns = duration_ns;
            }
            Told::Hang(duration_ns) => {
                told.kind = rotproof_step_kind::Hang;
                told.duration_ns = duration_ns.unwrap_or(ROTPROOF_FOREVER);
            }
            Told::Submit => {
                told.kind = rotproof_step_kind::Submit;
                told.data = match &mut request.carried.aside {
                    Some(aside) => aside.as_mut_ptr(),
                    None => request.read_data,
                };
            }
            Told::Complete(error) => told.error = error,
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
        let request = unsafe { request.as_ref() }.ok_or_else(|| CallError::invalid("the request is NULL"))?;
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
unsafe fn request_of<'a>(request: *mut rotproof_request) -> Result<&'a mut rotproof_request, CallError> {
    // SAFETY: as the caller promises.
    unsafe { request.as_mut() }.ok_or_else(|| CallError::invalid("the request is NULL"))
}

/// A step, without pointers. Spans are in nanoseconds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    ReadBelow(Range<u64>),
    Wait(u64),
    Hang(Option<u64>),
    Submit,
    Complete(i32),
}

/// A request on its way: its passage, with what C has no hands for.
pub(crate) struct Carried {
    passage: Passage,
    /// A step was told and is not done.
    is_out: bool,
    /// Where what is read below goes.
    reading: Option<Buffer>,
    is_submitted: bool,
    /// The device below has brought what a read asked for.
    is_filled: bool,
    /// What the device gives to a reader who is to see none of it.
    aside: Option<Buffer>,
    hang: Option<Hang>,
    /// What the device below has answered to the request.
    below: i32,
}

impl Carried {
    pub(crate) fn new(passage: Passage) -> Self {
        Self {
            passage,
            is_out: false,
            reading: None,
            is_submitted: false,
            is_filled: false,
            aside: None,
            hang: None,
            below: 0,
        }
    }

    fn header(&self) -> &Header {
        self.passage.header()
    }

    fn step_done(&mut self, error: i32) -> Result<(), CallError> {
        if !std::mem::take(&mut self.is_out) {
            return Err(CallError::invalid("no step is under way; ask for the next one first"));
        }
        self.hang = None;
        if let Some(bytes) = self.reading.take() {
            self.passage.answer(Some(bytes).filter(|_| error == 0));
        } else if std::mem::take(&mut self.is_submitted) {
            (self.below, self.is_filled) = (error, error == 0);
            self.passage.submitted(error == 0);
        }
        Ok(())
    }

    fn next(&mut self, data: Data<'_>, now: Time) -> Result<Told, CallError> {
        if self.is_out {
            return Err(CallError::invalid("the step before is not done; say so with rotproof_step_done"));
        }
        let data = self.aside.as_deref_mut().map_or(data, Data::Read);
        let told = match self.passage.next(data, || now) {
            Step::Read(range) => {
                self.reading = Some(Buffer::zeroed((range.end - range.start) as usize));
                Told::ReadBelow(range)
            }
            Step::Wait(span) => Told::Wait(nanoseconds(span)),
            Step::Hang(hang) => {
                let span = hang.span().map(nanoseconds);
                self.hang = Some(hang);
                Told::Hang(span)
            }
            Step::Submit => {
                let length = self.header().length as usize;
                self.aside = self.passage.is_aside().then(|| Buffer::zeroed(length));
                self.is_submitted = true;
                Told::Submit
            }
            Step::Complete(End::AsBelow) => return Ok(Told::Complete(self.below)),
            Step::Complete(End::Fails(errno)) => return Ok(Told::Complete(errno.number())),
        };
        self.is_out = true;
        Ok(told)
    }
}

fn nanoseconds(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX - 1)
}
