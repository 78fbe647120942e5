//! The path of a request. Blocks that lie behind each other and are the present's alone go down as they are, at another place;
//! all else takes the long way.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::{
    Buffer, Completion, Context, Error, ErrorKind, Operation, Queue, Request, Result, Submission,
};

use super::Shared;
use super::space_block::SpaceBlock;
use crate::io::Io;
use crate::table::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that are written at once on the long way.
const PART_BLOCKS: u64 = 1024;

#[derive(Clone)]
pub(super) struct VersionsQueue(Rc<Inner>);

struct Inner {
    io: Io,
    shared: Arc<Shared>,
    /// A version is being captured by this queue.
    is_capturing: Cell<bool>,
}

/// Bytes of a request that lie together below, or nowhere.
struct Segment {
    /// Bytes of the request.
    within: Range<usize>,
    /// The first of them on the device below; `None` for a block without content.
    at: Option<u64>,
}

/// What the long way of a write came to.
enum Written {
    Done(Result<()>),
    /// There is no room for it.
    NoRoom,
}

impl VersionsQueue {
    pub(super) fn new(io: Io, shared: Arc<Shared>) -> Self {
        Self(Rc::new(Inner { io, shared, is_capturing: Cell::new(false) }))
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Where a place begins on the device below.
    fn at(&self, place: SpaceBlock) -> u64 {
        self.shared().kept.space_at + u64::from(place - 1) * BLOCK_BYTES
    }

    /// The segments of a range of bytes, by the places of its blocks.
    fn segments(
        &self,
        bytes: &Range<u64>,
        mut place: impl FnMut(u64) -> Result<SpaceBlock>,
    ) -> Result<Vec<Segment>> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut offset = bytes.start;
        while offset < bytes.end {
            let block = offset / BLOCK_BYTES;
            let end = ((block + 1) * BLOCK_BYTES).min(bytes.end);
            let at = match place(block)? {
                0 => None,
                place => Some(self.at(place) + offset % BLOCK_BYTES),
            };
            let within = (offset - bytes.start) as usize..(end - bytes.start) as usize;
            match segments.last_mut() {
                Some(last) if follows(last, at) => last.within.end = within.end,
                _ => segments.push(Segment { within, at }),
            }
            offset = end;
        }
        Ok(segments)
    }

    fn read(&self, request: Request) -> Submission {
        if self.shared().half_back_to.load(Ordering::Acquire) != 0
            && let Err(error) = self.shared().refuse_stuck()
        {
            return request.fail(error).into();
        }
        let table = &self.shared().table;
        let pages = table.layout().pages_of(&blocks_of(&request));
        // Entered before the map is asked, so that nothing is used anew that it says.
        let reading = self.shared().epochs.enter();
        if !table.try_hold(pages.clone()) {
            let queue = self.clone();
            return Submission::pending(async move {
                let table = &queue.shared().table;
                if let Err(error) = table.hold(&queue.0.io, pages.clone(), request.context).await {
                    return request.fail(error);
                }
                let submission = queue.read_at(request, |block| queue.shared().place(block));
                table.release(pages);
                let completion = submission.await;
                drop(reading);
                completion
            });
        }
        let submission = self.read_at(request, |block| self.shared().place(block));
        table.release(pages);
        match submission.try_take() {
            Ok(completion) => completion.into(),
            Err(submission) => Submission::pending(async move {
                let completion = submission.await;
                drop(reading);
                completion
            }),
        }
    }

