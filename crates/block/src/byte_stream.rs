//! A device as [`Read`], [`Write`] and [`Seek`], for libraries that know nothing of requests and block their thread.
//!
//! Owns the way from bytes to blocks: whole units of 4 KiB (or the device's block, if that is larger) go through as
//! requests of their own, parts of a unit through a small write-back cache, as such libraries write their metadata
//! field by field. Every request carries the tag of the scope ([`Tag::scope`]) in which its data were given. What the
//! library does is not its business, nor how a request is carried out while the thread waits.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use crate::{
    Buffer, Completion, Context, Device, DeviceInfo, Error, ErrorKind, Request, Result, Runtime, Tag,
};

/// Bytes that are cached and written as one, at least.
const UNIT_BYTES: u64 = 4096;
/// Units in the cache.
const UNITS_MAX: usize = 32;
/// Bytes of one request.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The bytes of a device in a row, with a position. Not flushed when dropped: an error could not be told.
///
/// Errors are [`io::Error`]s that hold ours; [`Error::from_io`] gives it back as it was.
pub struct ByteStream<C> {
    carry: C,
    info: DeviceInfo,
    unit_bytes: u64,
    position: u64,
    /// The least recently used first.
    units: Vec<Unit>,
    context: Context,
    requests: u64,
}

struct Unit {
    start: u64,
    data: Buffer,
    /// The tag under which it was changed last, if it must still be written.
    dirty: Option<Tag>,
}

impl<C> std::fmt::Debug for ByteStream<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ByteStream({} of {} bytes)", self.position, self.info.size)
    }
}

/// A stream over `device` whose caller waits on `runtime`, the runtime of its thread.
///
/// Must not be used inside a task of that runtime: the runtime would wait within itself.
pub fn blocking(
    device: &Arc<dyn Device>,
    runtime: &Runtime,
) -> Result<ByteStream<impl FnMut(Request) -> Completion + use<>>> {
    let queue = device.open_queue(runtime)?;
    let runtime = runtime.clone();
    let carry = move |request: Request| {
        let context = request.context;
        match runtime.block_on(queue.submit(request)) {
            Ok(completion) => completion,
            Err(error) => Completion { result: Err(error), buffer: Buffer::empty(), context },
        }
    };
    Ok(ByteStream::new(device.info(), carry))
}

impl<C: FnMut(Request) -> Completion> ByteStream<C> {
    /// The bytes of the device with this information page; `carry` takes each request to it and waits for its
    /// completion.
    pub fn new(info: DeviceInfo, carry: C) -> Self {
        Self {
            carry,
            info,
            unit_bytes: UNIT_BYTES.max(u64::from(info.block_size)),
            position: 0,
            units: Vec::new(),
            context: Context::default(),
            requests: 0,
        }
    }

    /// What the stream works for from now on: its requests are children of this context, in the order of their ids,
    /// with the tag of the current scope, or outside of all scopes that of the context.
    pub fn set_context(&mut self, context: Context) {
        self.context = context;
    }

    fn context(&mut self, tag: Tag) -> Context {
        self.requests += 1;
        let tag = if tag == Tag::NONE { self.context.tag } else { tag };
        Context { tag, ..self.context.child(self.requests) }
    }

    fn complete(&mut self, request: Request) -> io::Result<Buffer> {
        let Completion { result, buffer, .. } = (self.carry)(request);
        result.map(|()| buffer).map_err(io::Error::other)
    }

    fn read_below(&mut self, start: u64, length: usize) -> io::Result<Buffer> {
        let context = self.context(Tag::current());
        let buffer = self.complete(Request::read(start, Buffer::stale(length), context))?;
        if buffer.len() == length {
            return Ok(buffer);
        }
        Err(io::Error::other(Error::new(ErrorKind::Internal, "a read came back with another length")))
    }

    fn write_below(&mut self, start: u64, data: Buffer, tag: Tag) -> io::Result<Buffer> {
        let context = self.context(tag);
        self.complete(Request::write(start, data, context))
    }

    /// Bytes of the unit that begins at `start`; the device may end within the last.
    fn unit_length(&self, start: u64) -> usize {
        self.unit_bytes.min(self.info.size - start) as usize
    }

    /// How many bytes in whole units can be moved from the position on, for `length` bytes.
    fn whole_units(&self, length: usize) -> usize {
        let unit_bytes = self.unit_bytes as usize;
        if !self.position.is_multiple_of(self.unit_bytes) {
            return 0;
        }
        let left = usize::try_from(self.info.size - self.position).unwrap_or(usize::MAX);
        let length = length.min(left).min(REQUEST_BYTES_MAX.max(unit_bytes));
        length - length % unit_bytes
    }

