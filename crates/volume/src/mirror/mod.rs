//! The same on two or three devices (RAID-1).
//!
//! A read is answered by one member, and by another where that one fails or does not answer in time; what a member could not
//! read is written there again. A write goes to all. What a member did not take is noted, coarsely, and not read from it any
//! more, until a rebuild has copied it. So of every byte some member has what was written last, or a read of it fails.
//!
//! A mirror without checksums believes what it reads: two copies that differ without an error are both as good to it. After a
//! power loss copies may differ in what was not flushed; [`MirrorDevice::resync`] makes them equal. Where writes were under way
//! only whoever marks them durably knows, so that is for the volume to say.

mod compare;
mod gate;
mod missed;
mod queue_state;
mod read;
mod rebuild;
mod report;
mod slot;
mod state;
mod unflushed;
mod write;

use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Features, Queue, Result, Runtime};

pub(crate) use gate::Gate;

pub use compare::{CompareReport, Difference};
pub use rebuild::{Pace, Progress, RebuildReport};
pub use report::{MemberReport, MirrorEvent, OnEvent};
pub use state::MissLog;

use crate::copies::{Copies, CopyQueue, MemberState, Members};
use queue_state::{MirrorQueue, QueueState};
use state::State;

/// The most members that a mirror has.
pub const WAYS_MAX: usize = 3;

/// How a mirror treats its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorOptions {
    /// How long a member may take to answer before another is asked; for a flush 20 times as long. Without another it may take
    /// any time.
    pub patience: Duration,
}

impl Default for MirrorOptions {
    /// 500 ms, far above what a disk that is well takes, and far below what applications wait.
    fn default() -> Self {
        Self { patience: Duration::from_millis(500) }
    }
}

/// Two or three devices that hold the same.
pub struct MirrorDevice {
    state: Arc<State>,
}

impl MirrorDevice {
    /// The devices of `members` as one, as large as the smallest. They must hold the same already, or nothing that counts.
    ///
    /// Fails with [`ErrorKind::Invalid`] for fewer than two or more than [`WAYS_MAX`], or if one has no room for a block.
    pub fn new(members: Vec<Arc<dyn Device>>, options: MirrorOptions) -> Result<Arc<Self>> {
        let infos: Vec<DeviceInfo> = members.iter().map(|member| member.info()).collect();
        Self::with_info(members, info_of(&infos)?, options)
    }

    /// As [`MirrorDevice::new`], where some members are not there, with why. What those have missed before is for
    /// [`MirrorDevice::note_missed`] to say.
    pub fn with_failed(
        members: &[Result<Arc<dyn Device>, String>],
        options: MirrorOptions,
    ) -> Result<Arc<Self>> {
        let infos: Vec<DeviceInfo> = members.iter().flatten().map(|member| member.info()).collect();
        let info = match infos.len() {
            // What is left of two is still a mirror.
            1 => infos[0],
            _ => info_of(&infos)?,
        };
        let Some(stand_in) = members.iter().flatten().next().cloned() else {
            return Err(Error::new(ErrorKind::Gone, "none of the members is there"));
        };
        let seats = members.iter().map(|member| member.clone().unwrap_or_else(|_| Arc::clone(&stand_in)));
        let mirror = Self::with_info(seats.collect(), info, options)?;
        for (number, member) in members.iter().enumerate() {
            if let Err(why) = member {
                mirror.state.fail(number, why)?;
            }
        }
        Ok(mirror)
    }

