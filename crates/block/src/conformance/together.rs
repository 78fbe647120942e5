//! Clauses about requests at the same time: in one queue, in several, on several threads, and given up.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::task::Poll;

use super::{Finding, On, Stand, context, drive, ensure, pattern};
use crate::{Buffer, Completion, Device, ErrorKind, Queue, Request, Runtime, Submission};

/// Drives all at the same time, as their work may begin at the first poll only; the completions in the same order.
async fn all(mut submissions: Vec<Submission>) -> Vec<Completion> {
    let mut completions: Vec<Option<Completion>> = submissions.iter().map(|_| None).collect();
    std::future::poll_fn(|task| {
        for (submission, completion) in submissions.iter_mut().zip(&mut completions) {
            if completion.is_none()
                && let Poll::Ready(done) = Pin::new(submission).poll(task)
            {
                *completion = Some(done);
            }
        }
        if completions.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    completions.into_iter().flatten().collect()
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
    for (index, Completion { result, context, .. }) in all(writes).await.into_iter().enumerate() {
        result.map_err(|error| format!("a write among {count} fails: {error}"))?;
        ensure(context.id == index as u64, || "two completions were mixed up".into())?;
    }
    let reads: Vec<_> = (0..count)
        .map(|index| queue.submit(Request::read(place(index), Buffer::stale(block), context(index))))
        .collect();
    for (index, Completion { result, buffer, .. }) in all(reads).await.into_iter().enumerate() {
        result.map_err(|error| format!("a read among {count} fails: {error}"))?;
        ensure(buffer[..] == pattern(seed + index as u64, block)[..], || {
            format!("block {index} of {count} written together reads back wrong")
        })?;
    }
    Ok(())
}

pub(super) fn in_flight(stand: &Stand) -> Finding {
    stand.drive(crowd(&stand.queue, 0, stand.block(), 200, 1))?
}

/// Runs `work` with a queue of its own, opened by a thread of its own.
fn elsewhere(device: &dyn Device, on: On, work: impl FnOnce(&Runtime, &Rc<dyn Queue>) -> Finding) -> Finding {
    let runtime = on.runtime().map_err(|error| error.to_string())?;
    let queue = device.open_queue(&runtime).map_err(|error| error.to_string())?;
    let finding = work(&runtime, &queue);
    runtime.abandon_tasks();
    finding
}

/// `work` on several threads at once, each with its number.
fn at_once(stand: &Stand, work: impl Fn(u64, &Runtime, &Rc<dyn Queue>) -> Finding + Sync) -> Finding {
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (device, on, work, start) = (Arc::clone(&stand.device), stand.on, &work, &start);
                scope.spawn(move || {
                    start.wait();
                    elsewhere(&*device, on, |runtime, queue| work(number, runtime, queue))
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

const THREADS: u64 = 4;

pub(super) fn threads(stand: &Stand) -> Finding {
    if stand.runtime.is_simulated() {
        return Ok(());
    }
    let (block, per_thread) = (stand.block(), 48u64);
    at_once(stand, |number, runtime, queue| {
        for round in 0..8 {
            let base = number * per_thread * block as u64;
            drive(runtime, crowd(queue, base, block, per_thread, number * 1000 + round))??;
        }
        Ok(())
    })
}

/// Writes of one byte each over the same range; afterwards every unit must be of one write.
pub(super) fn overlapping(stand: &Stand) -> Finding {
    const LENGTH: usize = 192 << 10;
    let unit = (stand.info().atomic_write_bytes as usize).min(64 << 10);
    let block = stand.block() as u64;
    let write = |queue: &Rc<dyn Queue>, stamp: u8| {
        // Not all begin at the same block, so that a device which cuts them does so in different places.
        let offset = u64::from(stamp % 4) * block;
        queue.submit(Request::write(offset, Buffer::copy_of(&[stamp; LENGTH]), context(u64::from(stamp))))
    };
    let wave = |runtime: &Runtime, queue: &Rc<dyn Queue>, first: u8| {
        let writes: Vec<_> = (first..first + 8).map(|stamp| write(queue, stamp)).collect();
        drive(runtime, all(writes))?.into_iter().try_for_each(|completion| {
            completion.result.map_err(|error| format!("one of several writes fails: {error}"))
        })
    };
    for round in 0..4 {
        if stand.runtime.is_simulated() {
            wave(&stand.runtime, &stand.queue, 1 + round)?;
        } else {
            at_once(stand, |number, runtime, queue| wave(runtime, queue, 1 + round + 8 * number as u8))?;
        }
        // From here to the end all writes lie over each other.
        let from = (4 * block as usize).next_multiple_of(unit);
        let found = stand.read(from as u64, (LENGTH - from) / unit * unit)?;
        for (index, unit_found) in found.chunks(unit).enumerate() {
            ensure(unit_found.iter().all(|byte| *byte == unit_found[0] && *byte != 0), || {
                format!("the unit of {unit} bytes at {} holds parts of two writes", from + index * unit)
            })?;
        }
    }
    Ok(())
}

pub(super) fn between_queues(stand: &Stand) -> Finding {
    let other = stand.device.open_queue(&stand.runtime).map_err(|error| error.to_string())?;
    let block = stand.block();
    let read_by = |runtime: &Runtime, queue: &Rc<dyn Queue>, data: &[u8], who: &str| {
        let read = Request::read(0, Buffer::stale(data.len()), context(1));
        let completion = drive(runtime, queue.submit(read))?;
        completion.result.map_err(|error| error.to_string())?;
        ensure(completion.buffer[..] == *data, || format!("{who} reads something else"))
    };
    for (seed, writer, reader) in [(1, &stand.queue, &other), (2, &other, &stand.queue)] {
        let data = pattern(seed, block);
        let write = Request::write(0, Buffer::copy_of(&data), context(2));
        stand.drive(writer.submit(write))?.result.map_err(|error| error.to_string())?;
        read_by(&stand.runtime, reader, &data, "the other queue")?;
        if !stand.runtime.is_simulated() {
            let (device, on) = (&*stand.device, stand.on);
            let on_a_thread =
                || elsewhere(device, on, |runtime, queue| read_by(runtime, queue, &data, "a thread"));
            std::thread::scope(|scope| scope.spawn(on_a_thread).join())
                .map_err(|_| "the thread panicked".to_owned())??;
        }
    }
    Ok(())
}

pub(super) fn queue_gone(stand: &Stand) -> Finding {
    let block = stand.block();
    for index in 0..4u64 {
        let offset = index * block as u64;
        let data = pattern(index + 1, block);
        let queue = stand.device.open_queue(&stand.runtime).map_err(|error| error.to_string())?;
        let submission = queue.submit(Request::write(offset, Buffer::copy_of(&data), context(index)));
        drop(queue);
        let Completion { result, buffer, .. } = stand.drive(submission)?;
        ensure(buffer.len() == block, || "its buffer is lost".into())?;
        match result {
            Ok(()) => stand.expect(offset, &data)?,
            Err(error) => ensure(error.kind() == ErrorKind::Medium, || format!("it fails with {error:?}"))?,
        }
    }
    Ok(())
}

/// Begins the work of a submission that may begin at its first poll only.
fn poll_once(stand: &Stand, submission: &mut Submission) -> Finding {
    stand.drive(std::future::poll_fn(|task| {
        let _ = Pin::new(&mut *submission).poll(task);
        Poll::Ready(())
    }))
}

pub(super) fn dropped(stand: &Stand) -> Finding {
    let (block, data) = (stand.block(), pattern(1, stand.block()));
    let place = |index: u64| index * block as u64;
    for index in 0..32u64 {
        let mut read = stand.queue.submit(Request::read(place(index), Buffer::stale(block), context(index)));
        let buffer = Buffer::copy_of(&pattern(index, block));
        let mut write = stand.queue.submit(Request::write(place(index), buffer, context(index)));
        if index % 2 == 0 {
            poll_once(stand, &mut read)?;
            poll_once(stand, &mut write)?;
        }
        drop((read, write));
    }
    // Whatever became of those, the device goes on, and only their blocks may have changed.
    stand.write(place(64), &data)?;
    stand.expect(place(64), &data)?;
    stand.succeed(Request::flush(context(1)))?;
    stand.expect(place(32), &vec![0; 32 * block])?;
    for index in 0..32u64 {
        let found = stand.read(place(index), block)?;
        let legal = found.iter().all(|&byte| byte == 0) || found[..] == pattern(index, block)[..];
        ensure(legal, || format!("block {index} is neither old nor new after its write was dropped"))?;
    }
    Ok(())
}
