//! Clauses about what a device holds, one request after the other.

use super::{Finding, Stand, context, ensure, pattern};
use crate::{Buffer, Operation, Request};

pub(super) fn fresh_is_zero(stand: &Stand) -> Finding {
    let last = stand.info().size - 65536;
    stand.expect(0, &[0; 65536])?;
    stand.expect(last, &[0; 65536])
}

pub(super) fn reads_back(stand: &Stand) -> Finding {
    let block = stand.block();
    for (seed, blocks) in [(1u64, 1usize), (2, 3), (3, 16), (4, 64)] {
        let data = pattern(seed, blocks * block);
        let offset = seed * 128 * 1024;
        stand.write(offset, &data)?;
        stand.expect(offset, &data)?;
    }
    // A large one that begins and ends off every boundary that a device may have inside.
    let large = pattern(7, (300 << 10) / block * block);
    stand.write(block as u64, &large)?;
    stand.expect(block as u64, &large)?;
    // Over what is there, in part.
    let (whole, part) = (pattern(5, 4 * block), pattern(6, block));
    stand.write(0, &whole)?;
    stand.write(block as u64, &part)?;
    stand.expect(0, &whole[..block])?;
    stand.expect(block as u64, &part)?;
    stand.expect(2 * block as u64, &whole[2 * block..])
}

pub(super) fn first_and_last(stand: &Stand) -> Finding {
    let (first, last) = (pattern(1, stand.block()), pattern(2, stand.block()));
    let end = stand.info().size - stand.block() as u64;
    stand.write(0, &first)?;
    stand.write(end, &last)?;
    stand.expect(0, &first)?;
    stand.expect(end, &last)
}

pub(super) fn write_buffer(stand: &Stand) -> Finding {
    let data = pattern(1, 4 * stand.block());
    let returned = stand.succeed(Request::write(0, Buffer::copy_of(&data), context(1)))?;
    ensure(returned[..] == data[..], || "it was changed".into())
}

pub(super) fn length_zero(stand: &Stand) -> Finding {
    let (block, info) = (stand.block(), stand.info());
    let around = if info.read_only { vec![0; 2 * block] } else { pattern(1, 2 * block) };
    let offset = block as u64;
    let mut requests = vec![Request::read(offset, Buffer::empty(), context(1))];
    if !info.read_only {
        stand.write(0, &around)?;
        requests.push(Request::write(offset, Buffer::empty(), context(2)));
        if info.features.discard {
            requests.push(Request::discard(offset, 0, context(3)));
        }
        if info.features.write_zeroes {
            requests.push(Request::write_zeroes(offset, 0, context(4)));
        }
        // Right behind the last block is inside, for nothing.
        requests.push(Request::write(info.size, Buffer::empty(), context(5)));
    }
    for request in requests {
        stand.succeed(request)?;
    }
    stand.expect(0, &around)
}

pub(super) fn flush_and_fua(stand: &Stand) -> Finding {
    let data = pattern(1, stand.block());
    stand.succeed(Request::flush(context(1)))?;
    let write = Request::write(0, Buffer::copy_of(&data), context(2));
    stand.succeed(Request { operation: Operation::Write { fua: true }, ..write })?;
    stand.succeed(Request::flush(context(3)))?;
    stand.expect(0, &data)
}

pub(super) fn clearing(stand: &Stand) -> Finding {
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
