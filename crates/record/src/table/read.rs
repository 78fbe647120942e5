//! Reads a table back, whole or a row group at a time.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{FileReader, SerializedFileReader};
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use super::{FORMAT, Values, table_error};

/// A table in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    name: String,
    rows: usize,
    columns: Vec<(String, Values)>,
}

/// A table on disk.
pub struct TableReader {
    reader: Box<dyn FileReader>,
    name: String,
}

/// More rows than a group may sensibly have, so that a damaged file takes no memory.
const GROUP_ROWS_MAX: i64 = 1 << 24;

impl TableReader {
    /// Opens the table called `name` in a file. Fails with [`ErrorKind::Invalid`] if that is none, another one, or of a
    /// form that this version does not know.
    pub fn open(path: &Path, name: &str) -> Result<Self> {
        let file = File::open(path).doing(|| format!("opening {}", path.display()))?;
        let reader = contained(|| SerializedFileReader::new(file))
            .map_err(|error| table_error(error, || format!("{} is no table", path.display())))?;
        Self::checked(Box::new(reader), name)
    }

    /// The same from the content of a file.
    pub fn from_bytes(name: &str, content: Vec<u8>) -> Result<Self> {
        let reader = contained(|| SerializedFileReader::new(bytes::Bytes::from(content)))
            .map_err(|error| table_error(error, || format!("this is no table `{name}`")))?;
        Self::checked(Box::new(reader), name)
    }

    fn checked(reader: Box<dyn FileReader>, name: &str) -> Result<Self> {
        let about = |key: &str| -> Option<String> {
            let all = reader.metadata().file_metadata().key_value_metadata()?;
            all.iter().find(|entry| entry.key == key)?.value.clone()
        };
        let found = about("rotproof.table").unwrap_or_default();
        if found != name {
            let message = format!("the file holds the table `{found}`, not `{name}`");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let format = about("rotproof.format").and_then(|text| text.parse::<u32>().ok());
        if !format.is_some_and(|format| (1..=FORMAT).contains(&format)) {
            let format = format.map_or_else(|| "unknown".to_owned(), |format| format.to_string());
            let message = format!(
                "the table `{name}` has the form {format}, and this version reads 1 to {FORMAT}; read it with the version \
                 that wrote it"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { reader, name: name.to_owned() })
    }

    /// How many row groups there are.
    pub fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// The rows of one group.
    pub fn group(&self, group: usize) -> Result<Table> {
        let name = &self.name;
        contained(|| self.read_group(group))
            .map_err(|error| table_error(error, || format!("reading the table `{name}`")))
    }

    /// All rows.
    pub fn read(&self) -> Result<Table> {
        let mut table = self.group_of_none();
        for group in 0..self.groups() {
            let Table { rows, columns, .. } = self.group(group)?;
            table.rows += rows;
            for ((_, all), (_, more)) in table.columns.iter_mut().zip(columns) {
                extend(all, more);
            }
        }
        Ok(table)
    }

    fn group_of_none(&self) -> Table {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let columns = schema.columns().iter().filter_map(|column| {
            let basic = column.self_type().get_basic_info();
            let is_optional = basic.has_repetition() && basic.repetition() == Repetition::OPTIONAL;
            let values = match (column.physical_type(), is_optional) {
                (Physical::INT64, false) => Values::Integers(Vec::new()),
                (Physical::INT64, true) => Values::OptionalIntegers(Vec::new()),
                (Physical::DOUBLE, false) => Values::Reals(Vec::new()),
                (Physical::DOUBLE, true) => Values::OptionalReals(Vec::new()),
                (Physical::BYTE_ARRAY, false) => Values::Texts(Vec::new()),
                (Physical::BYTE_ARRAY, true) => Values::OptionalTexts(Vec::new()),
                _ => return None,
            };
            Some((column.name().to_owned(), values))
        });
        Table { name: self.name.clone(), rows: 0, columns: columns.collect() }
    }

    fn read_group(&self, group: usize) -> ParquetResult<Table> {
        let mut table = self.group_of_none();
        let reader = self.reader.get_row_group(group)?;
        let count = reader.metadata().num_rows();
        let rows = usize::try_from(count).ok().filter(|_| count <= GROUP_ROWS_MAX);
        let rows = rows.ok_or_else(|| ParquetError::General(format!("a row group of {count} rows")))?;
        if table.columns.len() != reader.num_columns() {
            return Err(ParquetError::General("columns that no table of ours has".into()));
        }
        table.rows = rows;
        for (index, (_, values)) in table.columns.iter_mut().enumerate() {
            match (reader.get_column_reader(index)?, values) {
                (ColumnReader::Int64ColumnReader(column), Values::Integers(all)) => {
                    *all = required(column, rows)?;
                }
                (ColumnReader::Int64ColumnReader(column), Values::OptionalIntegers(all)) => {
                    *all = optional(column, rows)?;
                }
                (ColumnReader::DoubleColumnReader(column), Values::Reals(all)) => {
                    *all = required(column, rows)?;
                }
                (ColumnReader::DoubleColumnReader(column), Values::OptionalReals(all)) => {
                    *all = optional(column, rows)?;
                }
                (ColumnReader::ByteArrayColumnReader(column), Values::Texts(all)) => {
                    *all = required(column, rows)?.iter().map(text_of).collect::<ParquetResult<_>>()?;
                }
                (ColumnReader::ByteArrayColumnReader(column), Values::OptionalTexts(all)) => {
                    let texts = optional(column, rows)?;
                    *all = texts
                        .iter()
                        .map(|text| text.as_ref().map(text_of).transpose())
                        .collect::<ParquetResult<_>>()?;
                }
                _ => {
                    return Err(ParquetError::General(
                        "a column of another type than the schema says".into(),
                    ));
                }
            }
        }
        Ok(table)
    }
}

/// The library takes some damaged files for a defect of its own, and panics; here that is an error like any other.
fn contained<T>(read: impl FnOnce() -> ParquetResult<T>) -> ParquetResult<T> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("the file is damaged beyond reading".into())))
}

