//! What probes have found: series, bounded in memory, and their figures over the run.

use std::collections::BTreeMap;
use std::path::Path;

use rotproof_block::Result;
use serde::Serialize;

use crate::rates::{Metric, Unit};
use crate::series::ProbeSeries;
use crate::spec::ProbesSpec;
use crate::table;

/// Samples of a series at the most; then each two become one, so that a run of any length keeps half as many or more.
const SAMPLES_MAX: usize = 1 << 15;

/// All series of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    series: Vec<ProbeSeries>,
    /// Where which is; by metric and instance.
    places: BTreeMap<&'static str, BTreeMap<String, usize>>,
    /// Of those of the run alone, by place.
    figures: Vec<Figures>,
    samples: u64,
    run_samples: u64,
    missed: u64,
    notes: Vec<String>,
    /// Other machines, whose series are among those here.
    machines: Vec<MachineProbes>,
}

/// Of the run alone.
#[derive(Clone, Copy, Debug)]
struct Figures {
    sum: f64,
    seconds: f64,
    min: f64,
    max: f64,
}

/// When a sample was taken, and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Since the run began.
    pub(crate) time_ns: u64,
    /// Seconds since the sample before.
    pub(crate) seconds: f64,
    /// Whether those were of the phase *run*.
    pub(crate) is_of_run: bool,
}

/// Whose value it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of<'a> {
    pub(crate) machine: &'a str,
    pub(crate) metric: Metric,
    pub(crate) instance: &'a str,
    pub(crate) is_of_subject: bool,
}

/// What `run.json` says of probes.
#[derive(Clone, Debug, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ProbeReport {
    /// From one sample to the next, as was asked for.
    pub interval_ns: u64,
    /// How many there are of this machine, and of the phase *run*.
    pub samples: u64,
    /// Of the phase *run* alone; one each at its beginning and end beside those by the interval.
    pub run_samples: u64,
    /// How many came too late to be taken, as the machine had no time for them.
    pub missed: u64,
    /// What this machine does not tell, and why. What there is to say of another one begins with its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Other machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineProbes>,
    /// The figures of the phase *run*, by metric and instance.
    pub series: Vec<SeriesSummary>,
}

/// Another machine that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct MachineProbes {
    /// What it is called here.
    pub name: String,
    /// What it calls itself.
    pub host: String,
    /// Which boot of it.
    pub boot: String,
    /// How many it has.
    pub processors: usize,
    /// How many samples came, and of the phase *run*.
    pub samples: u64,
    /// Of the phase *run* alone.
    pub run_samples: u64,
    /// How many it had no time for.
    pub missed: u64,
}

/// One series over the phase *run*.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct SeriesSummary {
    /// Of which machine.
    pub machine: String,
    /// What is measured.
    pub metric: std::borrow::Cow<'static, str>,
    /// Of which device, interface, resource or process; absent for the machine as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// Whether that is a block device of the subject; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_subject: bool,
    /// What its values are.
    pub unit: Unit,
    /// Over time.
    pub mean: f64,
    /// Of all samples.
    pub min: f64,
    /// Of all samples.
    pub max: f64,
}

impl Recording {
    /// The series, machine by machine, ordered by metric and instance.
    pub fn series(&self) -> &[ProbeSeries] {
        &self.series
    }

    /// The figures of the phase *run*, of probes like this.
    pub fn report(&self, spec: &ProbesSpec) -> ProbeReport {
        let with_figures = self.series.iter().zip(&self.figures).filter(|(_, figures)| figures.seconds > 0.0);
        let series = with_figures.map(|(series, figures)| SeriesSummary {
            machine: series.machine.clone(),
            metric: series.metric.name.into(),
            instance: series.instance.clone(),
            is_of_subject: series.is_of_subject,
            unit: series.metric.unit,
            mean: figures.sum / figures.seconds,
            min: figures.min,
            max: figures.max,
        });
        ProbeReport {
            interval_ns: u64::try_from(spec.interval.0.as_nanos()).unwrap_or(u64::MAX),
            samples: self.samples,
            run_samples: self.run_samples,
            missed: self.missed,
            notes: self.notes.clone(),
            machines: self.machines.clone(),
            series: series.collect(),
        }
    }

    /// Writes `probes.parquet` into the folder of a run.
    pub fn write_to(&self, folder: &Path) -> Result<()> {
        table::write(folder, &self.series)
    }

    pub(crate) fn count(&mut self, moment: Moment) {
        self.samples += 1;
        self.run_samples += u64::from(moment.is_of_run);
    }

