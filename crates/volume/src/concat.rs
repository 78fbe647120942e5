//! Several devices, one behind the other, as one.
//!
//! Owns where a byte lies. A request that reaches over a seam becomes a child for each part; a flush goes to all. What a
//! device of several can do is what all of them can.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::children::{Children, join};
use rotproof_block::{
    Buffer, Completion, Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Result,
    Runtime, Submission,
};

/// Several devices as one.
pub struct ConcatDevice {
    parts: Vec<Arc<dyn Device>>,
    /// The first byte of each, and the end of the last.
    starts: Arc<[u64]>,
    info: DeviceInfo,
}

impl ConcatDevice {
    /// The devices of `parts` in their order, each as far as it holds whole blocks of the largest block size.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there is none, or if one does not end at such a block.
    pub fn new(parts: Vec<Arc<dyn Device>>) -> Result<Arc<Self>> {
        let infos: Vec<DeviceInfo> = parts.iter().map(|part| part.info()).collect();
        let Some(block_size) = infos.iter().map(|info| info.block_size).max() else {
            return Err(Error::new(ErrorKind::Invalid, "no devices to put one behind the other"));
        };
        let mut starts = vec![0];
        for info in &infos {
            if !info.size.is_multiple_of(block_size.into()) {
                let context =
                    format!("{} bytes are no multiple of the largest block, {block_size}", info.size);
                return Err(Error::new(ErrorKind::Invalid, context));
            }
            starts.push(starts.last().copied().unwrap_or(0) + info.size);
        }
        let all = |has: fn(&Features) -> bool| infos.iter().all(|info| has(&info.features));
        let info = DeviceInfo {
            size: starts.last().copied().unwrap_or(0),
            block_size,
            // A request over a seam is torn there, which is at a multiple of this.
            atomic_write_bytes: infos
                .iter()
                .map(|info| info.atomic_write_bytes)
                .min()
                .unwrap_or(block_size)
                .max(block_size)
                .min(alignment(&starts)),
            read_only: infos.iter().any(|info| info.read_only),
            features: Features {
                flush: infos.iter().any(|info| info.features.flush),
                fua: all(|features| features.fua),
                discard: all(|features| features.discard),
                write_zeroes: all(|features| features.write_zeroes),
            },
        };
        Ok(Arc::new(Self { parts, starts: starts.into(), info }))
    }
}

/// The largest power of two of which every seam is a multiple.
fn alignment(starts: &[u64]) -> u32 {
    let seams = starts.iter().fold(0, |all, start| all | start);
    1 << seams.trailing_zeros().min(31)
}

impl Device for ConcatDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let parts = self.parts.iter().map(|part| part.open_queue(runtime)).collect::<Result<_>>()?;
        Ok(Rc::new(ConcatQueue {
            parts,
            starts: Arc::clone(&self.starts),
            info: self.info,
            children: Children::default(),
        }))
    }
}

impl fmt::Debug for ConcatDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConcatDevice({:?})", self.starts)
    }
}

struct ConcatQueue {
    parts: Vec<Rc<dyn Queue>>,
    starts: Arc<[u64]>,
    info: DeviceInfo,
    children: Children,
}

impl ConcatQueue {
    /// Which part has the byte at `offset`.
    fn part_of(&self, offset: u64) -> usize {
        self.starts.partition_point(|&start| start <= offset).saturating_sub(1).min(self.parts.len() - 1)
    }

    /// The bytes of the device that the part is.
    fn range(&self, part: usize) -> Range<u64> {
        self.starts[part]..self.starts[part + 1]
    }
}

impl Queue for ConcatQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        if request.operation == Operation::Flush {
            return self.flush(request);
        }
        let part = self.part_of(request.offset);
        let range = self.range(part);
        if request.end() <= range.end || request.length == 0 {
            let offset = request.offset - range.start;
            return self.parts[part].submit(Request { offset, ..request });
        }
        self.split(request)
    }
}

