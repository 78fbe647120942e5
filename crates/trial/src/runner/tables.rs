//! `ledger.parquet` and `failures.parquet`: what `ledger.jsonl` and `failures.jsonl` say, flat, for programs that
//! reckon with tables. The lines have all of it, and are what a replay goes by.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_fault::{Effect, Injection, Injections as _, Ledger, TargetKey};
use rotproof_load::engine::LoadOperation;
use rotproof_record::table::{Column, TableWriter, Values};
use rotproof_spec::Bytes;

use crate::verdict::CauseRecord;
use rotproof_results::run::FailureRecord;

const LEDGER: [Column; 22] = [
    Column::integer("sequence"),
    Column::integer("rule"),
    Column::text("name"),
    Column::text("on"),
    Column::optional_text("target"),
    Column::text("operation"),
    Column::integer("offset"),
    Column::integer("length"),
    Column::text("effect"),
    Column::integer("time_ns"),
    Column::text("phase"),
    Column::optional_integer("visit_offset"),
    Column::optional_text("visit_content"),
    Column::optional_integer("visit_number"),
    Column::integer("request"),
    Column::text("tag"),
    Column::optional_text("before"),
    Column::optional_text("after"),
    Column::integer("blocks"),
    Column::optional_integer("repaired_at_ns"),
    Column::optional_integer("served_at_ns"),
    Column::optional_integer("replaced_at_ns"),
];

const FAILURES: [Column; 12] = [
    Column::text("object"),
    Column::integer("object_index"),
    Column::integer("block"),
    Column::integer("offset"),
    Column::text("phase"),
    Column::integer("time_ns"),
    Column::text("operation"),
    Column::text("kind"),
    Column::text("what"),
    Column::integer("count"),
    Column::text("cause"),
    Column::optional_integer("ledger_sequence"),
];

/// Rows that are turned into columns at once: a ledger may have millions.
const ROWS_AT_ONCE: usize = 1 << 14;

/// The requests that one rule failed as wholes, and the blocks in them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errors {
    pub(super) requests: u64,
    pub(super) blocks: u64,
}

/// Writes one row for each record; gives what the errors of each rule hit.
pub(super) fn write_ledger(folder: &Path, ledger: &Ledger) -> Result<Vec<Errors>> {
    let path = folder.join("ledger.parquet");
    let file = File::create_new(&path).doing(|| format!("creating {}", path.display()))?;
    let mut writer = TableWriter::new(file, "ledger", &LEDGER)?;
    let (mut errors, mut waiting, mut written) = (Vec::new(), Vec::new(), Ok(()));
    ledger.each(&mut |record| {
        if let Effect::Error { .. } = record.effect {
            let rule = record.rule as usize;
            errors.resize(errors.len().max(rule + 1), Errors::default());
            errors[rule].requests += 1;
            errors[rule].blocks += record.blocks.len() as u64;
        }
        if written.is_ok() {
            waiting.push(record.clone());
        }
        if waiting.len() == ROWS_AT_ONCE {
            written = writer.write(&ledger_columns(&waiting));
            waiting.clear();
        }
    })?;
    written.and_then(|()| writer.write(&ledger_columns(&waiting)))?;
    writer.finish()?;
    Ok(errors)
}

fn ledger_columns(records: &[Injection]) -> [Values; LEDGER.len()] {
    let integers =
        |value: fn(&Injection) -> u64| Values::Integers(records.iter().map(|r| signed(value(r))).collect());
    let texts = |value: fn(&Injection) -> Arc<str>| Values::Texts(records.iter().map(value).collect());
    [
        integers(|record| record.sequence),
        integers(|record| record.rule.into()),
        texts(|record| Arc::clone(&record.name)),
        texts(|record| Arc::clone(&record.on)),
        Values::OptionalTexts(records.iter().map(|record| record.target.as_ref().map(target_text)).collect()),
        texts(|record| record.operation.word().into()),
        integers(|record| record.offset),
        integers(|record| record.length),
        texts(|record| record.effect.to_string().into()),
        integers(|record| record.time_ns),
        texts(|record| record.phase.word().into()),
        Values::OptionalIntegers(records.iter().map(|record| record.visit?.offset.map(signed)).collect()),
        Values::OptionalTexts(
            records.iter().map(|record| record.visit?.content.map(|hash| hash.to_string().into())).collect(),
        ),
        Values::OptionalIntegers(records.iter().map(|record| Some(record.visit?.number.into())).collect()),
        integers(|record| record.request),
        texts(|record| record.tag.as_ref().into()),
        Values::OptionalTexts(records.iter().map(|record| Some(record.before?.to_string().into())).collect()),
        Values::OptionalTexts(records.iter().map(|record| Some(record.after?.to_string().into())).collect()),
        integers(|record| record.blocks.len() as u64),
        Values::OptionalIntegers(records.iter().map(|record| record.repaired_at_ns.map(signed)).collect()),
        Values::OptionalIntegers(records.iter().map(|record| record.served_at_ns.map(signed)).collect()),
        Values::OptionalIntegers(records.iter().map(|record| record.replaced_at_ns.map(signed)).collect()),
    ]
}

