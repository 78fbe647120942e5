//! Chaining: what is made and what is verified, in which order, where data cross from one place to another.
//!
//! The new checksum is made *before* the old one is verified, never the other way round. So the two overlap, and there is no
//! moment in which a flip goes unseen: either a verification here fails, or the next one of the destination does. The cases
//! are those of Zhang, *Cooperative Data Protection*, section 3.3.

use crate::sum::{Algorithm, Sum};

/// Data at one place, and the sum that goes with it.
#[derive(Clone, Debug)]
pub struct Summed<B> {
    /// The data, of one block at most.
    pub data: B,
    /// Their sum.
    pub sum: Sum,
    /// How it was made.
    pub algorithm: Algorithm,
}

impl<B: AsRef<[u8]>> Summed<B> {
    /// Whether the data have the sum.
    pub fn verifies(&self) -> bool {
        self.algorithm.of(self.data.as_ref()) == self.sum
    }
}

/// How origin and destination of a transfer lie to each other. S are the bytes that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// The same algorithm, S is all of both: the sum goes along.
    Forward,
    /// The same, and the origin is verified after the copy.
    ForwardEarly,
    /// Different algorithms, S is all of both.
    Convert,
    /// S is all of the destination and a part of the origin: a read of a part.
    PartToWhole,
    /// S is all of the origin and a part of the destination: a write of a part.
    WholeToPart,
    /// S is a part of both.
    PartToPart,
}

/// One thing that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The sum of the destination as it will be, made and kept aside.
    Make,
    /// The origin against its sum.
    VerifyOrigin,
    /// The destination as it was against its sum.
    VerifyDestination,
    /// The data are copied.
    Move,
    /// The destination gets its sum: the one that was made, or the origin's.
    SetSum,
}

impl Case {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Forward,
        Self::ForwardEarly,
        Self::Convert,
        Self::PartToWhole,
        Self::WholeToPart,
        Self::PartToPart,
    ];

    /// The steps in their order.
    pub fn steps(self) -> &'static [Step] {
        use Step::{Make, Move, SetSum, VerifyDestination, VerifyOrigin};
        match self {
            Self::Forward => &[Move, SetSum],
            Self::ForwardEarly => &[Move, SetSum, VerifyOrigin],
            Self::Convert | Self::PartToWhole => &[Make, VerifyOrigin, SetSum, Move],
            Self::WholeToPart | Self::PartToPart => &[Make, VerifyOrigin, VerifyDestination, SetSum, Move],
        }
    }

    /// The case of a transfer of `length` bytes from an origin to a destination of these sizes.
    pub fn of(length: usize, origin: usize, destination: usize, is_same_algorithm: bool) -> Self {
        match (length == origin, length == destination) {
            (true, true) if is_same_algorithm => Self::ForwardEarly,
            (true, true) => Self::Convert,
            (false, true) => Self::PartToWhole,
            (true, false) => Self::WholeToPart,
            (false, false) => Self::PartToPart,
        }
    }
}

/// What did not verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The origin: data, or their sum.
    Origin,
    /// The destination as it was.
    Destination,
}

/// `length` bytes from `from` in the origin to `to` in the destination.
#[derive(Clone, Debug)]
pub struct Transfer<O, D> {
    /// Where they come from.
    pub origin: Summed<O>,
    /// Where they go to, as it is before. If all of it is replaced, its data and sum do not matter.
    pub destination: Summed<D>,
    /// Offset in the origin.
    pub from: usize,
    /// Offset in the destination.
    pub to: usize,
    /// Bytes.
    pub length: usize,
    /// The sum that was made.
    pub made: Sum,
}

impl<O: AsRef<[u8]>, D: AsRef<[u8]>> Transfer<O, D> {
    fn moved(&self) -> &[u8] {
        &self.origin.data.as_ref()[self.from..self.from + self.length]
    }

    /// Does one step but the move.
    fn step(&mut self, case: Case, step: Step) -> Result<(), Mismatch> {
        match step {
            Step::Make => {
                let algorithm = self.destination.algorithm;
                let before = self.destination.data.as_ref();
                self.made = match case {
                    Case::WholeToPart | Case::PartToPart => algorithm.of_parts(&[
                        &before[..self.to],
                        self.moved(),
                        before.get(self.to + self.length..).unwrap_or(&[]),
                    ]),
                    _ => algorithm.of(self.moved()),
                };
            }
            Step::VerifyOrigin if !self.origin.verifies() => return Err(Mismatch::Origin),
            Step::VerifyDestination if !self.destination.verifies() => return Err(Mismatch::Destination),
            Step::VerifyOrigin | Step::VerifyDestination | Step::Move => {}
            Step::SetSum => {
                let is_forwarded = matches!(case, Case::Forward | Case::ForwardEarly);
                self.destination.sum = if is_forwarded { self.origin.sum } else { self.made };
            }
        }
        Ok(())
    }

    /// Does all steps before the destination changes. Whoever moves the data by other means then gives it this sum.
    pub fn prepare(&mut self, case: Case) -> Result<Sum, Mismatch> {
        for step in case.steps().iter().take_while(|step| !matches!(step, Step::SetSum | Step::Move)) {
            self.step(case, *step)?;
        }
        Ok(self.made)
    }
}

