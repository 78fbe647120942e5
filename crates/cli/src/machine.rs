//! What probes found while the load ran, in a few lines for a person; results have all of it.

use rotproof_probe::{LOCAL, ProbeReport, SeriesSummary, Unit};

use crate::output::Paint;
use crate::table::{Align, Table, clip};
use crate::units;

const WIDTH: usize = 80;
/// Disks and processes that are shown: the subject's, then the busiest.
const INSTANCES_MAX: usize = 3;
/// Less than this share of the time is not worth a line.
const SHARE_MIN: f64 = 0.005;

/// A heading and a table for each machine, of at most 80 columns; a line that says why if there is nothing to show.
pub fn render(probes: &ProbeReport, paint: Paint) -> Vec<String> {
    let mut lines = of_machine(probes, LOCAL, ("", probes.run_samples, probes.missed), paint);
    for machine in &probes.machines {
        let name = format!(" {} ({})", machine.name, machine.host);
        lines.push(String::new());
        lines.extend(of_machine(probes, &machine.name, (&name, machine.run_samples, machine.missed), paint));
    }
    lines.extend(probes.notes.iter().map(|note| paint.dim(clip(&format!("  {note}"), WIDTH)).to_string()));
    lines
}

/// That of one machine: its name in results, and what is shown of it, how many samples there are and how many were missed.
fn of_machine(
    probes: &ProbeReport,
    machine: &str,
    (shown_name, samples, missed): (&str, u64, u64),
    paint: Paint,
) -> Vec<String> {
    let heading = clip(&format!("Machine{shown_name}"), 48);
    let text = format!("during the run, {}", units::counted(samples, "sample"));
    let mut lines = vec![format!("{}  {}", paint.bold(heading), paint.dim(text))];
    if samples == 0 {
        lines.push(paint.dim("  the run was over before there was anything to sample").to_string());
        return lines;
    }
    let mut table = Table::new(&[
        ("", Align::Left),
        ("mean", Align::Right),
        ("least", Align::Right),
        ("most", Align::Right),
    ]);
    for (label, series) in rows(probes, machine) {
        let values = [series.mean, series.min, series.max].map(|value| shown(series.unit, value));
        table.row(std::iter::once(clip(&label, 40)).chain(values));
    }
    lines.push(table.render(paint));
    if missed > 0 {
        let missed = units::counted(missed, "sample");
        lines.push(paint.notable(format!("  {missed} missed: the machine had no time")).to_string());
    }
    lines
}

/// What is worth a line, each with what it is called.
fn rows<'a>(probes: &'a ProbeReport, machine: &str) -> Vec<(String, &'a SeriesSummary)> {
    let own: Vec<&SeriesSummary> = probes.series.iter().filter(|series| series.machine == machine).collect();
    let find = |metric: &str, instance: &str| {
        own.iter().copied().find(|series| series.metric == metric && series.instance == instance)
    };
    let mut rows = Vec::new();
    let mut add = |label: String, series: Option<_>| rows.extend(series.map(|series| (label, series)));
    add("CPU busy".into(), find("cpu.utilisation", ""));
    add("CPU in the kernel".into(), find("cpu.system", ""));
    let is_worth_it = |series: &&SeriesSummary| series.max >= SHARE_MIN;
    add("CPU waiting for I/O".into(), find("cpu.iowait", "").filter(is_worth_it));
    add("interrupts".into(), find("cpu.interrupts", ""));
    add("context switches".into(), find("cpu.context_switches", ""));
    add("memory available".into(), find("memory.available", ""));
    add("memory to be written".into(), find("memory.dirty", ""));
    add("swapped out".into(), find("memory.swap_out", "").filter(|series| series.max > 0.0));
    for name in instances(&own, "process.user") {
        add(format!("{name} in user mode"), find("process.user", name));
        add(format!("{name} in the kernel"), find("process.system", name).filter(is_worth_it));
    }
    for name in instances(&own, "disk.utilisation") {
        add(format!("{name} busy"), find("disk.utilisation", name));
        add(format!("{name} read"), find("disk.read", name).filter(|series| series.max > 0.0));
        add(format!("{name} written"), find("disk.written", name).filter(|series| series.max > 0.0));
    }
    add("TCP retransmits".into(), find("network.retransmits", "tcp").filter(|series| series.max > 0.0));
    for (resource, word) in [("cpu", "CPU"), ("memory", "memory"), ("io", "I/O")] {
        add(format!("somebody waits for {word}"), find("pressure.some", resource).filter(is_worth_it));
    }
    rows
}

