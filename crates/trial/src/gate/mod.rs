//! Gates: limits on how fast the load was, in a phase or while a fault was at work.
//!
//! A gate is held against what a run has measured, as its `run.json` tells it, so that the run at hand and another one are
//! read the same way. Where a figure cannot be had (too few requests, no window, another run that lacks it or was made on
//! another machine) the gate is *unknown*, says why, and fails unless the trial allows that.

mod judge;
mod limit;
mod measured;

use std::path::{Path as FilePath, PathBuf};

use rotproof_load::engine::LoadOperation;
use rotproof_load::personality::FileOperation;
use rotproof_spec::{Path, Problems, nearest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use judge::hold_against;
pub use limit::{Base, Bytes, Limit, Number, Sign, Time, Wanted};
pub use rotproof_results::run::{GateOutcome, GateReport};

/// What the figures of one phase, or of the window of one fault, must be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a gate such as { phase: run, p99: \"<= 5ms\" }")]
pub struct Gate {
    /// Of which phase. Default run, unless a fault is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<GatePhase>,
    /// While which fault was at work, by the name of its rule or model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Of which operation, such as read or write. Default: what reads and writes move together, and latencies of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Bytes a second: ">= 100MiB/s", ">= 50% of before".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Limit<Bytes>>,
    /// Requests a second: ">= 5000".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<Limit<Number>>,
    /// The mean latency: "<= 2ms".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Limit<Time>>,
    /// The median of the latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<Limit<Time>>,
    /// Its 90th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<Limit<Time>>,
    /// Its 99th percentile: "<= 5ms", "<= 300% of before", "<= 110% of ../results/base".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<Limit<Time>>,
    /// Its 99.9th percentile, written `p99.9`.
    #[serde(rename = "p99.9", alias = "p99_9", skip_serializing_if = "Option::is_none")]
    pub p99_9: Option<Limit<Time>>,
    /// The longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Limit<Time>>,
    /// What becomes of it if the figure cannot be had. Default fails.
    #[serde(skip_serializing_if = "Unknown::is_default")]
    pub unknown: Unknown,
}

/// A phase whose figures can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GatePhase {
    /// Everything is written once.
    Prefill,
    /// The load itself.
    Run,
    /// The load after its end, with faults off.
    #[serde(alias = "recovery")]
    CoolDown,
    /// Everything is read back.
    Check,
}

impl GatePhase {
    /// Its name in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Run => "run",
            Self::CoolDown => "cool_down",
            Self::Check => "check",
        }
    }
}

/// What becomes of a gate whose figure cannot be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// The trial fails.
    #[default]
    Fails,
    /// It is told, and does not count.
    Allowed,
}

impl Unknown {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
    fn is_default(&self) -> bool {
        *self == Self::Fails
    }
}

impl Gate {
    /// Each figure that it limits, in the order of the documentation.
    pub fn wanted(&self) -> Vec<(&'static str, Wanted)> {
        [
            ("throughput", self.throughput.as_ref().map(Limit::wanted)),
            ("iops", self.iops.as_ref().map(Limit::wanted)),
            ("mean", self.mean.as_ref().map(Limit::wanted)),
            ("p50", self.p50.as_ref().map(Limit::wanted)),
            ("p90", self.p90.as_ref().map(Limit::wanted)),
            ("p99", self.p99.as_ref().map(Limit::wanted)),
            ("p99.9", self.p99_9.as_ref().map(Limit::wanted)),
            ("max", self.max.as_ref().map(Limit::wanted)),
        ]
        .into_iter()
        .filter_map(|(name, wanted)| Some((name, wanted?)))
        .collect()
    }

    /// What it is about, in a few words: `run`, `slow read`.
    pub fn subject(&self) -> String {
        let place = self.fault.as_deref().unwrap_or_else(|| self.phase.unwrap_or(GatePhase::Run).word());
        match &self.operation {
            Some(operation) => format!("{place} {operation}"),
            None => place.to_owned(),
        }
    }

