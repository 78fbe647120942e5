//! A second cut while recovery is under way: what recovery has written by then is kept, or lost, as of any other writer.
//!
//! What recovery writes to an [`ImageDevice`] is noted there ([`ImageDevice::note_writes`]). From it come a few states, drawn
//! from a seed: the cut comes after some write, what was flushed before is there, and of the writes since all, none or some.
//!
//! [`ImageDevice`]: crate::ImageDevice
//! [`ImageDevice::note_writes`]: crate::ImageDevice::note_writes

use rotproof_block::hash::mix;

/// One write of recovery, as the device had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryWrite {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What was written; nothing for zeros and discards.
    pub data: Option<Box<[u8]>>,
    /// How many flushes the device had been asked for before.
    pub epoch: u64,
    /// It was durable when it was done.
    pub fua: bool,
}

/// Where a second cut comes, and which of the writes of recovery it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondCut {
    /// Writes that recovery had made by then.
    pub made: usize,
    /// Those that are there, by their number, in order.
    pub kept: Vec<usize>,
}

impl SecondCut {
    /// In words, for a finding.
    pub fn words(&self) -> String {
        format!("{} of the {} writes of recovery survive a second cut", self.kept.len(), self.made)
    }
}

/// At most `count` second cuts among these writes, each another one. The first leaves all that was written up to the middle.
pub fn second_cuts(writes: &[RecoveryWrite], count: u32, seed: u64) -> Vec<SecondCut> {
    let mut cuts: Vec<SecondCut> = Vec::new();
    if writes.is_empty() {
        return cuts;
    }
    for number in 0..u64::from(count) {
        let made = match number {
            0 => writes.len().div_ceil(2),
            _ => 1 + (mix(seed, number, 0) % writes.len() as u64) as usize,
        };
        let epoch = writes[made - 1].epoch;
        let is_kept = |at: &usize| {
            writes[*at].epoch < epoch
                || writes[*at].fua
                || match number % 3 {
                    0 => true,
                    1 => mix(seed, number, 1 + *at as u64).is_multiple_of(2),
                    _ => false,
                }
        };
        let cut = SecondCut { made, kept: (0..made).filter(is_kept).collect() };
        if !cuts.iter().any(|known| known.kept == cut.kept) {
            cuts.push(cut);
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_flushed_before_a_second_cut_is_there_and_nothing_that_was_not_written_yet() {
        let write = |at: u64| RecoveryWrite {
            offset: at * 4096,
            length: 4096,
            data: None,
            epoch: at / 4,
            fua: at.is_multiple_of(5),
        };
        let writes: Vec<RecoveryWrite> = (0..16).map(write).collect();
        let mut lost = 0;
        for seed in 0..50 {
            let cuts = second_cuts(&writes, 9, seed);
            assert_eq!(cuts, second_cuts(&writes, 9, seed));
            for cut in cuts {
                let epoch = writes[cut.made - 1].epoch;
                assert!(cut.kept.iter().all(|&at| at < cut.made));
                let flushed = (0..cut.made).filter(|&at| writes[at].epoch < epoch || writes[at].fua);
                assert!(flushed.into_iter().all(|at| cut.kept.contains(&at)), "{cut:?}");
                lost += cut.made - cut.kept.len();
            }
        }
        assert!(lost > 0);
        assert!(second_cuts(&[], 9, 1).is_empty());
    }
}
