//! What happens to a volume, drawn from a seed, over members that are recorded.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Device, Error, ErrorKind, Request, Result, Runtime};
use rotproof_volume::checksum::ChecksumKind;
use rotproof_volume::live::LiveVolume;
use rotproof_volume::member::{MARGIN_BYTES, VersionsPolicy};
use rotproof_volume::mirror::Pace;
use rotproof_volume::volume::{Candidate, OpenOptions, Volume, VolumeOptions, grow};
use tempfile::TempDir;

use super::expected::Step;
use super::member::{Journal, Member};
use crate::oracle::BLOCK;

/// Blocks that are used, in pairs that lie together, spread over the volume as it is made.
pub(super) const BLOCKS: usize = 12;
/// Those that are used in what it has grown by.
const GROWN: usize = 4;
/// How often it is opened.
const SESSIONS: u64 = 3;
/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// What may go wrong beside the power of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plot {
    /// Nothing.
    Calm,
    /// A member refuses writes for a while, and is rebuilt.
    Refusing,
    /// A member is replaced by a new one, which is filled.
    Replacing,
    /// The power of one member goes first; the others go on.
    OneFirst,
    /// While somebody writes the volume gets another copy, loses one, and grows.
    Changing,
}

/// A story that is over.
pub(super) struct Told {
    pub(super) options: VolumeOptions,
    pub(super) plot: Plot,
    /// Members that were there from the beginning.
    pub(super) members: usize,
    /// Members that are none any more in the end.
    pub(super) gone: Vec<usize>,
    /// Bytes that the volume offers as it is made.
    pub(super) size: u64,
    pub(super) recordings: Vec<PathBuf>,
    /// Of each moment how many events of each recording had passed.
    pub(super) moments: Vec<Vec<u64>>,
    /// What is known from which moment on, in order.
    pub(super) steps: Vec<(usize, Step)>,
    /// Where the recordings are.
    pub(super) _folder: TempDir,
}

/// Where a block lies in a volume of `size` bytes as it was made.
pub(super) fn offset_of(size: u64, block: usize) -> u64 {
    let (block, pairs) = (block as u64, BLOCKS as u64 / 2);
    let (pair, odd) = (block / 2, block % 2);
    let at = match pair < pairs {
        true => size / 4096 / pairs * pair * 4096,
        false => size + (pair - pairs) * (1 << 20),
    };
    at + odd * 4096
}

struct Teller {
    seed: u64,
    runtime: Runtime,
    journal: Arc<Journal>,
    members: Vec<Arc<Member>>,
    folder: TempDir,
    bytes: u64,
    options: VolumeOptions,
    plot: Plot,
    /// Members that are to be opened, by their numbers.
    present: Vec<usize>,
    gone: Vec<usize>,
    size: u64,
    /// What each block holds now.
    now: Vec<u8>,
    versions: Vec<(u64, Vec<u8>)>,
    steps: Vec<(usize, Step)>,
    is_lying: bool,
}