    /// Folders of other runs are named beside the trial, whose folder this is.
    pub fn locate(&mut self, folder: &FilePath) {
        let within = |path: &mut PathBuf| {
            let joined = folder.join(&*path);
            *path = std::path::absolute(&joined).unwrap_or(joined);
        };
        fn base<U>(limit: &mut Option<Limit<U>>) -> Option<&mut PathBuf> {
            limit.as_mut().and_then(Limit::folder_mut)
        }
        base(&mut self.throughput).map(within);
        base(&mut self.iops).map(within);
        for latency in
            [&mut self.mean, &mut self.p50, &mut self.p90, &mut self.p99, &mut self.p99_9, &mut self.max]
        {
            base(latency).map(within);
        }
    }

    /// Reports what makes no sense, where `faults` are the names of the faults of the trial.
    pub fn validate(&self, faults: &[&str], path: &Path, problems: &mut Problems) {
        let wanted = self.wanted();
        if wanted.is_empty() {
            problems.add_with_help(
                path,
                "this gate limits nothing",
                "give it a figure: throughput, iops, mean, p50, p90, p99, p99.9 or max",
            );
        }
        if self.phase.is_some() && self.fault.is_some() {
            problems.add_with_help(
                &path.key("phase"),
                "a gate is on a phase or on the window of a fault, not on both",
                "leave one of them out; make two gates for both",
            );
        }
        if let Some(name) = self.fault.as_deref().filter(|name| !faults.contains(name)) {
            let help = match (nearest(name, faults.iter().copied()), faults) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, []) => "this trial has no faults; give a `phase`".to_owned(),
                (None, known) => format!("the faults are called {}", known.join(", ")),
            };
            problems.add_with_help(&path.key("fault"), format!("no fault is called `{name}`"), help);
        }
        let known = || LoadOperation::NAMES.iter().chain(FileOperation::NAMES).copied();
        if let Some(name) = self.operation.as_deref().filter(|name| !known().any(|word| word == *name)) {
            let help = match nearest(name, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("operations are {}", LoadOperation::NAMES.join(", ")),
            };
            problems.add_with_help(&path.key("operation"), format!("no load does `{name}`"), help);
        }
        for (name, wanted) in wanted {
            if wanted.base == Base::Before && self.fault.is_none() {
                problems.add_with_help(
                    &path.key(name),
                    "only the window of a fault has a before",
                    "name the `fault`, or compare with the folder of another run",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(text: &str) -> Gate {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn mistakes(text: &str) -> Vec<String> {
        let mut problems = Problems::default();
        gate(text).validate(&["slow", "rot"], &Path::root().key("gates").index(0), &mut problems);
        problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn a_gate_survives_its_text() {
        let text = "{ fault: slow, operation: read, throughput: '>= 50% of before', p99.9: '<= 1.5ms', unknown: allowed }";
        let read = gate(text);
        assert_eq!(read.subject(), "slow read");
        let names: Vec<_> =
            read.wanted().into_iter().map(|(name, wanted)| format!("{name} {}", wanted.text)).collect();
        assert_eq!(names, ["throughput >= 50% of before", "p99.9 <= 1500us"]);
        let written = serde_saphyr::to_string(&read).expect("YAML");
        assert_eq!(gate(&written), read);
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_place() {
        assert_eq!(mistakes("{ phase: run }"), ["gates[0]: this gate limits nothing"]);
        assert_eq!(
            mistakes("{ phase: run, p99: '<= 50% of before' }"),
            ["gates[0].p99: only the window of a fault has a before"]
        );
        assert_eq!(mistakes("{ fault: slwo, p99: '<= 5ms' }"), ["gates[0].fault: no fault is called `slwo`"]);
        assert_eq!(
            mistakes("{ operation: raed, p99: '<= 5ms' }"),
            ["gates[0].operation: no load does `raed`"]
        );
        assert_eq!(mistakes("{ phase: run, fault: rot, p99: '<= 5ms' }").len(), 1);
        assert_eq!(mistakes("{ fault: rot, p50: '<= 5ms', iops: '> 100' }"), Vec::<String>::new());
    }

    #[test]
    fn folders_are_beside_the_trial() {
        let mut read = gate("{ throughput: '>= 90% of base', p99: '<= 110% of /abs/base' }");
        read.locate(FilePath::new("/trials"));
        let texts: Vec<_> = read.wanted().into_iter().map(|(_, wanted)| wanted.text).collect();
        assert_eq!(texts, [">= 90% of /trials/base", "<= 110% of /abs/base"]);
    }
}
