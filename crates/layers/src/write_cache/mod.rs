//! The layer that is a volatile write cache: a write is acknowledged when it is in memory, and the device below has it
//! when somebody flushes, when the write itself asks for it (FUA), or when the cache is full.
//!
//! It can lose its power ([`Power`]), and then shows what the contract of `device.rs` allows to be lost. It can lie: a
//! flush, or FUA, or both are acknowledged and ignored. Beyond that it keeps the contract like any other device.

mod log;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::turns::Turns;
use rotproof_block::{
    Buffer, Completion, Device, DeviceInfo, Error, ErrorKind, Features, Kept, Operation, Power, Queue,
    Request, Result, Runtime, Submission,
};

use crate::below::ability_below;
use log::{Age, Entry, Log};

/// Which writes leave a full cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteBack {
    /// Those that came first.
    #[default]
    Oldest,
    /// Any, drawn from the runtime's seed, after those that they cover.
    Random,
}

/// What a cache acknowledges without doing it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    /// A flush does nothing.
    pub flush: bool,
    /// A write with force unit access is one without.
    pub fua: bool,
}

/// What a cache is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCacheOptions {
    /// Bytes of data that it holds. A write that does not fit waits until half of it is free; one that is larger than
    /// half waits until the cache is empty.
    pub bytes: u64,
    /// Which writes leave when it is full.
    pub write_back: WriteBack,
    /// A power cut tears writes at multiples of this only; a power of two of at least the block below.
    pub atomic_unit_bytes: u32,
    /// What it does not do.
    pub lies: Lies,
}

impl Default for WriteCacheOptions {
    /// Honest, 64 MiB, the oldest first, torn at 4 KiB.
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            write_back: WriteBack::Oldest,
            atomic_unit_bytes: 4096,
            lies: Lies::default(),
        }
    }
}

/// See the head of the module.
pub struct WriteCacheDevice {
    below: Arc<dyn Device>,
    info: DeviceInfo,
    shared: Arc<Shared>,
}

struct Shared {
    options: WriteCacheOptions,
    state: Mutex<State>,
    turns: Arc<Turns>,
}

struct State {
    log: Log,
    is_on: bool,
    /// How often the power has gone: whoever waited across a cut notices.
    cuts: u64,
    draws: u64,
    children: u64,
}

/// The stream of random numbers of a cache.
const STREAM: u64 = 0x6361_6368;
/// Ids of requests that the cache makes are far above those that origins count.
const FIRST_CHILD: u64 = 1 << 40;

impl WriteCacheDevice {
    /// A cache over `below`. Fails with [`ErrorKind::Invalid`] on a unit that is none, or a cache too small for anything.
    pub fn new(below: Arc<dyn Device>, options: WriteCacheOptions) -> Result<Arc<Self>> {
        let below_info = below.info();
        let unit = options.atomic_unit_bytes;
        if !unit.is_power_of_two() || unit < below_info.block_size {
            let context = format!(
                "a write cache with atomic units of {unit} bytes: a power of two of at least {}, the block below",
                below_info.block_size
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if options.bytes < u64::from(below_info.block_size) {
            let context = format!("a write cache of {} bytes holds no block", options.bytes);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let features = Features { flush: true, fua: true, ..below_info.features };
        let info = DeviceInfo { features, atomic_write_bytes: unit, ..below_info };
        let state = State { log: Log::default(), is_on: true, cuts: 0, draws: 0, children: FIRST_CHILD };
        let shared = Arc::new(Shared { options, state: Mutex::new(state), turns: Arc::default() });
        Ok(Arc::new(Self { below, info, shared }))
    }

    /// Bytes that the device below does not have yet.
    pub fn volatile_bytes(&self) -> u64 {
        self.shared.state.lock().log.bytes()
    }
}

impl Power for WriteCacheDevice {
    fn cut(&self, kept: Kept) {
        self.shared.cut(kept);
    }

    fn restore(&self) {
        self.shared.restore();
    }

    fn is_on(&self) -> bool {
        self.shared.is_on()
    }
}

impl Power for Shared {
    fn cut(&self, kept: Kept) {
        let mut state = self.state.lock();
        if state.is_on {
            state.is_on = false;
            state.cuts += 1;
            state.log.cut(kept, self.options.atomic_unit_bytes.into());
        }
    }

    fn restore(&self) {
        self.state.lock().is_on = true;
    }

    fn is_on(&self) -> bool {
        self.state.lock().is_on
    }
}

impl Device for WriteCacheDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(CacheQueue {
            below: self.below.open_queue(runtime)?,
            info: self.info,
            shared: Arc::clone(&self.shared),
            runtime: runtime.clone(),
        }))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        wanted
            .offer::<dyn Power>(|| Arc::<Shared>::clone(&self.shared))
            .or_else(|| ability_below(&*self.below, wanted))
    }
}

