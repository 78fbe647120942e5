//! The kit must find what is broken: one broken device for each clause that a device can break by itself.

use super::{Make, On, check};
use crate::leaf::MemoryDevice;
use crate::{
    Buffer, Completion, Context, Device, DeviceInfo, Error, ErrorKind, Operation, Queue, Request, Result,
    Runtime, Submission,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// How a device is broken.
#[derive(Clone, Copy)]
struct Fault {
    info: fn(DeviceInfo) -> DeviceInfo,
    /// Changes the request on its way down.
    down: fn(Request, u64) -> Request,
    /// Changes the completion on its way up; given the operation and offset.
    up: fn(Completion, Operation, u64) -> Completion,
}

const SOUND: Fault =
    Fault { info: |info| info, down: |request, _| request, up: |completion, _, _| completion };

struct Broken(Arc<MemoryDevice>, Fault);

struct BrokenQueue(Rc<dyn Queue>, Fault, Cell<u64>);

impl Device for Broken {
    fn info(&self) -> DeviceInfo {
        (self.1.info)(self.0.info())
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(BrokenQueue(self.0.open_queue(runtime)?, self.1, Cell::new(0))))
    }
}

impl Queue for BrokenQueue {
    fn submit(&self, request: Request) -> Submission {
        self.2.set(self.2.get() + 1);
        let (operation, offset, up) = (request.operation, request.offset, self.1.up);
        let below = self.0.submit((self.1.down)(request, self.2.get()));
        Submission::pending(async move { up(below.await, operation, offset) })
    }
}

fn clause_broken_by(fault: Fault) -> Option<&'static str> {
    let make: Make<'_> = &|| Ok(Arc::new(Broken(MemoryDevice::new(2 << 20, 512)?, fault)));
    check(On::Simulated, make).err().map(|breach| breach.clause)
}

#[test]
fn a_sound_device_passes() {
    assert_eq!(clause_broken_by(SOUND), None);
}

#[test]
fn every_kind_of_breach_is_found() {
    let cases: [(&str, Fault); 12] = [
        (
            "the information page fits together",
            Fault { info: |info| DeviceInfo { size: 1000, ..info }, ..SOUND },
        ),
        (
            "what was never written reads as zeros",
            Fault {
                up: |mut completion, operation, _| {
                    if operation == Operation::Read && completion.buffer.iter().all(|&byte| byte == 0) {
                        completion.buffer.fill(0xff);
                    }
                    completion
                },
                ..SOUND
            },
        ),
        (
            "a completed write is what later reads return",
            Fault {
                down: |request, _| {
                    if request.operation.is_mutation() { Request::flush(request.context) } else { request }
                },
                ..SOUND
            },
        ),
        (
            "the buffer of a write comes back unchanged",
            Fault {
                up: |mut completion, operation, _| {
                    if matches!(operation, Operation::Write { .. }) && completion.result.is_ok() {
                        completion.buffer.fill(9);
                    }
                    completion
                },
                ..SOUND
            },
        ),
        (
            "the buffer comes back whatever the result",
            Fault {
                up: |mut completion, _, _| {
                    if completion.result.is_err() {
                        completion.buffer = Buffer::empty();
                    }
                    completion
                },
                ..SOUND
            },
        ),
        (
            "a request beyond the end is out of range and touches nothing",
            Fault {
                up: |completion, _, _| match completion.result {
                    Err(error) if error.kind() == ErrorKind::OutOfRange => {
                        Completion { result: Ok(()), ..completion }
                    }
                    result => Completion { result, ..completion },
                },
                ..SOUND
            },
        ),
        (
            "a request off the blocks is misaligned and touches nothing",
            Fault {
                up: |completion, _, _| match completion.result {
                    Err(error) if error.kind() == ErrorKind::Misaligned => {
                        Completion { result: Err(Error::medium()), ..completion }
                    }
                    result => Completion { result, ..completion },
                },
                ..SOUND
            },
        ),
        (
            "a request of length zero succeeds without effect",
            Fault {
                up: |completion, operation, _| {
                    if operation == Operation::Read && completion.buffer.is_empty() {
                        return Completion { result: Err(Error::medium()), ..completion };
                    }
                    completion
                },
                ..SOUND
            },
        ),
        (
            "the context comes back as it was",
            Fault {
                up: |completion, _, _| Completion {
                    context: Context { parent: 0, ..completion.context },
                    ..completion
                },
                ..SOUND
            },
        ),
        (
            "flush and fua always succeed",
            Fault {
                up: |completion, operation, _| {
                    if operation == (Operation::Write { fua: true }) {
                        return Completion { result: Err(Error::medium()), ..completion };
                    }
                    completion
                },
                ..SOUND
            },
        ),
        (
            "discarded and zeroed ranges read as zeros, and only they",
            Fault {
                down: |request, _| {
                    if request.operation == Operation::Discard {
                        Request::flush(request.context)
                    } else {
                        request
                    }
                },
                ..SOUND
            },
        ),
        (
            "any history of requests ends as a plain array would",
            // Now and then a write is lost, but only after more requests than any other clause makes on a queue.
            Fault {
                down: |request, count| {
                    let lost = count > 450 && count % 50 == 0 && request.operation == Operation::WRITE;
                    if lost { Request::flush(request.context) } else { request }
                },
                ..SOUND
            },
        ),
    ];
    for (clause, fault) in cases {
        let found = clause_broken_by(fault);
        assert_eq!(found, Some(clause));
    }
}

#[test]
fn an_operation_that_is_not_there_must_say_so() {
    let hides_discard = Fault {
        info: |mut info| {
            info.features.discard = false;
            info
        },
        ..SOUND
    };
    assert_eq!(
        clause_broken_by(hides_discard),
        Some("an operation the device lacks is unsupported and touches nothing")
    );
}

#[test]
fn a_device_that_mixes_up_its_requests_is_found() {
    // Writes in flight together land one block further whenever two are submitted without a read between.
    let shifted = Fault {
        down: |mut request, count| {
            if request.operation == Operation::WRITE && request.context.id == 150 && count > 100 {
                request.offset += 512;
            }
            request
        },
        ..SOUND
    };
    assert_eq!(clause_broken_by(shifted), Some("requests in flight together do not disturb each other"));
}

#[test]
fn a_lost_completion_is_found_and_not_waited_for_under_virtual_time() {
    struct Silent(Arc<MemoryDevice>);
    struct SilentQueue;
    impl Device for Silent {
        fn info(&self) -> DeviceInfo {
            self.0.info()
        }
        fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
            Ok(Rc::new(SilentQueue))
        }
    }
    impl Queue for SilentQueue {
        fn submit(&self, _: Request) -> Submission {
            Submission::pending(std::future::pending())
        }
    }
    let make: Make<'_> = &|| Ok(Arc::new(Silent(MemoryDevice::new(1 << 20, 512)?)));
    let breach = check(On::Simulated, make).expect_err("nothing ever completes");
    assert!(breach.seen.contains("never completes"), "{breach}");
}
