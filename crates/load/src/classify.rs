//! Says of every failing block what it holds instead, and who wrote that, where and when.
//!
//! The evidence names contents; their history is found by running the streams again, once for all failures. Source of
//! the classes: what production studies and AchillesBench's successors tell apart (bit rot, lost, torn, misdirected
//! writes, latent sector errors).

use std::ops::Range;

use rotproof_block::ContentHash;

use crate::BLOCK_BYTES;
use crate::content::{ContentId, SECTORS, SectorIdentity, sector_of};
use crate::engine::{LoadOperation, LoadReport, Sighting};
use crate::evidence::{Evidence, Look, SectorLook};
use crate::failure::{
    Classification, Failure, Misdirected, NamedBlock, SectorFinding, Stale, Unflushed, Version, Way,
};
use crate::history::History;
use crate::oracle::Oracle;
use crate::stream::WrittenBlock;
use crate::workload::Workload;

/// The failures of some phases of one load, by target block. Several sightings of one block are one failure.
pub fn classify<'a>(
    workload: &Workload,
    oracle: &Oracle,
    reports: impl IntoIterator<Item = &'a LoadReport>,
) -> Vec<Failure> {
    Classifier::new(workload, oracle, reports).failures(0..u64::MAX)
}

/// Says it of some blocks at a time, where there are very many.
pub struct Classifier<'w, 'r> {
    workload: &'w Workload,
    reports: Vec<&'r LoadReport>,
    history: History,
    /// Of blocks that were never written.
    expects_zeros: bool,
}

impl<'w, 'r> Classifier<'w, 'r> {
    /// Looks up what the streams say of all that these reports saw.
    pub fn new(
        workload: &'w Workload,
        oracle: &Oracle,
        reports: impl IntoIterator<Item = &'r LoadReport>,
    ) -> Self {
        let reports: Vec<&LoadReport> = reports.into_iter().collect();
        let sightings = reports.iter().flat_map(|report| report.sightings.iter());
        let history = History::of(workload, oracle, sightings);
        Self { workload, history, expects_zeros: oracle.expects_zeros(), reports }
    }

    /// The failures of these blocks of the target, in their order.
    pub fn failures(&self, blocks: Range<u64>) -> Vec<Failure> {
        let seen = self.reports.iter().flat_map(|report| report.sightings.within(blocks.clone()));
        let mut sightings: Vec<Sighting> = seen.collect();
        // Stable, so the ways of a block stay in the order of the phases.
        sightings.sort_by_key(|sighting| sighting.block);
        sightings.chunk_by(|one, other| one.block == other.block).map(|group| self.failure(group)).collect()
    }

    /// The load.
    pub fn workload(&self) -> &Workload {
        self.workload
    }

    /// All that was seen, phase by phase.
    pub fn sightings(&self) -> impl Iterator<Item = Sighting> {
        self.reports.iter().flat_map(|report| report.sightings.iter())
    }

    /// How many ways to fail there are in each of so many stretches of `blocks` blocks; those beyond count in the last.
    pub fn ways_by_stretch(&self, blocks: u64, stretches: usize) -> Vec<u64> {
        let mut sums = vec![0; stretches];
        for report in &self.reports {
            let counts = report.sightings.by_stretch(blocks, stretches);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        sums
    }

    /// `sightings` are of one block, and not empty.
    fn failure(&self, sightings: &[Sighting]) -> Failure {
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
            found_sectors: None,
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
            Evidence::Data { found, look } => {
                if let Some(unflushed) = self.unflushed(sighting, *found, look) {
                    return Classification::Unflushed(unflushed);
                }
                look
            }
        };
        match look {
            Look::FlippedBits(flipped) => {
                Classification::FlippedBits { count: flipped.count, bits: flipped.first.clone() }
            }
            Look::Zeroed => Classification::Zeroed,
            Look::Ones => Classification::Ones,
            Look::Sectors(sectors) => self.classify_sectors(sighting, &sectors[..]),
        }
    }