    /// The bytes from the position to the end of its unit; none at the end of the device.
    fn left_in_unit(&self) -> usize {
        if self.position >= self.info.size {
            return 0;
        }
        let start = self.position - self.position % self.unit_bytes;
        self.unit_length(start) - (self.position - start) as usize
    }

    /// The cached unit around the position, read if it is not there yet.
    fn unit(&mut self) -> io::Result<&mut Unit> {
        let start = self.position - self.position % self.unit_bytes;
        if let Some(at) = self.units.iter().position(|unit| unit.start == start) {
            self.units[at..].rotate_left(1);
        } else {
            if self.units.len() == UNITS_MAX {
                self.write_back(0)?;
                self.units.remove(0);
            }
            let data = self.read_below(start, self.unit_length(start))?;
            self.units.push(Unit { start, data, dirty: None });
        }
        Ok(self.units.last_mut().expect("it is there now"))
    }

    /// Writes a cached unit if it was changed. One that cannot be written stays to be.
    fn write_back(&mut self, at: usize) -> io::Result<()> {
        let Some(tag) = self.units[at].dirty else { return Ok(()) };
        let data = Buffer::copy_of(&self.units[at].data);
        self.write_below(self.units[at].start, data, tag)?;
        self.units[at].dirty = None;
        Ok(())
    }
}

impl<C: FnMut(Request) -> Completion> Read for ByteStream<C> {
    /// At most what is left of the unit, or whole units.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let whole = self.whole_units(into.len());
        let count = if whole > 0 {
            let range = self.position..self.position + whole as u64;
            for at in 0..self.units.len() {
                if range.contains(&self.units[at].start) {
                    self.write_back(at)?;
                }
            }
            let data = self.read_below(self.position, whole)?;
            into[..whole].copy_from_slice(&data);
            whole
        } else {
            let count = self.left_in_unit().min(into.len());
            if count > 0 {
                let from = (self.position % self.unit_bytes) as usize;
                into[..count].copy_from_slice(&self.unit()?.data[from..from + count]);
            }
            count
        };
        self.position += count as u64;
        Ok(count)
    }
}

impl<C: FnMut(Request) -> Completion> Write for ByteStream<C> {
    /// At most what is left of the unit, or whole units. Nothing at the end of the device.
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let whole = self.whole_units(from.len());
        let count = if whole > 0 {
            self.write_below(self.position, Buffer::copy_of(&from[..whole]), Tag::current())?;
            // What was cached of it is old now.
            let range = self.position..self.position + whole as u64;
            self.units.retain(|unit| !range.contains(&unit.start));
            whole
        } else {
            let count = self.left_in_unit().min(from.len());
            if count > 0 {
                let at = (self.position % self.unit_bytes) as usize;
                let unit = self.unit()?;
                unit.data[at..at + count].copy_from_slice(&from[..count]);
                unit.dirty = Some(Tag::current());
            }
            count
        };
        self.position += count as u64;
        Ok(count)
    }

    /// Writes what is cached, lowest place first, and makes everything durable.
    fn flush(&mut self) -> io::Result<()> {
        let mut dirty: Vec<(u64, usize)> = (0..self.units.len())
            .filter(|&at| self.units[at].dirty.is_some())
            .map(|at| (self.units[at].start, at))
            .collect();
        dirty.sort_unstable();
        for (_, at) in dirty {
            self.write_back(at)?;
        }
        let context = self.context(Tag::current());
        self.complete(Request::flush(context)).map(drop)
    }
}

impl<C> Seek for ByteStream<C> {
    /// Fails beyond the end of the device and before its beginning.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.info.size.checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        let size = self.info.size;
        let position = position.filter(|&position| position <= size).ok_or_else(|| {
            let text = format!("seeking to {to:?} leaves the device of {size} bytes");
            io::Error::other(Error::new(ErrorKind::OutOfRange, text))
        })?;
        self.position = position;
        Ok(position)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;
    use crate::leaf::MemoryDevice;
    use crate::{Operation, Phase};

    const SIZE: u64 = 64 * 4096 + 512;

    /// What has gone down, and what is to fail.
    #[derive(Default)]
    struct Log {
        requests: Vec<(Operation, u64, u64, Context)>,
        fails: bool,
    }

