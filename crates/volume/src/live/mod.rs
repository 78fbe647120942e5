//! A volume in use that changes its shape: it grows, keeps another number of copies, is ended.
//!
//! What changes a volume as a whole ([`crate::volume`]) needs one that nobody uses. So new requests are held at a [`valve`], those
//! under way end, the volume is closed in order, changed, and opened again; then all go on. Whoever uses the device notices nothing but
//! time. If the change fails the volume is opened as it is then, which is as before or as it was to be.
//!
//! Owns which volume requests go to. What a change does is not known here.

mod device;
mod valve;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::ability::find;
use rotproof_block::{Context, Device, Error, ErrorKind, Request, Resize, Result, Runtime};

use crate::copies::MemberState;
use crate::volume::{
    Candidate, Grown, OpenOptions, Volume, VolumeStatus, add_copy, forget, grow, remove_copy,
};
use device::LiveDevice;
use valve::Valve;

/// How long requests that are under way get to end.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is tried to open a volume again, a second apart. Its users are held so long.
const OPENINGS_MAX: u32 = 20;
const OPENING_INTERVAL: Duration = Duration::from_secs(1);

/// A volume that may change its shape while it is in use.
pub struct LiveVolume {
    valve: Valve,
    current: Mutex<Current>,
    /// Counts how often it was opened.
    opening: AtomicU64,
    options: OpenOptions,
}

struct Current {
    volume: Arc<Volume>,
    /// Why it cannot be used any more.
    failure: Option<String>,
}

impl LiveVolume {
    /// A volume that is open, and was opened with these options.
    pub fn new(volume: Arc<Volume>, options: OpenOptions) -> Arc<Self> {
        let current = Mutex::new(Current { volume, failure: None });
        Arc::new(Self { valve: Valve::default(), current, opening: AtomicU64::new(1), options })
    }

    /// The volume as it was opened last. Whoever keeps it may keep one that is closed.
    pub fn volume(&self) -> Arc<Volume> {
        Arc::clone(&self.current.lock().volume)
    }

    /// Why it cannot be used any more: it was ended, or could not be opened again after a change.
    pub fn failure(&self) -> Option<String> {
        self.current.lock().failure.clone()
    }

    fn usable(&self) -> Result<Arc<Volume>> {
        let current = self.current.lock();
        match &current.failure {
            None => Ok(Arc::clone(&current.volume)),
            Some(why) => Err(Error::new(ErrorKind::Gone, why.clone())),
        }
    }

    /// Its present, through every change.
    pub fn present(self: &Arc<Self>) -> Arc<dyn Device> {
        Arc::new(LiveDevice { live: Arc::clone(self), version: None })
    }

    /// A version of it, which can only be read, through every change. When it goes, reads of it fail.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there is none of this number.
    pub fn version(self: &Arc<Self>, id: u64) -> Result<Arc<dyn Device>> {
        self.usable()?.view(id)?;
        Ok(Arc::new(LiveDevice { live: Arc::clone(self), version: Some(id) }))
    }

    /// As [`grow`]. Members that have become larger are measured anew. The volume offers more once it is done; who has asked for
    /// its size before learns that only by asking again.
    pub async fn grow(&self, new: &[Candidate], id: u128, runtime: &Runtime) -> Result<Grown> {
        let change = async |members: &[Candidate]| {
            for member in members {
                if let Some(resize) = find::<dyn Resize>(&*member.device) {
                    resize.measure().map_err(|error| error.while_doing(&member.name))?;
                }
            }
            grow(members, new, id, runtime).await
        };
        self.changed(runtime, new, &[], change).await
    }

    /// As [`add_copy`]. A rebuild then fills the new members.
    pub async fn add_copy(&self, new: &[Candidate], id: u128, runtime: &Runtime) -> Result<()> {
        let change = async |members: &[Candidate]| add_copy(members, new, id, runtime).await;
        self.changed(runtime, new, &[], change).await
    }

    /// As [`remove_copy`].
    pub async fn remove_copy(&self, gone: &[usize], runtime: &Runtime) -> Result<()> {
        let change = async |members: &[Candidate]| remove_copy(members, gone, runtime).await;
        self.changed(runtime, &[], gone, change).await
    }

    /// Ends the volume: its members say nothing of it any more, and every request fails from now on. `is_free` is asked when no
    /// request is under way, and may still refuse.
    pub async fn destroy(&self, runtime: &Runtime, is_free: impl FnOnce() -> Result<()>) -> Result<()> {
        let volume = self.usable()?;
        flush_first(&volume, runtime).await?;
        let _closed = self.valve.close(runtime, DRAIN_PATIENCE).await?;
        is_free()?;
        self.close_or_go_on(&volume, runtime).await?;
        self.current.lock().failure = Some("the volume was destroyed".into());
        self.opening.fetch_add(1, Ordering::Release);
        for (_, member) in volume.candidates() {
            forget(&member, runtime).await?;
        }
        Ok(())
    }

    /// Ends its use in order; nothing may be under way. Without effect on one that cannot be used any more.
    pub async fn close(&self, runtime: &Runtime) -> Result<()> {
        match self.usable() {
            Ok(volume) => volume.close(runtime).await,
            Err(_) => Ok(()),
        }
    }

