//! What there is to tell of runs, and of a stack that is served.

use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_fault::Sites;
use rotproof_load::engine::ProgressKind;
use rotproof_measure::{Monitor, RuleHits};
use rotproof_probe::{Metric, ProbeValue, Unit};
use rotproof_trial::runner::TrialRun;

use super::exposition::Page;
use crate::volume::Keeper;

/// Rules that have samples of their own; those beyond share one.
const RULES_MAX: usize = 500;

/// The runs of a command, one after the other.
#[derive(Debug, Default)]
pub struct Observed(Mutex<Vec<Run>>);

#[derive(Debug)]
struct Run {
    name: String,
    monitor: Arc<Monitor>,
    /// The fates of its faults, by rule; none before its verdict.
    fates: Vec<(String, [(&'static str, u64); 5])>,
    passed: Option<bool>,
}

impl Observed {
    /// A run begins. One of a name that there is already gets a number behind it.
    pub fn begin(&self, name: &str, monitor: &Arc<Monitor>) {
        let mut runs = self.0.lock();
        let is_free = |name: &str| runs.iter().all(|run| run.name != name);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let name = std::iter::once(name.to_owned()).chain(numbered).find(|name| is_free(name));
        let run = Run {
            name: name.unwrap_or_default(),
            monitor: Arc::clone(monitor),
            fates: Vec::new(),
            passed: None,
        };
        runs.push(run);
    }

    /// The last run has its verdict.
    pub fn end(&self, report: &TrialRun) {
        let of_rule = |rule: &rotproof_trial::runner::RuleReport| {
            let fates = &rule.outcome.fates;
            let counts = [
                ("silent", fates.silent),
                ("reported", fates.reported),
                ("repaired", fates.repaired),
                ("masked", fates.masked),
                ("untriggered", fates.untriggered),
            ];
            (rule.name.clone(), counts)
        };
        if let Some(run) = self.0.lock().last_mut() {
            run.fates = report.faults.iter().take(RULES_MAX).map(of_rule).collect();
            run.passed = Some(report.verdict.passes());
        }
    }

    /// The page.
    pub fn page(&self) -> String {
        let runs = self.0.lock();
        let mut page = begin();
        page.family("rotproof_phase", "gauge", "The phase that a run is in.");
        for run in runs.iter() {
            let phase = run.monitor.moment().phase;
            if !phase.is_empty() {
                page.sample("rotproof_phase", &[("run", &run.name), ("phase", phase)], 1);
            }
        }
        counts(&mut page, &runs);
        latencies(&mut page, &runs);
        page.family("rotproof_fault_hits_total", "counter", "Faults that were injected, by rule.");
        for run in runs.iter() {
            hits(&mut page, &run.monitor.rule_hits(), &[("run", &run.name)]);
        }
        page.family(
            "rotproof_faults",
            "gauge",
            "Faults of a run that has ended, by rule and by what became of them.",
        );
        for run in runs.iter() {
            for (rule, fates) in &run.fates {
                for (fate, count) in fates {
                    let labels = [("run", run.name.as_str()), ("rule", rule), ("fate", fate)];
                    page.sample("rotproof_faults", &labels, count);
                }
            }
        }
        probes(&mut page, &runs);
        page.family("rotproof_passed", "gauge", "Whether every expectation of a run that has ended holds.");
        for run in runs.iter() {
            if let Some(passed) = run.passed {
                page.sample("rotproof_passed", &[("run", &run.name)], u8::from(passed));
            }
        }
        page.into_text()
    }
}

/// A stack that is served.
#[derive(Clone, Debug)]
pub struct ServedFigures {
    /// Its name.
    pub name: String,
    /// Its faults.
    pub sites: Sites,
    /// Looks after the volume in it, if there is one.
    pub keeper: Option<Arc<Keeper>>,
}

impl ServedFigures {
    /// The page.
    pub fn page(&self) -> String {
        let mut page = begin();
        let report = self.sites.report();
        let stack = ("stack", self.name.as_str());
        page.family("rotproof_rules", "gauge", "Rules, removed ones too.");
        page.sample("rotproof_rules", &[stack], report.len());
        page.family("rotproof_hanging_requests", "gauge", "Requests that rules hold back now.");
        page.sample(
            "rotproof_hanging_requests",
            &[stack],
            report.iter().map(|rule| rule.hanging).sum::<u64>(),
        );
        page.family("rotproof_fault_hits_total", "counter", "Faults that were injected, by rule.");
        let by_rule: Vec<RuleHits> = report.into_iter().map(RuleHits::from).collect();
        hits(&mut page, &by_rule, &[stack]);
        if let Some(keeper) = &self.keeper {
            super::volume::figures(&mut page, stack, &keeper.figures());
        }
        page.into_text()
    }
}

fn begin() -> Page {
    let mut page = Page::default();
    page.family("rotproof_info", "gauge", "The program.");
    page.sample("rotproof_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page
}

fn counts(page: &mut Page, runs: &[Run]) {
    type Count = fn(&rotproof_load::engine::ProgressCounts) -> u64;
    let families: [(&str, &str, Count); 3] = [
        (
            "rotproof_requests_total",
            "Requests of the load that have completed, by phase and operation.",
            |counts| counts.requests,
        ),
        ("rotproof_bytes_total", "Bytes of requests that succeeded.", |counts| counts.bytes),
        ("rotproof_request_errors_total", "Requests that ended with an error.", |counts| counts.errors),
    ];
    for (name, help, count) in families {
        page.family(name, "counter", help);
        for run in runs {
            for (phase, progress) in run.monitor.phases() {
                for kind in ProgressKind::ALL {
                    let labels = [("run", run.name.as_str()), ("phase", phase), ("operation", kind.word())];
                    page.sample(name, &labels, count(&progress.counts_of(kind)));
                }
            }
        }
    }
    page.family("rotproof_wrong_blocks_total", "counter", "Blocks found wrong or unreadable.");
    for run in runs {
        for (phase, progress) in run.monitor.phases() {
            let labels = [("run", run.name.as_str()), ("phase", phase)];
            page.sample("rotproof_wrong_blocks_total", &labels, progress.counts().failures);
        }
    }
}

fn latencies(page: &mut Page, runs: &[Run]) {
    const NAME: &str = "rotproof_request_duration_seconds";
    page.family(NAME, "histogram", "How long requests of the load took, ramp-up included.");
    for run in runs {
        for (phase, progress) in run.monitor.phases() {
            for kind in ProgressKind::ALL {
                let Some(latencies) = progress.latencies_of(kind) else { continue };
                let labels = [("run", run.name.as_str()), ("phase", phase), ("operation", kind.word())];
                page.histogram(NAME, &labels, &latencies);
            }
        }
    }
}

/// What probes saw at their last look: a family for each metric, called after it and its unit.
fn probes(page: &mut Page, runs: &[Run]) {
    let seen: Vec<(&str, Vec<ProbeValue>)> =
        runs.iter().map(|run| (run.name.as_str(), run.monitor.probes())).collect();
    for metric in Metric::ALL {
        let values: Vec<(&str, &ProbeValue)> = seen
            .iter()
            .flat_map(|(run, values)| values.iter().map(move |value| (*run, value)))
            .filter(|(_, value)| value.metric == *metric)
            .collect();
        if values.is_empty() {
            continue;
        }
        let suffix = match metric.unit {
            Unit::Share => "_ratio",
            Unit::Processors => "_processors",
            Unit::Count => "",
            Unit::Bytes => "_bytes",
            Unit::PerSecond => "_per_second",
            Unit::BytesPerSecond => "_bytes_per_second",
        };
        let name = format!("rotproof_machine_{}{suffix}", metric.name.replace('.', "_"));
        page.family(&name, "gauge", &format!("{} as probes saw it last.", metric.name));
        for (run, value) in values {
            let labels = [("run", run), ("machine", &value.machine), ("instance", &value.instance)];
            page.sample(&name, &labels, value.value);
        }
    }
}

/// Models draw thousands of rules; beyond a number of them only those that have hit are told of one by one.
fn hits(page: &mut Page, rules: &[RuleHits], labels: &[(&str, &str)]) {
    let is_shown = |hits: u64| rules.len() <= RULES_MAX || hits > 0;
    let (mut shown, mut others) = (0, None);
    for RuleHits { name, on, hits } in rules {
        if is_shown(*hits) && shown < RULES_MAX {
            shown += 1;
            let mut labels = [labels, &[("rule", name)]].concat();
            labels.extend(on.as_deref().map(|on| ("on", on)));
            page.sample("rotproof_fault_hits_total", &labels, hits);
        } else {
            *others.get_or_insert(0) += hits;
        }
    }
    if let Some(others) = others {
        page.sample("rotproof_fault_hits_total", &[labels, &[("rule", "")]].concat(), others);
    }
}

#[cfg(test)]
mod tests {
    use rotproof_load::FileEngine;
    use rotproof_machine::Cancel;

    use super::super::exposition::reader::read;
    use super::*;
    use rotproof_measure::load::{Access, LoadCommand};
    use rotproof_probe::ProbesSpec;

    #[test]
    fn a_load_that_has_run_is_told_of_by_phase_and_operation() {
        let (observed, monitor) = (Observed::default(), Arc::new(Monitor::watched()));
        observed.begin("memory:1MiB", &monitor);
        observed.begin("memory:1MiB", &Arc::default());
        assert!(!read(&observed.page()).is_empty(), "there is a page before anything has happened");
        let load = r#"{ "pattern": "random", "reads": "50%", "requests": 1000 }"#;
        let access = Access {
            writes: false,
            overwrite: false,
            direct: false,
            engine: FileEngine::IoUring,
            size: None,
            is_shared: false,
        };
        let command = LoadCommand {
            target: "memory:1MiB".parse().expect("a target"),
            load: serde_json::from_str(load).expect("a load"),
            seed: 1,
            access,
            verify: true,
            verify_only: false,
            record: None,
            probes: Some(ProbesSpec::default()),
            cancel: Cancel::new(),
            monitor,
        };
        let seen = command.run().expect("it runs").probes.expect("there were probes");
        let found = read(&observed.page());
        if seen.samples > 0 {
            let of_machine = found.keys().filter(|name| name.starts_with("rotproof_machine_cpu_"));
            assert!(of_machine.count() > 0, "{found:#?}");
        }
        let value = |name: &str, rest: &str| {
            let labels = format!("{{run=\"memory:1MiB\",phase=\"run\",operation={rest}}}");
            *found
                .get(&format!("rotproof_{name}{labels}"))
                .unwrap_or_else(|| panic!("{name}{labels} in {found:#?}"))
        };
        let (reads, writes) = (value("requests_total", "\"read\""), value("requests_total", "\"write\""));
        assert_eq!(reads + writes, 1000.0);
        assert_eq!(value("bytes_total", "\"read\""), reads * 4096.0);
        assert_eq!(value("request_errors_total", "\"write\""), 0.0);
        assert_eq!(value("request_duration_seconds_count", "\"read\""), reads);
        assert_eq!(value("request_duration_seconds_bucket", "\"read\",le=\"+Inf\""), reads);
        assert!(value("request_duration_seconds_sum", "\"read\"") > 0.0);
        let mut buckets: Vec<(f64, f64)> = found
            .iter()
            .filter(|(name, _)| {
                name.contains("_bucket{") && name.contains("phase=\"run\",operation=\"read\"")
            })
            .map(|(name, value)| {
                let bound = name.split("le=\"").nth(1).expect("a bound").trim_end_matches("\"}");
                (if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect("a number") }, *value)
            })
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(buckets.len() > 20 && buckets.is_sorted_by(|one, next| one.1 <= next.1), "{buckets:?}");
        assert!(found.contains_key("rotproof_phase{run=\"memory:1MiB\",phase=\"check\"}"), "{found:#?}");
    }

    #[test]
    fn of_very_many_rules_those_that_hit_are_told_and_the_rest_together() {
        let rule = |index: u64| RuleHits { name: format!("r{index}"), on: None, hits: index % 3 };
        let rules: Vec<RuleHits> = (0..2000).map(rule).collect();
        let mut page = Page::default();
        page.family("rotproof_fault_hits_total", "counter", "Help.");
        hits(&mut page, &rules, &[]);
        let found = read(&page.into_text());
        assert_eq!(found.len(), RULES_MAX + 1);
        assert_eq!(found.values().sum::<f64>(), rules.iter().map(|rule| rule.hits as f64).sum::<f64>());
    }
}
