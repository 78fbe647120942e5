//! The clauses, one function each.

use std::rc::Rc;
use std::sync::Arc;

use super::{Clause, Finding, Stand, context, history, pattern};
use crate::{
    Buffer, Completion, Context, DeviceInfo, ErrorKind, Operation, Origin, Phase, Queue, Request, Tag,
};

pub(super) const ALL: &[Clause] = &[
    Clause { says: "the information page fits together", applies: always, body: information },
    Clause { says: "what was never written reads as zeros", applies: always, body: fresh_is_zero },
    Clause { says: "a completed write is what later reads return", applies: writable, body: reads_back },
    Clause { says: "the first and the last block can be used", applies: writable, body: borders },
    Clause { says: "the buffer of a write comes back unchanged", applies: writable, body: write_buffer },
    Clause { says: "the buffer comes back whatever the result", applies: always, body: buffer_comes_back },
    Clause {
        says: "a request beyond the end is out of range and touches nothing",
        applies: always,
        body: bounds,
    },
    Clause {
        says: "a request off the blocks is misaligned and touches nothing",
        applies: has_blocks,
        body: alignment,
    },
    Clause { says: "a request of length zero succeeds without effect", applies: always, body: length_zero },
    Clause { says: "the context comes back as it was", applies: always, body: context_passes },
    Clause { says: "a read-only device refuses mutations", applies: read_only, body: refuses_mutations },
    Clause { says: "flush and fua always succeed", applies: writable, body: flush_and_fua },
    Clause {
        says: "discarded and zeroed ranges read as zeros, and only they",
        applies: writable,
        body: clearing,
    },
    Clause {
        says: "an operation the device lacks is unsupported and touches nothing",
        applies: writable,
        body: unsupported,
    },
    Clause {
        says: "requests in flight together do not disturb each other",
        applies: writable,
        body: in_flight,
    },
    Clause { says: "what one queue wrote another reads", applies: writable, body: between_queues },
    Clause { says: "queues on several threads do not disturb each other", applies: writable, body: threads },
    Clause { says: "a dropped submission does no harm", applies: writable, body: dropped },
    Clause {
        says: "any history of requests ends as a plain array would",
        applies: writable,
        body: history::replay,
    },
];

fn always(_: &DeviceInfo) -> bool {
    true
}

fn writable(info: &DeviceInfo) -> bool {
    !info.read_only
}

fn read_only(info: &DeviceInfo) -> bool {
    info.read_only
}

fn has_blocks(info: &DeviceInfo) -> bool {
    info.block_size > 1
}

/// An error in words unless `holds`.
fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn information(stand: &Stand) -> Finding {
    let info = stand.info();
    ensure(info.block_size.is_power_of_two(), || format!("the block size is {}", info.block_size))?;
    ensure(info.size > 0 && info.size.is_multiple_of(u64::from(info.block_size)), || {
        format!("the size, {}, is no multiple of the block size, {}", info.size, info.block_size)
    })?;
    ensure(info.atomic_write_bytes.is_power_of_two() && info.atomic_write_bytes >= info.block_size, || {
        format!("the atomic unit, {}, does not hold a block of {}", info.atomic_write_bytes, info.block_size)
    })?;
    ensure(info.size >= 1 << 20, || format!("{} bytes are too few to try it", info.size))
}

fn fresh_is_zero(stand: &Stand) -> Finding {
    let last = stand.info().size - 65536;
    stand.expect(0, &[0; 65536])?;
    stand.expect(last, &[0; 65536])
}

fn reads_back(stand: &Stand) -> Finding {
    for (seed, blocks) in [(1u64, 1usize), (2, 3), (3, 16), (4, 64)] {
        let data = pattern(seed, blocks * stand.block());
        let offset = seed * 128 * 1024;
        stand.write(offset, &data)?;
        stand.expect(offset, &data)?;
    }
    // Over what is there, in part.
    let (whole, part) = (pattern(5, 4 * stand.block()), pattern(6, stand.block()));
    stand.write(0, &whole)?;
    stand.write(stand.block() as u64, &part)?;
    stand.expect(0, &whole[..stand.block()])?;
    stand.expect(stand.block() as u64, &part)?;
    stand.expect(2 * stand.block() as u64, &whole[2 * stand.block()..])
}

fn borders(stand: &Stand) -> Finding {
    let (first, last) = (pattern(1, stand.block()), pattern(2, stand.block()));
    let end = stand.info().size - stand.block() as u64;
    stand.write(0, &first)?;
    stand.write(end, &last)?;
    stand.expect(0, &first)?;
    stand.expect(end, &last)
}

