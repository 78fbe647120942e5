//! Reading: each block is verified after it was copied, against the sum that fits how long ago it was last verified well.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, fence};

use crate::chain::{Case, Summed, Transfer};
use crate::clock;
use crate::counts::add;
use crate::file::GuardedFile;
use crate::live::{LiveEntry, flag};
use crate::sum::{Algorithm, BLOCK, BLOCK_U64, Sum};
use crate::trouble::{Outcome, Trouble};

/// Which sum a block is verified against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None: nothing vouches for it.
    Nothing,
    /// The light one.
    Light,
    /// The strong one.
    Strong,
}

/// What came of a try to read without the lock.
enum Tried {
    Right,
    Wrong,
}

/// Times that a block is read again because a writer was at it, before the lock of writers is taken.
const RACES_MAX: usize = 4;

/// Bytes that are read ahead with one system call.
const AHEAD_BYTES: u64 = 256 << 10;
const AHEAD_BLOCKS: usize = (AHEAD_BYTES / BLOCK_U64) as usize + 1;

/// The sequence numbers that blocks had before they were read.
struct Ahead {
    first: u64,
    count: usize,
    sequences: [u32; AHEAD_BLOCKS],
}

impl Default for Ahead {
    fn default() -> Self {
        Self { first: 0, count: 0, sequences: [0; AHEAD_BLOCKS] }
    }
}

impl Ahead {
    fn sequence(&self, block: u64) -> Option<u32> {
        let at = block.checked_sub(self.first)? as usize;
        self.sequences[..self.count].get(at).copied()
    }
}

impl GuardedFile {
    /// Reads from `offset`, and says how many bytes; fewer than asked for only at the end of the file, or before a block that
    /// cannot be trusted. If that is the first, it fails.
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> Outcome<usize> {
        self.read_with_sums(to, offset, &mut |_| ())
    }

    /// [`GuardedFile::read_at`] that also gives, for each block or part of one, the light sum of what was handed out: for
    /// whoever wants to verify it once more where it is used.
    pub fn read_with_sums(&self, to: &mut [u8], offset: u64, tell: &mut dyn FnMut(u64)) -> Outcome<usize> {
        self.live.prefetch(offset / BLOCK_U64);
        let now = clock::seconds();
        let mut done = 0;
        let there = self.size().saturating_sub(offset).min(to.len() as u64);
        let mut ahead = Ahead::default();
        if there > BLOCK_U64 {
            if there <= AHEAD_BYTES && self.view.is_for_system_call(offset + there) {
                ahead = self.read_ahead(&mut to[..there as usize], offset);
            } else {
                self.view.bring_in(&self.file, offset, there);
            }
        }
        while done < to.len() {
            let at = offset + done as u64;
            let size = self.size();
            if at >= size {
                break;
            }
            let (block, within) = (at / BLOCK_U64, (at % BLOCK_U64) as usize);
            let length =
                (BLOCK - within).min(to.len() - done).min(usize::try_from(size - at).unwrap_or(BLOCK));
            let piece = &mut to[done..done + length];
            let known =
                ahead.sequence(block).and_then(|known| self.verify_piece(block, within, piece, known, now));
            match known.map_or_else(|| self.read_piece(block, within, piece, now), |sum| Ok(Some(sum))) {
                Ok(Some(sum)) => tell(sum),
                // The file changed its size meanwhile.
                Ok(None) => continue,
                Err(_) if done > 0 => break,
                Err(trouble) => return Err(trouble),
            }
            done += length;
        }
        Ok(done)
    }

    /// Reads a stretch with one system call. Blocks that nobody changed since can be verified where they are.
    fn read_ahead(&self, to: &mut [u8], offset: u64) -> Ahead {
        let mut ahead = Ahead { first: offset / BLOCK_U64, ..Ahead::default() };
        let last = (offset + to.len() as u64 - 1) / BLOCK_U64;
        for block in ahead.first..=last {
            let Some(place) = ahead.sequences.get_mut(ahead.count) else { break };
            let Some(entry) = self.live.entry(block) else { break };
            *place = entry.sequence.load(Ordering::Acquire);
            ahead.count += 1;
        }
        if self.file.read_exact_at(to, offset).is_err() {
            ahead.count = 0;
        }
        ahead
    }