    /// Reads from the places that `place` says.
    pub(super) fn read_at(
        &self,
        mut request: Request,
        place: impl FnMut(u64) -> Result<SpaceBlock>,
    ) -> Submission {
        let segments = match self.segments(&(request.offset..request.end()), place) {
            Ok(segments) => segments,
            Err(error) => return request.fail(error).into(),
        };
        if let [Segment { at: Some(at), .. }] = segments[..] {
            return self.0.io.queue.submit(Request { offset: at, ..request });
        }
        let mut children = Vec::new();
        for Segment { within, at } in segments {
            let Some(at) = at else {
                request.buffer[within].fill(0);
                continue;
            };
            let child = Request::read(at, Buffer::stale(within.len()), self.0.io.child(request.context));
            children.push((within, self.0.io.queue.submit(child)));
        }
        if children.is_empty() {
            return request.succeed().into();
        }
        Submission::pending(async move {
            let mut result = Ok(());
            for (within, child) in children {
                let completion = child.await;
                if completion.result.is_ok() {
                    request.buffer[within].copy_from_slice(&completion.buffer);
                }
                result = result.and(completion.result);
            }
            Completion { result, buffer: request.buffer, context: request.context }
        })
    }

    fn write(&self, request: Request, fua: bool) -> Submission {
        self.capture_if_due();
        if !fua && let Some(prepared) = self.prepare(&request) {
            let (at, guards) = prepared;
            return match self.0.io.queue.submit(Request { offset: at, ..request }).try_take() {
                Ok(completion) => completion.into(),
                Err(submission) => Submission::pending(async move {
                    let completion = submission.await;
                    drop(guards);
                    completion
                }),
            };
        }
        let queue = self.clone();
        Submission::pending(async move {
            let (context, bytes) = (request.context, request.offset..request.end());
            let mut result = queue.write_long(bytes, Some(&request.buffer), context).await;
            if fua && result.is_ok() {
                result = queue.shared().flush(&queue.0.io, context).await;
            }
            Completion { result, buffer: request.buffer, context }
        })
    }

    /// Where a write goes in place as a whole, and what keeps it so, if nothing has to be waited for.
    fn prepare(&self, request: &Request) -> Option<(u64, impl Sized + use<>)> {
        let shared = self.shared();
        let blocks = blocks_of(request);
        if blocks.end - blocks.start > shared.claims.most() {
            return None;
        }
        let inside = shared.gate.try_enter()?;
        // Inside, as what makes it so keeps everybody out.
        if shared.is_stuck.load(Ordering::SeqCst) || shared.half_back_to.load(Ordering::SeqCst) != 0 {
            return None;
        }
        let claim = shared.claims.try_claim(blocks.clone())?;
        let pages = shared.table.layout().pages_of(&blocks);
        if !shared.table.try_hold(pages.clone()) {
            return None;
        }
        let first = shared.place(blocks.start).unwrap_or(0);
        let in_place = blocks.clone().zip(first..).all(|(block, wanted)| {
            shared.place(block).is_ok_and(|place| place == wanted && shared.is_ours(block, place))
        });
        shared.table.release(pages);
        in_place.then(|| (self.at(first) + request.offset % BLOCK_BYTES, (inside, claim)))
    }

    /// Writes a range of bytes, or clears it.
    async fn write_long(&self, bytes: Range<u64>, data: Option<&[u8]>, context: Context) -> Result<()> {
        let step = self.shared().claims.most().min(PART_BLOCKS) * BLOCK_BYTES;
        let mut at = bytes.start;
        while at < bytes.end {
            let end = ((at / step + 1) * step).min(bytes.end);
            let part = data.map(|data| &data[(at - bytes.start) as usize..(end - bytes.start) as usize]);
            loop {
                match self.write_part(at..end, part, context).await {
                    Written::Done(result) => break result?,
                    Written::NoRoom if self.shared().make_room(&self.0.io, context).await? => {}
                    Written::NoRoom => return Err(self.shared().no_room()),
                }
            }
            at = end;
        }
        Ok(())
    }