fn required<T: DataType>(mut column: ColumnReaderImpl<T>, rows: usize) -> ParquetResult<Vec<T::T>> {
    let mut values = Vec::new();
    while values.len() < rows {
        let (_, read, _) = column.read_records(rows - values.len(), None, None, &mut values)?;
        if read == 0 {
            return Err(ParquetError::General("fewer values than rows".into()));
        }
    }
    Ok(values)
}

fn optional<T: DataType>(mut column: ColumnReaderImpl<T>, rows: usize) -> ParquetResult<Vec<Option<T::T>>> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    while levels.len() < rows {
        let (read, _, _) = column.read_records(rows - levels.len(), Some(&mut levels), None, &mut values)?;
        if read == 0 {
            return Err(ParquetError::General("fewer values than rows".into()));
        }
    }
    let mut values = values.into_iter();
    Ok(levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect())
}

fn text_of(bytes: &ByteArray) -> ParquetResult<Arc<str>> {
    bytes.as_utf8().map(Into::into)
}

fn extend(all: &mut Values, more: Values) {
    match (all, more) {
        (Values::Integers(all), Values::Integers(more)) => all.extend(more),
        (Values::OptionalIntegers(all), Values::OptionalIntegers(more)) => all.extend(more),
        (Values::Reals(all), Values::Reals(more)) => all.extend(more),
        (Values::OptionalReals(all), Values::OptionalReals(more)) => all.extend(more),
        (Values::Texts(all), Values::Texts(more)) => all.extend(more),
        (Values::OptionalTexts(all), Values::OptionalTexts(more)) => all.extend(more),
        // Both come from one schema.
        _ => {}
    }
}

/// What reads one column of a [`Table`].
macro_rules! column {
    ($name:ident, $kind:ident, $type:ty, $what:literal) => {
        #[doc = concat!("A column of ", $what, ".")]
        pub fn $name(&self, column: &str) -> Result<&[$type]> {
            match self.column(column) {
                Some(Values::$kind(values)) => Ok(values),
                _ => Err(self.missing(column, $what)),
            }
        }
    };
}

impl Table {
    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The names of its columns and their values.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Values)> {
        self.columns.iter().map(|(name, values)| (name.as_str(), values))
    }

    fn column(&self, column: &str) -> Option<&Values> {
        self.columns.iter().find(|(name, _)| name == column).map(|(_, values)| values)
    }

    fn missing(&self, column: &str, what: &str) -> Error {
        let message = format!("the table `{}` has no column `{column}` of {what}", self.name);
        Error::new(ErrorKind::Invalid, message)
    }

    column!(integers, Integers, i64, "integers");
    column!(optional_integers, OptionalIntegers, Option<i64>, "integers that may be absent");
    column!(reals, Reals, f64, "reals");
    column!(optional_reals, OptionalReals, Option<f64>, "reals that may be absent");
    column!(texts, Texts, Arc<str>, "texts");
    column!(optional_texts, OptionalTexts, Option<Arc<str>>, "texts that may be absent");
}