/// Tells the story of a seed. `is_lying`: no member does what it says when it is asked to flush.
pub(super) fn tell(seed: u64, is_lying: bool) -> Result<Told, String> {
    let draw = |stream: u64| mix(seed, 0x7374_6f72, stream);
    let ways = 2 + u8::from(draw(0).is_multiple_of(6));
    let mirrors = 1 + usize::from(draw(1).is_multiple_of(4));
    let checksum = [None, Some(ChecksumKind::Crc32c), Some(ChecksumKind::Crc32c)][(draw(2) % 3) as usize];
    let policy = VersionsPolicy { reserve_percent: 30, every_ms: 0, keep: 3 };
    let versions = draw(3).is_multiple_of(2).then_some(policy);
    let plots = [
        Plot::Calm,
        Plot::Calm,
        Plot::Refusing,
        Plot::Replacing,
        Plot::OneFirst,
        Plot::OneFirst,
        Plot::Changing,
        Plot::Changing,
    ];
    let plot = plots[(draw(4) % plots.len() as u64) as usize];
    let members = usize::from(ways) * mirrors;
    let broken = |error: Error| error.to_string();
    let mut teller = Teller {
        seed,
        runtime: Runtime::simulated(seed),
        journal: Arc::default(),
        members: Vec::new(),
        folder: tempfile::tempdir().map_err(|error| error.to_string())?,
        bytes: if versions.is_some() { 24 << 20 } else { 8 << 20 },
        options: VolumeOptions { ways, checksum, versions, ..VolumeOptions::default() },
        plot,
        present: (0..members).collect(),
        gone: Vec::new(),
        size: 0,
        now: vec![0; BLOCKS],
        versions: Vec::new(),
        steps: Vec::new(),
        is_lying,
    };
    let spare = match plot {
        Plot::Replacing => 1,
        Plot::Calm => usize::from(ways),
        // A copy more of each mirror, if there can be one, and a mirror more.
        Plot::Changing => mirrors + 3,
        Plot::Refusing | Plot::OneFirst => 0,
    };
    for _ in 0..members + spare {
        teller.new_member().map_err(broken)?;
    }
    teller.create().map_err(|error| format!("is not made: {error}"))?;
    for session in 0..SESSIONS {
        teller.session(session)?;
        if session == 0 && teller.grows() {
            teller.grow(members).map_err(|why| format!("does not grow: {why}"))?;
        }
    }
    teller.runtime.abandon_tasks();
    Ok(Told {
        options: teller.options,
        plot,
        members,
        size: teller.size,
        recordings: (0..teller.members.len()).map(|number| teller.path(number)).collect(),
        gone: teller.gone,
        moments: teller.journal.finish().map_err(broken)?,
        steps: teller.steps,
        _folder: teller.folder,
    })
}

impl Teller {
    fn draw(&self, stream: u64, index: u64) -> u64 {
        mix(self.seed, stream, index)
    }

    /// Whether the volume grows by further members, after its first session.
    fn grows(&self) -> bool {
        self.plot == Plot::Calm
    }

