//! Clauses about requests that must fail: with the right kind, with their buffer, and without an effect.

use super::{Finding, Stand, context, ensure, pattern};
use crate::{Buffer, ErrorKind, Operation, Request};

/// The request must fail with this kind and give its buffer back.
fn fails_with(stand: &Stand, request: Request, kind: ErrorKind) -> Finding {
    let shape = format!("{:?} of {} bytes at {}", request.operation, request.length, request.offset);
    let bytes = request.buffer.len();
    let completion = stand.complete(request)?;
    ensure(completion.buffer.len() == bytes, || {
        format!("{shape} returned {} of its {bytes} bytes", completion.buffer.len())
    })?;
    match completion.result {
        Ok(()) => Err(format!("{shape} succeeds")),
        Err(error) => ensure(error.kind() == kind, || format!("{shape} fails with {error:?}")),
    }
}

/// One request of every operation that the device has for a range.
fn every_operation(stand: &Stand, offset: u64, length: usize) -> Vec<Request> {
    let info = stand.info();
    let mut requests = vec![Request::read(offset, Buffer::stale(length), context(1))];
    if !info.read_only {
        let write = || Request::write(offset, Buffer::copy_of(&pattern(9, length)), context(2));
        requests.push(write());
        requests.push(Request { operation: Operation::Write { fua: true }, ..write() });
        if info.features.discard {
            requests.push(Request::discard(offset, length as u64, context(3)));
        }
        if info.features.write_zeroes {
            requests.push(Request::write_zeroes(offset, length as u64, context(4)));
        }
    }
    requests
}

/// Puts something at `offset` that a request which must touch nothing could damage, and returns it.
fn stake(stand: &Stand, offset: u64, length: usize) -> Result<Vec<u8>, String> {
    if stand.info().read_only {
        return Ok(vec![0; length]);
    }
    let data = pattern(1, length);
    stand.write(offset, &data)?;
    Ok(data)
}

pub(super) fn buffer_comes_back(stand: &Stand) -> Finding {
    let block = stand.block();
    for offset in [0, stand.info().size] {
        for request in every_operation(stand, offset, block) {
            let (operation, bytes) = (request.operation, request.buffer.len());
            let returned = stand.complete(request)?.buffer.len();
            ensure(returned == bytes, || {
                format!("{operation:?} at {offset} returned {returned} of its {bytes} bytes")
            })?;
        }
    }
    Ok(())
}

pub(super) fn bounds(stand: &Stand) -> Finding {
    let (size, block) = (stand.info().size, stand.block() as u64);
    let last = size - block;
    let there = stake(stand, last, stand.block())?;
    for offset in [size, last, u64::MAX - (block - 1), (u64::MAX / 2) & !(block - 1)] {
        // Two blocks from the last one on reach beyond, too.
        for request in every_operation(stand, offset, 2 * stand.block()) {
            fails_with(stand, request, ErrorKind::OutOfRange)?;
        }
    }
    stand.expect(last, &there)?;
    stand.expect(0, &vec![0; stand.block()])
}

pub(super) fn alignment(stand: &Stand) -> Finding {
    let block = stand.block();
    let there = stake(stand, 0, 2 * block)?;
    for (offset, length) in [(1, block), (block as u64 / 2, block), (0, block / 2), (0, block + 1)] {
        for request in every_operation(stand, offset, length) {
            fails_with(stand, request, ErrorKind::Misaligned)?;
        }
    }
    stand.expect(0, &there)
}

pub(super) fn wrong_length(stand: &Stand) -> Finding {
    let block = stand.block();
    let there = stake(stand, 0, 4 * block)?;
    for length in [0, block as u64, 4 * block as u64, u64::MAX - (block as u64 - 1)] {
        let whole = every_operation(stand, 0, 2 * block);
        for request in whole.into_iter().filter(|request| request.operation.has_payload()) {
            fails_with(stand, Request { length, ..request }, ErrorKind::OutOfRange)?;
        }
    }
    stand.expect(0, &there)
}

pub(super) fn refuses_mutations(stand: &Stand) -> Finding {
    let (block, features) = (stand.block(), stand.info().features);
    for fua in [false, true] {
        let write = Request::write(0, Buffer::copy_of(&pattern(1, block)), context(1));
        let write = Request { operation: Operation::Write { fua }, ..write };
        fails_with(stand, write, ErrorKind::ReadOnly)?;
        stand.expect(0, &vec![0; block])?;
    }
    if features.discard {
        fails_with(stand, Request::discard(0, block as u64, context(2)), ErrorKind::ReadOnly)?;
    }
    if features.write_zeroes {
        fails_with(stand, Request::write_zeroes(0, block as u64, context(3)), ErrorKind::ReadOnly)?;
    }
    Ok(())
}

pub(super) fn unsupported(stand: &Stand) -> Finding {
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
