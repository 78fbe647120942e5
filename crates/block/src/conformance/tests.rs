//! The kit must find what is broken: for every clause at least one device that breaks it and that it must reject.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::broken::{Below, Broken, Fault, SOUND};
use super::{Breach, On, check, clauses, run};
use crate::{
    Buffer, Completion, Context, DeviceInfo, Error, ErrorKind, Operation, Queue, Request, Submission, Tag,
};

/// Clauses and faults of a device that break them.
const BREACHES: &[(&str, Fault)] = &[
    (
        "the information page fits together",
        Fault { info: |info| DeviceInfo { size: info.size - 100, ..info }, ..SOUND },
    ),
    (
        "the information page fits together",
        Fault { info: |info| DeviceInfo { atomic_write_bytes: 256, ..info }, ..SOUND },
    ),
    ("what was never written reads as zeros", serving(fill_zeros_with_ones)),
    ("what was never written reads as zeros", serving(leave_the_space_of_reads_alone)),
    (
        "a completed write is what later reads return",
        serving(|below, request| lose_if(request.operation == Operation::WRITE, below, request)),
    ),
    ("a completed write is what later reads return", serving(lose_the_end_of_large_writes)),
    (
        "the first and the last block can be used",
        serving(|below, request| {
            let at_the_end = request.operation.is_mutation() && request.end() == below.size;
            lose_if(at_the_end, below, request)
        }),
    ),
    (
        "the buffer of a write comes back unchanged",
        serving(|below, request| {
            let is_read = request.operation == Operation::Read;
            below.and_then(request, move |mut completion| {
                if !is_read {
                    completion.buffer.fill(9);
                }
                completion
            })
        }),
    ),
    (
        "the buffer comes back whatever the result",
        serving(|below, request| {
            below.if_failed(request, ErrorKind::OutOfRange, |completion| Completion {
                buffer: Buffer::empty(),
                ..completion
            })
        }),
    ),
    (
        "a request beyond the end is out of range and touches nothing",
        serving(|below, request| {
            below.if_failed(request, ErrorKind::OutOfRange, |completion| Completion {
                result: Ok(()),
                ..completion
            })
        }),
    ),
    ("a request beyond the end is out of range and touches nothing", serving(write_what_fits)),
    (
        "a request off the blocks is misaligned and touches nothing",
        serving(|below, request| {
            below.if_failed(request, ErrorKind::Misaligned, |completion| Completion {
                result: Err(Error::medium()),
                ..completion
            })
        }),
    ),
    ("a request off the blocks is misaligned and touches nothing", serving(discard_the_block_around)),
    (
        "a request whose length is not its buffer's is refused and touches nothing",
        serving(|below, mut request| {
            if request.operation.has_payload() {
                request.length = request.buffer.len() as u64;
            }
            below.queue.submit(request)
        }),
    ),
    (
        "a request of length zero succeeds without effect",
        serving(|below, request| fail_if(request.buffer.is_empty(), below, request)),
    ),
    (
        "a request of length zero succeeds without effect",
        serving(|below, mut request| {
            if request.operation == Operation::Discard && request.length == 0 {
                request.length = below.size - request.offset;
            }
            below.queue.submit(request)
        }),
    ),
    (
        "the context comes back as it was",
        serving(|below, request| {
            below.and_then(request, |completion| Completion {
                context: Context { parent: 0, ..completion.context },
                ..completion
            })
        }),
    ),
    (
        "the context comes back as it was",
        serving(|below, mut request| {
            if request.operation == Operation::WriteZeroes {
                request.context.tag = Tag::NONE;
            }
            below.queue.submit(request)
        }),
    ),
    (
        "a read-only device refuses mutations",
        Fault { info: |info| DeviceInfo { read_only: true, ..info }, ..SOUND },
    ),
    (
        "a read-only device refuses mutations",
        Fault {
            info: |info| DeviceInfo { read_only: true, ..info },
            serve: |below, request| {
                let refuse = request.operation.is_mutation();
                below.and_then(request, move |completion| Completion {
                    result: if refuse { Err(Error::new(ErrorKind::ReadOnly, "")) } else { Ok(()) },
                    ..completion
                })
            },
            ..SOUND
        },
    ),
    (
        "flush and fua always succeed",
        serving(|below, request| {
            fail_if(request.operation == Operation::Write { fua: true }, below, request)
        }),
    ),
    (
        "flush and fua always succeed",
        serving(|below, request| fail_if(request.operation == Operation::Flush, below, request)),
    ),
    (
        "discarded and zeroed ranges read as zeros, and only they",
        serving(|below, request| lose_if(request.operation == Operation::Discard, below, request)),
    ),
    (
        "discarded and zeroed ranges read as zeros, and only they",
        serving(|below, mut request| {
            if request.operation == Operation::WriteZeroes {
                request.length += 512;
            }
            below.queue.submit(request)
        }),
    ),
    (
        "an operation the device lacks is unsupported and touches nothing",
        Fault {
            info: |mut info| {
                info.features.discard = false;
                info
            },
            ..SOUND
        },
    ),
    (
        "requests in flight together do not disturb each other",
        serving(|below, mut request| {
            if request.operation == Operation::WRITE && request.context.id == 150 {
                request.offset += 512;
            }
            below.queue.submit(request)
        }),
    ),
    ("overlapping writes tear each other between atomic units only", serving(write_in_pieces)),
    ("what one queue wrote another reads", Fault { apart: true, ..SOUND }),
    (
        "queues on several threads do not disturb each other",
        serving(|below, request| lose_if(below.away && request.operation.is_mutation(), below, request)),
    ),
    ("a request completes though its queue has gone", serving(forget_without_the_queue)),
    ("a dropped submission does no harm", serving(scribble_when_dropped)),
    (
        "any history of requests ends as a plain array would",
        serving(|below, request| {
            let unlucky = below.count > 450 && below.count.is_multiple_of(50);
            lose_if(unlucky && request.operation == Operation::WRITE, below, request)
        }),
    ),
];