/// Of what there is such a metric: the subject's first, then those with most of it, idle ones not at all.
fn instances<'a>(series: &[&'a SeriesSummary], metric: &str) -> Vec<&'a str> {
    let mut all: Vec<&SeriesSummary> = series
        .iter()
        .copied()
        .filter(|series| series.metric == metric && (series.is_of_subject || series.max > 0.0))
        .collect();
    all.sort_by(|one, other| {
        other.is_of_subject.cmp(&one.is_of_subject).then(other.mean.total_cmp(&one.mean))
    });
    all.into_iter().take(INSTANCES_MAX).map(|series| series.instance.as_str()).collect()
}

fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Share => format!("{:.0}%", value * 100.0),
        Unit::Processors => format!("{value:.2} CPUs"),
        Unit::Count => format!("{value:.1}"),
        Unit::Bytes => units::bytes(value as u64),
        Unit::PerSecond => format!("{}/s", units::short_count(value)),
        Unit::BytesPerSecond => units::short_rate(value),
    }
}

#[cfg(test)]
mod tests {
    use rotproof_probe::MachineProbes;

    use super::*;

    fn series(metric: &'static str, instance: &str, unit: Unit, mean: f64) -> SeriesSummary {
        SeriesSummary {
            machine: "local".into(),
            metric: metric.into(),
            instance: instance.into(),
            is_of_subject: instance == "loop3",
            unit,
            mean,
            min: mean / 2.0,
            max: mean * 1.5,
        }
    }

    #[test]
    fn what_matters_is_shown_and_what_is_nothing_is_not() {
        let report = ProbeReport {
            interval_ns: 1_000_000_000,
            samples: 14,
            run_samples: 12,
            missed: 1,
            notes: vec![
                "/proc/pressure/cpu: this kernel has no such file".into(),
                "target: ended 3.2 s into the run (exit code 255)".into(),
            ],
            machines: vec![MachineProbes {
                name: "target".into(),
                host: "storage-7".into(),
                samples: 4,
                run_samples: 3,
                ..MachineProbes::default()
            }],
            series: vec![
                SeriesSummary {
                    machine: "target".into(),
                    ..series("cpu.utilisation", "", Unit::Share, 0.125)
                },
                series("cpu.utilisation", "", Unit::Share, 0.62),
                series("cpu.iowait", "", Unit::Share, 0.001),
                series("cpu.interrupts", "", Unit::PerSecond, 12_345.0),
                series("memory.available", "", Unit::Bytes, 3.0 * 1073741824.0),
                series("memory.swap_out", "", Unit::BytesPerSecond, 0.0),
                series("network.retransmits", "tcp", Unit::PerSecond, 0.0),
                series("disk.read", "loop3", Unit::BytesPerSecond, 0.0),
                series("disk.written", "loop3", Unit::BytesPerSecond, 2e8),
                series("disk.utilisation", "loop3", Unit::Share, 0.0),
                series("disk.utilisation", "sda", Unit::Share, 0.0),
                series("disk.utilisation", "vda", Unit::Share, 0.5),
                series("pressure.some", "io", Unit::Share, 0.12),
                series("process.user", "rotproof", Unit::Processors, 1.25),
            ],
        };
        let text = render(&report, Paint::OFF).join("\n");
        insta::assert_snapshot!(text, @r"
        Machine  during the run, 12 samples
                                       mean       least       most
          CPU busy                      62%         31%        93%
          interrupts                12.3k/s     6,173/s    18.5k/s
          memory available          3.0 GiB     1.5 GiB    4.5 GiB
          rotproof in user mode   1.25 CPUs   0.62 CPUs  1.88 CPUs
          loop3 busy                     0%          0%         0%
          loop3 written           191 MiB/s  95.4 MiB/s  286 MiB/s
          vda busy                      50%         25%        75%
          somebody waits for I/O        12%          6%        18%
          1 sample missed: the machine had no time

        Machine target (storage-7)  during the run, 3 samples
                    mean  least  most
          CPU busy   12%     6%   19%
          /proc/pressure/cpu: this kernel has no such file
          target: ended 3.2 s into the run (exit code 255)
        ");
    }

    #[test]
    fn a_run_too_short_says_so() {
        let report = ProbeReport {
            interval_ns: 1,
            samples: 0,
            run_samples: 0,
            missed: 0,
            notes: Vec::new(),
            machines: Vec::new(),
            series: Vec::new(),
        };
        assert_eq!(render(&report, Paint::OFF).len(), 2);
    }
}