impl fmt::Debug for WriteCacheDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteCacheDevice({} bytes)", self.shared.options.bytes)
    }
}

#[derive(Clone)]
struct CacheQueue {
    below: Rc<dyn Queue>,
    info: DeviceInfo,
    shared: Arc<Shared>,
    runtime: Runtime,
}

fn without_power() -> Error {
    Error::new(ErrorKind::Gone, "the device does not answer")
}

impl Queue for CacheQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        let Shared { options, state, .. } = &*self.shared;
        let mut state = state.lock();
        if !state.is_on {
            return request.fail(without_power()).into();
        }
        if request.length == 0 && request.operation != Operation::Flush {
            return request.succeed().into();
        }
        let cuts = state.cuts;
        match request.operation {
            Operation::Read => {
                let stretches = state.log.stretches(&(request.offset..request.end()));
                self.read(request, &stretches, state)
            }
            Operation::Flush if options.lies.flush => request.succeed().into(),
            Operation::Flush => {
                let ages = state.log.ages();
                drop(state);
                let (queue, context) = (self.clone(), request.context);
                self.in_background(request, async move {
                    queue.write_back(&ages, None, cuts).await?;
                    queue.complete_below(Request::flush(context), cuts).await
                })
            }
            Operation::Write { fua: true } if !options.lies.fua => {
                let age = state.log.put(entry_of(&request));
                let ages = state.log.with_covered(age);
                drop(state);
                let queue = self.clone();
                self.in_background(request, async move { queue.write_back(&ages, Some(age), cuts).await })
            }
            _ => {
                let entry = entry_of(&request);
                if entry.data.is_none() || state.log.bytes() + request.length <= options.bytes {
                    state.log.put(entry);
                    return request.succeed().into();
                }
                drop(state);
                let queue = self.clone();
                self.in_background(request, async move { queue.make_room_for(entry, cuts).await })
            }
        }
    }
}

fn entry_of(request: &Request) -> Entry {
    let data = request.operation.has_payload().then(|| Buffer::copy_of(&request.buffer));
    let mut entry = Entry::new(request.offset, request.length, data, request.context);
    entry.is_discard = request.operation == Operation::Discard;
    entry
}

impl CacheQueue {
    /// What is below, and over it what the cache has of it now. By the time the device below has answered, that may have
    /// left the cache without having been below when it was read there.
    fn read(
        &self,
        mut request: Request,
        stretches: &[Range<u64>],
        state: MutexGuard<'_, State>,
    ) -> Submission {
        let (offset, range) = (request.offset, request.offset..request.end());
        if let [all] = stretches
            && *all == range
        {
            state.log.overlay(offset, &mut request.buffer);
            return request.succeed().into();
        }
        let cuts = state.cuts;
        let within = |part: &Range<u64>| (part.start - offset) as usize..(part.end - offset) as usize;
        let cached: Vec<(Range<usize>, Buffer)> = stretches
            .iter()
            .map(|part| {
                let mut bytes = Buffer::stale((part.end - part.start) as usize);
                state.log.overlay(part.start, &mut bytes);
                (within(part), bytes)
            })
            .collect();
        drop(state);
        let shared = Arc::clone(&self.shared);
        let finish = move |mut completion: Completion| {
            if shared.state.lock().cuts != cuts {
                return Completion { result: Err(without_power()), ..completion };
            }
            if completion.result.is_ok() {
                for (within, bytes) in &cached {
                    completion.buffer[within.clone()].copy_from_slice(bytes);
                }
            }
            completion
        };
        match self.below.submit(request).try_take() {
            Ok(completion) => finish(completion).into(),
            Err(submission) => Submission::pending(async move { finish(submission.await) }),
        }
    }

