//! What the workers of one machine did, as text for another: everything of a [`LoadReport`] but what only the oracle of
//! their own machine can judge, and what was read of a trace.
//!
//! Times go relative to the beginning of the phase, since clocks of machines have nothing in common. Counts, histograms and
//! errors are kept as they are, so the sum of several is what one machine with all the workers would have reported.

use std::time::Duration;

use rotproof_block::{ErrorKind, Phase, Time};
use serde::{Deserialize, Serialize};

use super::report::{CoolDown, Incident, LATENCY_MAX_NS, LoadOperation, LoadReport, OperationReport};
use super::sightings::Sightings;
use super::watch::{HungEnd, HungRequest};
use crate::effort::Effort;
use crate::failure::text;

/// A report on its way. Times are nanoseconds since the phase began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortableReport {
    #[serde(with = "text::phase")]
    phase: Phase,
    operations: Figures,
    /// When it began, when the run had ended, and what it did.
    cool_down: Option<(u64, u64, Figures)>,
    started_ns: u64,
    ended_ns: u64,
    effort: Option<PortableEffort>,
    all_requests: u64,
    unsupported_discards: u64,
    incidents: Vec<PortableIncident>,
    incidents_omitted: u64,
    hung: Vec<PortableHung>,
    hung_omitted: u64,
    is_interrupted: bool,
}

/// Reads, writes, flushes, discards.
type Figures = [PortableFigures; 4];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PortableFigures {
    requests: u64,
    bytes: u64,
    retries: u64,
    errors: Vec<(Named, u64)>,
    /// Values and how often they were.
    latency: Vec<(u64, u64)>,
}

