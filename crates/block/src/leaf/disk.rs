//! A simulated disk: data in RAM, time by the model, slept on the runtime. Under the simulated runtime a day of a
//! disk passes in the time its data take to be copied, and every run is the same.

use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;

use super::MemoryDevice;
use super::disk_model::{Access, DiskModel};
use super::disk_profile::DiskProfile;
use crate::{Device, DeviceInfo, Features, Operation, Queue, Request, Result, Runtime, Submission};

/// A disk of a given profile. Writes are acknowledged when the model says so; what a power cut would lose is not
/// modelled here.
pub struct SimulatedDisk {
    memory: Arc<MemoryDevice>,
    state: Arc<Mutex<State>>,
}

struct State {
    model: DiskModel,
    /// Requests taken so far, the index of their random numbers.
    taken: u64,
}

/// The stream of random numbers of a simulated disk.
const STREAM: u64 = 0x6469_736b;

impl SimulatedDisk {
    /// A disk of `size_bytes` zeros. Fails as [`MemoryDevice::new`] and [`DiskModel::new`] do.
    pub fn new(size_bytes: u64, block_size: u32, profile: DiskProfile) -> Result<Arc<Self>> {
        Self::with(size_bytes, block_size, DiskModel::new(profile, size_bytes)?)
    }

    /// As [`SimulatedDisk::new`], with so much memory of its own for writes.
    pub fn with_write_cache(
        size_bytes: u64,
        block_size: u32,
        profile: DiskProfile,
        cache_bytes: u64,
    ) -> Result<Arc<Self>> {
        let model = DiskModel::new(profile, size_bytes)?.with_write_cache(cache_bytes);
        Self::with(size_bytes, block_size, model)
    }

    fn with(size_bytes: u64, block_size: u32, model: DiskModel) -> Result<Arc<Self>> {
        let memory = MemoryDevice::new(size_bytes, block_size)?;
        let state = State { model, taken: 0 };
        Ok(Arc::new(Self { memory, state: Arc::new(Mutex::new(state)) }))
    }
}

impl Device for SimulatedDisk {
    fn info(&self) -> DeviceInfo {
        let info = self.memory.info();
        DeviceInfo { features: Features { flush: true, ..info.features }, ..info }
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(DiskQueue {
            memory: self.memory.open_queue(runtime)?,
            info: self.info(),
            state: Arc::clone(&self.state),
            runtime: runtime.clone(),
        }))
    }
}

struct DiskQueue {
    memory: Rc<dyn Queue>,
    info: DeviceInfo,
    state: Arc<Mutex<State>>,
    runtime: Runtime,
}

impl Queue for DiskQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        if request.length == 0 && request.operation != Operation::Flush {
            return request.succeed().into();
        }
        let access = match request.operation {
            Operation::Read => Access::Read,
            Operation::Write { fua } => Access::Write { durable: fua },
            Operation::Flush => Access::Flush,
            Operation::Discard | Operation::WriteZeroes => Access::Command,
        };
        let done = {
            let mut state = self.state.lock();
            state.taken += 1;
            let draw = self.runtime.random(STREAM, state.taken);
            state.model.take(self.runtime.now(), access, request.offset, request.length, draw)
        };
        let (memory, sleep) = (Rc::clone(&self.memory), self.runtime.sleep_until(done));
        Submission::pending(async move {
            sleep.await;
            memory.submit(request).await
        })
    }
}
