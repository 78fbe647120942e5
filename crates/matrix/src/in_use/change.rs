//! What changes the volume meanwhile, one thing after the other.

use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_volume::copies::MemberState;
use rotproof_volume::mirror::Pace;
use rotproof_volume::volume::{Candidate, VolumeStatus};

use super::{World, number_of};

/// So many segments and devices, and no more.
const SEGMENTS: usize = 5;
const MEMBERS: usize = 12;

impl World {
    /// So much happens in a round.
    pub(super) async fn change_it(&self, round: u64) -> Result<(), String> {
        for index in 0..4 + self.draw(60, round) % 8 {
            let index = round * 1000 + index;
            self.runtime.sleep(Duration::from_micros(self.draw(61, index) % 6000)).await;
            if self.is_over.get() {
                break;
            }
            self.change(index).await?;
        }
        Ok(())
    }

    /// A number that nobody has used before.
    fn act(&self) -> u128 {
        self.acts.set(self.acts.get() + 1);
        self.acts.get().into()
    }

    async fn change(&self, index: u64) -> Result<(), String> {
        let status = self.live().volume().status();
        let draw = self.draw(63, index);
        let ways = status.layout.ways;
        let has_versions = status.layout.versions.is_some();
        let has_room = status.members.len() < MEMBERS;
        match self.draw(62, index) % 24 {
            0 | 1 if status.layout.segments.len() < SEGMENTS && has_room => {
                self.grow(&status, draw, true).await
            }
            2 if status.layout.segments.len() < SEGMENTS => self.grow(&status, draw, false).await,
            3 | 4 if ways < 3 && has_room => self.add_copy(&status, draw).await,
            5 | 6 if ways > 1 => self.remove_copy(&status, draw).await,
            7 | 8 if ways > 1 => self.replace(&status, draw).await,
            9 if ways > 1 && status.spares.len() < 2 => self.add_spare(&status, draw).await,
            10 if !status.spares.is_empty() => self.remove_spare(&status, draw).await,
            11 if !status.spares.is_empty() => self.use_spare().await,
            12 | 13 => self.scrub().await,
            14..=16 => self.rebuild().await,
            17 | 18 if has_versions => self.roll_back(draw).await,
            19 if has_versions => self.give_up(draw).await,
            _ if has_versions => self.capture().await,
            _ => Ok(()),
        }
    }

    /// A change of the members has ended. It may fail where one of them is not well, or has not had everything yet.
    async fn ended<T>(
        &self,
        what: &'static str,
        status: &VolumeStatus,
        done: &Result<T>,
    ) -> Result<(), String> {
        let is_whole = status.members.iter().all(|member| member.state == MemberState::Current);
        match done {
            Ok(_) => *self.life.borrow_mut().changes.entry(what).or_default() += 1,
            Err(error) if is_whole && self.is_well() => {
                return Err(format!("{what} failed: {error}; {:?}", status.members));
            }
            Err(_) => {
                self.life.borrow_mut().refused += 1;
                // It may have been done all the same.
                let members = self.live().volume().status().members;
                let is_there =
                    |plug: &usize| members.iter().any(|one| number_of(one.name.as_ref()) == Some(*plug));
                self.filled.borrow_mut().retain(is_there);
            }
        }

        match self.live().failure() {
            Some(why) => self.excuse(what, &Error::new(ErrorKind::Gone, why)).await,
            None => Ok(()),
        }
    }

    /// Something else has ended, which must not fail.
    async fn must<T>(&self, what: &'static str, done: Result<T>) -> Result<Option<T>, String> {
        match done {
            Ok(done) => {
                *self.life.borrow_mut().changes.entry(what).or_default() += 1;
                Ok(Some(done))
            }
            Err(error) => self.excuse(what, &error).await.map(|()| None),
        }
    }

