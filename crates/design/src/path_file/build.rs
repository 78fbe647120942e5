//! From what a path file says to a path of the model, and everything in it that makes no sense.

use rotproof_model as model;
use rotproof_model::systems::Configuration;
use rotproof_model::{
    Arrival, Checksum, Device, Disk, Memory, Protection, Redundancy, Repair, Rot, Stage, Time, Weakness,
    estimate,
};
use rotproof_spec::{Path, Problems};

use super::Lookup;
use super::form::{
    ChecksumForm, CustomChecksum, DeviceForm, PathForm, ProtectionForm, RedundancyForm, StageForm, TimeForm,
};

/// Stages that a path may have.
const STAGES_MAX: usize = 1000;

/// Hamming distances that a checksum may have.
const DISTANCE_MAX: u32 = 64;

/// Devices that share redundancy.
const DEVICES_MAX: u32 = 1000;

/// The path, as far as it makes sense; what does not is in `problems`.
pub fn build(
    form: &PathForm,
    stem: &str,
    machine: Configuration,
    lookup: &Lookup<'_>,
    problems: &mut Problems,
) -> model::Path {
    let root = Path::root();
    if form.stages.is_empty() {
        problems.add_with_help(
            &root,
            "there are no stages",
            "give at least one: stages: [{ device: memory, time: residency }]",
        );
    }
    if form.stages.len() > STAGES_MAX {
        problems.add(&root.key("stages"), format!("{} stages; at most {STAGES_MAX}", form.stages.len()));
    }
    let names: Vec<String> =
        form.stages.iter().enumerate().map(|(index, stage)| name(stage, index)).collect();
    let stages = form.stages.iter().enumerate().map(|(index, stage)| {
        let path = root.key("stages").index(index);
        Builder { path, problems: &mut *problems, lookup, machine }.stage(stage, index, &names)
    });
    let stages: Vec<Stage> = stages.collect();
    let is_switched = |stage: &Stage| matches!(stage.protection, Protection::Switched { .. });
    match (form.switch, stages.iter().position(is_switched)) {
        (None, Some(index)) => problems.add_with_help(
            &root.key("stages").index(index).key("protection"),
            "`before` and `after`, but the path has no switch",
            "add `switch: zettabyte`, or a span such as `switch: 92s`, at the top",
        ),
        (Some(_), None) => problems.add_with_help(
            &root.key("switch"),
            "a switch, but no stage has other protection after it",
            "give a stage `protection: { before: xor-64, after: fletcher-256 }`, or remove the switch",
        ),
        _ => {}
    }
    model::Path {
        name: form.name.clone().unwrap_or_else(|| stem.to_owned()),
        stages,
        switch: form.switch.map(|switch| switch.0),
    }
}

fn name(stage: &StageForm, index: usize) -> String {
    stage.name.clone().unwrap_or_else(|| {
        let word = match stage.device {
            DeviceForm::Memory(_) => "memory",
            DeviceForm::Disk(_) => "disk",
        };
        format!("{word}-{}", index + 1)
    })
}

struct Builder<'a> {
    path: Path,
    problems: &'a mut Problems,
    lookup: &'a Lookup<'a>,
    machine: Configuration,
}

