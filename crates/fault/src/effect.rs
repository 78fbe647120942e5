//! What a hit does to a request or to its data.

use std::fmt;
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_spec::{Bytes, Span};

use crate::delay::Delay;
use crate::errno::Errno;
use crate::power_cut::{Keeps, PowerCut};

/// The deviation that a hit brings.
///
/// Effects on *data* act on single blocks; effects on the *request* on all of it, neighbours in a merged request
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Bits of the block are wrong.
    BitFlip(Bits),
    /// The block is all zeros, as a lost or misdirected write looks on a fresh file system (FISPDK).
    Zeros,
    /// The block is all ones (FISPDK's junk).
    Ones,
    /// The block is noise.
    Noise(Draw),
    /// A write is acknowledged, but the old data stays.
    LostWrite,
    /// A write is acknowledged, but lands on another block, which it damages; the right one keeps the old data.
    MisdirectedWrite(Direction),
    /// A read brings what was there before the last write.
    StaleRead,
    /// Of a write only some sectors are stored; the others keep the old data.
    TornWrite(Tear),
    /// The block is unreadable or unwritable, and with it the request fails (EIO), but its neighbours are transferred.
    MediumError,
    /// The request fails.
    Error {
        /// With this error.
        errno: Errno,
        /// Only after it took effect.
        after: bool,
    },
    /// From now on the device refuses everything that changes it (EROFS).
    ReadOnly,
    /// From now on the device is gone (ENODEV).
    Gone,
    /// The power goes: from now on nothing is served (ENODEV), until somebody gives it back, and what was volatile is kept or
    /// lost.
    PowerCut(PowerCut),
    /// The request takes longer.
    Delay(Delay),
    /// Requests take as long as if no more than that many bytes a second could pass.
    Bandwidth(Bytes),
    /// The request does not come back until this time has passed, or ever, if there is none; but in either case when
    /// somebody releases it, or the rule is paused or removed.
    Hang(Option<Span>),
}

/// What chance decided; `None` in a rule, where it has not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Draw(pub Option<u64>);

impl Draw {
    /// The number that was drawn.
    pub(crate) fn number(self) -> u64 {
        self.0.unwrap_or_default()
    }
}

/// Which bits of a block flip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// This one.
    At {
        /// Byte of the block, from 0.
        byte: u32,
        /// Bit of the byte; 0 is the lowest.
        bit: u8,
    },
    /// Those of one byte that are set in the mask.
    Mask {
        /// Byte of the block, from 0.
        byte: u32,
        /// Which bits.
        mask: u8,
    },
    /// So many in a row, from this one on.
    Burst {
        /// Byte of the first bit.
        byte: u32,
        /// The first bit.
        bit: u8,
        /// How many.
        count: u32,
    },
    /// So many, each where chance says.
    Random {
        /// How many.
        count: u32,
        /// What chance said.
        draw: Draw,
    },
    /// So many in a row, where chance says.
    RandomBurst {
        /// How many.
        count: u32,
        /// What chance said.
        draw: Draw,
    },
}

impl Default for Bits {
    /// The lowest bit of byte 0: what AchillesBench flips.
    fn default() -> Self {
        Self::At { byte: 0, bit: 0 }
    }
}

/// Where a misdirected write lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// So many bytes further; beyond the end it goes on at the beginning.
    By(Bytes),
    /// On this block.
    To(Bytes),
    /// Where chance says.
    Anywhere(Draw),
}

/// Which sectors of a block a torn write has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tear {
    /// Which part is new.
    pub new: NewPart,
    /// How many sectors of 512 bytes are new; `None` is what chance says, at least one and never all.
    pub sectors: Option<u8>,
    /// What chance said.
    pub draw: Draw,
}

/// The part of a torn block that is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewPart {
    /// The first sectors.
    First,
    /// The last sectors.
    Last,
    /// Any.
    Scattered,
    /// The first three or seven eighths: shorn writes of SSDs (Zheng et al., FAST '13).
    Shorn,
}

/// Sectors of a block.
pub(crate) const SECTORS: u8 = 8;
pub(crate) const SECTOR_BYTES: usize = 512;

