//! Explorations of a small recording with a check that knows which sectors must never be seen together.

use super::*;
use crate::image::ImageDevice;
use crate::recording::{Header, Recorder, RecorderOptions};
use rotproof_block::Tag;
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// Eight writes between flushes, eight times: the fifth of each depends on the second.
fn record(path: &Path) {
    let header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 512, id: 77 };
    let recorder = Recorder::create(path, header, RecorderOptions::default()).expect("a new file");
    for epoch in 1..=8u8 {
        for sector in 0..8u64 {
            let request = recorder.write(0, sector * 512, false, Tag::NONE, &[epoch; 512]);
            recorder.done(0, request, true);
        }
        recorder.done(0, recorder.flush(0), true);
        recorder.mark(0, &format!("epoch {epoch}"));
    }
    recorder.finish().expect("there is room");
}

struct Dependent {
    image: Arc<ImageDevice>,
    /// Finds nothing wrong.
    is_blind: bool,
    looked: Arc<AtomicU64>,
}

impl Check for Dependent {
    fn image(&self) -> &Arc<ImageDevice> {
        &self.image
    }

    fn check(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        self.looked.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; 8 * 512];
        self.image.read_at(0, &mut bytes)?;
        let of = |sector: usize| bytes[sector * 512];
        let promised = crash.marks.len() as u8;
        let mut findings = Vec::new();
        if (0..8).any(|sector| of(sector) < promised) {
            findings.push(Finding::new("lost", "a sector is older than what was promised"));
        }
        if of(4) > of(1) && !self.is_blind {
            findings.push(Finding::new("order", format!("the fifth is {} and the second {}", of(4), of(1))));
        }
        if of(7) == 8 && of(0) == 7 && self.is_blind {
            return Err(Error::new(ErrorKind::TimedOut, "the check takes too long"));
        }
        Ok(findings)
    }
}

fn run(options: &ExploreOptions, is_blind: bool) -> (Exploration, u64) {
    let looked = Arc::new(AtomicU64::new(0));
    let make = |_: usize, contents: &Arc<Contents>| -> Result<Box<dyn Check>> {
        let image = ImageDevice::new(Arc::clone(contents), 1 << 20);
        Ok(Box::new(Dependent { image, is_blind, looked: Arc::clone(&looked) }))
    };
    let found = explore(options, &make, &|_| {}, &AtomicBool::new(false)).expect("it can be explored");
    (found, looked.load(Ordering::Relaxed))
}

fn options(path: &Path) -> ExploreOptions {
    let states = StateOptions { ways: Way::ALL.to_vec(), ..StateOptions::new(path, 3) };
    ExploreOptions { failures_max: u64::MAX, witness_checks_max: 0, ..ExploreOptions::new(states) }
}

#[test]
fn any_number_of_workers_finds_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    record(&path);
    let (alone, _) = run(&options(&path), false);
    assert_eq!(alone.ended, Ended::All);
    assert!(alone.checked > 1000 && alone.unknown.is_empty());
    assert!(alone.failures.iter().all(|failure| failure.findings[0].kind == "order"));
    assert_eq!(alone.passed + alone.failures.len() as u64, alone.checked);
    let chosen: u64 = alone.ways.values().map(|way| way.chosen - way.equal).sum();
    assert_eq!(chosen, alone.checked, "what was chosen and new was looked at");
    assert!(alone.ways["recovery_reads"].chosen > 0, "the check itself says what it reads");
    let (together, _) = run(&ExploreOptions { workers: 4, ..options(&path) }, false);
    assert_eq!(together.failures, alone.failures);
    assert_eq!(together.ways, alone.ways);
}

#[test]
fn a_check_that_cannot_be_made_is_unknown_and_not_passed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    record(&path);
    let (found, _) = run(&options(&path), true);
    assert!(found.failures.is_empty() && !found.unknown.is_empty());
    assert_eq!(found.passed, found.checked - found.unknown.len() as u64);
    assert!(found.unknown.iter().all(|unknown| unknown.why.contains("takes too long")));
}

#[test]
fn one_that_was_stopped_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, saved) = (folder.path().join("r"), folder.path().join("saved"));
    record(&path);
    let (whole, looked_at_all) = run(&ExploreOptions { workers: 2, ..options(&path) }, false);
    let resuming = ExploreOptions { resume: Some(saved.clone()), workers: 2, ..options(&path) };
    let mut parts = resuming.clone();
    parts.states.states_max = 300;
    let (first, looked_first) = run(&parts, false);
    assert_eq!((first.ended, first.checked), (Ended::States, 300));
    // What the second does not look at again it knows.
    let (second, looked_second) = run(&resuming, false);
    assert_eq!((second.checked, &second.failures), (whole.checked, &whole.failures));
    assert!(looked_second < looked_at_all && looked_first + looked_second < looked_at_all + 20);
    let (third, _) = run(&resuming, false);
    assert_eq!((third.checked, &third.failures), (whole.checked, &whole.failures));
    let mut other = resuming;
    other.states.seed = 4;
    let make = |_: usize, _: &Arc<Contents>| -> Result<Box<dyn Check>> { unreachable!("refused before") };
    let error = explore(&other, &make, &|_| {}, &AtomicBool::new(false)).expect_err("another exploration");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn it_ends_by_time_by_failures_and_when_it_is_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    record(&path);
    let (none, _) = run(&ExploreOptions { time_max: Some(Duration::ZERO), ..options(&path) }, false);
    assert_eq!((none.ended, none.checked), (Ended::Time, 0));
    let (few, _) = run(&ExploreOptions { failures_max: 5, ..options(&path) }, false);
    assert_eq!((few.ended, few.failures.len()), (Ended::Failures, 5));
    let make = |_: usize, contents: &Arc<Contents>| -> Result<Box<dyn Check>> {
        let image = ImageDevice::new(Arc::clone(contents), 1 << 20);
        Ok(Box::new(Dependent { image, is_blind: false, looked: Arc::default() }))
    };
    let stopped =
        explore(&options(&path), &make, &|_| {}, &AtomicBool::new(true)).expect("it stops in order");
    assert_eq!(stopped.ended, Ended::Stopped);
}

#[test]
fn each_kind_of_finding_has_its_witness() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    record(&path);
    let (found, _) = run(&ExploreOptions { witness_checks_max: 300, ..options(&path) }, false);
    let [told] = &found.witnesses[..] else { panic!("{:?}", found.witnesses) };
    assert_eq!((told.kind.as_str(), told.index), ("order", found.failures[0].index));
    assert_eq!(told.witness.difference.len(), 1, "the second lost, or the fifth alone: {}", told.story);
    let at = folder.path().join("found.json");
    write_exploration(&found, &at).expect("there is room");
    let again: Exploration = serde_json::from_slice(&std::fs::read(&at).expect("there")).expect("JSON");
    assert_eq!(again.failures, found.failures);
}