    /// Verifies a whole block that was read ahead, and gives its light sum; `None` if it is to be read singly.
    fn verify_piece(&self, block: u64, within: usize, data: &[u8], sequence: u32, now: u64) -> Option<u64> {
        let entry = self.live.entry(block)?;
        let flags = entry.flags.load(Ordering::Acquire);
        let valid = BLOCK_U64.min(self.size().saturating_sub(block * BLOCK_U64)) as usize;
        if sequence & 1 == 1 || flags & flag::LOADED == 0 || within > 0 || data.len() != valid {
            return None;
        }
        // What goes along is made before the old is verified.
        let sum = self.pair.light.of(data).word();
        let kind = self.kind_of(entry, flags, now);
        let is_right = match kind {
            Kind::Nothing => true,
            Kind::Light => sum == entry.light.load(Ordering::Relaxed),
            Kind::Strong => {
                self.pair.strong.of(data) == entry.strong() && sum == entry.light.load(Ordering::Relaxed)
            }
        };
        fence(Ordering::Acquire);
        if !is_right || entry.sequence.load(Ordering::Relaxed) != sequence {
            return None;
        }
        let counts = &self.store.counts;
        match kind {
            Kind::Nothing => add(&counts.unvouched, 1),
            Kind::Light => add(&counts.light, 1),
            Kind::Strong => {
                entry.verified.store(now, Ordering::Relaxed);
                add(&counts.strong, 1);
            }
        }
        Some(sum)
    }

    /// Which sum a block is verified against now.
    pub(crate) fn kind_of(&self, entry: &LiveEntry, flags: u32, now: u64) -> Kind {
        if flags & flag::KNOWN == 0 {
            return Kind::Nothing;
        }
        if flags & flag::STRONG == 0 {
            return Kind::Light;
        }
        let verified = entry.verified.load(Ordering::Relaxed);
        match self.store.settings().switch_seconds {
            // Not yet verified since it was opened: it may come from the disk.
            _ if verified < self.since.load(Ordering::Relaxed) => Kind::Strong,
            Some(seconds) if now.saturating_sub(verified) >= u64::from(seconds) => Kind::Strong,
            _ => Kind::Light,
        }
    }

    /// Part of a block, and the light sum of it; `None` if the file became shorter meanwhile.
    fn read_piece(&self, block: u64, within: usize, to: &mut [u8], now: u64) -> Outcome<Option<u64>> {
        for _ in 0..RACES_MAX {
            let Some(entry) = self.live.entry(block) else { break };
            let sequence = entry.sequence.load(Ordering::Acquire);
            let flags = entry.flags.load(Ordering::Acquire);
            if sequence & 1 == 1 || flags & flag::LOADED == 0 {
                break;
            }
            // The size of the last block changes only while its sequence number is odd.
            let size = self.size();
            if block * BLOCK_U64 + (within + to.len()) as u64 > size {
                return Ok(None);
            }
            let valid = BLOCK_U64.min(size - block * BLOCK_U64) as usize;
            let (tried, sum) = self.try_piece(entry, flags, block, within, valid, to, now);
            fence(Ordering::Acquire);
            if entry.sequence.load(Ordering::Relaxed) != sequence {
                continue;
            }
            match tried {
                Tried::Right => return Ok(Some(sum)),
                Tried::Wrong => break,
            }
        }
        self.read_slowly(block, within, to, now)
    }

    /// Copies and verifies. A whole block is case 1' of the chain: copied, then verified where it arrived. A part is case 3: the
    /// sum of the part is made, the whole is verified, then the part moves; and it is verified once more where it arrived.
    #[expect(clippy::too_many_arguments, reason = "the inner step of reading, which nobody else calls")]
    fn try_piece(
        &self,
        entry: &LiveEntry,
        flags: u32,
        block: u64,
        within: usize,
        valid: usize,
        to: &mut [u8],
        now: u64,
    ) -> (Tried, u64) {
        let place = block * BLOCK_U64;
        let kind = self.kind_of(entry, flags, now);
        let light = self.pair.light;
        if within > 0 || to.len() < valid {
            return self.try_part(entry, kind, place, within, valid, to, now);
        }
        let fused = kind != Kind::Strong && light == Algorithm::Xor64;
        let sum = match self.view.copy(&self.file, place, to, fused) {
            Some(sum) if fused => sum,
            Some(_) => light.of(to).word(),
            None if self.file.read_exact_at(to, place).is_ok() => light.of(to).word(),
            None => return (Tried::Wrong, 0),
        };
        (self.judge(entry, kind, to, sum, now), sum)
    }

