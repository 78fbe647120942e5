//! Clauses about what a device says of itself and what passes through it untouched.

use super::{Finding, Stand, ensure, pattern};
use crate::{Buffer, Context, Origin, Phase, Request, Tag};

pub(super) fn information(stand: &Stand) -> Finding {
    let info = stand.info();
    ensure(info.block_size.is_power_of_two(), || format!("the block size is {}", info.block_size))?;
    ensure(info.size > 0 && info.size.is_multiple_of(u64::from(info.block_size)), || {
        format!("the size, {}, is no multiple of the block size, {}", info.size, info.block_size)
    })?;
    ensure(info.atomic_write_bytes.is_power_of_two() && info.atomic_write_bytes >= info.block_size, || {
        format!("the atomic unit, {}, does not hold a block of {}", info.atomic_write_bytes, info.block_size)
    })?;
    ensure(info.size >= 1 << 20, || format!("{} bytes are too few to try it", info.size))?;
    ensure(stand.info() == info, || "it says something else when asked again".into())
}

pub(super) fn context_passes(stand: &Stand) -> Finding {
    let sent = Context {
        id: 77,
        parent: 7,
        submitted: stand.runtime.now(),
        tag: Tag::intern("conformance"),
        queue: 3,
        origin: Origin::Scrub,
        phase: Phase::Run,
    };
    let block = stand.block();
    for request in [
        Request::read(0, Buffer::stale(block), sent),
        Request::read(stand.info().size, Buffer::stale(block), sent),
        Request::flush(sent),
        // Some of these fail on some devices, and must bring it back all the same.
        Request::write(0, Buffer::copy_of(&pattern(1, block)), sent),
        Request::discard(0, block as u64, sent),
        Request::write_zeroes(0, block as u64, sent),
    ] {
        let returned = stand.complete(request)?.context;
        ensure(returned == sent, || format!("{sent:?} came back as {returned:?}"))?;
    }
    Ok(())
}