    fn classify_sectors(&self, sighting: &Sighting, sectors: &[SectorLook]) -> Classification {
        let identities: Vec<Option<SectorIdentity>> = sectors.iter().map(|look| look.identity()).collect();
        if let Some(id) = whole(&identities) {
            return match self.history.stale(sighting.block, id) {
                Some(stale) => Classification::Stale(stale),
                None => Classification::Misdirected(self.misdirected(id)),
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

    /// Whether a failed flush accounts for what a block holds: every sector as one of the versions since the last flush
    /// that succeeded, to the bit.
    fn unflushed(&self, sighting: &Sighting, found: ContentHash, look: &Look) -> Option<Unflushed> {
        let history = &self.history;
        let current = history.stale(sighting.block, *sighting.expected.first()?)?;
        let first_legal = history.first_legal(sighting.block, current.write, sighting.time)?;
        let writes = current.writes;
        // Before the first write there was nothing, or whatever the target held.
        let was_unwritten = first_legal == 0;
        let was_anything = was_unwritten && !self.expects_zeros;
        let looks = match look {
            Look::Zeroed => return was_unwritten.then_some(Unflushed { write: None, writes }),
            Look::Ones => return was_anything.then_some(Unflushed { write: None, writes }),
            Look::FlippedBits(_) => return None,
            Look::Sectors(looks) => looks,
        };
        let (mut block, mut is_certain) = ([0; BLOCK_BYTES], true);
        for (sector, (look, bytes)) in
            looks.iter().zip(block.chunks_exact_mut(BLOCK_BYTES / SECTORS)).enumerate()
        {
            let id = match look {
                SectorLook::Expected => *sighting.expected.first()?,
                SectorLook::Content(SectorIdentity { id, sector: at }) if usize::from(*at) == sector => *id,
                SectorLook::Zeros if was_unwritten => continue,
                SectorLook::Zeros | SectorLook::Ones | SectorLook::Noise if was_anything => {
                    is_certain = false;
                    continue;
                }
                _ => return None,
            };
            if !(first_legal..=current.write).contains(&history.stale(sighting.block, id)?.write) {
                return None;
            }
            self.workload.content().with_block(id, |truth| bytes.copy_from_slice(sector_of(truth, sector)));
        }
        let identities: Vec<Option<SectorIdentity>> = looks.iter().map(|look| look.identity()).collect();
        let write =
            whole(&identities).and_then(|id| history.stale(sighting.block, id)).map(|stale| stale.write);
        let is_explained = !is_certain || ContentHash::of(&block) == found;
        is_explained.then_some(Unflushed { write, writes })
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
                let place = self.misdirected(id).places.into_iter().next();
                SectorFinding::Misdirected { content: id, sector, place }
            }
        }
    }

    fn misdirected(&self, content: ContentId) -> Misdirected {
        let Some(writes) = self.history.writes_of(content) else {
            return Misdirected { content, places: Vec::new(), writes: 0 };
        };
        let name = |written: &WrittenBlock| {
            let (object, block) = self.workload.layout().locate(written.block);
            let object = self.workload.objects()[object as usize].name.clone();
            NamedBlock { object, block, request: written.request }
        };
        Misdirected { content, places: writes.first.iter().map(name).collect(), writes: writes.count }
    }
}

/// The content that all sectors are of, each at its own place.
fn whole(identities: &[Option<SectorIdentity>]) -> Option<ContentId> {
    let id = identities.first().copied().flatten()?.id;
    let is_whole =
        (0u8..).zip(identities).all(|(sector, identity)| *identity == Some(SectorIdentity { id, sector }));
    is_whole.then_some(id)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::probe::{Probe, Reaction, Rig};
    use crate::{LoadSpec, Pattern, Stage};
    use rotproof_block::{ErrorKind, Operation, Phase, Request};
    use rotproof_spec::{Bytes, Percent};

    /// 64 blocks, each written by the prefill and then twice by the load.
    fn thrice_written() -> Rig {
        let spec = LoadSpec {
            prefill: Some(true),
            total: Some(Bytes(128 * BLOCK_BYTES as u64)),
            workers: 2,
            ..LoadSpec::default()
        };
        let mut rig = Rig::new(&spec, 1, Probe::new(64, |_| Reaction::Pass).expect("a probe"));
        rig.phase(Phase::Prefill);
        rig.phase(Phase::Run);
        rig
    }

    /// The only failure after `change` has been done to block 40.
    fn damaged(change: impl FnOnce(&Rig, &mut [u8])) -> Failure {
        let mut rig = thrice_written();
        rig.damage(40, |data| change(&rig, data));
        rig.phase(Phase::Check);
        let failures = rig.failures();
        assert_eq!(failures.len(), 1);
        let failure = failures.into_iter().next().expect("there is one");
        assert_eq!((failure.object.as_str(), failure.block, failure.offset_bytes), ("device", 40, 40 * 4096));
        assert_eq!(failure.ways.len(), 1);
        let way = failure.worst();
        assert_eq!((way.phase, way.operation, way.count), (Phase::Check, LoadOperation::Read, 1));
        let current = run(1, 40);
        assert_eq!(
            way.expected,
            [Version { content: current, hash: Some(rig.workload.content().hash(current)) }]
        );
        failure
    }

    /// What worker 1 wrote in the run: its 32 blocks are 32 to 63, and went round twice.
    fn run(round: u64, block: u64) -> ContentId {
        ContentId::new(Stage::Run, 1, round * 32 + block - 32)
    }

    fn what(change: impl FnOnce(&Rig, &mut [u8])) -> Classification {
        damaged(change).worst().what.clone()
    }

    #[test]
    fn flips_zeros_ones_and_noise_need_no_history() {
        assert!(matches!(
            what(|_, data| data[100] ^= 8),
            Classification::FlippedBits { count: 1, bits } if bits[0].byte == 100 && bits[0].bit == 3
        ));
        assert_eq!(what(|_, data| data.fill(0)), Classification::Zeroed);
        assert_eq!(what(|_, data| data.fill(0xff)), Classification::Ones);
        let noise = |_: &Rig, data: &mut [u8]| {
            data.iter_mut()
                .zip(0u32..)
                .for_each(|(byte, at)| *byte = (at.wrapping_mul(2_654_435_761) >> 24) as u8);
        };
        assert_eq!(what(noise), Classification::Noise);
    }

    #[test]
    fn a_stale_block_names_its_version() {
        let old = ContentId::new(Stage::Prefill, 1, 8);
        let stale = what(|rig, data| rig.workload.content().fill(old, data));
        assert_eq!(stale, Classification::Stale(Stale { content: old, write: 1, writes: 3 }));
        let stale = what(|rig, data| rig.workload.content().fill(run(0, 40), data));
        assert_eq!(stale, Classification::Stale(Stale { content: run(0, 40), write: 2, writes: 3 }));
    }

    #[test]
    fn a_foreign_block_names_who_wrote_it_where() {
        let misdirected = ContentId::new(Stage::Run, 0, 5);
        let places = vec![NamedBlock { object: "device".into(), block: 5, request: 5 }];
        assert_eq!(
            what(|rig, data| rig.workload.content().fill(misdirected, data)),
            Classification::Misdirected(Misdirected { content: misdirected, places, writes: 1 })
        );
    }

    #[test]
    fn a_torn_block_says_what_each_sector_holds() {
        let torn = what(|rig, data| {
            rig.workload.content().with_block(run(0, 40), |old| data[2048..].copy_from_slice(&old[2048..]));
            data[512..1024].fill(0);
        });
        let Classification::Torn { sectors } = torn else { panic!("{torn:?}") };
        assert_eq!(sectors[..3], [SectorFinding::Expected, SectorFinding::Zeros, SectorFinding::Expected]);
        assert_eq!(sectors[7], SectorFinding::Stale { content: run(0, 40), sector: 7, write: 2 });
    }

    #[test]
    fn sectors_in_the_wrong_place_are_misplaced() {
        let misdirected = ContentId::new(Stage::Run, 0, 5);
        let misplaced = what(|rig, data| {
            rig.workload
                .content()
                .with_block(misdirected, |other| data[..512].copy_from_slice(&other[1024..1536]));
        });
        let Classification::Misplaced { sectors } = misplaced else { panic!("{misplaced:?}") };
        let place = Some(NamedBlock { object: "device".into(), block: 5, request: 5 });
        assert_eq!(sectors[0], SectorFinding::Misdirected { content: misdirected, sector: 2, place });
        assert!(sectors[1..].iter().all(|sector| *sector == SectorFinding::Expected));
    }

    #[test]
    fn a_duplicate_found_elsewhere_names_several_places() {
        let spec = LoadSpec { duplicates: crate::Duplicates::Share(Percent(0.9)), ..LoadSpec::default() };
        let mut rig = Rig::new(&spec, 1, Probe::new(64, |_| Reaction::Pass).expect("a probe"));
        rig.phase(Phase::Run);
        let mut counts: HashMap<ContentId, Vec<u64>> = HashMap::new();
        for written in rig.workload.stream(Stage::Run, 0).written() {
            counts.entry(written.content).or_default().push(written.block);
        }
        let (&popular, blocks) =
            counts.iter().max_by_key(|(id, blocks)| (blocks.len(), **id)).expect("there are some");
        let elsewhere = (0..64).find(|block| !blocks.contains(block)).expect("not everywhere");
        rig.damage(elsewhere, |data| rig.workload.content().fill(popular, data));
        rig.phase(Phase::Check);
        let failures = rig.failures();
        let Classification::Misdirected(misdirected) = &failures[0].worst().what else {
            panic!("{failures:?}")
        };
        assert_eq!((misdirected.content, misdirected.writes), (popular, blocks.len() as u64));
        let places: Vec<u64> = misdirected.places.iter().map(|place| place.block).collect();
        assert_eq!(places, blocks[..4]);
    }

    #[test]
    fn several_ways_of_one_block_are_one_failure() {
        let react = |request: &Request| {
            let is_block = request.offset <= 7 * 4096 && request.end() > 7 * 4096;
            match (request.operation, request.context.phase) {
                (Operation::Read, Phase::Run) if is_block => Reaction::Fail,
                (Operation::Write { .. }, Phase::Run) if is_block => Reaction::Ignore,
                _ => Reaction::Pass,
            }
        };
        let spec = LoadSpec {
            pattern: Pattern::Random,
            reads: Percent(0.5),
            requests: Some(100),
            ..LoadSpec::default()
        };
        let mut rig = Rig::new(&spec, 1, Probe::new(8, react).expect("a probe"));
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            rig.phase(phase);
        }
        let failures = rig.failures();
        assert_eq!(failures.len(), 1);
        let ways: Vec<_> = failures[0].ways.iter().map(|way| (way.phase, way.what.kind())).collect();
        assert_eq!(ways.last(), Some(&(Phase::Check, "stale")));
        assert_eq!(ways[0], (Phase::Run, "unreadable"));
        assert_eq!(failures[0].worst().what.kind(), "stale", "wrong data is worse than an error");
        let Classification::Stale(stale) = &failures[0].worst().what else { panic!("just seen") };
        assert_eq!((stale.content.stage(), stale.write), (Some(Stage::Prefill), 1));
        assert!(stale.writes > 1);
    }

