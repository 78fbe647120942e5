//! The smallest witness of a failure: what at least must be lost, or survive, for the check to fail.
//!
//! A failing state differs from one that passes at the same moment: the one in which all volatile writes are there, or
//! the one in which none is. The difference, write by write and then unit by unit, is made smaller as long as the check
//! still fails, until nothing of it can be left out (Zeller and Hildebrandt, "Simplifying and Isolating FailingState-Inducing
//! Input", IEEE TSE 28(2), 2002: the result is 1-minimal). If both references pass, the smaller difference is the
//! witness. If neither does, what is durable fails by itself, be it in another way. A state counts as failing on the way only if it shows
//! the same kind of finding: another failure would be another story.

use std::collections::BTreeMap;
use std::ops::Range;

use rotproof_block::Result;
use serde::{Deserialize, Serialize};

use crate::check::{Check, Crash, Finding, Mark, marks_before};
use crate::point::{Point, Survivor};
use crate::ranges::{count, union, without};
use crate::state::StateDescription;

/// What the smallest difference is a difference from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// All volatile writes survive, which passes; the witness lists what is lost.
    AllSurvive,
    /// No volatile write survives, which passes; the witness lists what survives.
    NoneSurvive,
    /// Both fail: what is durable is wrong already.
    Neither,
}

/// A failure from which nothing can be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// The state, which fails.
    pub state: StateDescription,
    /// What is found in it.
    pub findings: Vec<Finding>,
    /// What it differs from.
    pub reference: Reference,
    /// The difference: writes, or units of them, that are lost or that survive, as the reference says.
    pub difference: Vec<Survivor>,
    /// How many states were looked at to find it.
    pub checked: u64,
}

/// Of each write the units that differ.
type Toggles = BTreeMap<u64, Vec<Range<u64>>>;

/// Reduces a failing state of `point`. `checks_max` bounds the work; the witness is then smaller than the state, but
/// perhaps not the smallest. Fails as the check does, when it cannot be made.
pub fn reduce(
    point: &Point,
    failing: &StateDescription,
    findings: &[Finding],
    marks: &[Mark],
    check: &mut dyn Check,
    checks_max: u64,
) -> Result<Witness> {
    let kind = findings.first().map_or("", |finding| finding.kind.as_str());
    let marks = marks_before(marks, point.position());
    let mut trial = Trial { point, failing, kind, marks, check, checked: 0, checks_max };
    let mut best: Option<Witness> = None;
    for reference in [Reference::AllSurvive, Reference::NoneSurvive] {
        if !trial.findings(&trial.survivors(reference, &Toggles::new()))?.is_empty() {
            continue;
        }
        let toggles = trial.minimal(reference)?;
        let survivors = trial.survivors(reference, &toggles);
        let found = trial.findings(&survivors)?;
        let difference = survivors_of(point, &toggles);
        let is_better =
            best.as_ref().is_none_or(|best| cost(point, &difference) < cost(point, &best.difference));
        if is_better && trial.is_alike(&found) {
            let state = StateDescription { survivors, ..failing.clone() };
            best = Some(Witness { state, findings: found, reference, difference, checked: 0 });
        }
    }
    let mut witness = match best {
        Some(witness) => witness,
        None => trial.without_reference(findings)?,
    };
    witness.checked = trial.checked;
    Ok(witness)
}

/// Writes first, then units: one whole write is a simpler story than two halves.
fn cost(point: &Point, difference: &[Survivor]) -> (usize, u64) {
    let units = |survivor: &Survivor| match &survivor.units {
        Some(units) => count(units),
        None => point.find(survivor.write).map_or(0, |write| count(&point.units_of(write))),
    };
    (difference.len(), difference.iter().map(units).sum())
}

fn survivors_of(point: &Point, toggles: &Toggles) -> Vec<Survivor> {
    let survivor = |(write, units): (&u64, &Vec<Range<u64>>)| {
        let is_whole = point.find(*write).is_some_and(|write| point.units_of(write) == *units);
        Survivor { write: *write, units: (!is_whole).then(|| units.clone()) }
    };
    toggles.iter().map(survivor).collect()
}

struct Trial<'a> {
    point: &'a Point,
    failing: &'a StateDescription,
    /// What is found in it first.
    kind: &'a str,
    marks: &'a [Mark],
    check: &'a mut dyn Check,
    checked: u64,
    checks_max: u64,
}

