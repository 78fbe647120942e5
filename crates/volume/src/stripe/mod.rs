//! Several devices as one, a chunk on each in turn (RAID-0).
//!
//! Owns where a byte lies. A request inside one chunk is passed on as it is; a larger one becomes one child for each part,
//! since what it asks of a part lies there in one piece. Nothing is kept twice: a byte of a part that is gone is gone. Where all
//! parts keep copies, so does the stripe: see `copies`.

mod copies;
mod geometry;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::children::{Children, join};
use rotproof_block::{
    Buffer, Completion, Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Result,
    Runtime, Submission,
};

use geometry::{Geometry, Share};

/// The chunk that DARC uses, and most others.
pub const CHUNK_BYTES_DEFAULT: u32 = 64 << 10;

/// Several devices as one, striped.
pub struct StripeDevice {
    parts: Vec<Arc<dyn Device>>,
    geometry: Geometry,
    info: DeviceInfo,
}

impl StripeDevice {
    /// The devices of `parts` in their order, in chunks of `chunk_bytes`. Of each as much is used as the smallest has whole
    /// chunks.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there is no device, if a chunk is no power of two or smaller than a block, or if
    /// the smallest device has no whole chunk.
    pub fn new(parts: Vec<Arc<dyn Device>>, chunk_bytes: u32) -> Result<Arc<Self>> {
        let geometry = Geometry::new(chunk_bytes, parts.len())?;
        let infos: Vec<DeviceInfo> = parts.iter().map(|part| part.info()).collect();
        let block_size = infos.iter().map(|info| info.block_size).max().unwrap_or(512);
        if chunk_bytes < block_size {
            let context = format!("a chunk of {chunk_bytes} bytes is smaller than a block of {block_size}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let size = stripe_size(infos.iter().map(|info| info.size), chunk_bytes).unwrap_or(0);
        if size == 0 {
            let context = format!("the smallest device has no whole chunk of {chunk_bytes} bytes");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let all = |has: fn(&Features) -> bool| infos.iter().all(|info| has(&info.features));
        let atomic = infos.iter().map(|info| info.atomic_write_bytes).min().unwrap_or(block_size);
        let info = DeviceInfo {
            size,
            block_size,
            // A request over the edge of a chunk may be torn there.
            atomic_write_bytes: atomic.clamp(block_size, chunk_bytes),
            read_only: infos.iter().any(|info| info.read_only),
            features: Features {
                flush: infos.iter().any(|info| info.features.flush),
                fua: all(|features| features.fua),
                discard: all(|features| features.discard),
                write_zeroes: all(|features| features.write_zeroes),
            },
        };
        Ok(Arc::new(Self { parts, geometry, info }))
    }
}

/// Bytes of a stripe over devices of these sizes; `None` of none, or if it is more than can be counted.
pub fn stripe_size(parts: impl Iterator<Item = u64>, chunk_bytes: u32) -> Option<u64> {
    let chunk = u64::from(chunk_bytes.max(1));
    let (count, smallest) = parts.fold((0u64, u64::MAX), |(count, least), size| (count + 1, least.min(size)));
    (count > 0).then(|| (smallest / chunk * chunk).checked_mul(count)).flatten()
}

/// Where on a stripe of so many parts the byte at `offset` of a part is to be seen; `None` for one behind its last whole chunk.
pub fn stripe_place(part: usize, offset: u64, parts: &[u64], chunk_bytes: u32) -> Option<u64> {
    let geometry = Geometry::new(chunk_bytes, parts.len()).ok()?;
    let used = parts.iter().min()? / geometry.chunk * geometry.chunk;
    (offset < used).then(|| geometry.whole(part, offset))
}

/// Where the byte at `offset` of a stripe over so many parts lies: the number of the part, and the offset there. `None` for a
/// geometry that cannot be.
pub fn stripe_part(offset: u64, parts: usize, chunk_bytes: u32) -> Option<(usize, u64)> {
    Geometry::new(chunk_bytes, parts).ok().map(|geometry| geometry.place(offset))
}

impl Device for StripeDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let parts = self.parts.iter().map(|part| part.open_queue(runtime)).collect::<Result<_>>()?;
        Ok(Rc::new(StripeQueue {
            parts,
            geometry: self.geometry,
            info: self.info,
            children: Children::default(),
        }))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        copies::ability(&self.parts, self.geometry, self.info, wanted)
    }
}

impl fmt::Debug for StripeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StripeDevice({:?})", self.geometry)
    }
}

