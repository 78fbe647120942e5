//! Another device takes the place of a member: one that is named, or a spare that waits.

use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_block::{Device, Error, ErrorKind, Result, Runtime};

use super::book::{Page, Spare};
use super::create::{clear_margins, entry};
use super::part::Part;
use super::{Candidate, Volume};
use crate::copies::{MemberState, Members};
use crate::member::{MARGIN_BYTES, data_bytes};

impl Volume {
    /// Puts a device in the place of a member, by its number; a rebuild then fills it. What the device holds is lost. `id` is of
    /// this act alone.
    ///
    /// Fails with [`ErrorKind::Refused`] if the member alone has something, and with [`ErrorKind::Invalid`] if there is no such
    /// member, no copy of it, or the device is too small.
    pub async fn replace(
        &self,
        member: usize,
        candidate: &Candidate,
        id: u128,
        runtime: &Runtime,
    ) -> Result<()> {
        self.take_place(member, candidate, None, id, runtime).await
    }

    /// As [`Volume::replace`]; `spare` is the number of the device if it was a spare.
    async fn take_place(
        &self,
        member: usize,
        candidate: &Candidate,
        spare: Option<u128>,
        id: u128,
        runtime: &Runtime,
    ) -> Result<()> {
        let Some(&(seat, number)) = self.seats().get(member) else {
            let context = format!(
                "there is no member {member}; they are numbered from 0 to {}",
                self.seats().len() - 1
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        };
        let Some(mirror) = &self.mirrors[seat] else {
            let context = "the volume keeps one copy, so no member can be replaced";
            return Err(Error::new(ErrorKind::Invalid, context));
        };
        let bytes = self.book.layout.data_bytes_of(seat);
        fits(candidate, bytes)?;
        if matches!(mirror.states()[number], MemberState::Current | MemberState::Behind { .. }) {
            mirror.fail(number, "it is being replaced")?;
        }
        if spare.is_none() {
            // What a spare says is overwritten, and true until then.
            clear_margins(candidate, runtime).await?;
        }
        let data: Arc<dyn Device> = Part::new(Arc::clone(&candidate.device), MARGIN_BYTES, bytes);
        let everything = 0..bytes;
        // On record first: from then on the one that was there is no member.
        let mut fresh = entry(id, member as u64, &self.book.layout);
        self.book.regions_of(&everything).for_each(|bit| fresh.missed.set(bit));
        if spare.is_none() {
            self.book.announce(runtime, &candidate.device, member, fresh.id).await?;
        }
        if let Some(spare) = spare {
            // Its records say so already, and are read as long as they are the newest that it has.
            fresh.id = spare;
        }
        let page = Page { device: Some(Arc::clone(&candidate.device)), entry: fresh };
        let change = |old: &mut Page| {
            *old = page;
            self.book.spares.lock().retain(|waiting| Some(waiting.id) != spare);
        };
        self.book.change(runtime, member, change).await?;
        mirror.replace(number, data, std::slice::from_ref(&everything))?;
        self.names.lock()[member] = Ok(candidate.name.clone());
        Ok(())
    }

    /// Takes a device as a spare: it waits until a member fails. What it holds is lost. `id` is of this act alone.
    ///
    /// Fails with [`ErrorKind::Invalid`] if it is too small, or nobody's place can be taken as one copy is kept.
    pub async fn add_spare(&self, candidate: &Candidate, id: u128, runtime: &Runtime) -> Result<()> {
        if self.book.layout.ways == 1 {
            let context = "the volume keeps one copy, so a spare could take nobody's place";
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        fits(candidate, self.book.layout.data_bytes())?;
        clear_margins(candidate, runtime).await?;
        let half = |half: u64| u128::from(mix((id >> 64) as u64, id as u64 ^ half, u64::MAX));
        let spare = Spare { id: half(0) << 64 | half(1), candidate: Some(candidate.clone()) };
        self.book.announce(runtime, &candidate.device, usize::MAX, spare.id).await?;
        self.book.change_spares(runtime, |spares| spares.push(spare)).await
    }

    /// Lets a spare go, by its number among the spares; it is no part of the volume any more.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there is none of this number.
    pub async fn remove_spare(&self, spare: usize, runtime: &Runtime) -> Result<()> {
        let Some(gone) = self.book.spares.lock().get(spare).cloned() else {
            let context = format!("there is no spare {spare}");
            return Err(Error::new(ErrorKind::Invalid, context));
        };
        self.book.change_spares(runtime, |spares| spares.retain(|spare| spare.id != gone.id)).await?;
        match &gone.candidate {
            Some(candidate) => clear_margins(candidate, runtime).await,
            None => Ok(()),
        }
    }

    /// Puts a spare that is there in the place of the first member that takes no part; a rebuild then fills it. The number of
    /// the member, and what the spare is called; `None` if no member has failed, or no spare is there.
    pub async fn use_spare(&self, id: u128, runtime: &Runtime) -> Result<Option<(usize, String)>> {
        let states = self.status().members;
        let failed = states.iter().position(|member| matches!(member.state, MemberState::Failed { .. }));
        let waiting = self.book.spares.lock().iter().find(|spare| spare.candidate.is_some()).cloned();
        let (Some(member), Some(Spare { id: spare_id, candidate: Some(candidate) })) = (failed, waiting)
        else {
            return Ok(None);
        };
        self.take_place(member, &candidate, Some(spare_id), id, runtime).await?;
        Ok(Some((member, candidate.name)))
    }
}

/// Ok if a device has room for so many bytes of data.
fn fits(candidate: &Candidate, bytes: u64) -> Result<()> {
    if data_bytes(candidate.device.info().size).is_none_or(|own| own < bytes) {
        let needed = bytes + 2 * MARGIN_BYTES;
        let context = format!("{} is too small: the volume needs {needed} bytes of a member", candidate.name);
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    Ok(())
}