/// A kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Named(#[serde(with = "text::error")] ErrorKind);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct PortableEffort {
    cpu_ns: u64,
    voluntary_context_switches: u64,
    involuntary_context_switches: u64,
    system_calls: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct PortableIncident {
    object: u32,
    offset_bytes: u64,
    length_bytes: u64,
    operation: LoadOperation,
    error: Named,
    sent_ns: u64,
    time_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PortableHung {
    worker: u16,
    #[serde(with = "text::phase")]
    phase: Phase,
    operation: LoadOperation,
    object: String,
    offset_bytes: u64,
    length_bytes: u64,
    sent_ns: u64,
    age_ns: u64,
    end: HungEnd,
}

/// Incidents that travel, by time; the rest is counted.
const INCIDENTS_MAX: usize = 1000;
/// Another machine's numbers are no larger than this, and its kinds of errors no more, so that sums of those of all clients and
/// operations have room.
const COUNT_MAX: u64 = 1 << 44;
const BYTES_MAX: u64 = 1 << 52;
const KINDS_MAX: usize = 64;

impl PortableReport {
    /// Of a phase that began at `origin`.
    pub fn of(report: &LoadReport, origin: Time) -> Self {
        let since = |time: Time| time.0.saturating_sub(origin.0);
        let incidents: Vec<_> = report.incidents.iter().take(INCIDENTS_MAX).collect();
        let omitted = report.incidents.len() - incidents.len();
        Self {
            phase: report.phase,
            operations: [&report.reads, &report.writes, &report.flushes, &report.discards]
                .map(PortableFigures::of),
            cool_down: report.cool_down.as_ref().map(|cool_down| {
                let CoolDown { started, complete, reads, writes, flushes, discards } = &**cool_down;
                (
                    since(*started),
                    since(*complete),
                    [reads, writes, flushes, discards].map(PortableFigures::of),
                )
            }),
            started_ns: since(report.started),
            ended_ns: since(report.ended),
            effort: report.effort.map(|effort| PortableEffort {
                cpu_ns: u64::try_from(effort.cpu.as_nanos()).unwrap_or(u64::MAX),
                voluntary_context_switches: effort.voluntary_context_switches,
                involuntary_context_switches: effort.involuntary_context_switches,
                system_calls: effort.system_calls,
            }),
            all_requests: report.all_requests,
            unsupported_discards: report.unsupported_discards,
            incidents: incidents
                .into_iter()
                .map(|incident| PortableIncident {
                    object: incident.object,
                    offset_bytes: incident.offset_bytes,
                    length_bytes: incident.length_bytes,
                    operation: incident.operation,
                    error: Named(incident.error),
                    sent_ns: since(incident.sent),
                    time_ns: since(incident.time),
                })
                .collect(),
            incidents_omitted: report.incidents_omitted + omitted as u64,
            hung: report.hung.iter().map(|hung| PortableHung::of(hung, origin)).collect(),
            hung_omitted: report.hung_omitted,
            is_interrupted: report.is_interrupted,
        }
    }

    /// The report, of a phase that began at `origin` by the clock of this machine. It has seen no block that failed.
    pub fn into_report(self, origin: Time) -> LoadReport {
        let at = |since_ns: u64| Time(origin.0.saturating_add(since_ns));
        let [reads, writes, flushes, discards] = self.operations.map(PortableFigures::into_report);
        LoadReport {
            phase: self.phase,
            reads,
            writes,
            flushes,
            discards,
            unsupported_discards: self.unsupported_discards.min(COUNT_MAX),
            trace: None,
            cool_down: self.cool_down.map(|(started, complete, figures)| {
                let [reads, writes, flushes, discards] = figures.map(PortableFigures::into_report);
                let (started, complete) = (at(started), at(complete));
                Box::new(CoolDown { started, complete, reads, writes, flushes, discards })
            }),
            started: at(self.started_ns),
            ended: at(self.ended_ns.max(self.started_ns)),
            effort: self.effort.map(|effort| Effort {
                cpu: Duration::from_nanos(effort.cpu_ns),
                voluntary_context_switches: effort.voluntary_context_switches,
                involuntary_context_switches: effort.involuntary_context_switches,
                system_calls: effort.system_calls,
            }),
            all_requests: self.all_requests.min(COUNT_MAX),
            sightings: Sightings::default(),
            incidents: self
                .incidents
                .into_iter()
                .map(|incident| Incident {
                    object: incident.object,
                    offset_bytes: incident.offset_bytes,
                    length_bytes: incident.length_bytes,
                    operation: incident.operation,
                    error: incident.error.0,
                    sent: at(incident.sent_ns),
                    time: at(incident.time_ns),
                })
                .collect(),
            sightings_omitted: 0,
            incidents_omitted: self.incidents_omitted.min(COUNT_MAX),
            hung: self.hung.into_iter().map(|hung| hung.into_request(origin)).collect(),
            hung_omitted: self.hung_omitted.min(COUNT_MAX),
            is_interrupted: self.is_interrupted,
            until_steady: None,
        }
    }
}

impl PortableFigures {
    fn of(report: &OperationReport) -> Self {
        let latency = report.latency.iter_recorded();
        Self {
            requests: report.requests,
            bytes: report.bytes,
            retries: report.retries,
            errors: report.errors.iter().map(|&(kind, count)| (Named(kind), count)).collect(),
            latency: latency.map(|step| (step.value_iterated_to(), step.count_at_value())).collect(),
        }
    }

    fn into_report(self) -> OperationReport {
        let mut report = OperationReport::new();
        report.requests = self.requests.min(COUNT_MAX);
        report.bytes = self.bytes.min(BYTES_MAX);
        report.retries = self.retries.min(COUNT_MAX);
        let errors = self.errors.into_iter().take(KINDS_MAX);
        report.errors = errors.map(|(kind, count)| (kind.0, count.min(COUNT_MAX))).collect();
        for (value, count) in self.latency {
            let recorded = report.latency.record_n(value.min(LATENCY_MAX_NS), count);
            recorded.expect("a histogram that grows takes every latency");
        }
        report
    }
}

impl PortableHung {
    fn of(hung: &HungRequest, origin: Time) -> Self {
        let phase = Phase::ALL.into_iter().find(|phase| phase.word() == hung.phase);
        let known = LoadOperation::ALL.into_iter().find(|operation| operation.word() == hung.operation);
        Self {
            worker: hung.worker,
            phase: phase.unwrap_or(Phase::Run),
            operation: known.unwrap_or(LoadOperation::Read),
            object: hung.object.clone(),
            offset_bytes: hung.offset_bytes,
            length_bytes: hung.length_bytes,
            sent_ns: hung.sent_ns.saturating_sub(origin.0),
            age_ns: hung.age_ns,
            end: hung.end,
        }
    }

    fn into_request(self, origin: Time) -> HungRequest {
        HungRequest {
            worker: self.worker,
            phase: self.phase.word().into(),
            operation: self.operation.word().into(),
            object: self.object,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            sent_ns: self.sent_ns.saturating_add(origin.0),
            age_ns: self.age_ns,
            end: self.end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::uring;
    use crate::{DeviceDriver, Driver, LoadSpec, Oracle, Workload, run};
    use rotproof_block::Device;
    use rotproof_block::leaf::MemoryDevice;
    use std::sync::Arc;

    fn load() -> LoadSpec {
        let load = r#"{ "pattern": "random", "reads": "30%", "requests": 4000, "queue_depth": 4, "workers": 6,
                        "block_size": "8KiB", "flush_every": 50, "cool_down": 200 }"#;
        serde_json::from_str(load).expect("a load")
    }

    /// Runs some of the workers of a load on a device: what they report, as it comes from another machine.
    fn share(device: &Arc<MemoryDevice>, workers: std::ops::Range<u16>) -> (Vec<LoadReport>, u64) {
        let device: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
        let driver = DeviceDriver::new(device).expect("suits");
        let workload =
            Workload::new(&load(), 1, driver.objects()).expect("makes sense").running_only(workers);
        let mut oracle = Oracle::new(&workload);
        let reports = [Phase::Prefill, Phase::Run, Phase::Check].map(|phase| {
            let report = run(&workload, &driver, &mut oracle, &uring(phase)).expect("runs");
            assert_eq!((report.sightings.len(), report.error_count()), (0, 0));
            let text = serde_json::to_string(&PortableReport::of(&report, report.started)).expect("JSON");
            let back: PortableReport = serde_json::from_str(&text).expect("the same");
            let arrived = back.into_report(Time(1_000_000));
            assert_eq!(arrived.started, Time(1_000_000));
            assert_eq!(arrived.elapsed(), report.elapsed());
            for operation in [LoadOperation::Read, LoadOperation::Write, LoadOperation::Flush] {
                assert_eq!(arrived.operation(operation), report.operation(operation));
            }
            assert_eq!((arrived.effort, arrived.all_requests), (report.effort, report.all_requests));
            arrived
        });
        (reports.into(), oracle.written_blocks())
    }

    #[test]
    fn workers_on_two_machines_do_what_they_do_on_one() {
        let together = MemoryDevice::new(8 << 20, 512).expect("a device");
        let (whole, written) = share(&together, 0..6);
        let apart = MemoryDevice::new(8 << 20, 512).expect("a device");
        let (first, of_first) = share(&apart, 0..2);
        let (second, of_second) = share(&apart, 2..6);
        assert_eq!(written, of_first + of_second);
        for ((whole, mut sum), other) in whole.into_iter().zip(first).zip(second) {
            sum.add(other);
            for operation in [LoadOperation::Read, LoadOperation::Write] {
                let (whole, sum) = (whole.operation(operation), sum.operation(operation));
                assert_eq!((whole.requests, whole.bytes), (sum.requests, sum.bytes));
                assert_eq!(sum.latency.len(), sum.requests);
            }
            assert_eq!(whole.cool_down.is_some(), sum.cool_down.is_some());
            assert_eq!(whole.all_requests, sum.all_requests);
        }
    }

    #[test]
    fn what_is_no_report_is_no_panic() {
        let driver = DeviceDriver::new(MemoryDevice::new(1 << 20, 512).expect("a device")).expect("suits");
        let workload = Workload::new(&LoadSpec::default(), 1, driver.objects()).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        let report = run(&workload, &driver, &mut oracle, &uring(Phase::Run)).expect("runs");
        let good = serde_json::to_value(PortableReport::of(&report, report.started)).expect("JSON");
        let mut wild = good.clone();
        wild["operations"][1]["latency"] = serde_json::json!([[u64::MAX, u64::MAX], [0, 7]]);
        wild["ended_ns"] = 0.into();
        wild["started_ns"] = u64::MAX.into();
        let report: PortableReport = serde_json::from_value(wild).expect("has the form");
        assert_eq!(report.into_report(Time(5)).elapsed(), Duration::ZERO);
        for (key, value) in [("phase", "lunch"), ("all_requests", "many")] {
            let mut wrong = good.clone();
            wrong[key] = value.into();
            assert!(serde_json::from_value::<PortableReport>(wrong).is_err(), "{key}");
        }
    }
}
