//! The moments of a story are gone through, and at each some of the states that a loss of power may leave are looked at.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Device, Request, Runtime};
use rotproof_crash::{ImageDevice, Together};
use rotproof_volume::copies::MemberState;
use rotproof_volume::member::MemberRecord;
use rotproof_volume::mirror::Pace;
use rotproof_volume::volume::{Candidate, OpenOptions, Volume, read_record};

use super::expected::{Expected, Step};
use super::story::{BLOCKS, Plot, Told, offset_of, tell};
use crate::oracle::BLOCK;

/// Writes are torn at multiples of this.
const UNIT_BYTES: u64 = 512;
/// What looking at a state may write.
const SCRATCH_BYTES: u64 = 256 << 20;
/// States of one moment, at the most.
const OF_MOMENT: u64 = 6;

/// What the states of a story have come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerLoss {
    /// Moments at which the power could go.
    pub moments: u64,
    /// States that were looked at; each is another.
    pub states: u64,
    /// Those of them in which it had gone of one member before the others.
    pub one_first: u64,
    /// Those that were opened with one copy of everything alone.
    pub alone: u64,
    /// States by what was under way.
    pub by_operation: BTreeMap<&'static str, u64>,
}

/// Tells the story of a seed and looks at about so many states of it. An error says what did not hold, and in which state.
pub fn power_loss(seed: u64, states: u64) -> Result<PowerLoss, String> {
    explore(&tell(seed, false)?, seed, states)
}

/// How a state is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// With all members that are left.
    All,
    /// With one member of each mirror, by its number there.
    Alone(usize),
}

pub(super) fn explore(told: &Told, seed: u64, states: u64) -> Result<PowerLoss, String> {
    let mut together =
        Together::open(&told.recordings, UNIT_BYTES).map_err(|error| format!("the recordings: {error}"))?;
    let images: Vec<Arc<ImageDevice>> =
        together.contents().into_iter().map(|contents| ImageDevice::new(contents, SCRATCH_BYTES)).collect();
    let mut expected = Expected::new(BLOCKS);
    let mut steps = told.steps.iter().peekable();
    let (mut seen, mut passed) = (HashSet::new(), 0u64);
    let mut found = PowerLoss { moments: told.moments.len() as u64, ..PowerLoss::default() };
    let chosen = chosen(told, seed, states.div_ceil(OF_MOMENT).min(found.moments).max(1) as usize);
    for (moment, events) in told.moments.iter().enumerate() {
        while let Some((_, step)) = steps.next_if(|(from, _)| *from <= moment) {
            expected.pass(step);
            passed += 1;
        }
        if !chosen.contains(&moment) {
            continue;
        }
        let point = together.pass_to(events).map_err(|error| format!("moment {moment}: {error}"))?;
        let choices = point.choices(OF_MOMENT, mix(seed, 77, moment as u64));
        let first = mix(seed, 78, moment as u64) % choices.len() as u64;
        for nth in (0..OF_MOMENT.min(choices.len() as u64)).map(|nth| (first + nth) % choices.len() as u64) {
            let state = &choices[nth as usize];
            let built = point.build(state);
            let identity: Vec<u128> = built.iter().map(|image| image.identity).collect();
            if !seen.insert((identity, passed)) {
                continue;
            }
            let show =
                || images.iter().zip(&built).for_each(|(image, built)| image.show(built.snapshot.clone()));
            let mut looks = vec![Look::All];
            let number = found.states;
            // Without checksums a copy may be known to be the worse one from the moment in which the volume is opened again.
            let is_in_doubt =
                told.options.checksum.is_none() && ["open", "rebuild"].contains(&expected.operation);
            let is_calm = told.plot == Plot::Calm && expected.is_made && !is_in_doubt;
            if is_calm && number.is_multiple_of(3) {
                looks.push(Look::Alone((number / 3) as usize % usize::from(told.options.ways)));
                found.alone += 1;
            }
            for look in looks {
                show();
                let why = |why: String| {
                    format!(
                        "{:?}, {:?}, moment {moment} ({}), choice {nth}, {look:?}: {why}",
                        told.options, told.plot, expected.operation
                    )
                };
                look_at(told, &images, &expected, look).map_err(why)?;
                images.iter().try_for_each(|image| image.check()).map_err(|error| why(error.to_string()))?;
            }
            found.states += 1;
            found.one_first += u64::from(told.plot == Plot::OneFirst && is_ended(told, moment));
            *found.by_operation.entry(expected.operation).or_default() += 1;
        }
    }
    Ok(found)
}