    async fn write_part(&self, bytes: Range<u64>, data: Option<&[u8]>, context: Context) -> Written {
        let (shared, io) = (self.shared(), &self.0.io);
        let _inside = shared.gate.enter().await;
        if let Err(error) = shared.refuse_stuck() {
            return Written::Done(Err(error));
        }
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let _claim = shared.claims.claim(blocks.clone()).await;
        let pages = shared.table.layout().pages_of(&blocks);
        if let Err(error) = shared.table.hold(io, pages.clone(), context).await {
            return Written::Done(Err(error));
        }
        let mut written = Written::Done(Ok(()));
        for page in pages.clone() {
            if let Err(error) = shared.enter(io, page, context).await {
                shared.table.leave(&(pages.start..page));
                shared.table.release(pages);
                return Written::Done(Err(error));
            }
        }
        let is_whole = (bytes.start | bytes.end).is_multiple_of(BLOCK_BYTES);
        match data {
            Some(data) => written = self.write_blocks(&bytes, data, context).await,
            None if !is_whole => {
                let zeros = Buffer::zeroed((bytes.end - bytes.start) as usize);
                written = self.write_blocks(&bytes, &zeros, context).await;
            }
            None if shared.try_allocate(0).is_none() => written = Written::NoRoom,
            None => blocks
                .filter(|block| shared.place(*block).unwrap_or(1) != 0)
                .for_each(|block| shared.move_to(block, 0)),
        }
        for page in pages.clone() {
            shared.table.leave(&(page..page + 1));
        }
        shared.table.release(pages);
        written
    }

    /// Writes data to blocks that are claimed and whose pages are held: in place, or to new places that the map then says.
    async fn write_blocks(&self, bytes: &Range<u64>, data: &[u8], context: Context) -> Written {
        let shared = self.shared();
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let is_ours = |block: &u64| shared.place(*block).is_ok_and(|place| shared.is_ours(*block, place));
        let moved: Vec<u64> = blocks.filter(|block| !is_ours(block)).collect();
        let Some(room) = shared.try_allocate(moved.len() as u64) else { return Written::NoRoom };
        let places: Vec<(u64, SpaceBlock)> = moved
            .into_iter()
            .zip(room.iter().cloned().flatten().map(|block| block as SpaceBlock + 1))
            .collect();
        let result = self.write_to(bytes, data, &places, context).await;
        match &result {
            Ok(()) => places.iter().for_each(|(block, place)| shared.move_to(*block, *place)),
            Err(_) => room.into_iter().for_each(|blocks| shared.kept.space.give_back(blocks)),
        }
        Written::Done(result)
    }

    /// Writes data, those of some blocks to new places. Of such a block all is written: what the data leave out is as before.
    async fn write_to(
        &self,
        bytes: &Range<u64>,
        data: &[u8],
        places: &[(u64, SpaceBlock)],
        context: Context,
    ) -> Result<()> {
        let (shared, io) = (self.shared(), &self.0.io);
        let new_place =
            |block: u64| places.binary_search_by_key(&block, |(block, _)| *block).ok().map(|at| places[at].1);
        // Whole blocks where they move.
        let first = bytes.start / BLOCK_BYTES;
        let last = (bytes.end - 1) / BLOCK_BYTES;
        let (mut start, mut end) = (bytes.start, bytes.end);
        let mut whole: Option<Vec<u8>> = None;
        for block in [first, last] {
            let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
            let is_part = range.start < bytes.start || bytes.end < range.end;
            if !is_part || new_place(block).is_none() {
                continue;
            }
            let place = shared.place(block)?;
            let before = match place {
                0 => Buffer::zeroed(BLOCK),
                place => io.read(self.at(place), BLOCK, context).await?,
            };
            let whole = whole.get_or_insert_with(|| data.to_vec());
            if range.start < start {
                let missing = (start - range.start) as usize;
                whole.splice(..0, before[..missing].iter().copied());
                start = range.start;
            }
            if range.end > end {
                let missing = (range.end - end) as usize;
                whole.extend_from_slice(&before[BLOCK - missing..]);
                end = range.end;
            }
        }
        let data = whole.as_deref().unwrap_or(data);
        let place = |block: u64| new_place(block).map_or_else(|| shared.place(block), Ok);
        let mut children = Vec::new();
        for Segment { within, at } in self.segments(&(start..end), place)? {
            let at =
                at.ok_or_else(|| Error::new(ErrorKind::Internal, "a block that is written has a place"))?;
            let request = Request::write(at, Buffer::copy_of(&data[within]), io.child(context));
            children.push(io.queue.submit(request));
        }
        let mut result = Ok(());
        for child in children {
            result = result.and(child.await.result);
        }
        result
    }

