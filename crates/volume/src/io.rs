//! Requests that a layer makes of its own: awaited one by one, with each copy at hand where the device below has copies.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rotproof_block::ability;
use rotproof_block::{
    Buffer, Completion, Context, Device, Error, ErrorKind, Queue, Request, Result, Runtime, Submission,
};

use crate::copies::{Copies, CopyQueue};

/// How often a read of metadata is tried again that the medium refuses, and how long after, before what is there counts as lost for good.
pub(crate) const TRIES: u32 = 8;
pub(crate) const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Ids of requests that a layer makes of its own start here, far above those that origins count.
const FIRST_ID: u64 = 1 << 63;

/// The queue below a layer, and what else the layer needs for requests of its own.
#[derive(Clone)]
pub(crate) struct Io {
    pub queue: Rc<dyn Queue>,
    /// The copies of the device below, if it has any.
    pub copies: Option<Rc<dyn CopyQueue>>,
    /// How many; 1 without the ability.
    pub copy_count: usize,
    pub runtime: Runtime,
    /// How long a copy may take to answer.
    patience: Duration,
    has_write_zeroes: bool,
    has_discard: bool,
    /// Nothing can be written.
    pub is_read_only: bool,
    next_id: Rc<Cell<u64>>,
}

impl Io {
    /// A copy that does not answer within `patience` counts as one that cannot be read.
    pub(crate) fn open(below: &Arc<dyn Device>, runtime: &Runtime, patience: Duration) -> Result<Self> {
        let copies = ability::find::<dyn Copies>(&**below);
        Ok(Self {
            queue: below.open_queue(runtime)?,
            copy_count: copies.as_ref().map_or(1, |copies| copies.count()),
            copies: copies.map(|copies| copies.open_copies(runtime)).transpose()?,
            runtime: runtime.clone(),
            patience,
            has_write_zeroes: below.info().features.write_zeroes,
            has_discard: below.info().features.discard,
            is_read_only: below.info().read_only,
            next_id: Rc::new(Cell::new(FIRST_ID)),
        })
    }

    /// The context of a request made because of one with `context`.
    pub(crate) fn child(&self, context: Context) -> Context {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        context.child(id)
    }

    /// Reads `length` bytes from `offset`.
    pub(crate) async fn read(&self, offset: u64, length: usize, context: Context) -> Result<Buffer> {
        let request = Request::read(offset, Buffer::stale(length), self.child(context));
        done(self.queue.submit(request).await)
    }

    /// Reads from one copy alone; from the device if it has none.
    pub(crate) async fn read_copy(
        &self,
        copy: usize,
        offset: u64,
        length: usize,
        context: Context,
    ) -> Result<Buffer> {
        let request = Request::read(offset, Buffer::stale(length), self.child(context));
        let submission = self.submit_to(copy, request);
        if self.copies.is_none() {
            return done(submission.await);
        }
        done(match submission.try_take() {
            Ok(completion) => completion,
            Err(submission) => self.in_time(submission, length, context).await,
        })
    }

    /// As [`Io::read_copy`], tried again and again while the medium refuses it: an error may pass, and what is lost stays lost.
    pub(crate) async fn read_copy_again(
        &self,
        copy: usize,
        offset: u64,
        length: usize,
        context: Context,
    ) -> Result<Buffer> {
        let mut tried = 0;
        loop {
            let read = self.read_copy(copy, offset, length, context).await;
            tried += 1;
            match read {
                Err(error) if error.kind() == ErrorKind::Medium && tried <= TRIES => {
                    self.runtime.sleep(TRY_AGAIN).await;
                }
                read => return read,
            }
        }
    }

