//! `probes.parquet`: every sample of every series, one row each (`docs/results.md`).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_record::table::{Column, TableWriter, Values};

use crate::series::ProbeSeries;

/// Its name in a folder of results.
pub(crate) const FILE: &str = "probes.parquet";

const COLUMNS: [Column; 7] = [
    Column::integer("time_ns"),
    Column::text("machine"),
    Column::text("metric"),
    Column::text("instance"),
    Column::integer("of_subject"),
    Column::text("unit"),
    Column::real("value"),
];

/// Rows of one batch: enough that it is worth a group, few enough for the memory.
const BATCH_ROWS: usize = 1 << 16;

/// Writes series after series, each by time.
pub(crate) fn write(folder: &Path, series: &[ProbeSeries]) -> Result<()> {
    let path = folder.join(FILE);
    let doing = || format!("writing {}", path.display());
    let file = BufWriter::new(File::create_new(&path).doing(doing)?);
    let mut writer = TableWriter::new(file, "probes", &COLUMNS)?;
    let mut batch = Batch::default();
    for series in series {
        batch.add(series);
        if batch.times_ns.len() >= BATCH_ROWS {
            writer.write(&std::mem::take(&mut batch).into_values())?;
        }
    }
    writer.write(&batch.into_values())?;
    writer.finish()?.flush().doing(doing)
}

#[derive(Default)]
struct Batch {
    times_ns: Vec<i64>,
    /// Machine, metric, instance and unit.
    texts: [Vec<Arc<str>>; 4],
    of_subject: Vec<i64>,
    values: Vec<f64>,
}

impl Batch {
    fn add(&mut self, series: &ProbeSeries) {
        let rows = series.values.len();
        self.times_ns.extend(series.times_ns.iter().map(|&time| i64::try_from(time).unwrap_or(i64::MAX)));
        self.values.extend(&series.values);
        self.of_subject.extend(std::iter::repeat_n(i64::from(series.is_of_subject), rows));
        let words = [&series.machine, series.metric.name, &series.instance, series.metric.unit.word()];
        for (column, word) in self.texts.iter_mut().zip(words) {
            column.extend(std::iter::repeat_n(Arc::<str>::from(word), rows));
        }
    }

    fn into_values(self) -> [Values; 7] {
        let [machine, metric, instance, unit] = self.texts.map(Values::Texts);
        let of_subject = Values::Integers(self.of_subject);
        [
            Values::Integers(self.times_ns),
            machine,
            metric,
            instance,
            of_subject,
            unit,
            Values::Reals(self.values),
        ]
    }
}

#[cfg(test)]
mod tests {
    use rotproof_record::table::TableReader;

    use super::*;
    use crate::rates;

    #[test]
    fn every_sample_is_a_row_and_reads_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let series = |metric, instance: &str, values: &[f64]| ProbeSeries {
            machine: "local".into(),
            metric,
            instance: instance.into(),
            is_of_subject: instance == "loop3",
            times_ns: (1..=values.len() as u64).map(|second| second * 1_000_000_000).collect(),
            values: values.to_vec(),
        };
        let all = [series(rates::CPU_USER, "", &[0.5, 0.25]), series(rates::DISK_READS, "loop3", &[7.0])];
        write(folder.path(), &all).expect("written");
        let table =
            TableReader::open(&folder.path().join(FILE), "probes").expect("a table").read().expect("whole");
        assert_eq!(table.rows(), 3);
        assert_eq!(table.integers("time_ns").expect("there"), [1_000_000_000, 2_000_000_000, 1_000_000_000]);
        assert_eq!(table.reals("value").expect("there"), [0.5, 0.25, 7.0]);
        assert_eq!(table.integers("of_subject").expect("there"), [0, 0, 1]);
        let texts =
            |column| table.texts(column).expect("there").iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts("metric"), ["cpu.user", "cpu.user", "disk.reads"]);
        assert_eq!(texts("unit"), ["share", "share", "per_second"]);
        let other = tempfile::tempdir().expect("a folder");
        write(other.path(), &[]).expect("a run may be over before there is a sample");
    }
}