    fn with_info(
        members: Vec<Arc<dyn Device>>,
        info: DeviceInfo,
        options: MirrorOptions,
    ) -> Result<Arc<Self>> {
        if !(2..=WAYS_MAX).contains(&members.len()) {
            let context = format!("a mirror of {} devices; it takes 2 or {WAYS_MAX}", members.len());
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(Arc::new(Self { state: Arc::new(State::new(members, info, options)) }))
    }

    /// Takes note, when it is opened, of what a member had missed before. Somebody else must have that.
    pub fn note_missed(&self, member: usize, missed: &[Range<u64>]) {
        for range in missed {
            self.state.slots[member].missed.mark(range.start..range.end.min(self.state.info.size));
        }
    }

    /// Whether a member has missed some of a range.
    pub fn has_missed(&self, member: usize, range: &Range<u64>) -> bool {
        self.state.slots[member].missed.touches(range.clone())
    }

    /// What each member is like, and has done so far.
    pub fn report(&self) -> Vec<MemberReport> {
        let states = self.state.states().into_iter();
        states.zip(&self.state.slots).map(|(state, slot)| slot.counts.report(state)).collect()
    }

    /// Has every event told to `tell` from now on. Only the first who asks is told.
    pub fn on_event(&self, tell: OnEvent) {
        let _ = self.state.on_event.set(tell);
    }

    /// Has what members miss made durable by `log`, from now on; only the first counts.
    pub fn set_miss_log(&self, log: Arc<dyn MissLog>) {
        let _ = self.state.miss_log.set(log);
    }
}

/// What several devices with the same content are together.
fn info_of(infos: &[DeviceInfo]) -> Result<DeviceInfo> {
    let block_size = infos.iter().map(|info| info.block_size).max().unwrap_or(512);
    let smallest = infos.iter().map(|info| info.size).min().unwrap_or(0);
    let size = smallest / u64::from(block_size) * u64::from(block_size);
    if size == 0 && !infos.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, format!("a member has no block of {block_size} bytes")));
    }
    let all = |has: fn(&Features) -> bool| infos.iter().all(|info| has(&info.features));
    let atomic = infos.iter().map(|info| info.atomic_write_bytes).min().unwrap_or(block_size);
    Ok(DeviceInfo {
        size,
        block_size,
        atomic_write_bytes: atomic.max(block_size),
        read_only: infos.iter().any(|info| info.read_only),
        features: Features {
            flush: infos.iter().any(|info| info.features.flush),
            fua: all(|features| features.fua),
            discard: all(|features| features.discard),
            write_zeroes: all(|features| features.write_zeroes),
        },
    })
}

impl Device for MirrorDevice {
    fn info(&self) -> DeviceInfo {
        self.state.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(MirrorQueue(QueueState::open(&self.state, runtime)?)))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        let itself = || Arc::new(MirrorAbilities(Arc::clone(&self.state)));
        wanted.offer::<dyn Copies>(|| itself()).or_else(|| wanted.offer::<dyn Members>(|| itself()))
    }
}

impl fmt::Debug for MirrorDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MirrorDevice({:?})", self.state.states())
    }
}

struct MirrorAbilities(Arc<State>);

impl Copies for MirrorAbilities {
    fn count(&self) -> usize {
        self.0.slots.len()
    }

    fn open_copies(&self, runtime: &Runtime) -> Result<Rc<dyn CopyQueue>> {
        Ok(Rc::new(MirrorQueue(QueueState::open(&self.0, runtime)?)))
    }
}

impl Members for MirrorAbilities {
    fn states(&self) -> Vec<MemberState> {
        self.0.states()
    }

    fn fail(&self, member: usize, why: &str) -> Result<()> {
        self.0.fail(member, why)
    }

    fn replace(&self, member: usize, device: Arc<dyn Device>, missed: &[Range<u64>]) -> Result<()> {
        self.0.replace(member, device, missed)
    }

    fn missed(&self, member: usize) -> Vec<Range<u64>> {
        self.0.slots.get(member).map_or_else(Vec::new, |slot| slot.missed.ranges())
    }

    fn to_rebuild(&self) -> Vec<Range<u64>> {
        self.0.to_rebuild()
    }
}

impl Members for MirrorDevice {
    fn states(&self) -> Vec<MemberState> {
        self.state.states()
    }

    fn fail(&self, member: usize, why: &str) -> Result<()> {
        self.state.fail(member, why)
    }

    fn replace(&self, member: usize, device: Arc<dyn Device>, missed: &[Range<u64>]) -> Result<()> {
        self.state.replace(member, device, missed)
    }

    fn missed(&self, member: usize) -> Vec<Range<u64>> {
        MirrorAbilities(Arc::clone(&self.state)).missed(member)
    }

    fn to_rebuild(&self) -> Vec<Range<u64>> {
        self.state.to_rebuild()
    }
}

#[cfg(test)]
mod tests;