    /// Waits for an answer, but not for ever: after that it is an error like any other.
    pub(crate) async fn in_time(
        &self,
        submission: Submission,
        length: usize,
        context: Context,
    ) -> Completion {
        let mut submission = pin!(submission);
        let mut sleep = pin!(self.runtime.sleep(self.patience));
        let answer = std::future::poll_fn(|task| {
            if let Poll::Ready(completion) = submission.as_mut().poll(task) {
                return Poll::Ready(Some(completion));
            }
            sleep.as_mut().poll(task).map(|()| None)
        })
        .await;
        match answer {
            Some(completion) => Completion { context, ..completion },
            None => {
                let error = Error::new(ErrorKind::TimedOut, "a copy does not answer");
                Completion { result: Err(error), buffer: Buffer::stale(length), context }
            }
        }
    }

    /// Writes to one copy alone; to the device if it has none.
    pub(crate) async fn write_copy(
        &self,
        copy: usize,
        offset: u64,
        data: Buffer,
        context: Context,
    ) -> Result<()> {
        let request = Request::write(offset, data, self.child(context));
        done(self.submit_to(copy, request).await).map(drop)
    }

    /// Writes all of `data` at `offset`.
    pub(crate) async fn write(&self, offset: u64, data: Buffer, context: Context) -> Result<()> {
        let request = Request::write(offset, data, self.child(context));
        done(self.queue.submit(request).await).map(drop)
    }

    /// Makes a range read as zeros, whatever the device can do for that.
    pub(crate) async fn write_zeroes(&self, offset: u64, length: u64, context: Context) -> Result<()> {
        if self.has_write_zeroes {
            let request = Request::write_zeroes(offset, length, self.child(context));
            return done(self.queue.submit(request).await).map(drop);
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let part = (end - at).min(1 << 20);
            self.write(at, Buffer::zeroed(part as usize), context).await?;
            at += part;
        }
        Ok(())
    }

    /// Gives a range back to the device below, which need not keep room for it; it reads as zeros then. Where it cannot take it back
    /// zeros are written, if it `must_be_zero`.
    pub(crate) async fn discard(
        &self,
        offset: u64,
        length: u64,
        must_be_zero: bool,
        context: Context,
    ) -> Result<()> {
        if self.has_discard {
            let request = Request::discard(offset, length, self.child(context));
            return done(self.queue.submit(request).await).map(drop);
        }
        if must_be_zero { self.write_zeroes(offset, length, context).await } else { Ok(()) }
    }

    /// Makes a range of one copy alone read as zeros, where there are copies.
    pub(crate) async fn clear_copy(
        &self,
        copy: usize,
        offset: u64,
        length: u64,
        context: Context,
    ) -> Result<()> {
        // A member that is filled need not have room for what is zeros.
        let clear = match (self.has_discard, self.has_write_zeroes) {
            (true, _) => Request::discard(offset, length, self.child(context)),
            (false, true) => Request::write_zeroes(offset, length, self.child(context)),
            (false, false) => {
                return self.write_copy(copy, offset, Buffer::zeroed(length as usize), context).await;
            }
        };
        done(self.submit_to(copy, clear).await).map(drop)
    }

    /// Makes what was written durable.
    pub(crate) async fn flush(&self, context: Context) -> Result<()> {
        done(self.queue.submit(Request::flush(self.child(context))).await).map(drop)
    }

    fn submit_to(&self, copy: usize, request: Request) -> Submission {
        match &self.copies {
            Some(copies) => copies.submit_to(copy, request),
            None => self.queue.submit(request),
        }
    }

    /// What lies at `offset`, from that copy of it whose `rank` is the highest of those that `accepts`, and whether another is not
    /// as high. For what a crash may have left different on the copies.
    ///
    /// Fails as [`Io::read_valid`] does.
    pub(crate) async fn read_newest<T>(
        &self,
        offset: u64,
        length: usize,
        table: u128,
        accepts: impl Fn(&[u8]) -> Option<T>,
        rank: impl Fn(&T) -> u64,
        context: Context,
    ) -> Result<(Option<(Buffer, T)>, bool)> {
        let mut newest: Option<(Buffer, T)> = None;
        let mut is_behind = false;
        for copy in self.current_copies(offset, length) {
            let Ok(bytes) = self.read_copy(copy, offset, length, context).await else { continue };
            let Some(found) = accepts(&bytes) else { continue };
            let before = newest.as_ref().map(|(_, of)| rank(of));
            is_behind |= before.is_some_and(|before| before != rank(&found));
            if before.is_none_or(|before| before < rank(&found)) {
                newest = Some((bytes, found));
            }
        }
        match newest {
            Some(_) => Ok((newest, is_behind)),
            // Errors told apart.
            None => self.read_valid(offset, length, table, accepts, context).await.map(|found| (found, true)),
        }
    }