    /// Does the work of a request to its end, also if nobody waits for it any more: half of it must not stay undone.
    fn in_background(
        &self,
        request: Request,
        work: impl Future<Output = Result<()>> + 'static,
    ) -> Submission {
        let task = self.runtime.spawn(async move {
            match work.await {
                Ok(()) => request.succeed(),
                Err(error) => request.fail(error),
            }
        });
        Submission::pending(task)
    }

    /// Writes these to the device below, in this order; `durable` with force unit access. What has left already is
    /// passed over.
    async fn write_back(&self, ages: &[Age], durable: Option<Age>, cuts: u64) -> Result<()> {
        let _turn = self.shared.turns.next().await;
        for age in ages {
            self.write_back_one(*age, durable == Some(*age), cuts).await?;
        }
        Ok(())
    }

    /// The caller has the turn.
    async fn write_back_one(&self, age: Age, fua: bool, cuts: u64) -> Result<()> {
        let request = {
            let mut state = self.shared.state.lock();
            if state.cuts != cuts {
                return Err(without_power());
            }
            state.children += 1;
            let child = state.children;
            let Some(entry) = state.log.get(age) else { return Ok(()) };
            let context = entry.context.child(child);
            let request = match &entry.data {
                Some(data) => Request {
                    operation: Operation::Write { fua },
                    ..Request::write(entry.offset, Buffer::copy_of(data), context)
                },
                None if entry.is_discard => Request::discard(entry.offset, entry.length, context),
                None => Request::write_zeroes(entry.offset, entry.length, context),
            };
            state.log.set_leaving(age, true);
            request
        };
        let result = self.complete_below(request, cuts).await;
        let mut state = self.shared.state.lock();
        match &result {
            Ok(()) => state.log.remove(age),
            // It stays, and the next flush tries again.
            Err(_) => state.log.set_leaving(age, false),
        }
        result
    }

    /// Fails if the power went meanwhile.
    async fn complete_below(&self, request: Request, cuts: u64) -> Result<()> {
        let result = self.below.submit(request).await.result;
        if self.shared.state.lock().cuts == cuts { result } else { Err(without_power()) }
    }

    /// Writes back until the entry fits, and half of the cache is free; then takes it.
    async fn make_room_for(&self, entry: Entry, cuts: u64) -> Result<()> {
        let WriteCacheOptions { bytes: bytes_max, write_back, .. } = self.shared.options;
        let _turn = self.shared.turns.next().await;
        let left_max = (bytes_max / 2).min(bytes_max.saturating_sub(entry.length));
        // Another may have made room while this one waited for its turn.
        let mut is_full = self.shared.state.lock().log.bytes() + entry.length > bytes_max;
        while is_full {
            let ages = {
                let mut state = self.shared.state.lock();
                if state.cuts != cuts {
                    return Err(without_power());
                }
                state.draws += 1;
                let next = match write_back {
                    WriteBack::Oldest => state.log.oldest(),
                    WriteBack::Random => state.log.any(self.runtime.random(STREAM, state.draws)),
                };
                next.map_or_else(Vec::new, |age| state.log.with_covered(age))
            };
            for age in &ages {
                self.write_back_one(*age, false, cuts).await?;
            }
            is_full = !ages.is_empty() && self.shared.state.lock().log.bytes() > left_max;
        }
        let mut state = self.shared.state.lock();
        if state.cuts != cuts {
            return Err(without_power());
        }
        state.log.put(entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