fn write_buffer(stand: &Stand) -> Finding {
    let data = pattern(1, 4 * stand.block());
    let returned = stand.succeed(Request::write(0, Buffer::copy_of(&data), context(1)))?;
    ensure(returned[..] == data[..], || "it was changed".into())
}

fn buffer_comes_back(stand: &Stand) -> Finding {
    let good = stand.complete(Request::read(0, Buffer::stale(stand.block()), context(1)))?;
    ensure(good.buffer.len() == stand.block(), || format!("a read returned {} bytes", good.buffer.len()))?;
    let beyond =
        stand.complete(Request::read(stand.info().size, Buffer::stale(stand.block()), context(2)))?;
    ensure(beyond.buffer.len() == stand.block(), || "a failing read kept its buffer".into())
}

/// The request must fail with this kind.
fn fails_with(stand: &Stand, request: Request, kind: ErrorKind) -> Finding {
    let shape = format!("{:?} of {} bytes at {}", request.operation, request.length, request.offset);
    match stand.complete(request)?.result {
        Ok(()) => Err(format!("{shape} succeeds")),
        Err(error) => ensure(error.kind() == kind, || format!("{shape} fails with {error:?}")),
    }
}

fn bounds(stand: &Stand) -> Finding {
    let (size, block) = (stand.info().size, stand.block() as u64);
    let last = size - block;
    for offset in [size, last, u64::MAX - (block - 1), (u64::MAX / 2) & !(block - 1)] {
        // Two blocks from the last one on reach beyond, too.
        let length = 2 * stand.block();
        fails_with(stand, Request::read(offset, Buffer::stale(length), context(1)), ErrorKind::OutOfRange)?;
        if !stand.info().read_only {
            let write = Request::write(offset, Buffer::copy_of(&pattern(1, length)), context(2));
            fails_with(stand, write, ErrorKind::OutOfRange)?;
        }
    }
    stand.expect(last, &vec![0; stand.block()])
}

fn alignment(stand: &Stand) -> Finding {
    let block = stand.block();
    for (offset, length) in [(1, block), (block as u64 / 2, block), (0, block / 2), (0, block + 1)] {
        fails_with(stand, Request::read(offset, Buffer::stale(length), context(1)), ErrorKind::Misaligned)?;
        if !stand.info().read_only {
            let write = Request::write(offset, Buffer::copy_of(&pattern(1, length)), context(2));
            fails_with(stand, write, ErrorKind::Misaligned)?;
        }
    }
    stand.expect(0, &vec![0; 2 * block])
}

fn length_zero(stand: &Stand) -> Finding {
    let offset = stand.block() as u64;
    let mut requests = vec![Request::read(offset, Buffer::empty(), context(1))];
    if !stand.info().read_only {
        requests.push(Request::write(offset, Buffer::empty(), context(2)));
        if stand.info().features.discard {
            requests.push(Request::discard(offset, 0, context(3)));
        }
        if stand.info().features.write_zeroes {
            requests.push(Request::write_zeroes(offset, 0, context(4)));
        }
    }
    for request in requests {
        stand.succeed(request)?;
    }
    Ok(())
}

fn context_passes(stand: &Stand) -> Finding {
    let sent = Context {
        id: 77,
        parent: 7,
        submitted: stand.runtime.now(),
        tag: Tag::intern("conformance"),
        queue: 3,
        origin: Origin::Scrub,
        phase: Phase::Run,
    };
    for request in [
        Request::read(0, Buffer::stale(stand.block()), sent),
        Request::read(stand.info().size, Buffer::stale(stand.block()), sent),
        Request::flush(sent),
    ] {
        let returned = stand.complete(request)?.context;
        ensure(returned == sent, || format!("{sent:?} came back as {returned:?}"))?;
    }
    Ok(())
}

fn refuses_mutations(stand: &Stand) -> Finding {
    let write = Request::write(0, Buffer::copy_of(&pattern(1, stand.block())), context(1));
    fails_with(stand, write, ErrorKind::ReadOnly)?;
    stand.expect(0, &vec![0; stand.block()])
}

fn flush_and_fua(stand: &Stand) -> Finding {
    let data = pattern(1, stand.block());
    stand.succeed(Request::flush(context(1)))?;
    let write = Request::write(0, Buffer::copy_of(&data), context(2));
    stand.succeed(Request { operation: Operation::Write { fua: true }, ..write })?;
    stand.succeed(Request::flush(context(3)))?;
    stand.expect(0, &data)
}

