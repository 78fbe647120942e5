//! The life of a volume, drawn from a seed: operations, members that misbehave, and losses of power in the middle of anything, of
//! one member alone and of all, each at its own write. In virtual time; the same seed is the same life.
//!
//! What must hold: the volume opens; what was flushed is there, or what was written later, sector by sector; every version is whole;
//! as long as one member is well nothing is refused; and what is read is what was written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Device, Error, Request, Result, Runtime};
use rotproof_volume::checksum::ChecksumKind;
use rotproof_volume::copies::MemberState;
use rotproof_volume::member::VersionsPolicy;
use rotproof_volume::mirror::Pace;
use rotproof_volume::volume::{Candidate, OpenOptions, Volume, VolumeOptions};

use crate::oracle::BLOCK;
use crate::plug::{Plug, Trouble};

/// Blocks that are used, spread over the volume.
const BLOCKS: u64 = 24;
/// How often the volume is opened.
const ROUNDS: u64 = 4;

/// What a life has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Operations that were done.
    pub operations: u64,
    /// Losses of power, of one member or of all.
    pub cuts: u64,
    /// Operations that a loss of power ended.
    pub torn: u64,
    /// Versions that were looked at as a whole.
    pub versions: u64,
}

/// What a block may hold.
#[derive(Clone, Debug, Default)]
struct Block {
    flushed: u8,
    later: Vec<u8>,
}

impl Block {
    fn now(&self) -> u8 {
        self.later.last().copied().unwrap_or(self.flushed)
    }

    fn allows(&self, byte: u8) -> bool {
        self.flushed == byte || self.later.contains(&byte)
    }

    fn flush(&mut self) {
        (self.flushed, self.later) = (self.now(), Vec::new());
    }
}

struct World {
    seed: u64,
    runtime: Runtime,
    members: Vec<Arc<Plug>>,
    options: VolumeOptions,
    blocks: Vec<Block>,
    /// What each version holds, by its number.
    versions: BTreeMap<u64, Vec<u8>>,
    /// Versions that may be gone.
    doubtful: Vec<u64>,
    life: Life,
}

/// How an operation ended that must not fail, unless the power went.
enum Ended {
    Done,
    PowerIsOff,
}

/// Lives through it. An error says what did not hold.
pub fn life(seed: u64) -> Result<Life, String> {
    let draw = |stream: u64| mix(seed, 1000, stream);
    let ways = 2 + (draw(1).is_multiple_of(5)) as u8;
    let mirrors = 1 + usize::from(draw(2).is_multiple_of(3));
    let checksum = [None, Some(ChecksumKind::Crc32c), Some(ChecksumKind::Crc32c)][(draw(3) % 3) as usize];
    let policy = VersionsPolicy { reserve_percent: 30, every_ms: 0, keep: 3 };
    let versions = draw(4).is_multiple_of(2).then_some(policy);
    let options = VolumeOptions { ways, checksum, versions, ..VolumeOptions::default() };
    let bytes = if versions.is_some() { 24 << 20 } else { 8 << 20 };
    let members = (0..usize::from(ways) * mirrors).map(|_| Plug::new(bytes)).collect::<Result<_>>();
    let mut world = World {
        seed,
        runtime: Runtime::simulated(seed),
        members: members.map_err(|error| error.to_string())?,
        options,
        blocks: vec![Block::default(); BLOCKS as usize],
        versions: BTreeMap::new(),
        doubtful: Vec::new(),
        life: Life::default(),
    };
    let made = world.runtime.block_on(Volume::create(&world.candidates(), options, 7, &world.runtime));
    made.and_then(|made| made).map_err(|error| format!("is not made: {error}"))?;
    for round in 0..ROUNDS {
        world.round(round).map_err(|why| format!("{options:?}, round {round}: {why}"))?;
    }
    let volume = world.open()?;
    world.look(&volume)?;
    Ok(world.life)
}

impl World {
    fn draw(&self, stream: u64, index: u64) -> u64 {
        mix(self.seed, stream, index)
    }

    fn candidates(&self) -> Vec<Candidate> {
        let members = self.members.iter().enumerate();
        members.map(|(number, plug)| Candidate { name: format!("m{number}"), device: plug.clone() }).collect()
    }

    fn open(&self) -> Result<Arc<Volume>, String> {
        let options = OpenOptions::with_patience(Duration::from_millis(200)).degraded();
        let opened = self.runtime.block_on(Volume::open(self.candidates(), options, &self.runtime));
        opened.and_then(|opened| opened).map_err(|error| format!("does not open: {error}"))
    }

    fn offset(&self, volume: &Volume, block: u64) -> u64 {
        volume.info().size / 4096 / BLOCKS * block * 4096
    }

    fn send(&self, device: &dyn Device, request: Request) -> Result<Buffer> {
        let queue = device.open_queue(&self.runtime)?;
        let completion = self.runtime.block_on(queue.submit(request))?;
        completion.result.map(|()| completion.buffer)
    }

