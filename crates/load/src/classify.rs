//! Says of every failing block what it holds instead, and who wrote that, where and when.
//!
//! The evidence names contents; their history is found by running the streams again, once for all failures. Source of
//! the classes: what production studies and AchillesBench's successors tell apart (bit rot, lost, torn, misdirected
//! writes, latent sector errors).

use std::collections::{HashMap, HashSet};

use crate::BLOCK_BYTES;
use crate::content::{ContentId, SectorIdentity};
use crate::engine::{LoadOperation, LoadReport, Sighting};
use crate::evidence::{Evidence, Look, SectorLook};
use crate::failure::{Classification, Failure, Foreign, Place, SectorFinding, Stale, Version, Way};
use crate::oracle::Oracle;
use crate::stream::WrittenBlock;
use crate::workload::Workload;

/// Places of a foreign content that are listed.
const PLACES_MAX: usize = 4;

/// The failures of some phases of one load, by target block. Several sightings of one block are one failure.
pub fn classify<'a>(
    workload: &Workload,
    oracle: &Oracle,
    reports: impl IntoIterator<Item = &'a LoadReport>,
) -> Vec<Failure> {
    let mut sightings: Vec<&Sighting> = reports.into_iter().flat_map(|report| &report.sightings).collect();
    // Stable, so the ways of a block stay in the order of the phases.
    sightings.sort_by_key(|sighting| sighting.block);
    let history = History::of(workload, oracle, &sightings);
    let classifier = Classifier { workload, history };
    sightings.chunk_by(|one, other| one.block == other.block).map(|group| classifier.failure(group)).collect()
}

struct Classifier<'a> {
    workload: &'a Workload,
    history: History,
}

impl Classifier<'_> {
    /// `sightings` are of one block, and not empty.
    fn failure(&self, sightings: &[&Sighting]) -> Failure {
        let (object_index, block) = self.workload.layout().locate(sightings[0].block);
        Failure {
            object_index,
            object: self.workload.objects()[object_index as usize].name.clone(),
            block,
            offset_bytes: block * BLOCK_BYTES as u64,
            ways: sightings.iter().map(|sighting| self.way(sighting)).collect(),
        }
    }

    fn way(&self, sighting: &Sighting) -> Way {
        let content = self.workload.content();
        let version = |&id: &ContentId| Version {
            content: id,
            hash: (id != ContentId::NEVER_WRITTEN).then(|| content.hash(id)),
        };
        let found = match &sighting.evidence {
            Evidence::Data { found, .. } => Some(*found),
            Evidence::Error(_) => None,
        };
        Way {
            phase: sighting.phase,
            time: sighting.time,
            operation: sighting.operation,
            expected: sighting.expected.iter().map(version).collect(),
            found,
            what: self.classify(sighting),
            count: sighting.count,
        }
    }

    fn classify(&self, sighting: &Sighting) -> Classification {
        let look = match &sighting.evidence {
            Evidence::Error(error) if sighting.operation == LoadOperation::Write => {
                return Classification::Unwritable { error: *error };
            }
            Evidence::Error(error) => return Classification::Unreadable { error: *error },
            Evidence::Data { look, .. } => look,
        };
        match look {
            Look::FlippedBits(flipped) => {
                Classification::FlippedBits { count: flipped.count, bits: flipped.first.clone() }
            }
            Look::Zeroed => Classification::Zeroed,
            Look::Ones => Classification::Ones,
            Look::Sectors(sectors) => self.classify_sectors(sighting, sectors),
        }
    }

    fn classify_sectors(&self, sighting: &Sighting, sectors: &[SectorLook]) -> Classification {
        let identities: Vec<Option<SectorIdentity>> = sectors.iter().map(|look| look.identity()).collect();
        if let Some(id) = whole(&identities) {
            return match self.history.stale(sighting.block, id) {
                Some(stale) => Classification::Stale(stale),
                None => Classification::Foreign(self.foreign(id)),
            };
        }
        let recognised = |look: &SectorLook| matches!(look, SectorLook::Expected | SectorLook::Content(_));
        if !sectors.iter().any(recognised) && sectors.contains(&SectorLook::Noise) {
            return Classification::Noise;
        }
        let findings = sectors.iter().map(|look| self.sector(sighting, *look)).collect();
        let is_misplaced = (0u8..)
            .zip(&identities)
            .any(|(sector, identity)| identity.is_some_and(|identity| identity.sector != sector));
        if is_misplaced {
            Classification::Misplaced { sectors: findings }
        } else {
            Classification::Torn { sectors: findings }
        }
    }

    fn sector(&self, sighting: &Sighting, look: SectorLook) -> SectorFinding {
        let SectorIdentity { id, sector } = match look {
            SectorLook::Expected => return SectorFinding::Expected,
            SectorLook::Zeros => return SectorFinding::Zeros,
            SectorLook::Ones => return SectorFinding::Ones,
            SectorLook::Noise => return SectorFinding::Noise,
            SectorLook::Content(identity) => identity,
        };
        if sighting.expected.contains(&id) {
            return SectorFinding::Expected;
        }
        match self.history.stale(sighting.block, id) {
            Some(Stale { write, .. }) => SectorFinding::Stale { content: id, sector, write },
            None => {
                let place = self.foreign(id).places.into_iter().next();
                SectorFinding::Foreign { content: id, sector, place }
            }
        }
    }

    fn foreign(&self, content: ContentId) -> Foreign {
        let Some(writes) = self.history.contents.get(&content) else {
            return Foreign { content, places: Vec::new(), writes: 0 };
        };
        let name = |written: &WrittenBlock| {
            let (object, block) = self.workload.layout().locate(written.block);
            let object = self.workload.objects()[object as usize].name.clone();
            Place { object, block, request: written.request }
        };
        Foreign { content, places: writes.first.iter().map(name).collect(), writes: writes.count }
    }
}