    /// Devices that are no members, some of them once were; as large as any.
    fn new_devices(&self, count: usize, draw: u64) -> Result<Vec<usize>, String> {
        use rotproof_block::Device;
        let largest = self.plugs.borrow().iter().map(|plug| plug.info().size).max().unwrap_or(0);
        let fits = |plug: &usize| self.plugs.borrow()[*plug].info().size == largest;
        // Where nothing knows what was never written, a device brings what it holds.
        let layout = self.live().volume().status().layout;
        let knows_unwritten = layout.checksum != 0 || layout.versions.is_some();
        let mut retired: Vec<usize> = match draw.is_multiple_of(2) && knows_unwritten {
            true => self.retired.borrow().iter().copied().filter(fits).collect(),
            false => Vec::new(),
        };
        let mut devices = Vec::new();
        for _ in 0..count {
            let device = match retired.pop() {
                Some(device) => device,
                None => self.new_plug(largest).map_err(|error| error.to_string())?,
            };
            // Whether it has become one is known when that was said.
            self.retired.borrow_mut().remove(&device);
            self.filled.borrow_mut().remove(&device);
            devices.push(device);
        }
        Ok(devices)
    }

    fn candidates_of(&self, devices: &[usize]) -> Vec<Candidate> {
        devices.iter().map(|device| self.candidate(*device)).collect()
    }