    /// The same for a part of a block.
    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn try_part(
        &self,
        entry: &LiveEntry,
        kind: Kind,
        place: u64,
        within: usize,
        valid: usize,
        to: &mut [u8],
        now: u64,
    ) -> (Tried, u64) {
        let light = self.pair.light;
        let mut aside = [0u8; BLOCK];
        let whole = &mut aside[..valid];
        let has_arrived = self.view.copy(&self.file, place, whole, false).is_some()
            || self.file.read_exact_at(whole, place).is_ok();
        if !has_arrived {
            return (Tried::Wrong, 0);
        }
        let counts = &self.store.counts;
        let of_light = Sum::of_word(entry.light.load(Ordering::Relaxed));
        let (sum, algorithm) = match kind {
            Kind::Nothing => {
                add(&counts.unvouched, 1);
                to.copy_from_slice(&whole[within..within + to.len()]);
                return (Tried::Right, light.of(to).word());
            }
            Kind::Light => (of_light, light),
            Kind::Strong => (entry.strong(), self.pair.strong),
        };
        add(if kind == Kind::Strong { &counts.strong } else { &counts.light }, 1);
        match self.move_part(Summed { data: whole, sum, algorithm }, within, to) {
            Some(_) if kind == Kind::Strong && light.of(whole) != of_light => (Tried::Wrong, 0),
            Some(sum) => {
                if kind == Kind::Strong {
                    entry.verified.store(now, Ordering::Relaxed);
                }
                (Tried::Right, sum)
            }
            None => (Tried::Wrong, 0),
        }
    }

    /// Takes a part out of a whole block, and gives the light sum of what has arrived; `None` if the whole, or what has arrived, does not
    /// verify.
    fn move_part(&self, whole: Summed<&mut [u8]>, within: usize, to: &mut [u8]) -> Option<u64> {
        let length = to.len();
        let destination = Summed { data: to, sum: Sum::default(), algorithm: self.pair.light };
        let mut transfer =
            Transfer { origin: whole, destination, from: within, to: 0, length, made: Sum::default() };
        transfer.carry(Case::PartToWhole, &mut |_, _| ()).ok()?;
        transfer.destination.verifies().then_some(transfer.made.word())
    }

    /// Whether a whole block that has arrived is right, of which the light sum is at hand.
    fn judge(&self, entry: &LiveEntry, kind: Kind, arrived: &[u8], sum: u64, now: u64) -> Tried {
        let counts = &self.store.counts;
        let is_right = match kind {
            Kind::Nothing => {
                add(&counts.unvouched, 1);
                true
            }
            Kind::Light => {
                add(&counts.light, 1);
                sum == entry.light.load(Ordering::Relaxed)
            }
            Kind::Strong => {
                add(&counts.strong, 1);
                let is_right = self.pair.strong.of(arrived) == entry.strong()
                    && sum == entry.light.load(Ordering::Relaxed);
                if is_right {
                    entry.verified.store(now, Ordering::Relaxed);
                }
                is_right
            }
        };
        if is_right { Tried::Right } else { Tried::Wrong }
    }

    /// With the lock of writers, so that nobody changes the block: looked up, verified, and mended if it is wrong.
    fn read_slowly(&self, block: u64, within: usize, to: &mut [u8], now: u64) -> Outcome<Option<u64>> {
        let lock = self.lock_writers()?;
        let size = self.size();
        if block * BLOCK_U64 + (within + to.len()) as u64 > size {
            return Ok(None);
        }
        self.ensure(block)?;
        let mut whole = [0; BLOCK];
        let valid = BLOCK_U64.min(size - block * BLOCK_U64) as usize;
        let whole = &mut whole[..valid];
        for _ in 0..RACES_MAX {
            self.verified_block(block, whole, now)?;
            let entry = self.live.at(block);
            if entry.flags.load(Ordering::Acquire) & flag::KNOWN == 0 {
                to.copy_from_slice(&whole[within..within + to.len()]);
                return Ok(Some(self.pair.light.of(to).word()));
            }
            let sum = Sum::of_word(entry.light.load(Ordering::Relaxed));
            if let Some(sum) =
                self.move_part(Summed { data: whole, sum, algorithm: self.pair.light }, within, to)
            {
                return Ok(Some(sum));
            }
        }
        // Nobody else is at the block: memory that does not keep what it is given.
        drop(lock);
        Err(Trouble::Rotten(block))
    }

    /// A block that is verified, mended if it must be. The caller holds the lock of writers and has looked the block up.
    pub(crate) fn verified_block(&self, block: u64, to: &mut [u8], now: u64) -> Outcome<()> {
        let entry = self.live.at(block);
        let flags = entry.flags.load(Ordering::Acquire);
        let read = self.file.read_exact_at(to, block * BLOCK_U64);
        match self.kind_of(entry, flags, now) {
            Kind::Nothing => {
                add(&self.store.counts.unvouched, 1);
                return read.map_err(Trouble::from);
            }
            Kind::Light if read.is_ok() => {
                add(&self.store.counts.light, 1);
                if self.pair.light.of(to).word() == entry.light.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Kind::Strong if read.is_ok() => {
                add(&self.store.counts.strong, 1);
                if self.pair.of(to).strong == entry.strong()
                    && self.pair.light.of(to).word() == entry.light.load(Ordering::Relaxed)
                {
                    entry.verified.store(now, Ordering::Relaxed);
                    return Ok(());
                }
            }
            Kind::Light | Kind::Strong => {}
        }
        self.heal(block, to, read.is_ok())
    }
}