impl Effect {
    /// The error of an unreadable or unwritable device, EIO.
    pub const ERROR: Self = Self::Error { errno: Errno::EIO, after: false };

    /// Whether it acts on single blocks, rather than on the request.
    pub fn is_on_data(self) -> bool {
        match self {
            Self::BitFlip(_)
            | Self::Zeros
            | Self::Ones
            | Self::Noise(_)
            | Self::LostWrite
            | Self::MisdirectedWrite(_)
            | Self::StaleRead
            | Self::TornWrite(_)
            | Self::MediumError => true,
            Self::Error { .. }
            | Self::ReadOnly
            | Self::Gone
            | Self::PowerCut(_)
            | Self::Delay(_)
            | Self::Bandwidth(_)
            | Self::Hang(_) => false,
        }
    }

    /// Whether it keeps old data where new was to be stored, so that the old must be read before a write.
    pub(crate) fn keeps_old(self) -> bool {
        matches!(self, Self::LostWrite | Self::MisdirectedWrite(_) | Self::TornWrite(_) | Self::MediumError)
    }

    /// Whether it only concerns writes.
    pub(crate) fn is_on_writes_alone(self) -> bool {
        matches!(self, Self::LostWrite | Self::MisdirectedWrite(_) | Self::TornWrite(_))
    }

    /// Whether a bad place distorts what is read from it, whoever wrote it.
    pub(crate) fn distorts(self) -> bool {
        matches!(self, Self::BitFlip(_) | Self::Zeros | Self::Ones | Self::Noise(_))
    }

    /// Whether requests only take longer.
    pub fn only_delays(self) -> bool {
        matches!(self, Self::Delay(_) | Self::Bandwidth(_) | Self::Hang(_))
    }

    /// For how long a request is held up that it hits, where it only delays and chance has decided; as long as can be if
    /// somebody has to let go of it.
    pub fn holds_up(self) -> Option<Span> {
        match self {
            Self::Delay(Delay::Constant(span)) => Some(span),
            Self::Hang(span) => Some(span.unwrap_or(Span(Duration::MAX))),
            _ => None,
        }
    }

    /// Whether a request that it hits comes back with an error.
    pub fn fails_request(self) -> bool {
        matches!(
            self,
            Self::MediumError | Self::Error { .. } | Self::ReadOnly | Self::Gone | Self::PowerCut(_)
        )
    }

    /// Whether the device serves nothing from then on.
    pub fn takes_device(self) -> bool {
        matches!(self, Self::Gone | Self::PowerCut(_))
    }

    /// What chance has decided, where it has.
    pub(crate) fn draw(self) -> Option<u64> {
        match self {
            Self::Noise(draw)
            | Self::BitFlip(Bits::Random { draw, .. } | Bits::RandomBurst { draw, .. })
            | Self::MisdirectedWrite(Direction::Anywhere(draw))
            | Self::PowerCut(PowerCut { draw, .. })
            | Self::TornWrite(Tear { draw, .. }) => draw.0,
            _ => None,
        }
    }

    /// The block on which a write to `block` lands instead, on a device of so many blocks.
    pub(crate) fn lands_on(self, block: u64, blocks: u64) -> Option<u64> {
        let Self::MisdirectedWrite(direction) = self else { return None };
        let blocks = blocks.max(1);
        Some(match direction {
            Direction::By(by) => {
                (u128::from(block) + u128::from(by.0 / crate::BLOCK_BYTES)) % u128::from(blocks)
            }
            Direction::To(to) => u128::from((to.0 / crate::BLOCK_BYTES).min(blocks - 1)),
            Direction::Anywhere(draw) => u128::from(mix(draw.number(), 2, 0) % blocks),
        } as u64)
    }

    /// The first byte of the block that a request must carry to be hit, if it is a certain one.
    pub(crate) fn byte_needed(self) -> Option<usize> {
        match self {
            Self::BitFlip(Bits::At { byte, .. } | Bits::Mask { byte, .. } | Bits::Burst { byte, .. }) => {
                Some(byte as usize)
            }
            _ => None,
        }
    }

