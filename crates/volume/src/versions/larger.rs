//! A map of versions for a device that has become larger.
//!
//! The map of before stays where it is and as it is. The new one lies in what the device has grown by, and says the same: places keep
//! their numbers, as they are counted from where the room for data began at first. So whoever says which of the two counts decides,
//! in one step, whether the device has grown.

use std::ops::Range;
use std::sync::Arc;

use rotproof_block::{Context, Device, Error, ErrorKind, Result, Runtime};

use super::catalog::{Catalog, Listed};
use super::history::{EXTENT, History, Identity};
use super::space_block::{NEVER, is_place, place_of};
use super::{PATIENCE, VersionsDevice};
use crate::concat::ConcatDevice;
use crate::io::Io;
use crate::member::MapPlace;
use crate::table::BLOCK_BYTES;
use crate::volume::part::Part;

/// Bytes of the map and of the room for data on a device of so many bytes.
///
/// Fails with [`ErrorKind::NoSpace`] if the map does not fit where it is to be.
fn bytes_of(below: u64, map: MapPlace, reserve_percent: u8) -> Result<(u64, u64)> {
    let end = below / BLOCK_BYTES * BLOCK_BYTES;
    let too_small = |needed: u64| {
        let context = format!(
            "what the volume would grow by is too small: the map of all its blocks takes {needed} bytes of it"
        );
        Error::new(ErrorKind::NoSpace, context)
    };
    let space = end.checked_sub(map.space_from).ok_or_else(|| too_small(0))?;
    // It is for itself, too; more bytes never take a smaller one, so this comes to an end.
    let mut first = 0;
    loop {
        let next = VersionsDevice::place_on(first + space, reserve_percent)?.0;
        if next == first {
            break;
        }
        first = next;
    }
    if map.at.saturating_add(first) > end { Err(too_small(first)) } else { Ok((first, space)) }
}

/// Bytes of what [`arrange`] makes of a device of so many.
pub(crate) fn arranged_bytes(below: u64, map: MapPlace, reserve_percent: u8) -> Result<u64> {
    bytes_of(below, map, reserve_percent).map(|(first, space)| first + space)
}

/// A device with the map first, and the room for data behind it; and the blocks of that room which are the map.
///
/// Fails with [`ErrorKind::NoSpace`] if the map does not fit where it is to be.
pub(crate) fn arrange(
    below: Arc<dyn Device>,
    map: MapPlace,
    reserve_percent: u8,
) -> Result<(Arc<dyn Device>, Range<u64>)> {
    let (first, space) = bytes_of(below.info().size, map, reserve_percent)?;
    let hole = (map.at - map.space_from) / BLOCK_BYTES;
    let parts: Vec<Arc<dyn Device>> =
        vec![Part::new(Arc::clone(&below), map.at, first), Part::new(below, map.space_from, space)];
    Ok((ConcatDevice::new(parts)?, hole..hole + first / BLOCK_BYTES))
}

impl VersionsDevice {
    /// Where the room for data begins on the device below.
    pub(crate) fn space_at(&self) -> u64 {
        self.shared.kept.space_at
    }

    /// Takes over what the map of before says, and all its versions. This one is new and empty, and neither is in use; after that it
    /// has to be opened anew.
    ///
    /// Fails with [`ErrorKind::Refused`] if a version is damaged.
    pub(crate) async fn take_over(&self, before: &Self, runtime: &Runtime) -> Result<()> {
        let context = Context::default();
        let io = Io::open(&self.below, runtime, PATIENCE)?;
        let io_before = Io::open(&before.below, runtime, PATIENCE)?;
        let (new, old) = (&self.shared, &before.shared);
        let layout = *old.table.layout();
        for page in (0..layout.pages).filter(|page| old.table.is_used(layout.granule_of(*page))) {
            old.table.hold(&io_before, page..page + 1, context).await?;
            let entries: Vec<(u64, u128)> =
                layout.entries_of(page).map(|block| (block, old.table.get(block))).collect();
            old.table.release(page..page + 1);
            for (block, entry) in entries.into_iter().filter(|(_, entry)| *entry != NEVER) {
                if let Ok(place) = place_of(entry) {
                    new.kept.space.take(u64::from(place - 1));
                }
                let page = new.table.layout().place(block).0;
                new.table.hold(&io, page..page + 1, context).await?;
                new.enter(&io, page, context).await?;
                new.table.set(block, entry);
                new.table.leave(&(page..page + 1));
                new.table.release(page..page + 1);
            }
        }
        let mut catalog = {
            let state = old.kept.state.lock();
            Catalog { versions: Vec::new(), ..state.catalog.clone() }
        };
        catalog.generation = new.kept.state.lock().catalog.generation;
        self.keep_off(before);
        let count = old.kept.state.lock().versions.len();
        for number in 0..count {
            let (listed, mut pairs) = {
                let state = old.kept.state.lock();
                let version = &state.versions[number];
                if version.history.is_damaged {
                    let context = format!(
                        "version {} is damaged: give it up before the volume grows",
                        version.listed.id
                    );
                    return Err(Error::new(ErrorKind::Refused, context));
                }
                let pairs = version.history.pairs.iter().map(|(block, place)| (*block, *place));
                (version.listed.clone(), pairs.collect::<Vec<_>>())
            };
            pairs.sort_unstable();
            let mut history = History::new(&new.kept.histories)?;
            for (block, place) in pairs {
                history.note(block, place);
            }
            let identity = Identity { table: new.kept.table, history: listed.history };
            let (blocks, written) = history.encode_pending(&new.kept.histories, identity)?;
            for (place, bytes) in blocks {
                io.write(new.kept.history_at + place * BLOCK_BYTES, bytes, context).await?;
            }
            let (first, pairs) = (history.extents[0], written.pairs());
            catalog.versions.push(Listed { first, pairs, ..listed });
        }
        io.flush(context).await?;
        for _ in 0..2 {
            catalog.write(&io, new.catalog_at, new.kept.table, context).await?;
        }
        new.kept.state.lock().catalog = catalog;
        new.table.flush(&io, context).await
    }

    /// Until this one counts, what the one before says must stay as it is: histories written now take no room of its versions, of their
    /// histories, or of its map.
    fn keep_off(&self, before: &Self) {
        let (new, old) = (&self.shared.kept, &before.shared);
        let state = old.kept.state.lock();
        for history in state.versions.iter().map(|version| &version.history) {
            for place in history.pairs.values().filter(|place| is_place(**place)) {
                new.space.take(u64::from(*place - 1));
            }
            let slots = history.extents.iter().flat_map(|first| *first..first + EXTENT);
            for block in slots.filter_map(|slot| old.kept.histories.among_data(slot)) {
                new.space.take(block);
            }
        }
        for block in old.options.hole.0..old.options.hole.1 {
            new.space.take(block);
        }
    }
}
