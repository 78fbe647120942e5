//! One moment at which the power may go, and what may then be left: [`Point::build`] makes the image of any choice of
//! what survives, [`Point::check`] refuses what no crash could leave.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::contents::Contents;
use crate::ranges::{common, overlap, union, without};
use crate::snapshot::Snapshot;
use crate::window::{Volatile, Window};

/// A write that is not durable and is there all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Survivor {
    /// Position of its submission in the recording.
    pub write: u64,
    /// Which atomic units of the device it has reached, in order; without this all that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<Vec<Range<u64>>>,
}

impl Survivor {
    /// All of a write.
    pub fn whole(write: u64) -> Self {
        Self { write, units: None }
    }

    fn has_unit(&self, unit: u64) -> bool {
        self.units.as_ref().is_none_or(|units| units.iter().any(|range| range.contains(&unit)))
    }
}

/// What a device holds after a crash.
#[derive(Clone, Debug)]
pub struct CrashImage {
    /// Where every sector's content is.
    pub snapshot: Snapshot,
    /// Equal images of one recording have the same, others another.
    pub identity: u128,
}

/// See the head of the module.
#[derive(Debug)]
pub struct Point {
    position: u64,
    epoch: u64,
    marks: u64,
    contents: Arc<Contents>,
    settled: CrashImage,
    unit_sectors: u64,
    /// In the order in which survivors are laid over each other, unless they say otherwise.
    volatile: Vec<Volatile>,
    /// Those that are there, in that order; only what they lie over is open.
    open: Vec<Volatile>,
    /// Where in those lists each is, the second behind the first.
    places: HashMap<u64, usize>,
    /// Sectors on which something volatile may lie, each with the number of its first sector among them.
    touched: Vec<(Range<u64>, usize)>,
    /// What each of them adds to the identity of the durable image.
    contributions: Vec<u128>,
}

impl Point {
    /// The moment that the window is at. `unit_bytes` is the unit inside which no write is torn: a power of two of at
    /// least a sector, [`ErrorKind::Invalid`] otherwise.
    pub fn new(window: &Window, unit_bytes: u64) -> Result<Self> {
        let settled = CrashImage { snapshot: window.settled().clone(), identity: window.identity() };
        let sector_bytes = settled.snapshot.sector_bytes();
        if !unit_bytes.is_power_of_two() || unit_bytes < sector_bytes {
            let context = format!(
                "an atomic unit of {unit_bytes} bytes: a power of two of at least {sector_bytes}, the device's block"
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let mut writes = window.writes().to_vec();
        writes.sort_by_key(Volatile::rank);
        let (open, volatile): (Vec<Volatile>, Vec<Volatile>) =
            writes.into_iter().partition(|write| write.is_durable);
        let places =
            volatile.iter().chain(&open).enumerate().map(|(at, write)| (write.position, at)).collect();
        let live: Vec<Range<u64>> =
            volatile.iter().chain(&open).flat_map(|write| write.live.iter().cloned()).collect();
        let mut contributions = Vec::new();
        let mut touched = Vec::new();
        for range in union(&live, &[]) {
            touched.push((range.clone(), contributions.len()));
            window.contents().contributions(&settled.snapshot, range, &mut contributions)?;
        }
        Ok(Self {
            position: window.position(),
            epoch: window.epoch(),
            marks: window.marks(),
            contents: Arc::clone(window.contents()),
            settled,
            unit_sectors: unit_bytes / sector_bytes,
            volatile,
            open,
            places,
            touched,
            contributions,
        })
    }

    /// The crash comes before the event with this position.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How often something had become durable.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many marks the load had set.
    pub fn marks(&self) -> u64 {
        self.marks
    }

    /// Where the bytes are.
    pub fn contents(&self) -> &Arc<Contents> {
        &self.contents
    }

    /// What may be there or not, in the order of completion, what is under way last.
    pub fn volatile(&self) -> &[Volatile] {
        &self.volatile
    }

    /// Durable writes of which it is open which other they lie over or under, in the order in which they do unless
    /// survivors say otherwise. They are there in every state.
    pub fn open(&self) -> &[Volatile] {
        &self.open
    }

    /// Bytes of a sector.
    pub fn sector_bytes(&self) -> u64 {
        self.settled.snapshot.sector_bytes()
    }

    /// The atomic units in which a write may be there by itself, in order.
    pub fn units_of(&self, write: &Volatile) -> Vec<Range<u64>> {
        let unit = self.unit_sectors;
        let units: Vec<_> =
            write.live.iter().map(|range| range.start / unit..range.end.div_ceil(unit)).collect();
        union(&units, &[])
    }

    /// Refuses, with [`ErrorKind::Invalid`], what no crash at this moment could leave: survivors that are not volatile,
    /// or that lie over one that came after them.
    pub fn check(&self, survivors: &[Survivor]) -> Result<()> {
        let illegal = |what: String| {
            let context = format!("no crash at position {} could leave this state: {what}", self.position);
            Err(Error::new(ErrorKind::Invalid, context))
        };
        let layers = self.layers(survivors);
        let mut writes = Vec::with_capacity(layers.len());
        for survivor in layers.iter() {
            let Some(write) = self.find(survivor.write) else {
                return illegal(format!("the request {} is not volatile then", survivor.write));
            };
            let its = self.units_of(write);
            let strays = survivor.units.iter().flatten().find(|units| {
                units.is_empty() || !its.iter().any(|its| its.start <= units.start && units.end <= its.end)
            });
            if let Some(strays) = strays {
                return illegal(format!(
                    "the request {} does not concern the units {strays:?}",
                    survivor.write
                ));
            }
            writes.push(write);
        }
        for write in &self.open {
            let mut missing = self.units_of(write);
            for survivor in layers.iter().filter(|survivor| survivor.write == write.position) {
                match &survivor.units {
                    None => missing.clear(),
                    Some(units) => units.iter().for_each(|units| missing = without(&missing, units)),
                }
            }
            if !missing.is_empty() {
                return illegal(format!("the request {} is durable, and lacks {missing:?}", write.position));
            }
        }
        // In the order of completion, which most states have, no write lies over one that came after it.
        if writes.is_sorted_by_key(|write| write.rank()) {
            return Ok(());
        }
        for (at, under) in writes.iter().enumerate() {
            for (over_at, over) in
                writes.iter().enumerate().skip(at + 1).filter(|(_, over)| over.comes_before(under))
            {
                let shared = common(&self.units_of(under), &self.units_of(over));
                let meet = |unit: u64| layers[at].has_unit(unit) && layers[over_at].has_unit(unit);
                if shared.into_iter().flatten().any(meet) {
                    return illegal(format!(
                        "{} lies over {}, which came later",
                        over.position, under.position
                    ));
                }
            }
        }
        Ok(())
    }

    /// What is laid over what is settled: the survivors, and those that are there anyway and that they do not mention, at
    /// their places in the order of completion.
    fn layers<'a>(&self, survivors: &'a [Survivor]) -> Cow<'a, [Survivor]> {
        let is_mentioned =
            |write: &Volatile| survivors.iter().any(|survivor| survivor.write == write.position);
        let rest: Vec<&Volatile> = self.open.iter().filter(|write| !is_mentioned(write)).collect();
        if rest.is_empty() {
            return Cow::Borrowed(survivors);
        }
        let mut layers = survivors.to_vec();
        for write in rest {
            let is_above =
                |layer: &Survivor| self.find(layer.write).is_some_and(|layer| layer.rank() > write.rank());
            let at = layers.iter().position(is_above).unwrap_or(layers.len());
            layers.insert(at, Survivor::whole(write.position));
        }
        Cow::Owned(layers)
    }