impl Trial<'_> {
    fn is_alike(&self, findings: &[Finding]) -> bool {
        findings.iter().any(|finding| finding.kind == self.kind)
    }

    fn findings(&mut self, survivors: &[Survivor]) -> Result<Vec<Finding>> {
        self.checked += 1;
        let state = StateDescription { survivors: survivors.to_vec(), ..self.failing.clone() };
        self.check.image().show(self.point.build(survivors).snapshot);
        self.check.check(&Crash { state: &state, marks: self.marks })
    }

    /// The reference with these differences.
    fn survivors(&self, reference: Reference, toggles: &Toggles) -> Vec<Survivor> {
        let mut survivors = Vec::new();
        for write in self.point.volatile() {
            let all = self.point.units_of(write);
            let toggled = toggles.get(&write.position).map(Vec::as_slice).unwrap_or_default();
            let there = match reference {
                Reference::AllSurvive => toggled.iter().fold(all.clone(), |left, hole| without(&left, hole)),
                _ => toggled.to_vec(),
            };
            if !there.is_empty() {
                let units = (there != all).then_some(there);
                survivors.push(Survivor { write: write.position, units });
            }
        }
        survivors
    }

    /// The failing state as differences from the reference.
    fn toggles(&self, reference: Reference) -> Toggles {
        let mut toggles = Toggles::new();
        for write in self.point.volatile() {
            let all = self.point.units_of(write);
            let mut there = Vec::new();
            for survivor in self.failing.survivors.iter().filter(|survivor| survivor.write == write.position)
            {
                there = union(&there, survivor.units.as_deref().unwrap_or(&all));
            }
            let differs = match reference {
                Reference::AllSurvive => there.iter().fold(all, |left, hole| without(&left, hole)),
                _ => there,
            };
            if !differs.is_empty() {
                toggles.insert(write.position, differs);
            }
        }
        toggles
    }

    /// The smallest difference that still fails: first whole writes are left out, then units of those that are left.
    fn minimal(&mut self, reference: Reference) -> Result<Toggles> {
        let writes: Vec<(u64, Vec<Range<u64>>)> = self.toggles(reference).into_iter().collect();
        let writes = self.delta(reference, writes)?;
        // Of a long write units are left out by stretches at first, as `delta` does anyway.
        let units: Vec<(u64, Vec<Range<u64>>)> = writes
            .iter()
            .flat_map(|(write, units)| {
                let stretch = (count(units) / 64).max(1);
                let cut = move |range: &Range<u64>| {
                    let end = range.end;
                    (range.start..end)
                        .step_by(stretch as usize)
                        .map(move |at| at..end.min(at + stretch))
                        .collect::<Vec<_>>()
                };
                units.iter().flat_map(cut).map(|unit| (*write, vec![unit])).collect::<Vec<_>>()
            })
            .collect();
        let units = if units.len() > writes.len() { self.delta(reference, units)? } else { units };
        Ok(merged(&units))
    }

    /// Zeller and Hildebrandt's `ddmin`.
    fn delta(
        &mut self,
        reference: Reference,
        mut kept: Vec<(u64, Vec<Range<u64>>)>,
    ) -> Result<Vec<(u64, Vec<Range<u64>>)>> {
        let mut parts = 2;
        while kept.len() >= 2 && self.checked < self.checks_max {
            let size = kept.len().div_ceil(parts);
            let mut smaller = None;
            for only in [true, false] {
                for start in (0..kept.len()).step_by(size) {
                    let end = kept.len().min(start + size);
                    let tried = if only {
                        kept[start..end].to_vec()
                    } else {
                        [&kept[..start], &kept[end..]].concat()
                    };
                    // With two parts the complement of one is the other.
                    if tried.is_empty() || (!only && parts == 2) || self.checked >= self.checks_max {
                        continue;
                    }
                    let survivors = self.survivors(reference, &merged(&tried));
                    let found = self.findings(&survivors)?;
                    if self.is_alike(&found) {
                        smaller = Some((tried, if only { 2 } else { (parts - 1).max(2) }));
                        break;
                    }
                }
                if smaller.is_some() {
                    break;
                }
            }
            match smaller {
                Some((tried, next)) => (kept, parts) = (tried, next),
                None if size == 1 => break,
                None => parts = (parts * 2).min(kept.len()),
            }
        }
        Ok(kept)
    }

    /// Neither reference passes: the plainest failing state is that without anything volatile, or with all of it, if it fails alike.
    fn without_reference(&mut self, findings: &[Finding]) -> Result<Witness> {
        // Perhaps only an order of concurrent writes fails, or both references fail in another way: the state as it is.
        let mut plainest = (self.failing.survivors.clone(), findings.to_vec());
        for reference in [Reference::NoneSurvive, Reference::AllSurvive] {
            let survivors = self.survivors(reference, &Toggles::new());
            let found = self.findings(&survivors)?;
            if self.is_alike(&found) {
                plainest = (survivors, found);
                break;
            }
        }
        let (survivors, findings) = plainest;
        let state = StateDescription { survivors, ..self.failing.clone() };
        Ok(Witness { state, findings, reference: Reference::Neither, difference: Vec::new(), checked: 0 })
    }
}

fn merged(parts: &[(u64, Vec<Range<u64>>)]) -> Toggles {
    let mut toggles = Toggles::new();
    for (write, units) in parts {
        let known = toggles.entry(*write).or_default();
        *known = union(known, units);
    }
    toggles
}