fn target_text(target: &TargetKey) -> Arc<str> {
    match target {
        TargetKey::Offset(offset) => Bytes(*offset).to_string().into(),
        TargetKey::Content { label, .. } => Arc::clone(label),
    }
}

/// `failures.parquet`: one row for each way in which a block failed.
pub(super) struct FailureTable {
    writer: TableWriter<File>,
    /// Those that are not written yet.
    waiting: Vec<FailureRecord>,
    is_empty: bool,
}

impl FailureTable {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let path = folder.join("failures.parquet");
        let file = File::create_new(&path).doing(|| format!("creating {}", path.display()))?;
        let writer = TableWriter::new(file, "failures", &FAILURES)?;
        Ok(Self { writer, waiting: Vec::new(), is_empty: true })
    }

    pub(super) fn add(&mut self, failure: &FailureRecord) -> Result<()> {
        self.waiting.push(failure.clone());
        if self.waiting.len() == ROWS_AT_ONCE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.is_empty = false;
        let written = self.writer.write(&failure_columns(&self.waiting));
        self.waiting.clear();
        written
    }

    pub(super) fn finish(mut self) -> Result<()> {
        if self.is_empty || !self.waiting.is_empty() {
            self.write()?;
        }
        self.writer.finish().map(drop)
    }
}

fn failure_columns(failures: &[FailureRecord]) -> [Values; FAILURES.len()] {
    let rows: Vec<_> =
        failures.iter().flat_map(|record| record.failure.ways.iter().map(move |way| (record, way))).collect();
    let what = |way: &rotproof_load::failure::Way| -> Arc<str> {
        serde_json::to_string(&way.what).expect("plain data in memory is always JSON").into()
    };
    [
        Values::Texts(rows.iter().map(|(record, _)| record.failure.object.as_str().into()).collect()),
        Values::Integers(rows.iter().map(|(record, _)| record.failure.object_index.into()).collect()),
        Values::Integers(rows.iter().map(|(record, _)| signed(record.failure.block)).collect()),
        Values::Integers(rows.iter().map(|(record, _)| signed(record.failure.offset_bytes)).collect()),
        Values::Texts(rows.iter().map(|(_, way)| way.phase.word().into()).collect()),
        Values::Integers(rows.iter().map(|(_, way)| signed(way.time.0)).collect()),
        Values::Texts(rows.iter().map(|(_, way)| operation_word(way.operation).into()).collect()),
        Values::Texts(rows.iter().map(|(_, way)| way.what.kind().into()).collect()),
        Values::Texts(rows.iter().map(|(_, way)| what(way)).collect()),
        Values::Integers(rows.iter().map(|(_, way)| signed(way.count)).collect()),
        Values::Texts(rows.iter().map(|(record, _)| cause(record.cause).0.into()).collect()),
        Values::OptionalIntegers(rows.iter().map(|(record, _)| cause(record.cause).1).collect()),
    ]
}

fn operation_word(operation: LoadOperation) -> &'static str {
    LoadOperation::NAMES[operation as usize]
}

fn cause(cause: CauseRecord) -> (&'static str, Option<i64>) {
    match cause {
        CauseRecord::Injection(sequence) => ("injection", Some(signed(sequence))),
        CauseRecord::Consequence(sequence) => ("consequence", Some(signed(sequence))),
        CauseRecord::Assumed(sequence) => ("assumed", Some(signed(sequence))),
        CauseRecord::Unexplained => ("unexplained", None),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