/// About so many moments, as many of each kind of operation as of any other.
fn chosen(told: &Told, seed: u64, count: usize) -> BTreeSet<usize> {
    let mut begins: Vec<(usize, &str)> = vec![(0, Expected::FIRST)];
    begins.extend(told.steps.iter().filter_map(|(from, step)| match step {
        Step::Operation(name) => Some((*from, *name)),
        _ => None,
    }));
    begins.push((told.moments.len(), ""));
    let mut of_kind: BTreeMap<&str, Vec<std::ops::Range<usize>>> = BTreeMap::new();
    for pair in begins.windows(2).filter(|pair| pair[0].0 < pair[1].0) {
        of_kind.entry(pair[0].1).or_default().push(pair[0].0..pair[1].0);
    }
    let kinds: Vec<_> = of_kind.into_values().collect();
    let nth = |nth: usize| {
        let draw = |stream: u64| mix(seed, stream, nth as u64) as usize;
        let stretches = &kinds[(mix(seed, 79, 0) as usize % kinds.len() + nth) % kinds.len()];
        let stretch = &stretches[draw(80) % stretches.len()];
        stretch.start + draw(81) % stretch.len()
    };
    (0..count).map(nth).collect()
}

/// Whether one member had no events any more at this moment, and others had.
fn is_ended(told: &Told, moment: usize) -> bool {
    let (Some(now), Some(last)) = (told.moments.get(moment), told.moments.last()) else { return false };
    let ended = (0..told.members).filter(|member| now[*member] == last[*member]).count();
    ended > 0 && ended < told.members
}

/// Opens the volume over what is left, and says what does not hold.
fn look_at(told: &Told, images: &[Arc<ImageDevice>], expected: &Expected, look: Look) -> Result<(), String> {
    let runtime = Runtime::simulated(1);
    let looked = Looking { told, runtime: &runtime }.look(images, expected, look);
    runtime.abandon_tasks();
    looked
}

struct Looking<'a> {
    told: &'a Told,
    runtime: &'a Runtime,
}

