//! The abilities of a stripe whose parts keep copies: copy number k of the whole is copy number k of every part.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::ability::{Ability, Wanted, find};
use rotproof_block::children::Children;
use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Operation, Request, Result, Runtime, Submission};

use super::geometry::Geometry;
use super::{deal, flush_all};
use crate::copies::{Copies, CopyQueue, MemberState, Members};

/// The ability that is wanted, if it is one of these and all parts have it.
pub(super) fn ability(
    parts: &[Arc<dyn Device>],
    geometry: Geometry,
    info: DeviceInfo,
    wanted: Wanted,
) -> Option<Ability> {
    if wanted.is::<dyn Copies>() {
        let parts: Vec<Arc<dyn Copies>> = all(parts)?;
        let count = parts.first()?.count();
        if parts.iter().any(|part| part.count() != count) {
            return None;
        }
        return wanted.offer::<dyn Copies>(|| Arc::new(StripeCopies { parts, geometry, info, count }));
    }
    if wanted.is::<dyn Members>() {
        let parts: Vec<Arc<dyn Members>> = all(parts)?;
        return wanted.offer::<dyn Members>(|| Arc::new(StripeMembers { parts, geometry, info }));
    }
    None
}

fn all<A: ?Sized + 'static>(parts: &[Arc<dyn Device>]) -> Option<Vec<Arc<A>>> {
    parts.iter().map(|part| find::<A>(&**part)).collect()
}

struct StripeCopies {
    parts: Vec<Arc<dyn Copies>>,
    geometry: Geometry,
    info: DeviceInfo,
    count: usize,
}

impl Copies for StripeCopies {
    fn count(&self) -> usize {
        self.count
    }

    fn open_copies(&self, runtime: &Runtime) -> Result<Rc<dyn CopyQueue>> {
        let parts = self.parts.iter().map(|part| part.open_copies(runtime)).collect::<Result<_>>()?;
        Ok(Rc::new(StripeCopyQueue {
            parts,
            geometry: self.geometry,
            info: self.info,
            count: self.count,
            children: Children::default(),
        }))
    }
}

struct StripeCopyQueue {
    parts: Vec<Rc<dyn CopyQueue>>,
    geometry: Geometry,
    info: DeviceInfo,
    count: usize,
    children: Children,
}

impl StripeCopyQueue {
    /// Whether something holds of every part of a range.
    fn holds(&self, offset: u64, length: u64, of: impl Fn(&dyn CopyQueue, u64, u64) -> bool) -> bool {
        length == 0
            || self.geometry.shares(offset..offset + length).all(|share| {
                of(&*self.parts[share.part], share.range.start, share.range.end - share.range.start)
            })
    }
}

impl CopyQueue for StripeCopyQueue {
    fn choose(&self, offset: u64, length: u64) -> usize {
        let (part, place) = self.geometry.place(offset);
        if self.geometry.is_within_chunk(offset, length) {
            return self.parts[part].choose(place, length);
        }
        // What is best for where it begins, if that has it all.
        let in_first_chunk = (self.geometry.chunk - offset % self.geometry.chunk).min(length);
        let best = self.parts[part].choose(place, in_first_chunk);
        if self.is_current(best, offset, length) {
            return best;
        }
        (0..self.count).find(|&copy| self.is_current(copy, offset, length)).unwrap_or(best)
    }

    fn is_current(&self, copy: usize, offset: u64, length: u64) -> bool {
        self.holds(offset, length, |part, offset, length| part.is_current(copy, offset, length))
    }

    fn submit_to(&self, copy: usize, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        if request.operation == Operation::Flush {
            return flush_all(request, &self.children, self.parts.len(), &|part, child| {
                self.parts[part].submit_to(copy, child)
            });
        }
        deal(self.geometry, &self.children, request, &|part, child| self.parts[part].submit_to(copy, child))
    }

    fn set_current(&self, copy: usize, offset: u64, length: u64) {
        self.holds(offset, length, |part, offset, length| {
            part.set_current(copy, offset, length);
            true
        });
    }

    fn set_missed(&self, copy: usize, offset: u64, length: u64) {
        self.holds(offset, length, |part, offset, length| {
            part.set_missed(copy, offset, length);
            true
        });
    }
}

struct StripeMembers {
    parts: Vec<Arc<dyn Members>>,
    geometry: Geometry,
    info: DeviceInfo,
}

impl StripeMembers {
    /// The part that has a member, and its number there.
    fn find(&self, member: usize) -> Result<(&dyn Members, usize)> {
        let mut number = member;
        for part in &self.parts {
            let count = part.states().len();
            if number < count {
                return Ok((&**part, number));
            }
            number -= count;
        }
        Err(Error::new(ErrorKind::Invalid, format!("there is no member {member}")))
    }
}

impl Members for StripeMembers {
    fn states(&self) -> Vec<MemberState> {
        self.parts.iter().flat_map(|part| part.states()).collect()
    }

    fn fail(&self, member: usize, why: &str) -> Result<()> {
        let (part, member) = self.find(member)?;
        part.fail(member, why)
    }

    fn replace(&self, member: usize, device: Arc<dyn Device>, missed: &[Range<u64>]) -> Result<()> {
        let (part, member) = self.find(member)?;
        part.replace(member, device, missed)
    }

    fn missed(&self, member: usize) -> Vec<Range<u64>> {
        self.find(member).map_or_else(|_| Vec::new(), |(part, member)| part.missed(member))
    }

    /// Whole stripes: what the other parts have of them is current, and skipped by whoever asks for each copy.
    fn to_rebuild(&self) -> Vec<Range<u64>> {
        let of_parts = self.parts.iter().flat_map(|part| part.to_rebuild());
        let mut stripes: Vec<Range<u64>> = of_parts.map(|range| self.geometry.stripes(&range)).collect();
        stripes.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in stripes {
            // A part may have more bytes than the stripe uses.
            let range = range.start.min(self.info.size)..range.end.min(self.info.size);
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ if range.is_empty() => {}
                _ => merged.push(range),
            }
        }
        merged
    }
}