fn clearing(stand: &Stand) -> Finding {
    let features = stand.info().features;
    let block = stand.block();
    let blocks = (128 << 10) / block;
    let operations =
        [(features.discard, Operation::Discard), (features.write_zeroes, Operation::WriteZeroes)];
    for (_, operation) in operations.into_iter().filter(|(has, _)| *has) {
        let mut wanted = pattern(1, blocks * block);
        stand.write(0, &wanted)?;
        // Off the pages where blocks are smaller, and over several regions of whatever is inside.
        for (first, count) in [(1, 1), (3, 9), (blocks / 2 - 1, blocks / 2)] {
            let (offset, length) = (first * block, count * block);
            let request = Request::discard(offset as u64, length as u64, context(1));
            stand.succeed(Request { operation, ..request })?;
            wanted[offset..offset + length].fill(0);
        }
        stand.expect(0, &wanted)?;
    }
    Ok(())
}

fn unsupported(stand: &Stand) -> Finding {
    let features = stand.info().features;
    let data = pattern(1, stand.block());
    stand.write(0, &data)?;
    for (has, operation) in
        [(features.discard, Operation::Discard), (features.write_zeroes, Operation::WriteZeroes)]
    {
        if !has {
            let request = Request::discard(0, stand.block() as u64, context(1));
            fails_with(stand, Request { operation, ..request }, ErrorKind::Unsupported)?;
        }
    }
    stand.expect(0, &data)
}

/// Writes `count` blocks together, then reads them together, from `base` on.
async fn crowd(queue: &Rc<dyn Queue>, base: u64, block: usize, count: u64, seed: u64) -> Finding {
    let place = |index: u64| base + index * block as u64;
    let writes: Vec<_> = (0..count)
        .map(|index| {
            let data = Buffer::copy_of(&pattern(seed + index, block));
            queue.submit(Request::write(place(index), data, context(index)))
        })
        .collect();
    for (index, write) in writes.into_iter().enumerate() {
        let Completion { result, context, .. } = write.await;
        result.map_err(|error| format!("a write among {count} fails: {error}"))?;
        ensure(context.id == index as u64, || "two completions were mixed up".into())?;
    }
    let reads: Vec<_> = (0..count)
        .map(|index| queue.submit(Request::read(place(index), Buffer::stale(block), context(index))))
        .collect();
    for (index, read) in reads.into_iter().enumerate().rev() {
        let Completion { result, buffer, .. } = read.await;
        result.map_err(|error| format!("a read among {count} fails: {error}"))?;
        ensure(buffer[..] == pattern(seed + index as u64, block)[..], || {
            format!("block {index} of {count} written together reads back wrong")
        })?;
    }
    Ok(())
}

fn in_flight(stand: &Stand) -> Finding {
    stand.drive(crowd(&stand.queue, 0, stand.block(), 200, 1))?
}

fn between_queues(stand: &Stand) -> Finding {
    let other = stand.device.open_queue(&stand.runtime).map_err(|error| error.to_string())?;
    let data = pattern(1, stand.block());
    stand.write(0, &data)?;
    let read = Request::read(0, Buffer::stale(stand.block()), context(1));
    let completion = stand.drive(other.submit(read))?;
    completion.result.map_err(|error| error.to_string())?;
    ensure(completion.buffer[..] == data[..], || "the other queue reads something else".into())
}

fn threads(stand: &Stand) -> Finding {
    if stand.runtime.is_simulated() {
        return Ok(());
    }
    let (block, per_thread) = (stand.block(), 48u64);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|number| {
                let (device, on) = (Arc::clone(&stand.device), stand.on);
                scope.spawn(move || -> Finding {
                    let runtime = on.runtime().map_err(|error| error.to_string())?;
                    let queue = device.open_queue(&runtime).map_err(|error| error.to_string())?;
                    for round in 0..8 {
                        let base = number * per_thread * block as u64;
                        runtime
                            .block_on(crowd(&queue, base, block, per_thread, number * 1000 + round))
                            .map_err(|error| error.to_string())??;
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

fn dropped(stand: &Stand) -> Finding {
    let (block, data) = (stand.block(), pattern(1, stand.block()));
    for index in 0..32u64 {
        drop(stand.queue.submit(Request::read(index * block as u64, Buffer::stale(block), context(index))));
        let buffer = Buffer::copy_of(&pattern(index, block));
        drop(stand.queue.submit(Request::write(index * block as u64, buffer, context(index))));
    }
    // Whatever became of those, the device goes on: elsewhere at once, and there after a flush.
    stand.write(64 * block as u64, &data)?;
    stand.expect(64 * block as u64, &data)?;
    for index in 0..32u64 {
        let found = stand.read(index * block as u64, block)?;
        let legal = found.iter().all(|&byte| byte == 0) || found[..] == pattern(index, block)[..];
        ensure(legal, || format!("block {index} is neither old nor new after its write was dropped"))?;
    }
    Ok(())
}