impl ConcatQueue {
    fn flush(&self, request: Request) -> Submission {
        let context = request.context;
        let all: Vec<Submission> =
            self.parts.iter().map(|part| part.submit(Request::flush(self.children.of(context)))).collect();
        Submission::pending(async move {
            let mut result = Ok(());
            for completion in join(all).await {
                result = result.and(completion.result);
            }
            Completion { result, buffer: request.buffer, context }
        })
    }

    /// A request over a seam.
    fn split(&self, mut request: Request) -> Submission {
        let mut children = Vec::new();
        let mut offset = request.offset;
        while offset < request.end() {
            let part = self.part_of(offset);
            let range = self.range(part);
            let end = request.end().min(range.end);
            let bytes = (offset - request.offset) as usize..(end - request.offset) as usize;
            let buffer = match request.operation {
                Operation::Write { .. } => Buffer::copy_of(&request.buffer[bytes.clone()]),
                Operation::Read => Buffer::stale(bytes.len()),
                _ => Buffer::empty(),
            };
            let child = Request {
                operation: request.operation,
                offset: offset - range.start,
                length: end - offset,
                buffer,
                context: self.children.of(request.context),
            };
            children.push((bytes, self.parts[part].submit(child)));
            offset = end;
        }
        Submission::pending(async move {
            let (places, submissions): (Vec<_>, Vec<_>) = children.into_iter().unzip();
            let mut result = Ok(());
            for (place, completion) in places.into_iter().zip(join(submissions).await) {
                if request.operation == Operation::Read && completion.result.is_ok() {
                    request.buffer[place].copy_from_slice(&completion.buffer);
                }
                result = result.and(completion.result);
            }
            Completion { result, buffer: request.buffer, context: request.context }
        })
    }
}

#[cfg(test)]
mod tests {
    use rotproof_block::Context;
    use rotproof_block::conformance;
    use rotproof_block::leaf::MemoryDevice;

    use super::*;

    fn memory(bytes: u64, block_size: u32) -> Arc<dyn Device> {
        MemoryDevice::new(bytes, block_size).expect("sizes that fit")
    }

    fn concat(sizes: &[u64]) -> Arc<ConcatDevice> {
        ConcatDevice::new(sizes.iter().map(|&size| memory(size, 512)).collect()).expect("sizes that fit")
    }

    #[test]
    fn it_is_a_device() {
        for on in [conformance::On::Simulated, conformance::On::Uring] {
            let make = || -> Result<Arc<dyn Device>> { Ok(concat(&[1 << 20, 512, 200 << 10, 3 << 20])) };
            if let Err(breach) = conformance::check(on, &make) {
                panic!("{on:?}: {breach}");
            }
        }
    }

    #[test]
    fn bytes_lie_where_their_part_has_them_also_over_seams() {
        let parts = [memory(8192, 512), memory(512, 512), memory(8192, 512)];
        let device = ConcatDevice::new(parts.to_vec()).expect("sizes that fit");
        assert_eq!(device.info().size, 8192 + 512 + 8192);
        let runtime = Runtime::simulated(1);
        let queue = device.open_queue(&runtime).expect("opens");
        let data: Vec<u8> = (0..2048u32).flat_map(u32::to_le_bytes).collect();
        let write = Request::write(4096, Buffer::copy_of(&data), Context::default());
        runtime.block_on(queue.submit(write)).expect("completes").result.expect("written");
        let read = |device: &dyn Device, offset: u64, length: usize| {
            let queue = device.open_queue(&runtime).expect("opens");
            let read = queue.submit(Request::read(offset, Buffer::zeroed(length), Context::default()));
            let completion = runtime.block_on(read).expect("completes");
            completion.result.expect("read");
            completion.buffer.to_vec()
        };
        assert_eq!(read(&*device, 4096, 8192), data);
        assert_eq!(read(&*parts[0], 4096, 4096), data[..4096]);
        assert_eq!(read(&*parts[1], 0, 512), data[4096..4608]);
        assert_eq!(read(&*parts[2], 0, 3584), data[4608..]);
    }

    #[test]
    fn what_does_not_end_at_a_block_is_refused() {
        let error = ConcatDevice::new(vec![memory(512, 512), memory(4096, 4096)]).expect_err("half a block");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(ConcatDevice::new(Vec::new()).is_err());
    }
}
