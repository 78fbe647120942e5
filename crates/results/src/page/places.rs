//! Where hits lie on the device and failures in the objects of the load.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_fault::Injection;
use rotproof_report::{Strip, StripMark};

use super::failing::Failed;
use super::injections::{Each, Outline};
use super::over_time::EACH_MAX;
use crate::run::SiteReport;

/// Objects with a strip of their own, those with the most failures.
const OBJECTS_MAX: usize = 24;
/// A failing block.
const BLOCK_BYTES: u64 = 4096;

/// How finely a device with very many hits is divided: several times as finely as the page can show it.
const PLACES: u64 = 8192;

/// The marks of the hits on each place for faults, one each or, of very many on one, those of one rule at about the same place
/// together.
pub(super) struct Sites {
    sites: BTreeMap<Arc<str>, Site>,
    is_one: bool,
}

struct Site {
    bytes: u64,
    is_shared: bool,
    each: Vec<StripMark>,
    shared: BTreeMap<(Arc<str>, u64), StripMark>,
}

impl Sites {
    /// Those that `outline` has; how large they are, the run says in `sites`.
    pub(super) fn of(outline: &Outline, sites: &[SiteReport]) -> Self {
        let is_one = outline.sites.len() == 1 && sites.len() <= 1;
        let site = |(name, &(count, needed)): (&Arc<str>, &(usize, u64))| {
            let said = sites.iter().find(|said| *said.name == **name);
            let said = said.and_then(|said| said.bytes).unwrap_or_default();
            let is_shared = count > EACH_MAX;
            let site = Site { bytes: said.max(needed), is_shared, each: Vec::new(), shared: BTreeMap::new() };
            (Arc::clone(name), site)
        };
        Self { sites: outline.sites.iter().map(site).collect(), is_one }
    }

    pub(super) fn add(&mut self, hit: &Injection) {
        let Some(site) = self.sites.get_mut(&hit.on) else { return };
        let mark =
            || StripMark { offset: hit.offset, length: hit.length, kind: hit.name.to_string(), count: 1 };
        if !site.is_shared {
            site.each.push(mark());
            return;
        }
        let place = (site.bytes / PLACES).max(1);
        match site.shared.entry((Arc::clone(&hit.name), hit.offset / place)) {
            Entry::Vacant(new) => drop(new.insert(mark())),
            Entry::Occupied(mut known) => take_in(known.get_mut(), hit.offset, hit.length),
        }
    }

    /// The strips of the devices under the faults layers.
    pub(super) fn strips(self) -> Vec<Strip> {
        let is_one = self.is_one;
        let strip = |(name, site): (Arc<str>, Site)| Strip {
            name: if is_one { "injections".to_owned() } else { format!("injections on {name}") },
            shows_rules: true,
            bytes: site.bytes,
            marks: site.each.into_iter().chain(site.shared.into_values()).collect(),
        };
        self.sites.into_iter().map(strip).collect()
    }
}

/// One mark for what lies at about the same place.
fn take_in(mark: &mut StripMark, offset: u64, length: u64) {
    let end = offset.saturating_add(length).max(mark.offset.saturating_add(mark.length));
    mark.offset = mark.offset.min(offset);
    mark.length = end - mark.offset;
    mark.count += 1;
}

/// One with failures.
struct Object {
    bytes: u64,
    /// Bytes whose marks are one.
    place: u64,
    /// By their place and kind.
    marks: BTreeMap<(u64, String), StripMark>,
}

/// The strips of the objects with failures, whose sizes are `object_bytes`. Of very many blocks of one, those of one kind at about the same place share marks.
pub(super) fn objects(
    object_bytes: &BTreeMap<String, u64>,
    failures: &(impl Each<Failed> + ?Sized),
) -> Result<Vec<Strip>> {
    let mut counts: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    failures.each(&mut |Failed { failure, .. }| {
        let end = failure.offset_bytes.saturating_add(BLOCK_BYTES);
        match counts.get_mut(&failure.object) {
            Some((count, needed)) => (*count, *needed) = (*count + 1, end.max(*needed)),
            None => drop(counts.insert(failure.object.clone(), (1, end))),
        }
    })?;
    let mut most: Vec<(String, (usize, u64))> = counts.into_iter().collect();
    most.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    most.truncate(OBJECTS_MAX);
    let object = |(name, (count, needed)): (String, (usize, u64))| {
        let said = object_bytes.get(&name).copied().unwrap_or_default();
        let bytes = said.max(needed);
        let place = if count > EACH_MAX { (bytes / PLACES).max(1) } else { 1 };
        (name, Object { bytes, place, marks: BTreeMap::new() })
    };
    let mut objects: BTreeMap<String, Object> = most.into_iter().map(object).collect();
    failures.each(&mut |failed| {
        let (failure, kind) = (&failed.failure, failed.kind());
        let Some(Object { place, marks, .. }) = objects.get_mut(&failure.object) else { return };
        match marks.entry((failure.offset_bytes / *place, kind.to_owned())) {
            Entry::Occupied(mut known) => take_in(known.get_mut(), failure.offset_bytes, BLOCK_BYTES),
            Entry::Vacant(new) => {
                let kind = kind.to_owned();
                new.insert(StripMark { offset: failure.offset_bytes, length: BLOCK_BYTES, kind, count: 1 });
            }
        }
    })?;
    let strip = |(name, object): (String, Object)| Strip {
        name,
        shows_rules: false,
        bytes: object.bytes,
        marks: object.marks.into_values().collect(),
    };
    Ok(objects.into_iter().map(strip).collect())
}