    async fn grow(&self, status: &VolumeStatus, draw: u64, is_by_devices: bool) -> Result<(), String> {
        self.changing.set("grow");
        let mut new = Vec::new();
        if is_by_devices {
            new = self.new_devices(usize::from(status.layout.ways), draw)?;
        } else {
            let plugs = self.plugs.borrow();
            plugs.iter().for_each(|plug| plug.enlarge(16 << 20));
        }
        let done = self.live().grow(&self.candidates_of(&new), self.act(), &self.runtime).await;
        let is_refused =
            matches!(&done, Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Invalid));
        if !is_refused || is_by_devices {
            self.ended(if is_by_devices { "grow" } else { "grow in place" }, status, &done).await?;
        }
        if done.is_ok() {
            self.measure(&self.live())?;
            self.filled.borrow_mut().extend(new);
        }
        Ok(())
    }

    async fn add_copy(&self, status: &VolumeStatus, draw: u64) -> Result<(), String> {
        self.changing.set("add a copy");
        let new = self.new_devices(status.members.len() / usize::from(status.layout.ways), draw)?;
        let done = self.live().add_copy(&self.candidates_of(&new), self.act(), &self.runtime).await;
        self.ended("add a copy", status, &done).await?;
        // It is filled now, or some time later.
        if draw.is_multiple_of(3) { Ok(()) } else { self.rebuild().await }
    }

    async fn remove_copy(&self, status: &VolumeStatus, draw: u64) -> Result<(), String> {
        self.changing.set("remove a copy");
        let ways = usize::from(status.layout.ways);
        let gone: Vec<usize> = (0..status.members.len() / ways)
            .map(|mirror| mirror * ways + ((draw >> (mirror * 4)) % ways as u64) as usize)
            .collect();
        let done = self.live().remove_copy(&gone, &self.runtime).await;
        self.ended("remove a copy", status, &done).await?;
        let gone = gone.iter().filter_map(|member| number_of(status.members[*member].name.as_ref()));
        if done.is_ok() {
            self.retired.borrow_mut().extend(gone);
        } else if self.live().failure().is_some() {
            // Whether they were let go, and so say nothing any more, is known when the volume is opened again.
            for plug in gone {
                self.filled.borrow_mut().remove(&plug);
            }
        }
        Ok(())
    }

    async fn replace(&self, status: &VolumeStatus, draw: u64) -> Result<(), String> {
        self.changing.set("replace");
        let member = (draw >> 8) as usize % status.members.len();
        let device = self.new_devices(1, draw)?[0];
        let volume = self.live().volume();
        let done = volume.replace(member, &self.candidate(device), self.act(), &self.runtime).await;
        self.ended("replace", status, &done).await?;
        if done.is_ok() {
            self.retired.borrow_mut().extend(number_of(status.members[member].name.as_ref()));
        }
        if (draw >> 16).is_multiple_of(3) { Ok(()) } else { self.rebuild().await }
    }

    async fn add_spare(&self, status: &VolumeStatus, draw: u64) -> Result<(), String> {
        self.changing.set("add a spare");
        let device = self.new_devices(1, draw)?[0];
        let volume = self.live().volume();
        let done = volume.add_spare(&self.candidate(device), self.act(), &self.runtime).await;
        self.ended("add a spare", status, &done).await
    }

    async fn remove_spare(&self, status: &VolumeStatus, draw: u64) -> Result<(), String> {
        self.changing.set("remove a spare");
        let spare = (draw % status.spares.len() as u64) as usize;
        let done = self.live().volume().remove_spare(spare, &self.runtime).await;
        self.ended("remove a spare", status, &done).await?;
        if done.is_ok() {
            self.retired.borrow_mut().extend(number_of(status.spares[spare].as_ref()));
        }
        Ok(())
    }

    async fn use_spare(&self) -> Result<(), String> {
        self.changing.set("use a spare");
        let status = self.live().volume().status();
        let done = self.live().volume().use_spare(self.act(), &self.runtime).await;
        match &done {
            Ok(None) => return Ok(()),
            Ok(Some((member, _))) => {
                self.retired.borrow_mut().extend(number_of(status.members[*member].name.as_ref()));
            }
            Err(_) => {}
        }
        self.ended("use a spare", &status, &done).await?;
        self.rebuild().await
    }

    async fn scrub(&self) -> Result<(), String> {
        self.changing.set("scrub");
        let done = self.live().volume().scrub(&self.runtime, Pace::default(), |_, _| {}).await;
        self.must("scrub", done).await.map(drop)
    }

    async fn rebuild(&self) -> Result<(), String> {
        self.changing.set("rebuild");
        if self.is_over.get() {
            return Ok(());
        }
        let volume = self.live().volume();
        let done = volume.rebuild(&self.runtime, Pace::default(), |_, _| {}).await;
        let Some(rebuilt) = self.must("rebuild", done).await? else { return Ok(()) };
        let members = volume.status().members;
        let is_whole =
            rebuilt.left_bytes == 0 && members.iter().all(|member| member.state == MemberState::Current);
        if is_whole {
            let all = members.iter().filter_map(|member| number_of(member.name.as_ref()));
            self.filled.borrow_mut().extend(all);
        } else if self.is_well() {
            return Err(format!("is not whole after a rebuild: {rebuilt:?}, {members:?}"));
        }
        Ok(())
    }

    async fn capture(&self) -> Result<(), String> {
        self.changing.set("capture");
        let floors = self.model.borrow_mut().captures();
        let done = self.live().volume().capture(&self.runtime, "", 1).await;
        let id = self.must("capture", done).await?;
        let mut model = self.model.borrow_mut();
        match id {
            Some(id) => model.captured(id, &floors),
            None => model.captures_no_more(),
        }
        Ok(())
    }

    fn some_version(&self, draw: u64) -> Option<u64> {
        let model = self.model.borrow();
        let nth = draw.checked_rem(model.versions.len() as u64)?;
        model.versions.keys().nth(nth as usize).copied()
    }

    async fn roll_back(&self, draw: u64) -> Result<(), String> {
        self.changing.set("roll back");
        let Some(id) = self.some_version(draw) else { return Ok(()) };
        self.model.borrow_mut().goes_back(id);
        let done = self.live().volume().roll_back(&self.runtime, id, 1).await;
        match self.must("roll back", done).await? {
            Some(undo) => self.model.borrow_mut().went_back(undo),
            None => self.model.borrow_mut().captures_no_more(),
        }
        Ok(())
    }

    async fn give_up(&self, draw: u64) -> Result<(), String> {
        self.changing.set("give up a version");
        let Some(id) = self.some_version(draw) else { return Ok(()) };
        self.model.borrow_mut().doubtful.insert(id);
        let done = self.live().volume().delete_version(&self.runtime, id).await;
        if self.must("give up a version", done).await?.is_some() {
            let mut model = self.model.borrow_mut();
            model.versions.remove(&id);
            model.doubtful.remove(&id);
        }
        Ok(())
    }
}