/// The content that all sectors are of, each at its own place.
fn whole(identities: &[Option<SectorIdentity>]) -> Option<ContentId> {
    let id = identities.first().copied().flatten()?.id;
    let is_whole =
        (0u8..).zip(identities).all(|(sector, identity)| *identity == Some(SectorIdentity { id, sector }));
    is_whole.then_some(id)
}

/// What the streams say of the contents found and of the blocks they were found in.
#[derive(Default)]
struct History {
    contents: HashMap<ContentId, Writes>,
    /// Writes of each block concerned.
    block_writes: HashMap<u64, u64>,
    /// Which of the writes of a block last had a content.
    last_write: HashMap<(u64, ContentId), u64>,
}

#[derive(Default)]
struct Writes {
    count: u64,
    first: Vec<WrittenBlock>,
}

impl History {
    fn of(workload: &Workload, oracle: &Oracle, sightings: &[&Sighting]) -> Self {
        let mut history = Self::default();
        let mut workers = HashSet::new();
        for sighting in sightings {
            let Evidence::Data { look: Look::Sectors(sectors), .. } = &sighting.evidence else { continue };
            for identity in sectors.iter().filter_map(|look| look.identity()) {
                if workload.may_have_made(identity.id) {
                    history.contents.entry(identity.id).or_default();
                    workers.insert(identity.id.worker());
                    history.block_writes.entry(sighting.block).or_default();
                    workers.insert(workload.worker_of_block(sighting.block));
                }
            }
        }
        if history.contents.is_empty() {
            return history;
        }
        for drawn in oracle.drawn() {
            for (worker, &requests) in (0..).zip(&drawn.requests) {
                if workers.contains(&worker) {
                    let stream = workload.stream(drawn.stage, worker).ending_after(requests);
                    stream.written().for_each(|written| history.add(written));
                }
            }
        }
        history
    }

    fn add(&mut self, written: WrittenBlock) {
        let number = self.block_writes.get_mut(&written.block).map(|writes| {
            *writes += 1;
            *writes
        });
        let Some(writes) = self.contents.get_mut(&written.content) else { return };
        writes.count += 1;
        if writes.first.len() < PLACES_MAX {
            writes.first.push(written);
        }
        if let Some(number) = number {
            self.last_write.insert((written.block, written.content), number);
        }
    }

    fn stale(&self, block: u64, content: ContentId) -> Option<Stale> {
        let write = *self.last_write.get(&(block, content))?;
        Some(Stale { content, write, writes: self.block_writes[&block] })
    }
}