    #[test]
    fn errors_are_unreadable_or_unwritable() {
        let react = |request: &Request| {
            let fails = match request.operation {
                Operation::Write { .. } => request.offset == 4096,
                Operation::Read => request.end() == 8 * 4096,
                _ => false,
            };
            if fails { Reaction::Fail } else { Reaction::Pass }
        };
        let mut rig = Rig::new(&LoadSpec::default(), 1, Probe::new(8, react).expect("a probe"));
        rig.phase(Phase::Run);
        rig.phase(Phase::Check);
        let found: Vec<_> =
            rig.failures().into_iter().map(|failure| (failure.block, failure.worst().what.clone())).collect();
        let error = ErrorKind::Medium;
        assert_eq!(
            found,
            [(1, Classification::Unwritable { error }), (7, Classification::Unreadable { error })]
        );
    }

    #[test]
    fn a_failure_in_results_names_kind_hashes_and_contents() {
        let failure = damaged(|rig, data| rig.workload.content().fill(run(0, 40), data));
        let json = serde_json::to_value(&failure).expect("can be written");
        let way = &json["ways"][0];
        assert_eq!(way["what"]["kind"], "stale");
        assert_eq!(way["what"]["content"], "run:1:8");
        assert_eq!(way["phase"], "check");
        assert_eq!(way["found"].as_str().map(str::len), Some(32));
        assert_eq!(way["expected"][0]["content"], "run:1:40");
    }
    /// As [`thrice_written`], with a flush of each worker after each round; those of worker 1 fail from number `fails`.
    fn with_failed_flushes(fails: u64, change: impl FnOnce(&Rig, &mut [u8])) -> Way {
        let spec = LoadSpec {
            prefill: Some(true),
            total: Some(Bytes(128 * BLOCK_BYTES as u64)),
            workers: 2,
            flush_every: Some(32),
            ..LoadSpec::default()
        };
        let flushes = AtomicU64::new(0);
        let react = move |request: &Request| {
            let is_concerned = request.operation == Operation::Flush
                && (request.context.phase, request.context.queue) == (Phase::Run, 1);
            match is_concerned && flushes.fetch_add(1, Ordering::Relaxed) + 1 >= fails {
                true => Reaction::Fail,
                false => Reaction::Pass,
            }
        };
        let mut rig = Rig::new(&spec, 1, Probe::new(64, react).expect("a probe"));
        rig.phase(Phase::Prefill);
        rig.phase(Phase::Run);
        rig.damage(40, |data| change(&rig, data));
        rig.phase(Phase::Check);
        rig.failures().into_iter().next().expect("there is one").ways.remove(0)
    }