#[cfg(test)]
mod tests {
    use super::super::failing::tests::failed;
    use super::super::over_time::{Hits, timeline};
    use super::*;
    use serde_json::json;

    fn strips(sites: &[SiteReport], ledger: &[Injection]) -> Vec<Strip> {
        let mut sites = Sites::of(&Outline::of(ledger).expect("in memory"), sites);
        ledger.iter().for_each(|hit| sites.add(hit));
        sites.strips()
    }

    #[test]
    fn of_very_many_blocks_marks_are_shared_and_all_of_them_count() {
        let many = EACH_MAX as u64 * 2;
        let failure = |block: u64| {
            let kind = ["zeroed", "noise"][usize::from(block.is_multiple_of(5))];
            failed("a", block, &[(json!({ "kind": kind }), true)])
        };
        let failures: Vec<Failed> = (0..many).map(failure).collect();
        let strips = objects(&BTreeMap::new(), &failures[..]).expect("in memory");
        assert!(strips[0].marks.len() <= 2 * PLACES as usize + 2, "{}", strips[0].marks.len());
        assert_eq!(strips[0].marks.iter().map(|mark| mark.count).sum::<u64>(), many);
    }

    #[test]
    fn very_many_hits_share_marks_and_all_of_them_count() {
        let line = |number: u64| {
            let record = json!({ "sequence": number, "rule": number % 2, "name": format!("rule-{}", number % 2),
                "operation": "read", "offset": number * 7919 % 16_384 * 4096, "length": 4096, "effect": "zeros",
                "time_ns": number * 1000, "phase": "run", "request": number });
            serde_json::from_value::<Injection>(record).expect("a record")
        };
        let many = EACH_MAX as u64 * 3;
        let ledger: Vec<Injection> = (0..many).map(line).collect();
        let found = strips(&[SiteReport { name: "faults".into(), bytes: Some(64 << 20) }], &ledger);
        let marks = &found[0].marks;
        assert!(marks.len() <= 2 * PLACES as usize, "{}", marks.len());
        assert_eq!(marks.iter().map(|mark| mark.count).sum::<u64>(), many);
        for hit in &ledger {
            let covers = |mark: &&StripMark| {
                mark.kind == *hit.name && mark.offset <= hit.offset && hit.offset < mark.offset + mark.length
            };
            let at = marks.partition_point(|mark| {
                (mark.kind.as_str(), mark.offset + mark.length) <= (&*hit.name, hit.offset)
            });
            assert!(marks.get(at).is_some_and(|mark| covers(&mark)), "{hit:?}");
        }
        let mut hits = Hits::of(&Outline::of(&ledger[..]).expect("in memory"));
        ledger.iter().for_each(|hit| hits.add(hit));
        let shown = timeline(std::path::Path::new("/nowhere"), hits.shown()).expect("no tables");
        assert!(shown.hits.len() < 4 * 8192 + 1, "{}", shown.hits.len());
        assert_eq!(shown.hits.iter().map(|hit| hit.count).sum::<u64>(), many);
        assert!(shown.hits.is_sorted_by(|a, b| a.at <= b.at));
        let last = ledger.last().expect("many").time_ns as f64 / 1e9;
        assert!((shown.seconds - last).abs() < 1e-12);
        let few = strips(&[], &ledger[..100]);
        assert_eq!(few[0].marks.len(), 100, "few are shown each for itself");
    }

    #[test]
    fn failures_are_told_by_their_worst_way_and_objects_have_their_size() {
        let error = (json!({ "kind": "unreadable", "error": "medium" }), false);
        let wrong = (json!({ "kind": "zeroed" }), true);
        let failures = [failed("a", 1, &[error.clone(), wrong.clone()]), failed("b", 2, &[error, wrong])];
        let strips = objects(&BTreeMap::from([("a".to_owned(), 1 << 20)]), &failures[..]).expect("in memory");
        assert_eq!(strips.len(), 2);
        assert_eq!((strips[0].bytes, strips[1].bytes), (1 << 20, 12288));
        assert_eq!(strips[0].marks[0].kind, "zeroed");
    }

    #[test]
    fn of_many_files_those_with_the_most_failures_are_shown() {
        let failures: Vec<Failed> = (0..100u64)
            .flat_map(|file| (0..=file).map(move |block| (file, block)))
            .map(|(file, block)| failed(&format!("{file:03}"), block, &[(json!({ "kind": "zeroed" }), true)]))
            .collect();
        let strips = objects(&BTreeMap::new(), &failures[..]).expect("in memory");
        assert_eq!(strips.len(), OBJECTS_MAX);
        assert_eq!((strips[0].name.as_str(), strips[23].name.as_str()), ("076", "099"));
    }
}
