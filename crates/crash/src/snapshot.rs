//! What every sector of a device holds at one moment, as places where the content can be read.
//!
//! A tree whose nodes are shared: a copy costs nothing, and a change copies the few nodes on the way to it. So the
//! states of a crash, which differ in a few sectors, share all the rest, and none of them is an image that somebody had
//! to copy. What is larger than memory stays in the files it is in.

use std::ops::Range;
use std::sync::Arc;

use crate::recording::{SOURCE_BASE, SOURCE_ZEROS, Source};

/// Children of a node, sectors of a leaf.
const FAN: u64 = 64;

/// A whole device, sector by sector.
#[derive(Clone, Debug)]
pub struct Snapshot {
    root: Node,
    /// Levels above the leaves.
    levels: u32,
    sectors: u64,
    sector_bytes: u64,
}

#[derive(Clone, Debug)]
enum Node {
    /// All sectors have this same source, which is no place in a file.
    Fill(Source),
    Leaf(Arc<[Source; FAN as usize]>),
    Inner(Arc<[Node; FAN as usize]>),
}

/// Sectors that a place in a file follows: what is put into a snapshot, or found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    source: Source,
    sector_bytes: u64,
}

impl Run {
    fn source_of(&self, sector: u64) -> Source {
        match self.source {
            SOURCE_BASE | SOURCE_ZEROS => self.source,
            offset => offset + (sector - self.first) * self.sector_bytes,
        }
    }
}

impl Snapshot {
    /// A device of `sectors` sectors with its content from before the recording.
    pub fn new(sectors: u64, sector_bytes: u64) -> Self {
        let mut levels = 0;
        while span(levels) < sectors {
            levels += 1;
        }
        Self { root: Node::Fill(SOURCE_BASE), levels, sectors, sector_bytes }
    }

    /// Sectors of the device.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Bytes of a sector.
    pub fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }

    /// Where the content of a sector is.
    pub fn source(&self, sector: u64) -> Source {
        let (mut node, mut level, mut within) = (&self.root, self.levels, sector);
        loop {
            match node {
                Node::Fill(source) => return *source,
                Node::Leaf(sources) => return sources[within as usize],
                Node::Inner(children) => {
                    level -= 1;
                    node = &children[(within / span(level)) as usize];
                    within %= span(level);
                }
            }
        }
    }

    /// Puts content into a range of sectors: zeros, what was there before, or what lies in the file from `source` on.
    pub fn set(&mut self, sectors: Range<u64>, source: Source) {
        debug_assert!(sectors.end <= self.sectors);
        let run = Run { first: sectors.start, source, sector_bytes: self.sector_bytes };
        if !sectors.is_empty() {
            set(&mut self.root, self.levels, 0, &sectors, run);
        }
    }

    /// The sectors whose content lies elsewhere in the other snapshot of the same device, in order. Where none differs the content is
    /// equal. Takes time by what was changed since they parted.
    pub fn differences(&self, other: &Snapshot) -> Vec<Range<u64>> {
        debug_assert_eq!((self.sectors, self.levels), (other.sectors, other.levels));
        let mut found = Vec::new();
        differences(&self.root, &other.root, self.levels, 0, self.sectors, &mut found);
        found
    }

    /// Cuts a range into runs that can be read at once: first sector, number of sectors, source of the first.
    pub fn runs(&self, sectors: Range<u64>) -> impl Iterator<Item = (u64, u64, Source)> {
        let mut at = sectors.start;
        std::iter::from_fn(move || {
            if at >= sectors.end {
                return None;
            }
            let run = Run { first: at, source: self.source(at), sector_bytes: self.sector_bytes };
            at += 1;
            while at < sectors.end && self.source(at) == run.source_of(at) {
                at += 1;
            }
            Some((run.first, at - run.first, run.source))
        })
    }
}

/// Adds the sectors of a node from `start` on in which two nodes differ. `end` is that of the device.
fn differences(a: &Node, b: &Node, level: u32, start: u64, end: u64, into: &mut Vec<Range<u64>>) {
    let mut differ = |sectors: Range<u64>| {
        let sectors = sectors.start.min(end)..sectors.end.min(end);
        match into.last_mut() {
            Some(last) if last.end == sectors.start => last.end = sectors.end,
            _ if sectors.is_empty() => {}
            _ => into.push(sectors),
        }
    };
    let source_at = |sources: &Node, at: usize| match sources {
        Node::Fill(source) => *source,
        Node::Leaf(sources) => sources[at],
        Node::Inner(_) => unreachable!("a leaf and an inner node are never on one level"),
    };
    match (a, b) {
        (Node::Fill(a), Node::Fill(b)) if a == b => {}
        (Node::Fill(_), Node::Fill(_)) => differ(start..start.saturating_add(span(level))),
        (Node::Leaf(a), Node::Leaf(b)) if Arc::ptr_eq(a, b) => {}
        (Node::Inner(a), Node::Inner(b)) if Arc::ptr_eq(a, b) => {}
        _ if level == 0 => {
            for at in 0..FAN as usize {
                if source_at(a, at) != source_at(b, at) {
                    differ(start + at as u64..start + at as u64 + 1);
                }
            }
        }
        _ => {
            let child = |node: &Node, at: usize| match node {
                Node::Inner(children) => children[at].clone(),
                Node::Fill(source) => Node::Fill(*source),
                Node::Leaf(_) => unreachable!("a leaf has no level below it"),
            };
            let below = span(level - 1);
            for at in 0..FAN as usize {
                let start = start.saturating_add(below.saturating_mul(at as u64));
                if start < end {
                    differences(&child(a, at), &child(b, at), level - 1, start, end, into);
                }
            }
        }
    }
}