    fn path(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    fn new_member(&mut self) -> Result<()> {
        let member = Member::new(&self.path(self.members.len()), self.bytes, &self.journal)?;
        if self.is_lying {
            member.lie();
        }
        self.members.push(member);
        Ok(())
    }

    fn candidate(&self, number: usize) -> Candidate {
        Candidate { name: format!("m{number}"), device: Arc::clone(&self.members[number]) as _ }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let there = self.present.iter().filter(|number| !self.members[**number].is_off());
        there.map(|number| self.candidate(*number)).collect()
    }

    /// What follows is under way.
    fn begins(&mut self, name: &'static str) {
        self.steps.push((self.journal.count(), Step::Operation(name)));
    }

    /// This may be seen from the next moment on.
    fn may(&mut self, step: Step) {
        self.steps.push((self.journal.count(), step));
    }

    /// This was said when the last event had passed.
    fn must(&mut self, step: Step) {
        self.steps.push((self.journal.count().saturating_sub(1), step));
    }

    fn create(&mut self) -> Result<()> {
        let runtime = self.runtime.clone();
        runtime.block_on(Volume::create(&self.candidates(), self.options, 7, &runtime))??;
        self.must(Step::Made);
        Ok(())
    }

    fn open(&self) -> Result<Arc<Volume>, String> {
        let options = OpenOptions::with_patience(PATIENCE);
        let opened = self.runtime.block_on(Volume::open(self.candidates(), options, &self.runtime));
        opened.and_then(|opened| opened).map_err(|error| format!("does not open: {error}"))
    }

    fn session(&mut self, session: u64) -> Result<(), String> {
        self.begins("open");
        let mut volume = self.open()?;
        if session == 0 {
            self.size = volume.info().size;
        }
        self.look(&volume).map_err(|error| format!("is not read after it was opened: {error}"))?;
        // Where writes were under way one member alone counts, until a rebuild has copied it: before another one fails.
        self.rebuild(&volume).map_err(|error| format!("a rebuild at the beginning: {error}"))?;
        let seed = self.seed;
        let draw = |stream: u64| mix(seed, 2000 + stream, session);
        let one = (draw(0) % u64::from(self.options.ways)) as usize;
        let trouble_at = draw(1) % 6;
        let operations = 10 + draw(2) % 8;
        if self.plot == Plot::OneFirst && session + 1 == SESSIONS {
            self.members[one].cut_after(draw(3) % 24);
        }
        for index in 0..operations {
            let is_trouble = session == 1 && index == trouble_at;
            match self.plot {
                Plot::Refusing if is_trouble => self.members[one].refuse_writes(true),
                Plot::Refusing if session == 1 && index == trouble_at + 3 => {
                    self.members[one].refuse_writes(false);
                    self.rebuild(&volume).map_err(|error| format!("a rebuild: {error}"))?;
                }
                Plot::Replacing if is_trouble => self.replace(&volume, one)?,
                Plot::Changing if is_trouble => {
                    volume = self
                        .change_in_use(volume, draw(5))
                        .map_err(|error| format!("a change in use: {error}"))?;
                }
                _ => {}
            }
            self.operate(&volume, session * 1000 + index)
                .map_err(|error| format!("operation {index}: {error}"))?;
        }
        self.members[one].refuse_writes(false);
        if draw(4).is_multiple_of(2) || self.grows() && session == 0 {
            self.begins("close");
            let runtime = self.runtime.clone();
            let closed = runtime.block_on(volume.close(&runtime)).and_then(|closed| closed);
            closed.map_err(|error| format!("does not close: {error}"))?;
            self.must(Step::Flushed);
        }
        drop(volume);
        self.runtime.abandon_tasks();
        Ok(())
    }

    /// Sees what a session that was not ended in order has left, and writes that again.
    fn look(&mut self, volume: &Arc<Volume>) -> Result<()> {
        for block in 0..self.now.len() {
            self.now[block] = self.read(volume, block)?[0];
        }
        let all: Vec<(usize, u8)> = self.now.iter().copied().enumerate().collect();
        self.write(volume, &all)?;
        self.flush(volume)
    }

    fn send(&self, volume: &Arc<Volume>, request: Request) -> Result<Buffer> {
        let queue = volume.open_queue(&self.runtime)?;
        let completion = self.runtime.block_on(queue.submit(request))?;
        completion.result.map(|()| completion.buffer)
    }

    fn read(&self, volume: &Arc<Volume>, block: usize) -> Result<Buffer> {
        let read = Request::read(offset_of(self.size, block), Buffer::stale(BLOCK), Context::default());
        self.send(volume, read)
    }

    /// Writes blocks, all at the same time.
    fn write(&mut self, volume: &Arc<Volume>, blocks: &[(usize, u8)]) -> Result<()> {
        self.may(Step::Begins(blocks.to_vec()));
        let queue = volume.open_queue(&self.runtime)?;
        let mut tasks = Vec::new();
        for (block, byte) in blocks {
            let data = Buffer::copy_of(&[*byte; BLOCK]);
            let write = Request::write(offset_of(self.size, *block), data, Context::default());
            let queue = std::rc::Rc::clone(&queue);
            tasks.push(self.runtime.spawn(async move { queue.submit(write).await.result }));
            self.now[*block] = *byte;
        }
        self.runtime.block_on(async {
            for task in tasks {
                task.await?;
            }
            Ok(())
        })?
    }

    fn flush(&mut self, volume: &Arc<Volume>) -> Result<()> {
        self.send(volume, Request::flush(Context::default()))?;
        self.must(Step::Flushed);
        Ok(())
    }

    fn rebuild(&mut self, volume: &Arc<Volume>) -> Result<()> {
        self.begins("rebuild");
        let (runtime, pace) = (self.runtime.clone(), Pace::default());
        let rebuilt = runtime.block_on(volume.rebuild(&runtime, pace, |_, _| {}))??;
        if rebuilt.left_bytes > 0 {
            return Err(Error::new(ErrorKind::Medium, format!("{} bytes are left", rebuilt.left_bytes)));
        }
        self.must(Step::Flushed);
        Ok(())
    }

    fn operate(&mut self, volume: &Arc<Volume>, index: u64) -> Result<()> {
        let block = (self.draw(1, index) % self.now.len() as u64) as usize;
        let byte = (self.draw(3, index) % 255) as u8 + 1;
        let runtime = self.runtime.clone();
        let has_versions = self.options.versions.is_some();
        match self.draw(2, index) % 20 {
            0..=4 => {
                self.begins("write");
                self.write(volume, &[(block, byte)])
            }
            5..=7 => {
                self.begins("write");
                let count = 2 + self.draw(4, index) % 4;
                let mut several: Vec<(usize, u8)> = (0..count)
                    .map(|nth| {
                        let draw = mix(self.draw(5, index), nth, 0);
                        ((draw % self.now.len() as u64) as usize, (draw >> 32) as u8 | 1)
                    })
                    .collect();
                several.sort_by_key(|(block, _)| *block);
                several.dedup_by_key(|(block, _)| *block);
                self.write(volume, &several)
            }
            8 => {
                self.begins("write");
                let (first, other) = (block & !1, byte ^ 0x80 | 1);
                self.may(Step::Begins(vec![(first, byte), (first + 1, other)]));
                (self.now[first], self.now[first + 1]) = (byte, other);
                let data = [[byte; BLOCK], [other; BLOCK]].concat();
                let write =
                    Request::write(offset_of(self.size, first), Buffer::copy_of(&data), Context::default());
                self.send(volume, write).map(drop)
            }
            9 | 10 => {
                self.begins("discard");
                self.may(Step::Begins(vec![(block, 0)]));
                self.now[block] = 0;
                let at = offset_of(self.size, block);
                self.send(volume, Request::discard(at, BLOCK as u64, Context::default())).map(drop)
            }
            11 | 12 => {
                self.begins("flush");
                self.flush(volume)
            }
            13 | 14 => self.scrub(volume, block),
            15 | 16 if has_versions => {
                self.begins("capture");
                let id = runtime.block_on(volume.capture(&runtime, "", 1))??;
                self.captured(id);
                self.must(Step::Flushed);
                Ok(())
            }
            17 | 18 if has_versions && !self.versions.is_empty() => self.roll_back(volume, index),
            19 if has_versions && self.versions.len() > 2 => {
                self.begins("delete");
                let nth = (self.draw(6, index) % self.versions.len() as u64) as usize;
                let (id, _) = self.versions.remove(nth);
                self.may(Step::Forgets(id));
                runtime.block_on(volume.delete_version(&runtime, id))?
            }
            _ => self.read(volume, block).and_then(|is| match is.iter().all(|one| *one == self.now[block]) {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::Medium, format!("block {block} holds {}", is[0]))),
            }),
        }
    }

    fn captured(&mut self, id: u64) {
        self.versions.push((id, self.now.clone()));
        self.must(Step::Captured(id, self.now.clone()));
    }

    fn roll_back(&mut self, volume: &Arc<Volume>, index: u64) -> Result<()> {
        self.begins("rollback");
        let runtime = self.runtime.clone();
        let (id, to) = self.versions[(self.draw(6, index) % self.versions.len() as u64) as usize].clone();
        self.may(Step::GoesBack(to.clone()));
        let undo = runtime.block_on(volume.roll_back(&runtime, id, 1))??;
        self.captured(undo);
        self.must(Step::WentBack);
        self.now = to;
        Ok(())
    }

    /// One copy of a block that was flushed rots, where checksums can tell, and everything is scrubbed.
    fn scrub(&mut self, volume: &Arc<Volume>, block: usize) -> Result<()> {
        self.begins("scrub");
        let runtime = self.runtime.clone();
        let one = self.members[self.present[0]].clone();
        if self.options.checksum.is_some() && self.options.versions.is_none() && self.plot == Plot::Calm {
            self.flush(volume)?;
            // Somewhere in the middle of its data, where the volume may have something or not.
            let at = MARGIN_BYTES + (self.bytes - 2 * MARGIN_BYTES) / 4096 / 17 * (block as u64 + 1) * 4096;
            let queue = one.open_queue(&runtime)?;
            let rot = Request::write(at, Buffer::copy_of(&[0xee; 512]), Context::default());
            runtime.block_on(queue.submit(rot))?.result?;
        }
        runtime.block_on(volume.scrub(&runtime, Pace::default(), |_, _| {}))??;
        Ok(())
    }

    /// A new device takes the place of a member, and is filled.
    fn replace(&mut self, volume: &Arc<Volume>, member: usize) -> Result<(), String> {
        self.begins("replace");
        let runtime = self.runtime.clone();
        let spare = usize::from(self.options.ways) * (self.present.len() / usize::from(self.options.ways));
        let candidate = self.candidate(spare);
        let replaced = runtime.block_on(volume.replace(member, &candidate, 99, &runtime));
        replaced.and_then(|done| done).map_err(|error| format!("is not replaced: {error}"))?;
        self.present[member] = spare;
        self.rebuild(volume).map_err(|error| format!("the new member is not filled: {error}"))
    }

    fn grow(&mut self, first: usize) -> Result<()> {
        self.begins("grow");
        let runtime = self.runtime.clone();
        let new: Vec<usize> = (first..first + usize::from(self.options.ways)).collect();
        let with: Vec<Candidate> = new.iter().map(|number| self.candidate(*number)).collect();
        runtime.block_on(grow(&self.candidates(), &with, 5, &runtime))??;
        self.present.extend(new);
        self.now.resize(BLOCKS + GROWN, 0);
        self.must(Step::Grown(BLOCKS + GROWN));
        runtime.abandon_tasks();
        Ok(())
    }

    /// The volume gets another copy, loses one, and grows, each while somebody writes to it.
    fn change_in_use(&mut self, volume: Arc<Volume>, draw: u64) -> Result<Arc<Volume>> {
        let live = LiveVolume::new(volume, OpenOptions::with_patience(PATIENCE));
        let layout = live.volume().status().layout;
        let mut ways = usize::from(layout.ways);
        let mirrors = self.present.len() / ways;
        let mut unused = self.members.len() - mirrors - 3..self.members.len();
        let mut take = |count: usize| unused.by_ref().take(count).collect::<Vec<_>>();
        if ways < 3 {
            let new = take(mirrors);
            let with: Vec<Candidate> = new.iter().map(|number| self.candidate(*number)).collect();
            let change = async |live: &LiveVolume, runtime: &Runtime| live.add_copy(&with, 31, runtime).await;
            self.change("add a copy", &live, draw, change)?;
            self.present.extend(new);
            ways += 1;
            self.rebuild(&live.volume())?;
        }
        if ways > 2 || draw.is_multiple_of(2) {
            let status = live.volume().status();
            let one_of = |mirror: usize| mirror * ways + (draw >> (8 + mirror)) as usize % ways;
            let gone: Vec<usize> = (0..mirrors).map(one_of).collect();
            let change = async |live: &LiveVolume, runtime: &Runtime| live.remove_copy(&gone, runtime).await;
            self.change("remove a copy", &live, draw >> 16, change)?;
            let name = |member: &usize| status.members[*member].name.clone().unwrap_or_default();
            let gone: Vec<String> = gone.iter().map(name).collect();
            let is_gone = |number: &usize| gone.contains(&format!("m{number}"));
            self.gone.extend(self.present.iter().copied().filter(is_gone));
            self.present.retain(|number| !is_gone(number));
            ways -= 1;
        }
        let new = take(ways);
        let with: Vec<Candidate> = new.iter().map(|number| self.candidate(*number)).collect();
        let change =
            async |live: &LiveVolume, runtime: &Runtime| live.grow(&with, 32, runtime).await.map(drop);
        self.change("grow in use", &live, draw >> 32, change)?;
        self.present.extend(new);
        self.now.resize(BLOCKS + GROWN, 0);
        self.must(Step::Grown(BLOCKS + GROWN));
        Ok(live.volume())
    }

    /// Changes a volume while some blocks are written one after the other, and flushes it then.
    fn change(
        &mut self,
        name: &'static str,
        live: &Arc<LiveVolume>,
        draw: u64,
        change: impl AsyncFnOnce(&LiveVolume, &Runtime) -> Result<()>,
    ) -> Result<()> {
        self.begins(name);
        let runtime = self.runtime.clone();
        let writes: Vec<(usize, u8)> = (0..6)
            .map(|nth| {
                let draw = mix(draw, 7, nth);
                ((draw % self.now.len() as u64) as usize, (draw >> 32) as u8 | 1)
            })
            .collect();
        for (block, byte) in &writes {
            self.may(Step::Begins(vec![(*block, *byte)]));
            self.now[*block] = *byte;
        }
        let queue = live.present().open_queue(&runtime)?;
        let (size, clock) = (self.size, runtime.clone());
        let user = runtime.spawn(async move {
            for (block, byte) in writes {
                let data = Buffer::copy_of(&[byte; BLOCK]);
                let write = Request::write(offset_of(size, block), data, Context::default());
                queue.submit(write).await.result?;
                clock.sleep(Duration::from_micros(300)).await;
            }
            Ok(())
        });
        runtime.block_on(async {
            let changed = change(live, &runtime).await;
            user.await.and(changed)
        })??;
        self.flush(&live.volume())
    }
}
