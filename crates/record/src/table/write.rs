//! Writes a table, batch by batch: each becomes a row group.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use super::noting::{Note, Noting};
use super::{Column, FORMAT, Kind, Values, table_error};

/// Writes one table.
pub struct TableWriter<W: Write + Send> {
    writer: SerializedFileWriter<Noting<W>>,
    note: Note,
    name: &'static str,
    columns: Vec<Column>,
}

impl<W: Write + Send> TableWriter<W> {
    /// A table called `name` with these columns. Integers are stored as differences, texts as numbers of a dictionary.
    pub fn new(output: W, name: &'static str, columns: &[Column]) -> Result<Self> {
        let about = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        let mut properties = WriterProperties::builder()
            .set_created_by("rotproof".to_owned())
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(Some(vec![
                about("rotproof.table", name.to_owned()),
                about("rotproof.format", FORMAT.to_string()),
                about("rotproof.version", env!("CARGO_PKG_VERSION").to_owned()),
            ]));
        for column in columns.iter().filter(|column| column.kind == Kind::Integer) {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let doing = || format!("writing the table `{name}`");
        let schema = || -> ParquetResult<Type> {
            let fields = columns.iter().map(Column::parquet_type).collect::<ParquetResult<_>>()?;
            Type::group_type_builder(name).with_fields(fields).build()
        };
        let schema = schema().map_err(|error| table_error(error, doing))?;
        let (output, note) = Noting::new(output);
        let writer = SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties.build()))
            .map_err(|error| failed(&note, error, doing))?;
        Ok(Self { writer, note, name, columns: columns.to_vec() })
    }

    /// Appends rows: the values of each column, all of one length. Fails with [`ErrorKind::Internal`] if they are not
    /// those of the columns.
    pub fn write(&mut self, batch: &[Values]) -> Result<()> {
        let rows = batch.first().map_or(0, Values::len);
        let fits = batch.len() == self.columns.len()
            && batch
                .iter()
                .zip(&self.columns)
                .all(|(values, column)| column.fits(values) && values.len() == rows);
        if !fits {
            let message = format!("a batch of rows that are not those of the table `{}`", self.name);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        if rows == 0 {
            return Ok(());
        }
        let written = self.write_group(batch);
        written.map_err(|error| failed(&self.note, error, || format!("writing the table `{}`", self.name)))
    }

    fn write_group(&mut self, batch: &[Values]) -> ParquetResult<()> {
        let mut group = self.writer.next_row_group()?;
        for values in batch {
            if let Some(mut column) = group.next_column()? {
                write_column(&mut column, values)?;
                column.close()?;
            }
        }
        group.close().map(drop)
    }

    /// Ends the table, and gives back what it was written to.
    pub fn finish(self) -> Result<W> {
        let Self { writer, note, name, .. } = self;
        let finished = writer.into_inner().map(Noting::into_output);
        finished.map_err(|error| failed(&note, error, || format!("writing the table `{name}`")))
    }
}

/// What the file system had against it, if that is why.
fn failed(note: &Note, error: ParquetError, doing: impl FnOnce() -> String) -> Error {
    match note.error() {
        Some(error) => Error::from_io(error, doing()),
        None => table_error(error, doing),
    }
}

fn write_column(column: &mut SerializedColumnWriter<'_>, values: &Values) -> ParquetResult<()> {
    match values {
        Values::Integers(values) => column.typed::<Int64Type>().write_batch(values, None, None).map(drop),
        Values::OptionalIntegers(values) => {
            let (present, levels) = levels(values, |value| *value);
            column.typed::<Int64Type>().write_batch(&present, Some(&levels), None).map(drop)
        }
        Values::Reals(values) => column.typed::<DoubleType>().write_batch(values, None, None).map(drop),
        Values::OptionalReals(values) => {
            let (present, levels) = levels(values, |value| *value);
            column.typed::<DoubleType>().write_batch(&present, Some(&levels), None).map(drop)
        }
        Values::Texts(values) => {
            let texts: Vec<ByteArray> = values.iter().map(|text| bytes_of(text)).collect();
            column.typed::<ByteArrayType>().write_batch(&texts, None, None).map(drop)
        }
        Values::Few(texts, rows) => {
            let texts: Vec<ByteArray> = texts.iter().map(|text| bytes_of(text)).collect();
            let mut values = Vec::with_capacity(ROWS_AT_ONCE.min(rows.len()));
            for rows in rows.chunks(ROWS_AT_ONCE) {
                values.clear();
                values.extend(rows.iter().map(|row| texts[usize::from(*row)].clone()));
                column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Ok(())
        }
        Values::OptionalTexts(values) => {
            let (present, levels) = levels(values, |text| text.as_deref().map(bytes_of));
            column.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None).map(drop)
        }
    }
}

/// So many values of a library's own stay in the nearest cache.
const ROWS_AT_ONCE: usize = 512;

fn bytes_of(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

/// The values that are there, and for each row whether it has one.
fn levels<T, U>(values: &[Option<T>], map: impl Fn(&Option<T>) -> Option<U>) -> (Vec<U>, Vec<i16>) {
    let present = values.iter().filter_map(&map).collect();
    (present, values.iter().map(|value| i16::from(value.is_some())).collect())
}

/// Writes a whole table to a new file.
pub fn write_table(path: &Path, name: &'static str, columns: &[Column], values: &[Values]) -> Result<()> {
    let file = File::create_new(path).doing(|| format!("creating {}", path.display()))?;
    let mut writer = TableWriter::new(file, name, columns)?;
    writer.write(values)?;
    writer.finish().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_told_of_as_such_wherever_it_ends() {
        let rows = |count: i64| [Values::Integers((0..count).map(|row| row * row * 7919).collect())];
        // With few rows only the end of the table is written, and that by the library's buffer.
        for count in [1, 100_000] {
            let full = File::options().write(true).open("/dev/full").expect("every machine has it");
            let mut table =
                TableWriter::new(full, "rows", &[Column::integer("row")]).expect("nothing is written yet");
            let error =
                table.write(&rows(count)).and_then(|()| table.finish().map(drop)).expect_err("no room");
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
    }
}