const fn serving(serve: fn(&Below, Request) -> Submission) -> Fault {
    Fault { serve, ..SOUND }
}

fn lose_if(lost: bool, below: &Below, request: Request) -> Submission {
    if lost { request.succeed().into() } else { below.queue.submit(request) }
}

fn fail_if(fails: bool, below: &Below, request: Request) -> Submission {
    if fails { request.fail(Error::medium()).into() } else { below.queue.submit(request) }
}

fn fill_zeros_with_ones(below: &Below, request: Request) -> Submission {
    below.and_then(request, |mut completion| {
        if completion.buffer.iter().all(|&byte| byte == 0) {
            completion.buffer.fill(0xff);
        }
        completion
    })
}

fn leave_the_space_of_reads_alone(below: &Below, request: Request) -> Submission {
    lose_if(request.operation == Operation::Read, below, request)
}

/// Serves a part of a write and returns the whole with `result`.
fn serve_part(below: &Below, request: Request, bytes: usize, result: crate::Result<()>) -> Submission {
    let part = Request::write(request.offset, Buffer::copy_of(&request.buffer[..bytes]), request.context);
    let (part, Request { buffer, context, .. }) = (below.queue.submit(part), request);
    Submission::pending(async move {
        part.await;
        Completion { result, buffer, context }
    })
}

fn lose_the_end_of_large_writes(below: &Below, request: Request) -> Submission {
    if request.operation == Operation::WRITE && request.length > 256 << 10 {
        return serve_part(below, request, 256 << 10, Ok(()));
    }
    below.queue.submit(request)
}

fn write_what_fits(below: &Below, request: Request) -> Submission {
    if request.operation == Operation::WRITE && request.offset < below.size && request.end() > below.size {
        let fits = (below.size - request.offset) as usize;
        return serve_part(below, request, fits, Err(Error::new(ErrorKind::OutOfRange, "")));
    }
    below.queue.submit(request)
}