    /// The copies that have missed nothing there; all where every one has, as far as is known. What the others hold is older, or of
    /// another volume, and may be whole all the same.
    pub(crate) fn current_copies(&self, offset: u64, length: usize) -> Vec<usize> {
        let current: Vec<usize> =
            (0..self.copy_count).filter(|copy| self.is_current(*copy, offset, length)).collect();
        if current.is_empty() { (0..self.copy_count).collect() } else { current }
    }

    /// Whether a copy has missed nothing there, as far as is known.
    fn is_current(&self, copy: usize, offset: u64, length: usize) -> bool {
        self.copies.as_ref().is_none_or(|copies| copies.is_current(copy, offset, length as u64))
    }

    /// What lies at `offset`, from the first copy of it that has missed nothing and that `accepts`; `None` if none does, or the medium cannot
    /// read it, also when it is tried again. A copy that does not is written anew from the one that does.
    ///
    /// Fails if none does and one could not be asked for any other reason than its medium, while another seems to be of
    /// `table`, which all parts name in their bytes 8 to 24: then nobody knows whether there is one.
    pub(crate) async fn read_valid<T>(
        &self,
        offset: u64,
        length: usize,
        table: u128,
        accepts: impl Fn(&[u8]) -> Option<T>,
        context: Context,
    ) -> Result<Option<(Buffer, T)>> {
        let mut tried = 0;
        loop {
            let (found, is_refused) = self.read_valid_once(offset, length, table, &accepts, context).await?;
            tried += 1;
            if found.is_some() || !is_refused || tried > TRIES {
                return Ok(found);
            }
            self.runtime.sleep(TRY_AGAIN).await;
        }
    }

    /// What was found, and whether the medium of a copy has refused to read.
    async fn read_valid_once<T>(
        &self,
        offset: u64,
        length: usize,
        table: u128,
        accepts: &impl Fn(&[u8]) -> Option<T>,
        context: Context,
    ) -> Result<(Option<(Buffer, T)>, bool)> {
        let first = self.copies.as_ref().map_or(0, |copies| copies.choose(offset, length as u64));
        let (mut bad, mut failure, mut is_ours) = (Vec::new(), None, false);
        let (mut none_read, mut is_refused) = (true, false);
        let mut copies = self.current_copies(offset, length);
        let begin = copies.iter().position(|copy| *copy == first).unwrap_or(0);
        copies.rotate_left(begin);
        for copy in copies {
            let bytes = match self.read_copy(copy, offset, length, context).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    bad.push(copy);
                    is_refused |= error.kind() == ErrorKind::Medium;
                    failure = failure.or((error.kind() != ErrorKind::Medium).then_some(error));
                    continue;
                }
            };
            none_read = false;
            let Some(found) = accepts(&bytes) else {
                is_ours |= bytes[8..24] == table.to_le_bytes();
                bad.push(copy);
                continue;
            };
            for copy in bad {
                // Best effort: a copy that cannot be written is no worse than before.
                let _ = self.write_copy(copy, offset, Buffer::copy_of(&bytes), context).await;
            }
            return Ok((Some((bytes, found)), is_refused));
        }
        // Where no copy could be asked at all, nobody knows either.
        let is_unknown = is_ours || none_read;
        failure.filter(|_| is_unknown).map_or(Ok((None, is_refused)), Err)
    }
}

fn done(completion: Completion) -> Result<Buffer> {
    completion.result.map(|()| completion.buffer)
}
