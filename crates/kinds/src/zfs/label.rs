//! The labels of a device of a pool: what they say of the device, and the ring of uberblocks in each.
//!
//! Layout: *ZFS On-Disk Specification* (Sun, 2006), chapter 1; the name-value list is in XDR (RFC 4506), as `nvpair` packs it.

use std::ops::Range;

use rotproof_block::Result;

use crate::bytes::{be32, be64, le64};
use crate::reader::{bytes_at, invalid, unsupported};
use crate::source::Source;

use super::block_pointer::BlockPointer;

pub(super) const LABEL_BYTES: u64 = 256 << 10;
/// Where the list of names and values lies in a label, behind a blank and a boot header, and how long it may be.
const LIST_OFFSET: u64 = 16 << 10;
const LIST_BYTES: u64 = 112 << 10;
/// Where the ring lies.
const RING_OFFSET: u64 = 128 << 10;
const RING_BYTES: u64 = 128 << 10;
/// The first two labels and room for boot code; offsets in block pointers are counted from behind these.
pub(super) const FIRST_BLOCK: u64 = 4 << 20;
const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
const UBERBLOCK_BYTES_MIN: u64 = 1 << 10;
/// The last version before feature flags (OpenSolaris and zfs-fuse).
const VERSION_MAX: u64 = 28;
/// Smaller and larger sectors than these no pool has.
const SECTOR_SHIFTS: Range<u64> = 9..17;
/// How deep lists lie in lists.
const DEPTH_MAX: usize = 8;
const PAIRS_MAX: usize = 10_000;

const TYPE_UINT64: u32 = 8;
const TYPE_STRING: u32 = 9;
const TYPE_LIST: u32 = 19;

/// Where the labels of a device of that size begin.
pub(super) fn label_offsets(size: u64) -> [u64; 4] {
    let end = size / LABEL_BYTES * LABEL_BYTES;
    [0, LABEL_BYTES, end.saturating_sub(2 * LABEL_BYTES), end.saturating_sub(LABEL_BYTES)]
}

/// Whether one of the labels holds an uberblock.
pub(super) fn has_uberblock(source: &dyn Source) -> bool {
    label_offsets(source.size()).into_iter().any(|label| {
        let ring = bytes_at(source, label + RING_OFFSET, RING_BYTES as usize).unwrap_or_default();
        ring.chunks_exact(UBERBLOCK_BYTES_MIN as usize).any(is_uberblock)
    })
}

fn is_uberblock(slot: &[u8]) -> bool {
    le64(slot, 0) == Some(UBERBLOCK_MAGIC)
}

/// What the labels say.
#[derive(Debug)]
pub(super) struct Label {
    /// Base-2 logarithm of the bytes of a sector.
    pub(super) sector_shift: u64,
    /// The object with the space maps, and the base-2 logarithm of the bytes that each is of.
    pub(super) metaslab_array: u64,
    pub(super) metaslab_shift: u64,
    /// Bytes that can be given out, from [`FIRST_BLOCK`] on.
    pub(super) allocatable: u64,
    /// Each slot of the ring that counts, the newest first: where it is in the ring, and where the pool begins then.
    pub(super) uberblocks: Vec<Uberblock>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Uberblock {
    pub(super) slot: u64,
    pub(super) transaction: u64,
    pub(super) root: BlockPointer,
}

impl Label {
    /// Reads the first label that can be read.
    pub(super) fn read(source: &dyn Source) -> Result<Self> {
        let offsets = label_offsets(source.size());
        let lists = offsets.into_iter().filter_map(|label| {
            let bytes = bytes_at(source, label + LIST_OFFSET, LIST_BYTES as usize).ok()?;
            List::read(&bytes)
        });
        let list = lists.into_iter().next().ok_or_else(|| invalid("none of the four labels can be read"))?;
        let version = list.number("version").unwrap_or(0);
        if version > VERSION_MAX {
            return Err(unsupported(format!("this is a ZFS pool of version {version}, with feature flags")));
        }
        let missing = |what: &str| invalid(format!("the labels do not say {what}"));
        let device = list.list("vdev_tree").ok_or_else(|| missing("what the device is"))?;
        let kind = device.text("type").unwrap_or_default();
        if !["disk", "file", "mirror"].contains(&kind) {
            return Err(unsupported(format!(
                "a ZFS pool spreads this device's data over several (`{kind}`)"
            )));
        }
        if device.number("id") != Some(0) || list.number("vdev_children").is_some_and(|count| count > 1) {
            return Err(unsupported("a ZFS pool of several devices that are no mirror"));
        }
        let sector_shift = device.number("ashift").filter(|shift| SECTOR_SHIFTS.contains(shift));
        let sector_shift = sector_shift.ok_or_else(|| missing("how large its sectors are"))?;
        let metaslab_shift = device.number("metaslab_shift").filter(|shift| (12..63).contains(shift));
        let mut label = Self {
            sector_shift,
            metaslab_array: device.number("metaslab_array").unwrap_or(0),
            metaslab_shift: metaslab_shift.ok_or_else(|| missing("how its space is divided"))?,
            allocatable: device.number("asize").unwrap_or(0).min(source.size().saturating_sub(FIRST_BLOCK)),
            uberblocks: Vec::new(),
        };
        label.read_rings(source);
        if label.uberblocks.is_empty() {
            return Err(invalid("there is no uberblock in the byte order of this machine"));
        }
        Ok(label)
    }