    #[test]
    fn an_older_version_is_a_loss_that_was_told_if_its_flush_failed() {
        let older = |rig: &Rig, data: &mut [u8], id| rig.workload.content().fill(id, data);
        let prefilled = ContentId::new(Stage::Prefill, 1, 8);
        let way = with_failed_flushes(1, |rig, data| older(rig, data, prefilled));
        assert_eq!(way.what, Classification::Unflushed(Unflushed { write: Some(1), writes: 3 }));
        assert!(way.found.is_some() && !way.is_wrong_data());
        let way = with_failed_flushes(2, |rig, data| older(rig, data, run(0, 40)));
        assert_eq!(way.what, Classification::Unflushed(Unflushed { write: Some(2), writes: 3 }));
        let way = with_failed_flushes(2, |rig, data| older(rig, data, prefilled));
        assert!(
            matches!(way.what, Classification::Stale(_)),
            "older than the last flush that succeeded: {way:?}"
        );
        let way = with_failed_flushes(3, |rig, data| older(rig, data, run(0, 40)));
        assert!(matches!(way.what, Classification::Stale(_)), "no flush failed: {way:?}");
    }

    #[test]
    fn a_failed_flush_excuses_no_damage() {
        let torn = |rig: &Rig, data: &mut [u8]| {
            rig.workload.content().with_block(run(0, 40), |old| data[1024..].copy_from_slice(&old[1024..]));
        };
        let way = with_failed_flushes(1, torn);
        assert_eq!(
            way.what,
            Classification::Unflushed(Unflushed { write: None, writes: 3 }),
            "sectors of both"
        );
        let damaged: [fn(&mut [u8]); 4] = [
            |data| data[2000] ^= 4,
            |data| data.fill(0),
            |data| data[512..1024].fill(0),
            |data| data.rotate_left(512),
        ];
        for damage in damaged {
            let way = with_failed_flushes(1, |rig, data| {
                torn(rig, data);
                damage(data);
            });
            assert!(way.is_wrong_data(), "{way:?}");
        }
        let way = with_failed_flushes(1, |_, data| data[100] ^= 1);
        assert!(matches!(way.what, Classification::FlippedBits { .. }), "{way:?}");
    }
    /// Writes to block 40 are lost from the beginning of the run; that its flush fails is told only at its end.
    #[test]
    fn what_was_read_before_a_flush_failed_was_wrong_without_a_word() {
        let spec = LoadSpec {
            prefill: Some(true),
            pattern: Pattern::Random,
            reads: Percent(0.5),
            requests: Some(2000),
            ..LoadSpec::default()
        };
        let react = |request: &Request| match request.operation {
            _ if request.context.phase != Phase::Run => Reaction::Pass,
            Operation::Flush => Reaction::Fail,
            Operation::Read => Reaction::Delay(Duration::from_micros(10)),
            _ if request.offset == 40 * BLOCK_BYTES as u64 => Reaction::Ignore,
            _ => Reaction::Pass,
        };
        let mut rig = Rig::new(&spec, 1, Probe::new(64, react).expect("a probe"));
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            rig.phase(phase);
        }
        let failures = rig.failures();
        assert_eq!((failures.len(), failures[0].block), (1, 40));
        let ways = &failures[0].ways;
        assert!(ways.iter().any(|way| way.phase == Phase::Run));
        for way in ways {
            assert_eq!(way.is_wrong_data(), way.phase == Phase::Run, "{way:?}");
        }
    }
}