struct StripeQueue {
    parts: Vec<Rc<dyn Queue>>,
    geometry: Geometry,
    info: DeviceInfo,
    children: Children,
}

impl Queue for StripeQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        if request.operation == Operation::Flush {
            let count = self.parts.len();
            return flush_all(request, &self.children, count, &|part, child| self.parts[part].submit(child));
        }
        deal(self.geometry, &self.children, request, &|part, child| self.parts[part].submit(child))
    }
}

/// Sends a flush to all parts.
fn flush_all(
    request: Request,
    children: &Children,
    parts: usize,
    submit: &dyn Fn(usize, Request) -> Submission,
) -> Submission {
    let context = request.context;
    let all: Vec<Submission> =
        (0..parts).map(|part| submit(part, Request::flush(children.of(context)))).collect();
    Submission::pending(async move {
        let mut result = Ok(());
        for completion in join(all).await {
            result = result.and(completion.result);
        }
        Completion { result, buffer: request.buffer, context }
    })
}

/// Deals a request out to the parts that it touches, with `submit`. It is no flush, and has been checked.
fn deal(
    geometry: Geometry,
    children: &Children,
    request: Request,
    submit: &dyn Fn(usize, Request) -> Submission,
) -> Submission {
    if geometry.is_within_chunk(request.offset, request.length) {
        let (part, offset) = geometry.place(request.offset);
        // Nothing at the very end may belong to a chunk that is not there.
        return submit(part, Request { offset: if request.length == 0 { 0 } else { offset }, ..request });
    }
    let mut under_way: Vec<(Share, Submission)> = Vec::with_capacity(geometry.parts as usize);
    for share in geometry.shares(request.offset..request.end()) {
        let length = share.range.end - share.range.start;
        let buffer = match request.operation {
            Operation::Write { .. } => gather(geometry, &share, &request),
            Operation::Read => Buffer::stale(length as usize),
            _ => Buffer::empty(),
        };
        let child = Request {
            operation: request.operation,
            offset: share.range.start,
            length,
            buffer,
            context: children.of(request.context),
        };
        let submission = submit(share.part, child);
        under_way.push((share, submission));
    }
    Submission::pending(finish(geometry, request, under_way))
}

/// The bytes of a write that go to one part.
fn gather(geometry: Geometry, share: &Share, request: &Request) -> Buffer {
    let mut buffer = Buffer::stale((share.range.end - share.range.start) as usize);
    for (whole, piece) in geometry.pieces(share) {
        let start = (whole - request.offset) as usize;
        let length = piece.len();
        buffer[piece].copy_from_slice(&request.buffer[start..start + length]);
    }
    buffer
}

/// Waits for all children of a request, and puts together what they have read.
async fn finish(geometry: Geometry, mut request: Request, under_way: Vec<(Share, Submission)>) -> Completion {
    let (shares, submissions): (Vec<_>, Vec<_>) = under_way.into_iter().unzip();
    let mut result = Ok(());
    for (share, completion) in shares.into_iter().zip(join(submissions).await) {
        if request.operation == Operation::Read && completion.result.is_ok() {
            for (whole, piece) in geometry.pieces(&share) {
                let start = (whole - request.offset) as usize;
                request.buffer[start..start + piece.len()].copy_from_slice(&completion.buffer[piece]);
            }
        }
        result = result.and(completion.result);
    }
    Completion { result, buffer: request.buffer, context: request.context }
}

#[cfg(test)]
mod tests;