impl<O: AsRef<[u8]>, D: AsRef<[u8]> + AsMut<[u8]>> Transfer<O, D> {
    /// Does all steps. `between` is called before each of them, and once after the last with `None`.
    pub fn carry(
        &mut self,
        case: Case,
        between: &mut dyn FnMut(Option<Step>, &mut Self),
    ) -> Result<(), Mismatch> {
        for step in case.steps() {
            between(Some(*step), self);
            if *step == Step::Move {
                let (from, to, length) = (self.from, self.to, self.length);
                let moved = &self.origin.data.as_ref()[from..from + length];
                self.destination.data.as_mut()[to..to + length].copy_from_slice(moved);
            } else {
                self.step(case, *step)?;
            }
        }
        between(None, self);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sum::BLOCK;

    fn bytes(seed: u64, length: usize) -> Vec<u8> {
        (0..length as u64).map(|index| (rotproof_block_mix(seed, index) >> 5) as u8).collect()
    }

    fn rotproof_block_mix(seed: u64, index: u64) -> u64 {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ index.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 31;
        x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 29)
    }

    fn place(seed: u64, length: usize, algorithm: Algorithm) -> Summed<Vec<u8>> {
        let data = bytes(seed, length);
        Summed { sum: algorithm.of(&data), data, algorithm }
    }

    /// A transfer of each case, with sizes and offsets drawn from `seed`.
    fn transfer(case: Case, seed: u64, from: Algorithm, to: Algorithm) -> Transfer<Vec<u8>, Vec<u8>> {
        let draw = |of: u64, below: usize| rotproof_block_mix(seed, of) as usize % below;
        let part = 1 + draw(1, BLOCK - 1);
        let (origin, destination) = match case {
            Case::Forward | Case::ForwardEarly | Case::Convert => (BLOCK, BLOCK),
            Case::PartToWhole => (BLOCK, part),
            Case::WholeToPart => (part, BLOCK),
            Case::PartToPart => (BLOCK, BLOCK),
        };
        let length = if case == Case::PartToPart { part } else { origin.min(destination) };
        Transfer {
            origin: place(seed, origin, from),
            destination: place(seed + 1, destination, to),
            from: draw(2, origin - length + 1),
            to: draw(3, destination - length + 1),
            length,
            made: Sum::default(),
        }
    }

    #[test]
    fn without_flips_data_arrive_and_verify() {
        for case in Case::ALL {
            for (seed, from) in (0..40).zip(Algorithm::ALL.into_iter().cycle()) {
                let to =
                    if matches!(case, Case::Forward | Case::ForwardEarly) { from } else { Algorithm::Xxh3 };
                let mut one = transfer(case, seed, from, to);
                let (before, moved) = (one.destination.data.clone(), one.moved().to_vec());
                one.carry(case, &mut |_, _| ()).expect("nothing was flipped");
                let mut wanted = before;
                wanted[one.to..one.to + one.length].copy_from_slice(&moved);
                assert!(one.destination.data == wanted && one.destination.verifies(), "{case:?} {seed}");
            }
        }
    }

    /// The heart of it: a flip anywhere, in data or sums, between any two steps. Either a step complains, or the
    /// destination does not verify afterwards, or the destination is what it should be.
    #[test]
    fn a_flip_between_any_two_steps_is_seen_or_harmless() {
        let (mut seen, mut harmless) = (0, 0);
        for case in Case::ALL {
            for moment in 0..=case.steps().len() {
                for seed in 0..300 {
                    let to = if matches!(case, Case::Forward | Case::ForwardEarly) {
                        Algorithm::Xor64
                    } else {
                        Algorithm::Xxh3
                    };
                    let mut one = transfer(case, seed, Algorithm::Xor64, to);
                    let mut wanted = one.clone();
                    wanted.carry(case, &mut |_, _| ()).expect("nothing was flipped");
                    let mut number = 0;
                    let ended = one.carry(case, &mut |_, one| {
                        if number == moment {
                            flip(one, seed * 31 + moment as u64);
                        }
                        number += 1;
                    });
                    let is_right = one.destination.data == wanted.destination.data;
                    let is_seen = ended.is_err() || !one.destination.verifies();
                    assert!(is_seen || is_right, "{case:?}, before step {moment}, seed {seed}: silent");
                    seen += u32::from(is_seen);
                    harmless += u32::from(!is_seen);
                }
            }
        }
        assert!(seen > 2000 && harmless > 100, "{seen} {harmless}");
    }

    /// The canary: in the other order the same flips do go unseen.
    #[test]
    fn verifying_before_making_misses_flips_in_between() {
        let mut silent = 0;
        for seed in 0..200 {
            let mut one = transfer(Case::Convert, seed, Algorithm::Xor64, Algorithm::Xxh3);
            let wanted = one.origin.data.clone();
            one.step(Case::Convert, Step::VerifyOrigin).expect("whole");
            one.origin.data[seed as usize] ^= 1;
            one.step(Case::Convert, Step::Make).expect("makes");
            one.step(Case::Convert, Step::SetSum).expect("sets");
            one.destination.data = one.origin.data.clone();
            silent += u32::from(one.destination.verifies() && one.destination.data != wanted);
        }
        assert_eq!(silent, 200);
    }

    fn flip(one: &mut Transfer<Vec<u8>, Vec<u8>>, draw: u64) {
        let at = rotproof_block_mix(draw, 99);
        match at % 5 {
            0 | 1 => flip_in(&mut one.origin.data, at >> 8),
            2 => flip_in(&mut one.destination.data, at >> 8),
            3 => one.origin.sum.0[0] ^= 1 << (at >> 8 & 63),
            _ => one.destination.sum.0[0] ^= 1 << (at >> 8 & 63),
        }
    }

    fn flip_in(data: &mut [u8], at: u64) {
        let at = at as usize % (data.len() * 8);
        data[at / 8] ^= 1 << (at % 8);
    }
}