    fn read(&self, device: &dyn Device, offset: u64) -> Result<Buffer> {
        self.send(device, Request::read(offset, Buffer::stale(BLOCK), Context::default()))
    }

    /// Looks at everything after it was opened, and makes whole what was torn.
    fn look(&mut self, volume: &Volume) -> Result<(), String> {
        for block in 0..BLOCKS {
            let offset = self.offset(volume, block);
            let is =
                self.read(volume, offset).map_err(|error| format!("block {block} is not read: {error}"))?;
            let allowed = &self.blocks[block as usize];
            for sector in is.chunks(512) {
                let byte = sector[0];
                if !allowed.allows(byte) || sector.iter().any(|other| *other != byte) {
                    return Err(format!("block {block} holds {byte}, and not one of {allowed:?}"));
                }
            }
            let write = Request::write(offset, Buffer::copy_of(&[is[0]; BLOCK]), Context::default());
            self.send(volume, write).map_err(|error| format!("block {block} is not written: {error}"))?;
            self.blocks[block as usize] = Block { flushed: is[0], later: Vec::new() };
        }
        self.send(volume, Request::flush(Context::default())).map_err(|error| format!("flush: {error}"))?;
        self.look_at_versions(volume)
    }

    fn look_at_versions(&mut self, volume: &Volume) -> Result<(), String> {
        let Ok(versions) = volume.versions() else { return Ok(()) };
        let there: Vec<u64> = versions.names().into_iter().map(|(id, _, _)| id).collect();
        let doubtful = std::mem::take(&mut self.doubtful);
        self.versions.retain(|id, _| there.contains(id) || !doubtful.contains(id));
        for (id, snapshot) in &self.versions {
            let view = volume.view(*id).map_err(|error| format!("version {id}: {error}"))?;
            for block in 0..BLOCKS {
                let is = self
                    .read(&*view, self.offset(volume, block))
                    .map_err(|error| format!("version {id}, block {block}: {error}"))?;
                let wanted = snapshot[block as usize];
                if is.iter().any(|byte| *byte != wanted) {
                    return Err(format!("version {id} holds {} in block {block}, not {wanted}", is[0]));
                }
            }
            self.life.versions += 1;
        }
        Ok(())
    }

    fn round(&mut self, round: u64) -> Result<(), String> {
        let volume = self.open()?;
        self.look(&volume)?;
        // Where writes were under way one member alone counts, until a rebuild has copied it: before another one fails.
        self.rebuild(&volume)?;
        let seed = self.seed;
        let draw = |stream: u64| mix(seed, 2000 + stream, round);
        let kind = draw(0) % 4;
        let one = (draw(1) % self.members.len() as u64) as usize;
        match kind {
            // The power of all goes, of each at its own write.
            0 => {
                for (number, member) in (0..).zip(&self.members) {
                    member.cut_after(draw(10) % 120 + mix(draw(11), number, 0) % 12, draw(20 + number));
                }
            }
            // That of one alone, first.
            1 => self.members[one].cut_after(draw(10) % 60, draw(20)),
            2 => {
                let trouble = Trouble::ALL[(draw(3) % Trouble::ALL.len() as u64) as usize];
                self.members[one].set_trouble(trouble, draw(4));
            }
            _ => {}
        }
        let mut is_off = false;
        for index in 0..25 + draw(5) % 50 {
            match self.operate(&volume, round * 1000 + index)? {
                Ended::Done => self.life.operations += 1,
                Ended::PowerIsOff => {
                    (is_off, self.life.torn) = (true, self.life.torn + 1);
                    break;
                }
            }
        }
        if !is_off && kind >= 2 && draw(6).is_multiple_of(2) {
            let closed = self.runtime.block_on(volume.close(&self.runtime)).and_then(|closed| closed);
            closed.map_err(|error| format!("does not close: {error}"))?;
            self.blocks.iter_mut().for_each(Block::flush);
        }
        drop(volume);
        self.runtime.abandon_tasks();
        self.life.cuts += 1;
        for (number, member) in (0..).zip(&self.members) {
            member.cycle(mix(self.seed, 3000 + round, number));
        }
        // A member that was away gets what it has missed before another one fails.
        let volume = self.open()?;
        self.rebuild(&volume)
    }

    /// Has all members brought up to date, none of which fails.
    fn rebuild(&self, volume: &Volume) -> Result<(), String> {
        let (runtime, pace) = (&self.runtime, Pace::default());
        let rebuilt = runtime.block_on(volume.rebuild(runtime, pace, |_, _| {})).and_then(|done| done);
        let rebuilt = rebuilt.map_err(|error| format!("is not rebuilt: {error}"))?;
        let is_current = volume.status().members.iter().all(|member| member.state == MemberState::Current);
        if rebuilt.left_bytes > 0 || !is_current {
            return Err(format!("is not whole after a rebuild: {rebuilt:?}, {:?}", volume.status().members));
        }
        Ok(())
    }

