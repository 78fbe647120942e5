//! Where blocks and requests lie: the objects in one row, cut into places of one request each, shared out to workers.
//!
//! Blocks are numbered through all objects (*target blocks*). Each worker owns a contiguous part, so requests of
//! different workers never overlap.

use std::ops::Range;

use rotproof_block::{Error, ErrorKind, Result};

use crate::BLOCK_BYTES;
use crate::object::ObjectInfo;

/// What one request covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Which object, by its position.
    pub object: u32,
    /// How many blocks.
    pub blocks: u32,
    /// The first block, counted within the object.
    pub first_in_object: u64,
    /// The same block, counted through all objects.
    pub first_block: u64,
}

impl Extent {
    /// Where it begins in its object.
    pub fn offset_bytes(&self) -> u64 {
        self.first_in_object * BLOCK_BYTES as u64
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }

    /// Its blocks, counted through all objects.
    pub fn target_blocks(&self) -> Range<u64> {
        self.first_block..self.first_block + u64::from(self.blocks)
    }
}

/// The geometry of a target under requests of one size.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The first target block of each object, and of what would follow the last.
    first_block: Vec<u64>,
    /// The first place of each object, and of what would follow the last. The last place of an object is shorter
    /// where its size is no multiple of the request's.
    first_place: Vec<u64>,
    request_blocks: u64,
}

impl Layout {
    /// Requests of `request_bytes` on `objects`. Fails if there is no room for one.
    pub fn new(objects: &[ObjectInfo], request_bytes: u64) -> Result<Self> {
        let request_blocks = request_bytes / BLOCK_BYTES as u64;
        if request_blocks == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a request of a load has at least 4096 bytes"));
        }
        let running = |each: &dyn Fn(&ObjectInfo) -> u64| -> Vec<u64> {
            let mut sum = 0;
            let starts = objects.iter().map(|object| {
                let start = sum;
                sum += each(object);
                start
            });
            let mut starts: Vec<_> = starts.collect();
            starts.push(sum);
            starts
        };
        let layout = Self {
            first_block: running(&ObjectInfo::blocks),
            first_place: running(&|object| object.blocks().div_ceil(request_blocks)),
            request_blocks,
        };
        if layout.places() == 0 {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the target of the load has no room for a single block of 4096 bytes; make it larger",
            ));
        }
        Ok(layout)
    }

    /// How many places there are.
    pub fn places(&self) -> u64 {
        *self.first_place.last().expect("it holds one more than there are objects")
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        *self.first_block.last().expect("it holds one more than there are objects")
    }

    /// Blocks of one request.
    pub fn request_blocks(&self) -> u64 {
        self.request_blocks
    }

    /// The request at a place.
    #[inline]
    pub fn extent(&self, place: u64) -> Extent {
        let object = position(&self.first_place, place);
        let first_in_object = (place - self.first_place[object]) * self.request_blocks;
        let first_block = self.first_block[object] + first_in_object;
        let left = self.first_block[object + 1] - first_block;
        Extent {
            object: object as u32,
            blocks: self.request_blocks.min(left) as u32,
            first_in_object,
            first_block,
        }
    }

    /// The blocks from `block` on, as many of `blocks` as one object has.
    pub fn extent_at(&self, block: u64, blocks: u64) -> Extent {
        let object = position(&self.first_block, block);
        Extent {
            object: object as u32,
            blocks: blocks.min(self.first_block[object + 1] - block) as u32,
            first_in_object: block - self.first_block[object],
            first_block: block,
        }
    }

    /// The object of a target block and the block's number within it.
    pub fn locate(&self, block: u64) -> (u32, u64) {
        let extent = self.extent_at(block, 1);
        (extent.object, extent.first_in_object)
    }

    /// The target blocks of an object.
    pub fn object_blocks(&self, object: u32) -> Range<u64> {
        self.first_block[object as usize]..self.first_block[object as usize + 1]
    }

    /// The place that a target block lies in; for the end of all blocks, that of all places.
    pub(crate) fn place_of_block(&self, block: u64) -> u64 {
        if block == self.blocks() {
            return self.places();
        }
        let object = position(&self.first_block, block);
        self.first_place[object] + (block - self.first_block[object]) / self.request_blocks
    }

    /// The first target block of a place; for the end of all places, that of all blocks.
    pub(crate) fn block_of_place(&self, place: u64) -> u64 {
        if place == self.places() { self.blocks() } else { self.extent(place).first_block }
    }

    /// The part of worker number `worker` of `workers` that share `places`: parts follow each other, and differ by one
    /// place at the most.
    pub fn part(&self, places: &Range<u64>, worker: u32, workers: u32) -> Part {
        let boundary = |worker: u32| {
            let before = u128::from(places.end - places.start) * u128::from(worker) / u128::from(workers);
            places.start + u64::try_from(before).expect("a fraction of a u64")
        };
        let places = boundary(worker)..boundary(worker + 1);
        let blocks = self.block_of_place(places.start)..self.block_of_place(places.end);
        Part { places, blocks }
    }

    /// The same part in places of this layout, if it begins and ends with some.
    pub(crate) fn part_of_blocks(&self, blocks: &Range<u64>) -> Part {
        let places = self.place_of_block(blocks.start)..self.place_of_block(blocks.end);
        Part { places, blocks: blocks.clone() }
    }
}

