//! The slots of the state on the medium: which is the newest, and how it is known that a newer one is lost.
//!
//! A state is written to the slot that does not have the newest one. So where the newest is bad on every copy, the one before is there and
//! whole. Two things keep it from being taken for the newest:
//!
//! - What a checkpoint or the owner changes is written to both slots, one after the other. Then either of them says all.
//! - The mark of a granule is written once: somebody waits for it. What then goes into the granule is durable only with a block of the log,
//!   and each block of the log says which states were durable before it ([`Told`]). So a block of the log that knows of a newer state is
//!   there whenever something was lost with it. The log itself says what: its records name the entries that are in use.
//!
//! A loss of power may leave an older state as the newest one that was durable. Then no block of the log knows of another.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::{Context, Error, ErrorKind, Result};

use super::layout::{Layout, STATE_BYTES};
use super::open::is_entered;
use super::state::{State, VERSION};
use super::{MARKED, Order, Table};
use crate::io::Io;

/// Which states were durable when a part of a table was written, by their generations. Zeros where that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The newest.
    pub newest: u64,
    /// The one in the other slot.
    pub before: u64,
}

/// What the slots hold.
#[derive(Debug)]
pub(super) struct Found {
    /// The newest state that is whole.
    pub state: State,
    /// Every copy has it that could be read.
    is_everywhere: bool,
    /// The generation of the state in the other slot, if every copy has it that could be read, and it says the same.
    twin: Option<u64>,
}

/// What the log knows of states.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    /// The newest word of them.
    pub told: Told,
    /// It has gone on beyond what has room behind the tail of the state that was found.
    pub is_beyond: bool,
    /// Blocks of it that were durable, and that no copy has.
    pub missing: u64,
}

impl Evidence {
    /// Whether a newer state was durable than this one.
    pub(super) fn knows_newer(&self, state: &State) -> bool {
        self.told.newest > state.generation
    }

    /// Fails with [`ErrorKind::Medium`] if a newer state was durable than this one, and the log does not have all that came since.
    pub(super) fn check(&self, state: &State) -> Result<()> {
        let is_too_old = state.generation < self.told.before;
        let is_lost = self.knows_newer(state) && (is_too_old || self.missing > 0);
        if !is_lost && !self.is_beyond {
            return Ok(());
        }
        let context = "the newest state of checksums or maps is lost on all copies, and the log does not have all that came after \
                       the one before: what was used since then would read as zeros, or as what it was before; add members \
                       that are missing, if there are some";
        Err(Error::new(ErrorKind::Medium, context))
    }
}