fn discard_the_block_around(below: &Below, request: Request) -> Submission {
    if request.operation == Operation::Discard && !request.offset.is_multiple_of(512) {
        let around = Request::discard(request.offset / 512 * 512, 512, request.context);
        return below.and_then(around, |completion| Completion {
            result: Err(Error::new(ErrorKind::Misaligned, "")),
            ..completion
        });
    }
    below.queue.submit(request)
}

/// Block by block and not at once; every other write from its end.
fn write_in_pieces(below: &Below, request: Request) -> Submission {
    if request.operation != Operation::WRITE {
        return below.queue.submit(request);
    }
    let Below { queue, runtime, .. } = below.clone();
    Submission::pending(async move {
        let count = request.buffer.len() / 512;
        for index in 0..count {
            let start = 512 * if request.context.id.is_multiple_of(2) { index } else { count - 1 - index };
            let piece = Buffer::copy_of(&request.buffer[start..start + 512]);
            let piece = Request::write(request.offset + start as u64, piece, request.context);
            if let Err(error) = queue.submit(piece).await.result {
                return request.fail(error);
            }
            runtime.yield_now().await;
        }
        request.succeed()
    })
}

fn forget_without_the_queue(below: &Below, request: Request) -> Submission {
    let queue = Rc::downgrade(&below.queue);
    Submission::pending(async move {
        match queue.upgrade() {
            Some(queue) => queue.submit(request).await,
            None => std::future::pending().await,
        }
    })
}

fn scribble_when_dropped(below: &Below, request: Request) -> Submission {
    struct Pending(Option<Rc<dyn Queue>>);
    impl Drop for Pending {
        fn drop(&mut self) {
            if let Some(queue) = &self.0 {
                let garbage = Buffer::copy_of(&[0xbd; 512]);
                drop(queue.submit(Request::write(40 * 512, garbage, Context::default())));
            }
        }
    }
    let mut pending = Pending(Some(Rc::clone(&below.queue)));
    let Below { queue, runtime, .. } = below.clone();
    Submission::pending(async move {
        runtime.yield_now().await;
        let completion = queue.submit(request).await;
        drop(pending.0.take());
        completion
    })
}

/// Threads exist on the real runtime only; there alone can a device fail them.
fn where_it_shows(says: &str) -> On {
    if says.contains("threads") { On::Uring } else { On::Simulated }
}

#[test]
fn a_sound_device_passes() {
    for on in [On::Uring, On::Simulated] {
        check(on, &|| Ok(Broken::new(SOUND)?)).expect("nothing is broken");
    }
}

#[test]
fn every_breach_is_found_by_its_clause() {
    for (index, &(says, fault)) in BREACHES.iter().enumerate() {
        let clause = clauses::ALL.iter().find(|clause| clause.says == says).expect("a clause of this name");
        let found = run(clause, where_it_shows(says), &|| Ok(Broken::new(fault)?));
        assert!(found.is_err(), "number {index} breaks the clause that {says}, and passes");
    }
}

#[test]
fn every_clause_has_a_device_that_breaks_it() {
    let names = |names: Vec<&'static str>| names.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(
        names(BREACHES.iter().map(|(says, _)| *says).collect()),
        names(clauses::ALL.iter().map(|clause| clause.says).collect())
    );
}

#[test]
fn the_check_of_a_broken_device_names_the_clause_and_what_was_seen() {
    let fault = serving(lose_the_end_of_large_writes);
    let Breach { clause, seen } = check(On::Simulated, &|| Ok(Broken::new(fault)?)).expect_err("is found");
    assert_eq!(clause, "a completed write is what later reads return");
    assert!(seen.starts_with("byte 262656 reads as 0x"), "{seen}");
}

#[test]
fn a_lost_completion_is_found_and_not_waited_for_under_virtual_time() {
    let fault = serving(|_, _| Submission::pending(std::future::pending()));
    let breach = check(On::Simulated, &|| Ok(Broken::new(fault)?)).expect_err("nothing ever completes");
    assert!(breach.seen.contains("never completes"), "{breach}");
}