    /// Bytes of a slot of the ring.
    pub(super) fn slot_bytes(&self) -> u64 {
        (1 << self.sector_shift).max(UBERBLOCK_BYTES_MIN)
    }

    fn read_rings(&mut self, source: &dyn Source) {
        for label in label_offsets(source.size()) {
            let Ok(ring) = bytes_at(source, label + RING_OFFSET, RING_BYTES as usize) else { continue };
            for (bytes, slot) in ring.chunks_exact(self.slot_bytes() as usize).zip(0..) {
                let Some(transaction) = le64(bytes, 16).filter(|_| is_uberblock(bytes)) else { continue };
                let Some(root) = bytes.get(40..).and_then(BlockPointer::read) else { continue };
                if !self.uberblocks.iter().any(|known| known.transaction == transaction) {
                    self.uberblocks.push(Uberblock { slot, transaction, root });
                }
            }
        }
        self.uberblocks.sort_by_key(|uberblock| std::cmp::Reverse(uberblock.transaction));
    }

    /// The parts of the label that begins at `offset`: the list, the slot of the ring that counts, and the other slots.
    pub(super) fn parts(&self, offset: u64, current: u64) -> (Range<u64>, Range<u64>, [Range<u64>; 2]) {
        let ring = offset + RING_OFFSET..offset + RING_OFFSET + RING_BYTES;
        let slot = ring.start + current * self.slot_bytes();
        let slot = slot..slot + self.slot_bytes();
        let others = [ring.start..slot.start, slot.end..ring.end];
        (offset + LIST_OFFSET..offset + LIST_OFFSET + LIST_BYTES, slot, others)
    }
}

/// A list of names and values.
#[derive(Debug, Default)]
struct List(Vec<(String, Value)>);

#[derive(Debug)]
enum Value {
    Number(u64),
    Text(String),
    List(List),
    Other,
}

impl List {
    /// Reads a packed list; `None` if it is none, or damaged.
    fn read(bytes: &[u8]) -> Option<Self> {
        const ENCODING_XDR: u8 = 1;
        (bytes.first() == Some(&ENCODING_XDR)).then_some(())?;
        Self::pairs(bytes.get(4..)?, 0).map(|(list, _)| list)
    }

    /// A list without the head of the packing, and how many bytes it took.
    fn pairs(bytes: &[u8], depth: usize) -> Option<(Self, usize)> {
        // Its version and flags come first.
        let (mut at, mut list) = (8, List::default());
        while list.0.len() < PAIRS_MAX && depth < DEPTH_MAX {
            let length = be32(bytes, at)? as usize;
            if length == 0 {
                return Some((list, at + 8));
            }
            let pair = bytes.get(at..at.checked_add(length)?)?;
            let (name, next) = text(pair, 8)?;
            let (kind, value) = (be32(pair, next)?, next + 8);
            let value = match kind {
                TYPE_UINT64 => Value::Number(be64(pair, value)?),
                TYPE_STRING => Value::Text(text(pair, value)?.0),
                TYPE_LIST => Value::List(Self::pairs(pair.get(value..)?, depth + 1)?.0),
                _ => Value::Other,
            };
            list.0.push((name, value));
            at += length;
        }
        None
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        if let Some(Value::Number(number)) = self.value(name) { Some(*number) } else { None }
    }

    fn text(&self, name: &str) -> Option<&str> {
        if let Some(Value::Text(text)) = self.value(name) { Some(text) } else { None }
    }

    fn list(&self, name: &str) -> Option<&List> {
        if let Some(Value::List(list)) = self.value(name) { Some(list) } else { None }
    }
}

/// A text, and where the next thing begins: texts are filled up to four bytes.
fn text(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let (length, start) = (be32(bytes, at)? as usize, at + 4);
    let found = bytes.get(start..start.checked_add(length)?)?;
    Some((String::from_utf8_lossy(found).into_owned(), start + length.next_multiple_of(4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut body = (name.len() as u32).to_be_bytes().to_vec();
        body.extend(name.bytes());
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(kind.to_be_bytes());
        body.extend(1_u32.to_be_bytes());
        body.extend(data);
        let length = (body.len() as u32 + 8).to_be_bytes();
        [&length[..], &length[..], &body[..]].concat()
    }

    #[test]
    fn a_list_is_read_and_a_damaged_one_is_none() {
        let inner = [&[0; 8][..], &pair("ashift", TYPE_UINT64, &12_u64.to_be_bytes()), &[0; 8]].concat();
        let type_of = pair("type", TYPE_STRING, &[&4_u32.to_be_bytes()[..], b"disk"].concat());
        let bytes = [
            &[1, 1, 0, 0][..],
            &[0; 8],
            &type_of,
            &pair("tree", TYPE_LIST, &inner),
            &pair("x", 16, &[]),
            &[0; 8],
        ]
        .concat();
        let list = List::read(&bytes).expect("a list");
        assert_eq!((list.text("type"), list.number("type"), list.number("x")), (Some("disk"), None, None));
        assert_eq!(list.list("tree").and_then(|tree| tree.number("ashift")), Some(12));
        for length in 0..bytes.len() - 4 {
            assert!(List::read(&bytes[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn the_labels_are_two_at_each_end() {
        let odd = (64 << 20) + 4096;
        assert_eq!(label_offsets(odd), [0, 256 << 10, (64 << 20) - (512 << 10), (64 << 20) - (256 << 10)]);
        assert_eq!(label_offsets(0), [0, 256 << 10, 0, 0]);
    }
}