    fn stream(log: &Rc<RefCell<Log>>) -> ByteStream<impl FnMut(Request) -> Completion + use<>> {
        let device = MemoryDevice::new(SIZE, 512).expect("sizes fit");
        let runtime = Runtime::simulated(1);
        let queue = device.open_queue(&runtime).expect("memory opens");
        let log = Rc::clone(log);
        ByteStream::new(device.info(), move |request| {
            let Request { operation, offset, length, context, .. } = request;
            log.borrow_mut().requests.push((operation, offset, length, context));
            if log.borrow().fails {
                return request.fail(Error::medium());
            }
            runtime.block_on(queue.submit(request)).expect("memory answers at once")
        })
    }

    fn writes(log: &Log) -> Vec<(u64, u64, &'static str)> {
        let requests = log.requests.iter().filter(|request| request.0 == Operation::WRITE);
        requests.map(|&(_, offset, length, context)| (offset, length, context.tag.name())).collect()
    }

    #[test]
    fn whole_units_go_through_and_parts_are_gathered_under_the_tag_that_changed_them() {
        let log = Rc::new(RefCell::new(Log::default()));
        let mut stream = stream(&log);
        let origin = Context { id: 7, phase: Phase::Run, tag: Tag::intern("origin"), ..Context::default() };
        stream.set_context(origin);
        let (focal, bionic) = (Tag::intern("focal.img"), Tag::intern("bionic.img"));
        focal.scope(|| stream.write_all(&[1; 3 * 4096])).expect("there is room");
        for field in 0..100 {
            let tag = if field < 50 { focal } else { bionic };
            tag.scope(|| stream.write_all(&[field; 8])).expect("there is room");
        }
        stream.write_all(&[9; 8]).expect("there is room");
        assert_eq!(writes(&log.borrow()), [(0, 3 * 4096, "focal.img")]);
        bionic.scope(|| {
            stream.seek(SeekFrom::Start(20 * 4096 + 5)).expect("within the device");
            stream.write_all(&[7]).expect("there is room");
        });
        stream.flush().expect("memory flushes");
        let wanted =
            [(0, 3 * 4096, "focal.img"), (3 * 4096, 4096, "origin"), (20 * 4096, 4096, "bionic.img")];
        assert_eq!(writes(&log.borrow()), wanted);
        let log = log.borrow();
        assert_eq!(log.requests.last().expect("a flush").0, Operation::Flush);
        for (number, (.., context)) in (1..).zip(&log.requests) {
            assert_eq!((context.id, context.parent, context.phase), (number, 7, Phase::Run));
        }
    }

    #[test]
    fn an_error_comes_out_of_the_library_as_it_went_in_and_nothing_is_lost() {
        let log = Rc::new(RefCell::new(Log::default()));
        let mut stream = stream(&log);
        stream.write_all(&[1; 100]).expect("it is only cached");
        log.borrow_mut().fails = true;
        let error = Error::from_io(stream.flush().expect_err("writes fail"), "writing");
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Medium, "writing: input/output error".into())
        );
        log.borrow_mut().fails = false;
        stream.flush().expect("it works again");
        assert_eq!(writes(&log.borrow()), [(0, 4096, ""), (0, 4096, "")]);
        let beyond = stream.seek(SeekFrom::Start(SIZE + 1)).expect_err("outside");
        assert_eq!(Error::from_io(beyond, "seeking").kind(), ErrorKind::OutOfRange);
    }

    proptest! {
        #[test]
        fn any_use_of_a_stream_ends_as_that_of_an_array_would(
            steps in prop::collection::vec((0..SIZE, 0usize..20_000, any::<u8>(), any::<bool>()), 1..60),
        ) {
            let mut stream = stream(&Rc::default());
            let mut array = vec![0u8; SIZE as usize];
            for (place, length, byte, is_write) in steps {
                // Half of the places are beginnings of units.
                let place = if byte.is_multiple_of(2) { place - place % 4096 } else { place };
                stream.seek(SeekFrom::Start(place)).expect("within the device");
                let end = (place as usize + length).min(array.len());
                let part = &mut array[place as usize..end];
                if is_write {
                    part.fill(byte);
                    stream.write_all(part).expect("it fits");
                } else {
                    let mut found = vec![!byte; part.len()];
                    stream.read_exact(&mut found).expect("it is there");
                    prop_assert!(found == part, "at {} for {}", place, length);
                }
            }
            let mut found = Vec::new();
            stream.seek(SeekFrom::Start(0)).expect("within the device");
            stream.read_to_end(&mut found).expect("all of it");
            prop_assert!(found == array);
            prop_assert_eq!(stream.write(&[1]).expect("no room is no error"), 0);
        }
    }
}
