//! A trace of large devices on a small one.

use crate::access::{Access, Operation};

/// Where accesses of a trace go on a device that is not the one of the trace: each of its devices begins elsewhere, so that
/// they do not lie on top of each other, and what is beyond the end goes round to the beginning. Neighbours stay neighbours,
/// and the same place is always the same place.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    device_bytes: u64,
    block_bytes: u64,
}

impl Remap {
    /// Onto a device of so many bytes with such blocks, of which it has at least one. `None` where it has none.
    pub fn new(device_bytes: u64, block_bytes: u64) -> Option<Self> {
        let usable = device_bytes.checked_div(block_bytes)?.checked_mul(block_bytes)?;
        (usable > 0).then_some(Self { device_bytes: usable, block_bytes })
    }

    /// The whole blocks that stand for the access: first byte and bytes. They never go beyond the end; what does not fit
    /// behind where it begins is cut off. A flush has no place.
    pub fn place(&self, access: &Access) -> (u64, u64) {
        if access.operation == Operation::Flush {
            return (0, 0);
        }
        let block = self.block_bytes;
        let blocks = self.device_bytes / block;
        // The golden section spreads however many devices there are.
        let shift =
            (u128::from(access.device) * u128::from(blocks) * 618_033_989 / 1_000_000_000) as u64 % blocks;
        let first = access.offset / block;
        let end = access.offset.saturating_add(access.length).div_ceil(block);
        let begin = (first % blocks + shift) % blocks;
        let count = (end - first).clamp(1, blocks - begin);
        (begin * block, count * block)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn access(device: u32, offset: u64, length: u64) -> Access {
        Access { at_ns: 0, operation: Operation::Write, device, offset, length, took_ns: None }
    }

    #[test]
    fn neighbours_stay_neighbours_and_the_end_goes_round() {
        let remap = Remap::new(1 << 20, 4096).expect("has blocks");
        assert_eq!(remap.place(&access(0, 8192, 4096)), (8192, 4096));
        assert_eq!(remap.place(&access(0, 8192 + 512, 4096)), (8192, 8192), "whole blocks");
        assert_eq!(remap.place(&access(0, (1 << 20) + 4096, 512)), (4096, 4096));
        assert_eq!(remap.place(&access(0, (1 << 20) - 4096, 1 << 20)), ((1 << 20) - 4096, 4096), "cut off");
        let (one, other) = (remap.place(&access(1, 0, 4096)).0, remap.place(&access(2, 0, 4096)).0);
        assert!(one != 0 && other != 0 && one != other, "each device begins elsewhere");
        assert!(Remap::new(4095, 4096).is_none() && Remap::new(1, 0).is_none());
    }

    proptest! {
        #[test]
        fn every_access_lies_on_the_device(
            device in any::<u32>(), offset in any::<u64>(), length in 1u64.., size in 1u64..1 << 40, shift in 9u32..17,
        ) {
            if let Some(remap) = Remap::new(size, 1 << shift) {
                let (start, bytes) = remap.place(&access(device, offset, length));
                prop_assert!(bytes > 0 && start % (1 << shift) == 0 && bytes % (1 << shift) == 0);
                prop_assert!(start + bytes <= size);
            }
        }
    }
}
