//! What probes saw of the machine: `probes.parquet` as charts.

use std::path::Path;

use rotproof_block::Result;
use rotproof_probe::LOCAL;
use rotproof_record::table::TableReader;
use rotproof_report::{Chart, Line, Timeline, Unit};

/// Lines of one chart, those that rise highest.
const LINES_MAX: usize = 6;

/// A chart: title, unit of its numbers, by what samples are multiplied, and which metrics it has under which names.
type Choice = (&'static str, Unit, f64, &'static [(&'static str, &'static str)]);

const CHARTS: [Choice; 10] = [
    (
        "Processors",
        Unit::Percent,
        100.0,
        &[
            ("cpu.user", "user"),
            ("cpu.system", "system"),
            ("cpu.iowait", "waiting for I/O"),
            ("cpu.steal", "stolen"),
        ],
    ),
    (
        "Interrupts and context switches",
        Unit::PerSecond,
        1.0,
        &[("cpu.interrupts", "interrupts"), ("cpu.context_switches", "context switches")],
    ),
    (
        "Memory",
        Unit::Bytes,
        1.0,
        &[
            ("memory.available", "available"),
            ("memory.cached", "cached"),
            ("memory.dirty", "dirty"),
            ("memory.swap_used", "swap used"),
        ],
    ),
    ("Swapping", Unit::BytesPerSecond, 1.0, &[("memory.swap_in", "in"), ("memory.swap_out", "out")]),
    ("Network", Unit::BytesPerSecond, 1.0, &[("network.received", "received"), ("network.sent", "sent")]),
    ("Retransmitted packets", Unit::PerSecond, 1.0, &[("network.retransmits", "retransmits")]),
    ("Block devices", Unit::BytesPerSecond, 1.0, &[("disk.read", "read"), ("disk.written", "written")]),
    ("Utilisation of block devices", Unit::Percent, 100.0, &[("disk.utilisation", "")]),
    ("Pressure: some task waits", Unit::Percent, 100.0, &[("pressure.some", "")]),
    ("Processes, in processors", Unit::Count, 1.0, &[("process.user", "user"), ("process.system", "system")]),
];

/// Puts the charts on a time line. What came after its end is left out; one without an end of its own, of a program that
/// was the load, ends with the last sample.
pub(super) fn show(mut charts: Vec<Chart>, timeline: &mut Timeline) {
    let lines = || charts.iter().flat_map(|chart| &chart.lines);
    if timeline.phases.is_empty() {
        let last = lines().flat_map(|line| &line.points).map(|&(at, _)| at).fold(0.0, f64::max);
        timeline.seconds = timeline.seconds.max(last);
    }
    for line in charts.iter_mut().flat_map(|chart| &mut chart.lines) {
        line.points.retain(|&(at, _)| at <= timeline.seconds);
    }
    timeline.probes = charts;
}

/// The charts, machine by machine, without those in which nothing ever happened. None of a run without probes.
pub(super) fn charts(folder: &Path) -> Result<Vec<Chart>> {
    let path = folder.join("probes.parquet");
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let table = TableReader::open(&path, "probes")?.read()?;
    let (times, values) = (table.integers("time_ns")?, table.reals("value")?);
    let (metrics, instances) = (table.texts("metric")?, table.texts("instance")?);
    let machines = table.texts("machine")?;
    let mut names: Vec<&str> = Vec::new();
    for machine in machines {
        if names.last() != Some(&&**machine) && !names.contains(&&**machine) {
            names.push(machine);
        }
    }
    let charts = names.iter().flat_map(|of| CHARTS.iter().map(move |choice| (*of, choice)));
    let charts = charts.map(|(of, (title, unit, factor, choices))| {
        let mut lines: Vec<Line> = Vec::new();
        for (metric, name) in *choices {
            let is_one = |&row: &usize| *metrics[row] == **metric && *machines[row] == *of;
            for row in (0..table.rows()).filter(is_one) {
                let name = format!("{} {name}", instances[row]).trim().to_owned();
                let point = (times[row] as f64 / 1e9, values[row] * factor);
                match lines.iter_mut().find(|line| line.name == name) {
                    Some(line) => line.points.push(point),
                    None => lines.push(Line { name, points: vec![point] }),
                }
            }
        }
        let top = |line: &Line| line.points.iter().map(|&(_, value)| value).fold(0.0, f64::max);
        lines.retain(|line| top(line) > 0.0);
        if lines.len() > LINES_MAX {
            lines.sort_by(|a, b| top(b).total_cmp(&top(a)));
            lines.truncate(LINES_MAX);
        }
        let title = if of == LOCAL { (*title).to_owned() } else { format!("{of}: {title}") };
        Chart { title, unit: *unit, lines, is_logarithmic: false }
    });
    Ok(charts.filter(|chart| !chart.lines.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use rotproof_record::table::{Column, TableWriter, Values};
    use rotproof_report::Span;

    use super::*;

    #[test]
    fn samples_become_lines_by_metric_and_instance_and_what_is_always_zero_is_left_out() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(charts(folder.path()).expect("no probes"), []);
        let rows = [
            (1, ["local", "cpu.user", ""], 0.25),
            (2, ["local", "cpu.user", ""], 0.5),
            (12, ["local", "cpu.user", ""], 1.0),
            (1, ["local", "cpu.steal", ""], 0.0),
            (1, ["local", "disk.read", "loop3"], 2e6),
            (1, ["local", "memory.swap_in", ""], 0.0),
            (1, ["target", "cpu.user", ""], 0.75),
            (1, ["target", "memory.swap_in", ""], 0.0),
        ];
        let columns = [
            Column::integer("time_ns"),
            Column::text("machine"),
            Column::text("metric"),
            Column::text("instance"),
            Column::real("value"),
        ];
        let mut writer = TableWriter::new(Vec::new(), "probes", &columns).expect("a table");
        let text = |of: fn(&(i64, [&'static str; 3], f64)) -> &'static str| {
            Values::Texts(rows.iter().map(|row| Arc::<str>::from(of(row))).collect())
        };
        let batch = [
            Values::Integers(rows.iter().map(|row| row.0 * 1_000_000_000).collect()),
            text(|row| row.1[0]),
            text(|row| row.1[1]),
            text(|row| row.1[2]),
            Values::Reals(rows.iter().map(|row| row.2).collect()),
        ];
        writer.write(&batch).expect("written");
        fs::write(folder.path().join("probes.parquet"), writer.finish().expect("whole")).expect("written");
        let charts = charts(folder.path()).expect("probes");
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.into(), points: points.into() };
        let wanted = [
            ("Processors", vec![line("user", &[(1.0, 25.0), (2.0, 50.0), (12.0, 100.0)])]),
            ("Block devices", vec![line("loop3 read", &[(1.0, 2e6)])]),
            ("target: Processors", vec![line("user", &[(1.0, 75.0)])]),
        ];
        assert_eq!(charts.len(), wanted.len());
        for (chart, (title, lines)) in charts.iter().zip(&wanted) {
            assert_eq!((chart.title.as_str(), &chart.lines), (*title, lines));
        }

        let mut of_a_command = Timeline::default();
        show(charts.clone(), &mut of_a_command);
        assert_eq!((of_a_command.seconds, of_a_command.probes.len()), (12.0, 3));
        let phase = Span { name: "run".into(), from: 0.0, to: 9.0 };
        let mut recorded = Timeline { seconds: 9.0, phases: vec![phase], ..Timeline::default() };
        show(charts, &mut recorded);
        assert_eq!(recorded.seconds, 9.0);
        assert_eq!(recorded.probes[0].lines[0].points.len(), 2);
    }
}