impl Builder<'_> {
    fn stage(mut self, form: &StageForm, index: usize, names: &[String]) -> Stage {
        let (device, follows_configuration) = self.device(&form.device);
        let is_disk = matches!(device, Device::Disk(_));
        let time = match form.time {
            Some(TimeForm::Residency) => Time::Residency,
            Some(TimeForm::Span(span)) => Time::Seconds(span.0.as_secs_f64()),
            None => Time::Seconds(0.0),
        };
        let ages = !matches!(device, Device::Disk(Disk { rot: None, .. }));
        if form.time.is_none() && ages {
            self.problems.add_with_help(
                &self.path,
                "a stage whose errors come with time has none",
                "add `time: 30s`, or `time: residency` for the time until the block is used",
            );
        }
        let protection = self.protection(&form.protection);
        let repair = self.repair(form, &protection, is_disk, index, names);
        Stage { name: names[index].clone(), device, follows_configuration, time, protection, repair }
    }

    fn device(&mut self, form: &DeviceForm) -> (Device, bool) {
        match form {
            DeviceForm::Memory(form) => {
                let rate = form.rate.map_or(self.machine.memory, |rate| rate.0);
                let arrival = self.arrival("memory", form.bursts, form.clustering);
                (Device::Memory(Memory { rate, arrival }), form.rate.is_none())
            }
            DeviceForm::Disk(form) => {
                let mut disk = Disk::ageless(form.rate.map_or(self.machine.disk, |rate| rate.0));
                let arrival = self.arrival("disk", form.bursts, form.clustering);
                let scrub_interval = form.scrub.map(|span| span.0.as_secs_f64());
                let at = self.path.key("device").key("disk");
                if scrub_interval.is_some_and(|seconds| seconds <= 0.0) {
                    self.problems
                        .add(&at.key("scrub"), "a scrub interval of zero; give a span above 0s, such as 14d");
                }
                match form.rot {
                    Some(rate) => disk = disk.with_rot(Rot { rate: rate.0, arrival, scrub_interval }),
                    None => {
                        let given = [
                            ("scrub", form.scrub.is_some()),
                            ("bursts", form.bursts.is_some()),
                            ("clustering", form.clustering.is_some()),
                        ];
                        for (key, _) in given.iter().filter(|(_, is_given)| *is_given) {
                            self.problems.add_with_help(
                                &at.key(key),
                                format!("`{key}` without `rot`: nothing comes with time"),
                                "add `rot:` with the errors/s/bit that come while the block lies there",
                            );
                        }
                    }
                }
                (Device::Disk(disk), form.rate.is_none())
            }
        }
    }

    fn arrival(&mut self, device: &str, bursts: Option<f64>, clustering: Option<f64>) -> Arrival {
        let at = self.path.key("device").key(device);
        match (bursts, clustering) {
            (None, None) => Arrival::Independent,
            (Some(_), Some(_)) => {
                self.problems.add(&at, "`bursts` and `clustering` together; give one of them");
                Arrival::Independent
            }
            (Some(continuation), None) => {
                if !(0.0..1.0).contains(&continuation) {
                    let message = format!("bursts go on with {continuation}; it must be from 0 to below 1");
                    self.problems.add(&at.key("bursts"), message);
                }
                Arrival::Bursts { continuation }
            }
            (None, Some(shape)) => {
                if !(1e-6..=1e6).contains(&shape) {
                    let message = format!("the shape of clustering is {shape}; it must be from 1e-6 to 1e6");
                    self.problems.add(&at.key("clustering"), message);
                }
                Arrival::Clustered { shape }
            }
        }
    }

    fn protection(&mut self, form: &ProtectionForm) -> Protection {
        let at = self.path.key("protection");
        match form {
            ProtectionForm::Fixed(list) => Protection::Fixed(self.checksums(&at, list)),
            ProtectionForm::Switched(switched) => Protection::Switched {
                before: self.checksums(&at.key("before"), &switched.before),
                after: self.checksums(&at.key("after"), &switched.after),
            },
        }
    }

    fn checksums(&mut self, at: &Path, list: &[ChecksumForm]) -> Vec<Checksum> {
        list.iter()
            .enumerate()
            .filter_map(|(index, form)| match form {
                ChecksumForm::Known(checksum) => Some(checksum.clone()),
                ChecksumForm::Custom(custom) => {
                    let place = if list.len() > 1 { at.index(index) } else { at.clone() };
                    self.custom(custom)
                        .map_err(|(message, help)| {
                            self.problems.add_with_help(&place, message, help);
                        })
                        .ok()
                }
            })
            .collect()
    }

    fn custom(&self, form: &CustomChecksum) -> Result<Checksum, (String, &'static str)> {
        const HELP: &str =
            "give distance and fraction, or fraction alone (of any error), or missed and of, or results";
        let named = |default: &str| form.name.clone().unwrap_or_else(|| default.to_owned());
        let measured = |missed, of, name: &str| {
            let fraction = estimate::undetected_fraction(missed, of).ok_or_else(|| {
                let message =
                    format!("{missed} missed of {of}; it must be at least one error, and no more missed");
                (message, "count the errors that were injected, and those that were not noticed")
            })?;
            Ok(Checksum { name: named(name), weakness: Weakness::Any { fraction } })
        };
        match form {
            CustomChecksum {
                distance,
                fraction: Some(fraction),
                missed: None,
                of: None,
                results: None,
                ..
            } => {
                let weakness = match *distance {
                    None => Weakness::Any { fraction: fraction.0 },
                    Some(distance) if (1..=DISTANCE_MAX).contains(&distance) => {
                        Weakness::Distance { distance, fraction: fraction.0 }
                    }
                    Some(distance) => {
                        let message =
                            format!("a distance of {distance}; it must be from 1 to {DISTANCE_MAX}");
                        return Err((message, "it is the least number of wrong bits that can pass"));
                    }
                };
                Ok(Checksum { name: named("custom"), weakness })
            }
            CustomChecksum {
                missed: Some(missed),
                of: Some(of),
                distance: None,
                fraction: None,
                results: None,
                ..
            } => measured(*missed, *of, "measured"),
            CustomChecksum {
                results: Some(folder),
                distance: None,
                fraction: None,
                missed: None,
                of: None,
                ..
            } => {
                let coverage =
                    (self.lookup)(folder).map_err(|why| (why, "give the folder of a run, or one of runs"))?;
                measured(coverage.silent, coverage.noticed + coverage.silent, "measured")
            }
            _ => Err(("this describes no checksum".to_owned(), HELP)),
        }
    }

    fn repair(
        &mut self,
        form: &StageForm,
        protection: &Protection,
        is_disk: bool,
        index: usize,
        names: &[String],
    ) -> Repair {
        let has_checksum = |is_switched| !protection.checksums(is_switched).is_empty();
        let is_protected = has_checksum(false) || has_checksum(true);
        let redundancy = form.redundancy.as_ref().and_then(|form| self.redundancy(form));
        if let Some(checked) = &form.checked {
            let at = self.path.key("checked");
            match names.iter().position(|name| name == checked) {
                _ if !is_protected => self.problems.add_with_help(
                    &at,
                    "checked, but there is no checksum to check",
                    "add `protection:`, or remove `checked:`",
                ),
                None => self.problems.add_with_help(
                    &at,
                    format!("there is no stage `{checked}`"),
                    format!("one of {}", names.join(", ")),
                ),
                Some(at_stage) if at_stage < index => {
                    self.problems
                        .add(&at, format!("`{checked}` is before this stage; a check can only follow it"));
                }
                Some(at_stage) if at_stage > index => {
                    if form.redundancy.is_some() {
                        self.problems.add_with_help(
                            &self.path.key("redundancy"),
                            format!("redundancy repairs nothing that is found wrong in `{checked}` only"),
                            "check the block where it leaves this stage: remove `checked:`",
                        );
                    }
                    return Repair::None;
                }
                Some(_) => {}
            }
        }
        match (redundancy, is_disk) {
            _ if !is_protected => Repair::None,
            (Some(redundancy), true) => Repair::Redundancy(redundancy),
            (Some(_), false) => {
                self.problems
                    .add(&self.path.key("redundancy"), "memory has no redundancy here; only a disk can");
                Repair::None
            }
            (None, true) => Repair::None,
            (None, false) => Repair::Upstream,
        }
    }

    fn redundancy(&mut self, form: &RedundancyForm) -> Option<Redundancy> {
        let at = self.path.key("redundancy");
        let found = match form {
            RedundancyForm::Mirror(copies) => {
                copies.checked_sub(1).map(|parity| Redundancy { data: 1, parity })
            }
            RedundancyForm::Parity(text) => parse_redundancy(text),
        };
        let is_good = |redundancy: &Redundancy| {
            redundancy.data >= 1
                && (1..=DEVICES_MAX).contains(&redundancy.data.saturating_add(redundancy.parity))
        };
        let good = found.filter(is_good);
        if good.is_none() {
            self.problems.add_with_help(
                &at,
                format!("no redundancy of 1 to {DEVICES_MAX} devices"),
                "write { mirror: 2 } for two copies, or { parity: 8+2 } for eight of data and two of parity",
            );
        }
        good
    }
}

/// `8+2`.
pub fn parse_redundancy(text: &str) -> Option<Redundancy> {
    let (data, parity) = text.split_once('+')?;
    Some(Redundancy { data: data.trim().parse().ok()?, parity: parity.trim().parse().ok()? })
}