impl Looking<'_> {
    fn wait<T>(
        &self,
        what: &str,
        future: impl Future<Output = rotproof_block::Result<T>>,
    ) -> Result<T, String> {
        self.runtime.block_on(future).and_then(|done| done).map_err(|error| format!("{what}: {error}"))
    }

    fn look(&self, images: &[Arc<ImageDevice>], expected: &Expected, look: Look) -> Result<(), String> {
        let (told, ways) = (self.told, usize::from(self.told.options.ways));
        let mut candidates = Vec::new();
        for (number, image) in images.iter().enumerate() {
            let candidate = Candidate { name: format!("m{number}"), device: Arc::clone(image) as _ };
            let is_meant = match look {
                Look::All => true,
                Look::Alone(copy) => number % ways == copy,
            };
            // A device that says nothing yet, or nothing any more, is none of the volume's.
            let is_made_of = number < told.members && !(expected.is_made && told.gone.contains(&number));
            let is_here =
                is_made_of || self.wait("the record", read_record(&candidate, self.runtime))?.is_some();
            if is_meant && is_here {
                candidates.push(candidate);
            }
        }
        let strict = OpenOptions::with_patience(Duration::from_millis(200));
        // One copy alone had company before, and says so; all together must do without such a word.
        let options = if look == Look::All { strict } else { strict.degraded() };
        let mut opened = self.wait("does not open", Volume::open(candidates.clone(), options, self.runtime));
        if !expected.is_made {
            // Nobody was told that it is there. What opens is empty; and it can be made again.
            if let Ok(volume) = &opened {
                expected.allows(&self.blocks(volume, expected)?)?;
            }
            drop(opened);
            self.runtime.abandon_tasks();
            let made = Volume::create(&candidates[..told.members], told.options, 8, self.runtime);
            self.wait("is not made again", made)?;
            opened = self.wait("does not open anew", Volume::open(candidates.clone(), options, self.runtime));
        }
        let volume = opened?;
        let found = self.blocks(&volume, expected)?;
        expected.allows(&found)?;
        if expected.is_made {
            self.versions(&volume, expected)?;
        }
        if look != Look::All {
            return Ok(());
        }
        // What was in doubt becomes the same on all members, and each alone has it.
        let rebuilt =
            self.wait("is not rebuilt", volume.rebuild(self.runtime, Pace::default(), |_, _| {}))?;
        let states = volume.status().members;
        if rebuilt.left_bytes > 0 || states.iter().any(|member| member.state != MemberState::Current) {
            return Err(format!("is not whole after a rebuild: {rebuilt:?}, {states:?}"));
        }
        let again = self.blocks(&volume, expected)?;
        if again != found {
            return Err("a rebuild has changed what is read".to_owned());
        }
        self.write(&volume)?;
        self.wait("does not close", volume.close(self.runtime))?;
        drop(volume);
        let (current, ways) = self.members_of(&candidates)?;
        for copy in 0..ways {
            let one: Vec<Candidate> = current.iter().skip(copy).step_by(ways).cloned().collect();
            let volume =
                self.wait("one copy does not open", Volume::open(one, options.degraded(), self.runtime))?;
            let mut alone = self.blocks(&volume, expected)?;
            alone[0].clone_from(&found[0]);
            if alone != found {
                return Err(format!("copy {copy} alone holds {alone:?}, and all held {found:?}"));
            }
        }
        Ok(())
    }

    /// The members that the volume has now, mirror by mirror, and how many of them are one.
    fn members_of(&self, candidates: &[Candidate]) -> Result<(Vec<Candidate>, usize), String> {
        let mut records = Vec::new();
        for candidate in candidates {
            records.push(self.wait("the record", read_record(candidate, self.runtime))?);
        }
        let newest = records.iter().flatten().max_by_key(|record| record.generation).cloned();
        let newest = newest.ok_or("no member says what it is")?;
        let mut members = Vec::new();
        for entry in &newest.members {
            let place =
                records.iter().position(|one| one.as_ref().and_then(MemberRecord::own_id) == Some(entry.id));
            members.push(candidates[place.ok_or("a member is not there")?].clone());
        }
        let ways = usize::from(newest.layout.ways);
        if members.len().is_multiple_of(ways) {
            Ok((members, ways))
        } else {
            Err("no whole mirrors".to_owned())
        }
    }

    /// Of each block the first byte of each sector, which all of its bytes must be.
    fn blocks(&self, volume: &Arc<Volume>, expected: &Expected) -> Result<Vec<Vec<u8>>, String> {
        (0..expected.blocks()).map(|block| self.sectors(&**volume, block)).collect()
    }

    fn sectors(&self, device: &dyn Device, block: usize) -> Result<Vec<u8>, String> {
        let queue = device.open_queue(self.runtime).map_err(|error| error.to_string())?;
        let offset = offset_of(self.told.size, block);
        let read = Request::read(offset, Buffer::stale(BLOCK), Context::default());
        let read = self.wait("a read", async { Ok(queue.submit(read).await) })?;
        read.result.map_err(|error| format!("block {block} is not read: {error}"))?;
        read.buffer
            .chunks(UNIT_BYTES as usize)
            .map(|sector| match sector.iter().all(|byte| *byte == sector[0]) {
                true => Ok(sector[0]),
                false => Err(format!("a sector of block {block} is torn")),
            })
            .collect()
    }

    fn versions(&self, volume: &Arc<Volume>, expected: &Expected) -> Result<(), String> {
        for (id, holds) in &expected.versions {
            let view = volume.view(*id).map_err(|error| format!("version {id}: {error}"))?;
            for (block, wanted) in holds.iter().enumerate() {
                let is = self.sectors(&*view, block).map_err(|why| format!("version {id}: {why}"))?;
                if is.iter().any(|byte| byte != wanted) {
                    return Err(format!("version {id} holds {is:?} in block {block}, not {wanted}"));
                }
            }
        }
        Ok(())
    }

    /// It can be written again.
    fn write(&self, volume: &Arc<Volume>) -> Result<(), String> {
        let queue = volume.open_queue(self.runtime).map_err(|error| error.to_string())?;
        let offset = offset_of(self.told.size, 0);
        let write = Request::write(offset, Buffer::copy_of(&[201; BLOCK]), Context::default());
        for request in [write, Request::flush(Context::default())] {
            let done = self.wait("a write", async { Ok(queue.submit(request).await) })?;
            done.result.map_err(|error| format!("is not written afterwards: {error}"))?;
        }
        match self.sectors(&**volume, 0)?.iter().all(|byte| *byte == 201) {
            true => Ok(()),
            false => Err("what was written afterwards is not there".to_owned()),
        }
    }
}