    /// The image in which these survive, laid over each other in this order; [`Point::check`] says which may. Those that
    /// are not volatile here are left out.
    pub fn build(&self, survivors: &[Survivor]) -> CrashImage {
        let layers = self.layers(survivors);
        if layers.is_empty() {
            return self.settled.clone();
        }
        // For each touched sector the survivor on top, counted from 1.
        let mut top = vec![0u32; self.contributions.len()];
        let mut writes = Vec::with_capacity(layers.len());
        for survivor in layers.iter() {
            let Some(write) = self.find(survivor.write) else { continue };
            writes.push(write);
            for live in &write.live {
                match &survivor.units {
                    None => self.lay(&mut top, live.clone(), writes.len()),
                    Some(units) => {
                        for units in units {
                            let start = units.start.saturating_mul(self.unit_sectors).max(live.start);
                            let end = units.end.saturating_mul(self.unit_sectors).min(live.end);
                            self.lay(&mut top, start..end, writes.len());
                        }
                    }
                }
            }
        }
        let CrashImage { mut snapshot, mut identity } = self.settled.clone();
        for (range, first) in &self.touched {
            let top = &top[*first..*first + (range.end - range.start) as usize];
            let mut at = 0;
            for run in top.chunk_by(|a, b| a == b) {
                let sectors = range.start + at as u64..range.start + (at + run.len()) as u64;
                if run[0] > 0 {
                    let write = writes[run[0] as usize - 1];
                    for (sector, old) in sectors.clone().zip(&self.contributions[first + at..]) {
                        identity = identity.wrapping_add(write.contribution(sector)).wrapping_sub(*old);
                    }
                    write.put(&mut snapshot, sectors);
                }
                at += run.len();
            }
        }
        CrashImage { snapshot, identity }
    }

    /// Everything that may be there is there.
    pub fn all(&self) -> Vec<Survivor> {
        self.volatile.iter().map(|write| Survivor::whole(write.position)).collect()
    }

    /// The sectors of an atomic unit.
    pub(crate) fn unit_range(&self, unit: u64) -> Range<u64> {
        unit * self.unit_sectors..(unit + 1) * self.unit_sectors
    }

    pub(crate) fn find(&self, position: u64) -> Option<&Volatile> {
        let at = *self.places.get(&position)?;
        self.volatile.get(at).or_else(|| self.open.get(at - self.volatile.len()))
    }

    fn lay(&self, top: &mut [u32], sectors: Range<u64>, survivor: usize) {
        if sectors.is_empty() {
            return;
        }
        // Live ranges are inside touched ones as a whole.
        let at = self.touched.partition_point(|(range, _)| range.end <= sectors.start);
        let (range, first) = &self.touched[at];
        debug_assert!(overlap(range, &sectors));
        let start = first + (sectors.start - range.start) as usize;
        top[start..start + (sectors.end - sectors.start) as usize].fill(survivor as u32);
    }
}
