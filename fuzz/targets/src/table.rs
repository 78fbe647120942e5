//! The tables of a run and its `run.json`, as `rotproof report` reads them: from folders that anybody may have written.

use rotproof_record::table::{Column, TableReader, TableWriter, Values};
use rotproof_results::compare::{Finding, SetUp, compare_set_ups, summarise_runs};

/// A table is refused, or each of its columns has a value for each row, read whole as by groups.
pub fn check(bytes: &[u8]) {
    let Ok(reader) = TableReader::from_bytes("fuzzed", bytes.to_vec()) else { return };
    let Ok(table) = reader.read() else { return };
    let rows: usize =
        (0..reader.groups()).map(|group| reader.group(group).map_or(0, |group| group.rows())).sum();
    assert_eq!(table.rows(), rows);
    for (name, values) in table.columns() {
        assert_eq!(values.len(), rows, "{name}");
    }
}

/// What a run found is refused, or its figures are the same as themselves.
pub fn check_run(bytes: &[u8]) {
    let Ok(set_up) = SetUp::of_run("fuzzed", bytes) else { return };
    let compared = compare_set_ups(&set_up, &set_up);
    assert_eq!(compared.len(), summarise_runs(&set_up).len());
    for row in compared {
        assert_eq!(row.finding, Finding::Same, "{row:?}");
    }
}

/// Tables with columns of each kind, of several groups, of one, and of none.
pub fn seeds() -> Vec<Vec<u8>> {
    let columns = [
        Column::integer("integer"),
        Column::optional_integer("optional_integer"),
        Column::real("real"),
        Column::text("text"),
        Column::optional_text("optional_text"),
    ];
    let batch = |rows: i64| {
        [
            Values::Integers((0..rows).collect()),
            Values::OptionalIntegers((0..rows).map(|row| (row % 3 == 0).then_some(row)).collect()),
            Values::Reals((0..rows).map(|row| row as f64 / 3.0).collect()),
            Values::Texts((0..rows).map(|row| ["read", "write"][row as usize % 2].into()).collect()),
            Values::OptionalTexts((0..rows).map(|row| (row % 5 == 0).then(|| "x".into())).collect()),
        ]
    };
    let table = |groups: &[i64]| {
        let mut writer = TableWriter::new(Vec::new(), "fuzzed", &columns).expect("columns");
        for &rows in groups {
            writer.write(&batch(rows)).expect("rows that fit");
        }
        writer.finish().expect("whole")
    };
    vec![table(&[]), table(&[1]), table(&[7, 100])]
}

/// The figures of a run.
pub fn run_seeds() -> Vec<Vec<u8>> {
    let run = r#"{"performance":[{"phase":"run","operation":"read","bytes_per_second":1.5e6,"requests_per_second":370,
        "latency_ns":{"p50":2700000,"p99":9e6}}],"throughput_variation":0.02,"degradation":[{"fault":"slow",
        "during":{"ratio":0.5},"recovered_after_ns":1000000000}],"counts":{"failures":0,"injections":3,"silent":1}}"#;
    vec![run.as_bytes().to_vec(), b"{}".to_vec(), b"[]".to_vec()]
}