    /// Whether an error is one of a loss of power, of all copies of something.
    fn excuse(&self, what: &str, error: &Error) -> Result<Ended, String> {
        let ways = usize::from(self.options.ways);
        let is_lost = self.members.chunks(ways).any(|mirror| mirror.iter().all(|member| member.is_off()));
        if is_lost { Ok(Ended::PowerIsOff) } else { Err(format!("{what} failed: {error}")) }
    }

    fn operate(&mut self, volume: &Volume, index: u64) -> Result<Ended, String> {
        let block = self.draw(1, index) % BLOCKS;
        let (offset, at) = (self.offset(volume, block), block as usize);
        let (runtime, pace) = (self.runtime.clone(), Pace::default());
        let has_versions = self.options.versions.is_some();
        match self.draw(2, index) % 24 {
            0..=9 => {
                let byte = (self.draw(3, index) % 255) as u8 + 1;
                self.blocks[at].later.push(byte);
                let write = Request::write(offset, Buffer::copy_of(&[byte; BLOCK]), Context::default());
                self.send(volume, write)
                    .map_or_else(|error| self.excuse("a write", &error), |_| Ok(Ended::Done))
            }
            10 | 11 => {
                self.blocks[at].later.push(0);
                let discard = Request::discard(offset, 4096, Context::default());
                self.send(volume, discard)
                    .map_or_else(|error| self.excuse("a discard", &error), |_| Ok(Ended::Done))
            }
            12..=14 => match self.send(volume, Request::flush(Context::default())) {
                Ok(_) => {
                    self.blocks.iter_mut().for_each(Block::flush);
                    Ok(Ended::Done)
                }
                Err(error) => self.excuse("a flush", &error),
            },
            15 => {
                let scrub = runtime.block_on(volume.scrub(&runtime, pace, |_, _| {})).and_then(|done| done);
                scrub.map_or_else(|error| self.excuse("a scrub", &error), |_| Ok(Ended::Done))
            }
            16 => {
                let rebuild =
                    runtime.block_on(volume.rebuild(&runtime, pace, |_, _| {})).and_then(|done| done);
                match rebuild {
                    Ok(_) => {
                        self.blocks.iter_mut().for_each(Block::flush);
                        Ok(Ended::Done)
                    }
                    Err(error) => self.excuse("a rebuild", &error),
                }
            }
            17 | 18 if has_versions => self.capture(volume),
            19 if has_versions && !self.versions.is_empty() => self.roll_back(volume, index),
            20 if has_versions && self.versions.len() > 2 => self.give_up(volume, index),
            _ => match self.read(volume, offset) {
                Ok(is) => {
                    let wanted = self.blocks[at].now();
                    match is.iter().all(|byte| *byte == wanted) {
                        true => Ok(Ended::Done),
                        false => Err(format!("block {block} holds {}, not {wanted}", is[0])),
                    }
                }
                Err(error) => self.excuse("a read", &error),
            },
        }
    }

    fn present(&self) -> Vec<u8> {
        self.blocks.iter().map(Block::now).collect()
    }

    fn capture(&mut self, volume: &Volume) -> Result<Ended, String> {
        let runtime = self.runtime.clone();
        let captured = runtime.block_on(volume.capture(&runtime, "", 1)).and_then(|done| done);
        match captured {
            Ok(id) => {
                self.versions.insert(id, self.present());
                self.blocks.iter_mut().for_each(Block::flush);
                Ok(Ended::Done)
            }
            Err(error) => self.excuse("a capture", &error),
        }
    }

    fn roll_back(&mut self, volume: &Volume, index: u64) -> Result<Ended, String> {
        let nth = self.draw(4, index) as usize % self.versions.len();
        let Some((&id, snapshot)) = self.versions.iter().nth(nth) else { return Ok(Ended::Done) };
        let snapshot = snapshot.clone();
        let runtime = self.runtime.clone();
        let done = runtime.block_on(volume.roll_back(&runtime, id, 1)).and_then(|done| done);
        match done {
            Ok(undo) => {
                self.versions.insert(undo, self.present());
                self.blocks =
                    snapshot.into_iter().map(|flushed| Block { flushed, later: Vec::new() }).collect();
                Ok(Ended::Done)
            }
            Err(error) => {
                // It may have been done, or be done when it is opened again.
                for (block, byte) in self.blocks.iter_mut().zip(snapshot) {
                    block.later.push(byte);
                }
                self.excuse("going back", &error)
            }
        }
    }

    fn give_up(&mut self, volume: &Volume, index: u64) -> Result<Ended, String> {
        let nth = self.draw(4, index) as usize % self.versions.len();
        let Some(&id) = self.versions.keys().nth(nth) else { return Ok(Ended::Done) };
        let runtime = self.runtime.clone();
        match runtime.block_on(volume.delete_version(&runtime, id)).and_then(|done| done) {
            Ok(()) => {
                self.versions.remove(&id);
                Ok(Ended::Done)
            }
            Err(error) => {
                self.doubtful.push(id);
                self.excuse("giving up a version", &error)
            }
        }
    }
}