/// Sectors below a node with so many levels below it.
fn span(levels: u32) -> u64 {
    FAN.saturating_pow(levels + 1)
}

fn set(node: &mut Node, level: u32, start: u64, sectors: &Range<u64>, run: Run) {
    let covered = sectors.start <= start && start.saturating_add(span(level)) <= sectors.end;
    if covered && matches!(run.source, SOURCE_BASE | SOURCE_ZEROS) {
        *node = Node::Fill(run.source);
        return;
    }
    if let Node::Fill(source) = *node {
        *node = if level == 0 {
            Node::Leaf(Arc::new([source; FAN as usize]))
        } else {
            Node::Inner(Arc::new(
                [const { Node::Fill(SOURCE_BASE) }; FAN as usize].map(|_| Node::Fill(source)),
            ))
        };
    }
    match node {
        Node::Fill(_) => unreachable!("opened above"),
        Node::Leaf(sources) => {
            let sources = Arc::make_mut(sources);
            let end = sectors.end.min(start + FAN);
            for sector in sectors.start.max(start)..end {
                sources[(sector - start) as usize] = run.source_of(sector);
            }
        }
        Node::Inner(children) => {
            let children = Arc::make_mut(children);
            let below = span(level - 1);
            let first = (sectors.start.max(start) - start) / below;
            let last = (sectors.end.min(start.saturating_add(span(level))) - 1 - start) / below;
            for index in first..=last {
                set(&mut children[index as usize], level - 1, start + index * below, sectors, run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::hash::mix;

    #[test]
    fn it_is_an_array_of_sources_whose_copies_do_not_disturb_each_other() {
        for sectors in [1u64, 63, 64, 65, 5000, 300_000] {
            let mut array = vec![SOURCE_BASE; sectors as usize];
            let mut snapshot = Snapshot::new(sectors, 512);
            let mut copies = Vec::new();
            for index in 0..200 {
                let draw = |stream| mix(sectors, stream, index);
                let start = draw(1) % sectors;
                let longest = if index % 10 == 0 { sectors } else { 100 };
                let range = start..sectors.min(start + 1 + draw(2) % longest);
                let source = [SOURCE_BASE, SOURCE_ZEROS, 64 + draw(3) % 1000 * 7][(draw(4) % 3) as usize];
                if index % 50 == 0 {
                    copies.push((snapshot.clone(), array.clone()));
                }
                snapshot.set(range.clone(), source);
                for sector in range.clone() {
                    array[sector as usize] =
                        if source < 2 { source } else { source + (sector - range.start) * 512 };
                }
            }
            copies.push((snapshot, array));
            for (one, of_one) in &copies {
                for (other, of_other) in &copies {
                    let mut wanted: Vec<u64> = Vec::new();
                    wanted.extend((0..sectors).filter(|&at| of_one[at as usize] != of_other[at as usize]));
                    let found: Vec<u64> = one.differences(other).into_iter().flatten().collect();
                    assert!(found == wanted, "{sectors}");
                }
            }
            for (snapshot, array) in copies {
                let found: Vec<Source> = (0..sectors).map(|sector| snapshot.source(sector)).collect();
                assert!(found == array, "{sectors}");
                let mut at = 0;
                for (first, count, source) in snapshot.runs(0..sectors) {
                    assert_eq!((first, source), (at, array[at as usize]));
                    at += count;
                }
                assert_eq!(at, sectors);
            }
        }
    }

    #[test]
    fn the_largest_device_takes_little() {
        let sectors = u64::MAX / 512;
        let mut snapshot = Snapshot::new(sectors, 512);
        snapshot.set(0..sectors, SOURCE_ZEROS);
        snapshot.set(sectors - 1..sectors, 64);
        assert_eq!(snapshot.source(sectors - 1), 64);
        assert_eq!(snapshot.source(sectors - 2), SOURCE_ZEROS);
    }
}