/// What belongs to one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its places.
    pub places: Range<u64>,
    /// The blocks of those places, counted through all objects.
    pub blocks: Range<u64>,
}

/// The interval that holds `number`, among intervals given by their starts and the end of the last. Empty ones hold
/// nothing.
#[inline]
fn position(starts: &[u64], number: u64) -> usize {
    // One device, or a number in the first file, is the common case.
    if number < starts[1] {
        return 0;
    }
    starts.partition_point(|&start| start <= number) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn objects(sizes: &[u64]) -> Vec<ObjectInfo> {
        sizes.iter().map(|&size| ObjectInfo::new("x", size)).collect()
    }

    #[test]
    fn a_target_without_room_is_refused() {
        for sizes in [&[][..], &[0], &[4095]] {
            assert!(Layout::new(&objects(sizes), 4096).is_err(), "{sizes:?}");
        }
    }

    proptest! {
        #[test]
        fn places_cover_every_block_once_and_parts_every_place(
            sizes in prop::collection::vec(0u64..100_000, 1..6),
            request_shift in 12u32..16,
            workers in 1u32..5,
        ) {
            let objects = objects(&sizes);
            let Ok(layout) = Layout::new(&objects, 1 << request_shift) else {
                prop_assert!(sizes.iter().all(|&size| size < 4096));
                return Ok(());
            };
            let mut next_block = 0;
            let mut next_place = 0;
            for worker in 0..workers {
                let part = layout.part(&(0..layout.places()), worker, workers);
                prop_assert_eq!(part.places.start, next_place);
                prop_assert_eq!(part.blocks.start, next_block);
                prop_assert_eq!(&layout.part_of_blocks(&part.blocks), &part);
                next_place = part.places.end;
                for place in part.places {
                    let extent = layout.extent(place);
                    prop_assert_eq!(extent.first_block, next_block);
                    prop_assert!(extent.blocks >= 1);
                    prop_assert_eq!(layout.locate(next_block), (extent.object, extent.first_in_object));
                    let end = extent.offset_bytes() + extent.len_bytes() as u64;
                    prop_assert!(end <= objects[extent.object as usize].size_bytes);
                    next_block += u64::from(extent.blocks);
                }
                prop_assert_eq!(part.blocks.end, next_block);
            }
            prop_assert_eq!(next_place, layout.places());
            prop_assert_eq!(next_block, layout.blocks());
            prop_assert_eq!(next_block, sizes.iter().map(|size| size / 4096).sum::<u64>());
        }
    }
}
