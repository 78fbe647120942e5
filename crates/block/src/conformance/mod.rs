//! The tests that every device must pass, written once: leaves, layers, exports seen through a file leaf.
//!
//! Each clause stands for a sentence of the contract in [`crate::device`]. A device is checked in three lines:
//!
//! ```
//! use rotproof_block::conformance::{On, check};
//! use rotproof_block::leaf::MemoryDevice;
//!
//! check(On::Simulated, &|| Ok(MemoryDevice::new(1 << 20, 512)?)).expect("the memory leaf keeps the contract");
//! ```
//!
//! A layer is also held against what arrives below it: [`check_layer`].

mod carriage;
mod clauses;
mod content;
mod history;
mod page;
mod refusals;
mod together;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub use carriage::{MakeLayer, check_layer};

use crate::runtime::RuntimeOptions;
use crate::{Buffer, Completion, Context, Device, DeviceInfo, Error, Queue, Request, Result, Runtime};

/// Which runtime the device runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// io_uring; clauses with several threads are checked too.
    Uring,
    /// Virtual time; one thread.
    Simulated,
}

impl On {
    fn runtime(self) -> Result<Runtime> {
        match self {
            On::Uring => Runtime::uring(RuntimeOptions::new(1)),
            On::Simulated => Ok(Runtime::simulated(1)),
        }
    }
}

/// Makes a fresh device that reads as zeros, of at least 1 MiB, for each clause.
pub type Make<'a> = &'a dyn Fn() -> Result<Arc<dyn Device>>;

/// The clause that a device broke, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The clause, as a sentence.
    pub clause: &'static str,
    /// What was seen instead.
    pub seen: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the contract says that {}, but {}", self.clause, self.seen)
    }
}

impl std::error::Error for Breach {}

/// Checks every clause that applies to the device; the first that it breaks is the error.
pub fn check(on: On, make: Make<'_>) -> Result<(), Breach> {
    for clause in clauses::ALL {
        run(clause, on, make)?;
    }
    Ok(())
}

/// What a clause finds wrong, in words; the errors of calls that must succeed turn into one with `?`.
type Finding = Result<(), String>;

type Body = fn(&Stand) -> Finding;

struct Clause {
    /// Continues "the contract says that".
    says: &'static str,
    applies: fn(&DeviceInfo) -> bool,
    body: Body,
}

fn run(clause: &Clause, on: On, make: Make<'_>) -> Result<(), Breach> {
    let breach = |seen: String| Breach { clause: clause.says, seen };
    let broken = |error: Error| breach(format!("the device or its queue cannot be opened: {error}"));
    let device = make().map_err(broken)?;
    if !(clause.applies)(&device.info()) {
        return Ok(());
    }
    let runtime = on.runtime().map_err(broken)?;
    let queue = device.open_queue(&runtime).map_err(broken)?;
    let stand = Stand { on, device, runtime, queue };
    let finding = (clause.body)(&stand);
    stand.runtime.abandon_tasks();
    finding.map_err(breach)
}

/// A device with a queue open on a runtime, and the words to try it.
struct Stand {
    on: On,
    device: Arc<dyn Device>,
    runtime: Runtime,
    queue: Rc<dyn Queue>,
}

impl Stand {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    /// Bytes of a block, as a length.
    fn block(&self) -> usize {
        self.info().block_size as usize
    }

    fn drive<T>(&self, future: impl Future<Output = T>) -> Result<T, String> {
        drive(&self.runtime, future)
    }

    fn complete(&self, request: Request) -> Result<Completion, String> {
        self.drive(self.queue.submit(request))
    }

    fn succeed(&self, request: Request) -> Result<Buffer, String> {
        let (operation, offset) = (request.operation, request.offset);
        let Completion { result, buffer, .. } = self.complete(request)?;
        result.map(|()| buffer).map_err(|error| format!("{operation:?} at {offset} fails: {error}"))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Finding {
        self.succeed(Request::write(offset, Buffer::copy_of(data), context(1))).map(drop)
    }

    fn read(&self, offset: u64, length: usize) -> Result<Buffer, String> {
        // Not zeros, so that a read which leaves the buffer alone is seen.
        let mut buffer = Buffer::stale(length);
        buffer.fill(0xee);
        self.succeed(Request::read(offset, buffer, context(2)))
    }

    fn expect(&self, offset: u64, wanted: &[u8]) -> Finding {
        let found = self.read(offset, wanted.len())?;
        match found.iter().zip(wanted).position(|(found, wanted)| found != wanted) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {} reads as {:#04x} and not as {:#04x}",
                offset + at as u64,
                found[at],
                wanted[at]
            )),
        }
    }
}

/// Far more than any request takes, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `future` to its end. A completion that was lost ends it too: under virtual time at once, else when patience does.
fn drive<T>(runtime: &Runtime, future: impl Future<Output = T>) -> Result<T, String> {
    let (mut future, mut patience) = (pin!(future), pin!(runtime.sleep(PATIENCE)));
    let either = std::future::poll_fn(|task| {
        if let Poll::Ready(output) = future.as_mut().poll(task) {
            return Poll::Ready(Some(output));
        }
        // Virtual time has no other measure of "too long" than that nothing can happen any more.
        if !runtime.is_simulated() && patience.as_mut().poll(task).is_ready() {
            return Poll::Ready(None);
        }
        Poll::Pending
    });
    runtime
        .block_on(either)
        .map_err(|error| format!("it never completes: {error}"))?
        .ok_or_else(|| format!("it never completes: not within {} s", PATIENCE.as_secs()))
}

/// An error in words unless `holds`.
fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn context(id: u64) -> Context {
    Context { id, ..Context::default() }
}

/// `length` bytes that differ from place to place and from seed to seed, and are never zero.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| crate::hash::mix(seed, 0, index) as u8 | 1).collect()
}

#[cfg(test)]
mod broken;
#[cfg(test)]
mod tests;