    /// Begins to capture a version by itself, if it is time.
    fn capture_if_due(&self) {
        let shared = self.shared();
        let Some(every) = shared.options.every else { return };
        let now = self.0.io.runtime.now().0;
        let since = now.saturating_sub(shared.captured_at.load(Ordering::Relaxed));
        if since < every.as_nanos() as u64 || shared.is_capturing.swap(true, Ordering::SeqCst) {
            return;
        }
        self.0.is_capturing.set(true);
        let queue = self.clone();
        self.0.io.runtime.spawn_detached(async move {
            let (shared, context) = (queue.shared(), Context::default());
            let time_ns = shared.options.epoch_ns + now;
            // Without room there is none this time; writes make room for themselves.
            let captured = shared.capture(&queue.0.io, "", time_ns, true, context).await;
            if captured.is_err() {
                shared.captured_at.store(now, Ordering::SeqCst);
            }
            // Those that are too many go at leisure; one that fails goes another time.
            while let Some(oldest) = shared.too_many() {
                let _turn = Arc::clone(&shared.changes).next().await;
                if shared.delete(&queue.0.io, oldest, context).await.is_err() {
                    break;
                }
                // If the map cannot be made durable now, a later flush frees what was held.
                let _ = shared.reclaim(&queue.0.io, context).await;
            }
            queue.0.is_capturing.set(false);
            shared.is_capturing.store(false, Ordering::SeqCst);
        });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_capturing.get() {
            // Its task was abandoned.
            self.shared.is_capturing.store(false, Ordering::SeqCst);
        }
    }
}

impl Shared {
    /// The oldest automatic version, if there are more than are to be kept.
    fn too_many(&self) -> Option<u64> {
        let state = self.kept.state.lock();
        let mut automatic = state.versions.iter().filter(|version| version.listed.is_automatic);
        let oldest = automatic.next()?.listed.id;
        (automatic.count() + 1 > self.options.keep.max(1)).then_some(oldest)
    }
}

/// Whether a part at `at` lies right behind a segment, or as it nowhere.
fn follows(last: &Segment, at: Option<u64>) -> bool {
    match (last.at, at) {
        (None, None) => true,
        (Some(before), Some(at)) => before + last.within.len() as u64 == at,
        _ => false,
    }
}

/// The blocks that a request touches.
pub(super) fn blocks_of(request: &Request) -> Range<u64> {
    request.offset / BLOCK_BYTES..request.end().div_ceil(BLOCK_BYTES)
}

impl Queue for VersionsQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.shared().info.check(&request) {
            return request.fail(error).into();
        }
        if request.length == 0 && request.operation != Operation::Flush {
            return request.succeed().into();
        }
        let queue = self.clone();
        match request.operation {
            Operation::Read => self.read(request),
            Operation::Write { fua } => self.write(request, fua),
            Operation::Flush => Submission::pending(async move {
                match queue.shared().flush(&queue.0.io, request.context).await {
                    Ok(()) => request.succeed(),
                    Err(error) => request.fail(error),
                }
            }),
            Operation::Discard | Operation::WriteZeroes => Submission::pending(async move {
                match queue.write_long(request.offset..request.end(), None, request.context).await {
                    Ok(()) => request.succeed(),
                    Err(error) => request.fail(error),
                }
            }),
        }
    }
}
