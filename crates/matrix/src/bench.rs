//! The bench on which a volume stands for a cell: two members of RAM, below each a place where faults act.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Buffer, Context, Device, Request, Result, Runtime};
use rotproof_fault::{Engine, EngineOptions, ResolvedRule, RuleState};
use rotproof_layers::FaultDevice;
use rotproof_volume::volume::{Candidate, OpenOptions, Volume, VolumeOptions};

use crate::awake::Awake;
use crate::oracle::{BLOCK, Oracle};

/// Bytes of a member.
const MEMBER_BYTES: u64 = 40 << 20;
/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// A member.
pub(crate) struct Member {
    /// What really lies on it.
    pub(crate) medium: Arc<MemoryDevice>,
    pub(crate) engine: Arc<Engine>,
    device: Arc<dyn Device>,
}

pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) members: Vec<Member>,
    is_awake: Arc<AtomicBool>,
}

impl Bench {
    /// Two blank members.
    pub(crate) fn new(seed: u64) -> Result<Self> {
        let is_awake = Arc::new(AtomicBool::new(false));
        let member = |number: u64| {
            let medium = MemoryDevice::new(MEMBER_BYTES, 512)?;
            let options = EngineOptions { seed: seed ^ number << 32, device_size: MEMBER_BYTES };
            let engine = Engine::new(Vec::new(), options);
            let faulty = FaultDevice::new(Arc::clone(&medium) as _, Arc::clone(&engine));
            Ok(Member { medium, engine, device: Awake::new(faulty, Arc::clone(&is_awake)) })
        };
        let members = (0..2).map(member).collect::<Result<Vec<_>>>()?;
        Ok(Self { runtime: Runtime::simulated(seed), members, is_awake })
    }

    fn candidates(&self) -> Vec<Candidate> {
        let members = self.members.iter().zip(["A", "B"]);
        members.map(|(one, name)| Candidate { name: name.into(), device: Arc::clone(&one.device) }).collect()
    }

    pub(crate) fn create(&self, options: VolumeOptions) -> Result<()> {
        self.runtime.block_on(Volume::create(&self.candidates(), options, 0x6d61_7472_6978, &self.runtime))?
    }

    pub(crate) fn open(&self) -> Result<Arc<Volume>> {
        let options = OpenOptions::with_patience(PATIENCE).degraded();
        self.runtime.block_on(Volume::open(self.candidates(), options, &self.runtime))?
    }

    /// Faults act from now on, or no more.
    pub(crate) fn wake(&self, is_awake: bool) {
        self.is_awake.store(is_awake, Ordering::Relaxed);
    }

    /// A rule at these members.
    pub(crate) fn add(&self, members: &[usize], rule: impl Fn(usize) -> Result<ResolvedRule>) -> Result<()> {
        for &member in members {
            self.members[member].engine.add_rules(vec![rule(member)?])?;
        }
        Ok(())
    }

    /// Rules act no more; what they have stored wrong stays wrong until it is overwritten. How often they had acted.
    pub(crate) fn end_rules(&self) -> Result<u64> {
        let mut hits = 0;
        for member in &self.members {
            let reports = member.engine.report();
            hits += reports.iter().map(|report| report.hits).sum::<u64>();
            let names: Vec<String> = reports
                .into_iter()
                .filter(|report| report.state != RuleState::Removed)
                .map(|report| report.name)
                .collect();
            member.engine.set_states(&names, RuleState::Removed)?;
        }
        Ok(hits)
    }

    /// What a member hands out at an offset, whatever lies there.
    pub(crate) fn handed_out(&self, member: usize, offset: u64) -> Result<Vec<u8>> {
        self.read(&*self.members[member].device, offset, BLOCK)
    }

    /// Where a member has a block with this content; `None` if nowhere.
    pub(crate) fn find(&self, member: usize, content: &[u8]) -> Result<Option<u64>> {
        let step = 1 << 20;
        for at in (0..MEMBER_BYTES).step_by(step) {
            let bytes = self.read(&*self.members[member].medium, at, step)?;
            let found = bytes.chunks_exact(BLOCK).position(|block| block == content);
            if let Some(block) = found {
                return Ok(Some(at + (block * BLOCK) as u64));
            }
        }
        Ok(None)
    }

    pub(crate) fn read(&self, device: &dyn Device, offset: u64, length: usize) -> Result<Vec<u8>> {
        let queue = device.open_queue(&self.runtime)?;
        let read = Request::read(offset, Buffer::stale(length), Context::default());
        let completion = self.runtime.block_on(queue.submit(read))?;
        completion.result.map(|()| completion.buffer.to_vec())
    }

    pub(crate) fn write(&self, device: &dyn Device, block: usize, oracle: &mut Oracle) -> Result<()> {
        let write = oracle.next_write();
        let data = Buffer::copy_of(&oracle.content(block, write));
        let queue = device.open_queue(&self.runtime)?;
        let request = Request::write((block * BLOCK) as u64, data, Context::default());
        let done = self.runtime.block_on(queue.submit(request))?.result;
        match &done {
            Ok(()) => oracle.acknowledged(block, write),
            Err(_) => oracle.failed(block, write),
        }
        done
    }

    pub(crate) fn flush(&self, device: &dyn Device, oracle: &mut Oracle) -> Result<()> {
        let queue = device.open_queue(&self.runtime)?;
        self.runtime.block_on(queue.submit(Request::flush(Context::default())))?.result?;
        oracle.flushed();
        Ok(())
    }
}