    pub(crate) fn miss(&mut self, samples: u64) {
        self.missed += samples;
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Puts what another machine has found behind what there is. Both are finished.
    pub(crate) fn absorb(&mut self, machine: MachineProbes, found: Recording) {
        let Recording { series, figures, samples, run_samples, missed, notes, .. } = found;
        self.series.extend(series);
        self.figures.extend(figures);
        self.notes.extend(notes.into_iter().map(|note| format!("{}: {note}", machine.name)));
        self.machines.push(MachineProbes { samples, run_samples, missed, ..machine });
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub(crate) fn add(&mut self, moment: Moment, of: Of<'_>, value: f64) {
        let known = self.places.get(of.metric.name).and_then(|places| places.get(of.instance));
        let place = known.copied().unwrap_or_else(|| self.begin(of));
        let series = &mut self.series[place];
        series.is_of_subject |= of.is_of_subject;
        series.times_ns.push(moment.time_ns);
        series.values.push(value);
        if series.times_ns.len() >= SAMPLES_MAX {
            series.halve();
        }
        if moment.is_of_run {
            let figures = &mut self.figures[place];
            figures.sum += value * moment.seconds;
            figures.seconds += moment.seconds;
            figures.min = figures.min.min(value);
            figures.max = figures.max.max(value);
        }
    }

    fn begin(&mut self, of: Of<'_>) -> usize {
        let place = self.series.len();
        self.places.entry(of.metric.name).or_default().insert(of.instance.to_owned(), place);
        self.series.push(ProbeSeries {
            machine: of.machine.to_owned(),
            metric: of.metric,
            instance: of.instance.to_owned(),
            is_of_subject: of.is_of_subject,
            times_ns: Vec::new(),
            values: Vec::new(),
        });
        self.figures.push(Figures { sum: 0.0, seconds: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY });
        place
    }

    /// Puts the series into the order of results. No sample is added after that.
    pub(crate) fn finish(mut self) -> Self {
        let rank = |metric: Metric| Metric::ALL.iter().position(|known| *known == metric);
        let mut pairs: Vec<_> = self.series.drain(..).zip(self.figures.drain(..)).collect();
        pairs.sort_by(|(one, _), (other, _)| {
            (rank(one.metric), &one.instance).cmp(&(rank(other.metric), &other.instance))
        });
        (self.series, self.figures) = pairs.into_iter().unzip();
        self.places.clear();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates;

    fn of(metric: Metric, instance: &str) -> Of<'_> {
        Of { machine: "local", metric, instance, is_of_subject: false }
    }

    fn moment(time_ns: u64, seconds: f64, is_of_run: bool) -> Moment {
        Moment { time_ns, seconds, is_of_run }
    }

    #[test]
    fn figures_are_those_of_the_run_weighted_by_time() {
        let mut recording = Recording::default();
        for (time_ns, seconds, is_of_run, value) in
            [(10, 1.0, false, 9.0), (20, 1.0, true, 1.0), (50, 3.0, true, 5.0), (60, 1.0, false, 100.0)]
        {
            let moment = moment(time_ns, seconds, is_of_run);
            recording.count(moment);
            recording.add(moment, of(rates::DISK_READS, "vda"), value);
        }
        recording.add(moment(60, 1.0, false), of(rates::CPU_USER, ""), 0.5);
        let recording = recording.finish();
        let report = recording.report(&ProbesSpec::default());
        assert_eq!((report.samples, report.run_samples), (4, 2));
        assert_eq!(report.series.len(), 1, "the other has nothing of the run");
        let found = &report.series[0];
        assert_eq!((&*found.metric, found.mean, found.min, found.max), ("disk.reads", 4.0, 1.0, 5.0));
        let names: Vec<_> = recording.series().iter().map(|series| series.metric.name).collect();
        assert_eq!(names, ["cpu.user", "disk.reads"], "in the order of results");
        assert_eq!(recording.series()[1].times_ns, [10, 20, 50, 60], "which have all of it");
    }

    #[test]
    fn a_run_of_any_length_keeps_a_bounded_number_of_samples_with_the_same_mean() {
        let mut recording = Recording::default();
        let samples = 5 * SAMPLES_MAX as u64;
        for time in 1..=samples {
            recording.add(moment(time, 1.0, true), of(rates::CPU_USER, ""), (time % 2) as f64);
        }
        let series = &recording.series()[0];
        assert!(series.times_ns.len() < SAMPLES_MAX && series.times_ns.len() > SAMPLES_MAX / 4);
        assert_eq!(series.times_ns.len(), series.values.len());
        assert!(series.times_ns.is_sorted() && series.times_ns.last() == Some(&samples));
        assert!(series.values[0] == 0.5, "{}", series.values[0]);
        assert_eq!(recording.report(&ProbesSpec::default()).series[0].mean, 0.5);
    }
}