    /// Closes the volume. One that cannot be closed is used as before: what it has not been able to write is only in its memory.
    async fn close_or_go_on(&self, volume: &Volume, runtime: &Runtime) -> Result<()> {
        if let Err(error) = volume.close_idle(runtime, DRAIN_PATIENCE).await {
            volume.set_open(runtime).await?;
            return Err(error.while_doing("closing the volume, which goes on as it was"));
        }
        Ok(())
    }

    /// Holds all requests, has the members of the closed volume changed, and opens what they are then. Of the volume before the
    /// members numbered in `gone` may not belong to it any more, and of that after it those in `new` may belong to it.
    async fn changed<T>(
        &self,
        runtime: &Runtime,
        new: &[Candidate],
        gone: &[usize],
        change: impl AsyncFnOnce(&[Candidate]) -> Result<T>,
    ) -> Result<T> {
        let volume = self.usable()?;
        refuse_incomplete(&volume, gone)?;
        refuse_poorer(&volume, new)?;
        flush_first(&volume, runtime).await?;
        let _closed = self.valve.close(runtime, DRAIN_PATIENCE).await?;
        self.close_or_go_on(&volume, runtime).await?;
        let before: Vec<(Option<usize>, Candidate)> = volume.candidates();
        let members: Vec<Candidate> = before.iter().map(|(_, member)| member.clone()).collect();
        let kept = before.iter().filter(|(number, _)| number.is_none_or(|number| !gone.contains(&number)));
        let kept: Vec<Candidate> = kept.map(|(_, member)| member.clone()).collect();
        let done = change(&members).await;
        // A change that has failed may be on record all the same: then all are needed that it was about.
        let all = [&members[..], new].concat();
        let after = [&kept[..], new].concat();
        let ways = match done {
            Ok(_) => vec![after],
            Err(_) => vec![all, members, after],
        };
        match self.opened(&ways, &volume.status(), runtime).await {
            Ok(volume) => {
                self.current.lock().volume = volume;
                self.opening.fetch_add(1, Ordering::Release);
                done
            }
            Err(error) => {
                let why = format!("the volume could not be opened again after a change: {error}");
                self.current.lock().failure = Some(why.clone());
                self.opening.fetch_add(1, Ordering::Release);
                match done {
                    Ok(_) => Err(Error::new(error.kind(), why)),
                    Err(first) => Err(first.while_doing(why)),
                }
            }
        }
    }

    /// Opens the volume that the first of these ways of members makes up, which is not older than it was before.
    async fn opened(
        &self,
        ways: &[Vec<Candidate>],
        before: &VolumeStatus,
        runtime: &Runtime,
    ) -> Result<Arc<Volume>> {
        let mut tried = 0;
        loop {
            let mut failure = Error::new(ErrorKind::Missing, "it has no members");
            for members in ways {
                match Volume::open_again(members.clone(), self.options, before, runtime).await {
                    Ok(volume) => return Ok(volume),
                    Err(error) => failure = error,
                }
            }
            tried += 1;
            if tried == OPENINGS_MAX {
                return Err(failure);
            }
            runtime.sleep(OPENING_INTERVAL).await;
        }
    }
}

/// Flushes while all goes on: nobody is then held for most of what is to be written, nor where the members do not answer at all.
async fn flush_first(volume: &Volume, runtime: &Runtime) -> Result<()> {
    let queue = volume.open_queue(runtime)?;
    let mut flush = queue.submit(Request::flush(Context::default()));
    let mut end = runtime.sleep(DRAIN_PATIENCE);
    let flushed = poll_fn(|context| match Pin::new(&mut flush).poll(context) {
        Poll::Ready(completion) => Poll::Ready(Some(completion.result)),
        Poll::Pending => Pin::new(&mut end).poll(context).map(|()| None),
    });
    flushed.await.unwrap_or_else(|| {
        let context = format!(
            "the members have not answered a flush within {} s, so nothing was changed",
            DRAIN_PATIENCE.as_secs()
        );
        Err(Error::new(ErrorKind::TimedOut, context))
    })
}

/// Fails with [`ErrorKind::Refused`] if a member is missing or behind that is to stay: looked at before anybody is held.
fn refuse_incomplete(volume: &Volume, gone: &[usize]) -> Result<()> {
    for (number, member) in volume.status().members.iter().enumerate() {
        if member.state != MemberState::Current && !gone.contains(&number) {
            let context = format!("member {number} is missing or behind; replace it, or rebuild it first");
            return Err(Error::new(ErrorKind::Refused, context));
        }
    }
    Ok(())
}

/// Fails with [`ErrorKind::Invalid`] if a device would take away what the users of the volume count on.
fn refuse_poorer(volume: &Volume, new: &[Candidate]) -> Result<()> {
    let known = volume.info();
    for one in new {
        let info = one.device.info();
        let lacks = |had: bool, has: bool| had && !has;
        if info.block_size > known.block_size
            || lacks(known.features.discard, info.features.discard)
            || lacks(known.features.write_zeroes, info.features.write_zeroes)
        {
            let context = format!(
                "{} has larger blocks than the volume, or cannot do all that it can, and its users count on that; end its use first",
                one.name
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
    }
    Ok(())
}

impl fmt::Debug for LiveVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveVolume({:?})", self.current.lock().volume)
    }
}