    /// The effect with what chance decides filled in from `draw`.
    pub(crate) fn resolved(self, draw: u64) -> Self {
        let drawn = Draw(Some(draw));
        match self {
            Self::Noise(_) => Self::Noise(drawn),
            Self::BitFlip(Bits::Random { count, .. }) => Self::BitFlip(Bits::Random { count, draw: drawn }),
            Self::BitFlip(Bits::RandomBurst { count, .. }) => {
                Self::BitFlip(Bits::RandomBurst { count, draw: drawn })
            }
            Self::MisdirectedWrite(Direction::Anywhere(_)) => {
                Self::MisdirectedWrite(Direction::Anywhere(drawn))
            }
            Self::TornWrite(tear) => Self::TornWrite(Tear { draw: drawn, ..tear }),
            Self::PowerCut(cut) if cut.keeps == Keeps::Part => {
                Self::PowerCut(PowerCut { draw: drawn, ..cut })
            }
            Self::Delay(delay) => Self::Delay(Delay::Constant(delay.sample(draw))),
            other => other,
        }
    }
}

impl Tear {
    /// Of the sectors `sectors` of a block that a write carries, those that are stored, one bit each. Without at
    /// least two sectors there is nothing to tear.
    pub(crate) fn stored(self, sectors: std::ops::Range<u8>) -> Option<u8> {
        let count = sectors.end.saturating_sub(sectors.start);
        if count < 2 {
            return None;
        }
        let draw = self.draw.number();
        let new = match (self.new, self.sectors) {
            (NewPart::Shorn, None) => 3 + 4 * (draw % 2) as u8,
            (_, Some(sectors)) => sectors,
            (_, None) => 1 + (draw % u64::from(count - 1)) as u8,
        }
        .clamp(1, count - 1);
        let run = |start: u8, length: u8| (((1u16 << length) - 1) << start) as u8;
        Some(match self.new {
            NewPart::First | NewPart::Shorn => run(sectors.start, new),
            NewPart::Last => run(sectors.end - new, new),
            NewPart::Scattered => {
                let mut mask = 0u8;
                let mut step = 0;
                while mask.count_ones() < u32::from(new) {
                    let sector = sectors.start + (mix(draw, 1, step) % u64::from(count)) as u8;
                    mask |= 1 << sector;
                    step += 1;
                }
                mask
            }
        })
    }
}

impl fmt::Display for NewPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Last => "last",
            Self::Scattered => "scattered",
            Self::Shorn => "shorn",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tear(new: NewPart, sectors: Option<u8>, draw: u64) -> Tear {
        Tear { new, sectors, draw: Draw(Some(draw)) }
    }

    #[test]
    fn a_tear_stores_the_part_it_names() {
        assert_eq!(tear(NewPart::First, Some(3), 0).stored(0..8), Some(0b0000_0111));
        assert_eq!(tear(NewPart::Last, Some(1), 0).stored(0..8), Some(0b1000_0000));
        assert_eq!(tear(NewPart::Shorn, None, 0).stored(0..8), Some(0b0000_0111));
        assert_eq!(tear(NewPart::Shorn, None, 1).stored(0..8), Some(0b0111_1111));
        assert_eq!(tear(NewPart::First, Some(9), 0).stored(2..5), Some(0b0000_1100), "never all of it");
        assert_eq!(tear(NewPart::First, None, 0).stored(4..5), None, "a sector is not torn");
    }

    proptest::proptest! {
        #[test]
        fn some_of_the_sectors_are_stored_and_some_are_not(
            kind in 0usize..4, sectors in proptest::option::of(0u8..12), draw: u64, start in 0u8..7, count in 2u8..8
        ) {
            let new = [NewPart::First, NewPart::Last, NewPart::Scattered, NewPart::Shorn][kind];
            let range = start..(start + count).min(8);
            let stored = tear(new, sectors, draw).stored(range.clone());
            if range.len() < 2 {
                proptest::prop_assert_eq!(stored, None);
            } else {
                let stored = stored.expect("torn");
                let all = range.clone().fold(0u8, |mask, sector| mask | 1 << sector);
                proptest::prop_assert!(stored != 0 && stored & !all == 0 && stored != all);
            }
        }
    }
}