impl Found {
    /// Reads all slots. `None` if no state is whole.
    ///
    /// Fails with [`ErrorKind::Unsupported`] if one is of a newer version, and with the error of a copy that does not answer, if the
    /// newest state may be there.
    pub(super) async fn read(io: &Io, layout: &Layout) -> Result<Option<Self>> {
        let (mut slots, mut refused): ([Vec<Option<State>>; 2], Option<Error>) = Default::default();
        let mut unanswered: [Option<Error>; 2] = Default::default();
        for copy in 0..2 {
            for slot in 0..2 {
                let at = layout.state_at(copy, slot as u64);
                for from in io.current_copies(at, STATE_BYTES as usize) {
                    let read = io.read_copy_again(from, at, STATE_BYTES as usize, Context::default()).await;
                    match read.map(|bytes| State::decode(&bytes, 2 * copy + slot as u64)) {
                        Ok(Ok(state)) => slots[slot].push(state),
                        Ok(Err(error)) => refused = Some(error),
                        Err(error) if error.kind() == ErrorKind::Medium => {}
                        Err(error) => unanswered[slot] = Some(error),
                    }
                }
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        for (slot, unanswered) in slots.iter().zip(unanswered) {
            if let (Some(error), true) = (unanswered, slot.iter().flatten().next().is_none()) {
                let context = "no copy of a state of checksums or maps answers, and it may be the newest";
                return Err(Error::new(error.kind(), context).caused_by(error));
            }
        }
        let newest = slots.iter().flatten().flatten().max_by_key(|state| state.generation);
        let Some(state) = newest.cloned() else { return Ok(None) };
        let [even, odd] = slots;
        let (own, other) = if state.generation.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        let is_everywhere = own.iter().all(|one| one.as_ref() == Some(&state));
        let is_twin = |one: &Option<State>| one.as_ref().is_some_and(|one| one.says_the_same(&state));
        let twin = other.first().cloned().flatten().map(|one| one.generation);
        let twin = twin.filter(|_| other.iter().all(|one| is_twin(one) && *one == other[0]));
        Ok(Some(Self { state, is_everywhere, twin }))
    }
}

impl Table {
    /// What the log has since the state that was found is taken over into that; and both slots are made to say what is known now, so that
    /// nothing is written before the loss of a slot is without harm. `used` are the granules of which the log has records.
    pub(super) async fn settle_slots(
        &self,
        io: &Io,
        found: &Found,
        evidence: &Evidence,
        used: impl IntoIterator<Item = u64>,
    ) -> Result<()> {
        let context = Context::default();
        let (state, is_mended) = {
            let mut head = self.head.lock();
            let (is_newer, state) = (evidence.knows_newer(&head.state), &mut head.state);
            let mut is_mended = is_newer;
            for granule in used {
                // Records are of granules that were used and, until their pages were written, marked.
                is_mended |= !state.used.has(granule);
                let is_marked = self.order == Order::Beside && (is_newer || !state.used.has(granule));
                state.used.set(granule, true);
                state.marks.set(granule, is_marked || state.marks.has(granule));
            }
            state.generation = state.generation.max(evidence.told.newest);
            (state.clone(), is_mended)
        };
        for (granule, word) in (0..).zip(self.granules.iter()) {
            word.store(if is_entered(self.order, &state, granule) { MARKED } else { 0 }, Ordering::SeqCst);
        }
        if is_mended {
            self.counts.pages_mended.fetch_add(1, Ordering::Relaxed);
        }
        if io.is_read_only {
            return Ok(());
        }
        let is_current = found.state.version == VERSION;
        if let (true, Some(before), true, false) = (found.is_everywhere, found.twin, is_current, is_mended) {
            // Whoever was here before may have left it in the memory of a device: nothing is said of it until it is durable.
            if io.flush(context).await.is_ok() {
                self.head.lock().told = Told { newest: state.generation, before };
            }
            return Ok(());
        }
        if !found.is_everywhere && !is_mended {
            // A crash came between its copies. The next one but one is written over it, so this one must be whole.
            write_state(io, &self.layout, &state, context).await?;
        }
        let written = self.write_both(io, state, context).await;
        // Nothing in the form of now is written where states of the one before would let an earlier program read it.
        if is_current { Ok(()) } else { written }
    }

    /// Writes a state, durably, so that both slots say the same. The caller has the turn; the state is that of now but for what it changed.
    pub(super) async fn write_both(&self, io: &Io, state: State, context: Context) -> Result<()> {
        self.write_state(io, state.clone(), context).await?;
        self.write_state(io, state, context).await
    }

    /// Writes the next generation of the state, durably, to one slot. The caller has the turn; the state is that of now but for what it
    /// changed.
    pub(super) async fn write_state(&self, io: &Io, mut state: State, context: Context) -> Result<()> {
        let whole = {
            let mut head = self.head.lock();
            state.lost = head.state.lost.clone();
            state.witness = head.state.witness;
            // Never over the newest one that is whole, as it would be after a write that failed.
            state.generation = head.state.generation + 1;
            state.generation += u64::from(state.generation % 2 == head.whole % 2);
            // Counted even if it fails: what a slot holds after a failed write is not known.
            head.state.generation = state.generation;
            head.whole
        };
        self.counts.requests.fetch_add(2, Ordering::Relaxed);
        write_state(io, &self.layout, &state, context).await?;
        let mut head = self.head.lock();
        (head.told, head.whole) = (Told { newest: state.generation, before: whole }, state.generation);
        // Blocks may have been lost or found meanwhile.
        state.lost = std::mem::take(&mut head.state.lost);
        head.state = state;
        Ok(())
    }

    /// Has the state say how much of what the owner writes before there is now, durably.
    pub(crate) async fn bear_witness(&self, io: &Io, context: Context) -> Result<()> {
        let _turn = Arc::clone(&self.turns).next().await;
        let witness = self.write_before(io, context).await?;
        io.flush(context).await?;
        let state = {
            let mut head = self.head.lock();
            head.state.witness = witness;
            head.state.clone()
        };
        self.write_both(io, state, context).await
    }
}

/// Writes a state to both copies of its slot and makes it durable.
pub(super) async fn write_state(io: &Io, layout: &Layout, state: &State, context: Context) -> Result<()> {
    let slot = state.generation % 2;
    for copy in 0..2 {
        io.write(layout.state_at(copy, slot), state.encode(2 * copy + slot), context).await?;
    }
    io.flush(context).await
}
