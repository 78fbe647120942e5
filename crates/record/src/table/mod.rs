//! Tables on disk: flat Parquet files with a name and a version, written a batch of rows at a time.
//!
//! A table has columns of integers (64 bits, signed), reals, and texts (UTF-8), each either required or optional. Equal
//! rows give equal bytes. Every file carries `rotproof.table`, `rotproof.format` and `rotproof.version` as metadata, so
//! that a reader knows what it has ([`FORMAT`] grows when a reader of the old form would be misled).

mod noting;
mod read;
mod write;

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{Type, TypePtr};
use rotproof_block::{Error, ErrorKind};

pub use read::{Table, TableReader};
pub use write::{TableWriter, write_table};

/// Version of the form of all tables.
pub const FORMAT: u32 = 2;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name: lower case, with its unit last (`latency_ns`).
    pub name: &'static str,
    kind: Kind,
    is_optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integer,
    Real,
    Text,
}

impl Column {
    /// Integers.
    pub const fn integer(name: &'static str) -> Self {
        Self { name, kind: Kind::Integer, is_optional: false }
    }

    /// Integers, some of them absent.
    pub const fn optional_integer(name: &'static str) -> Self {
        Self { name, kind: Kind::Integer, is_optional: true }
    }

    /// Floating-point numbers.
    pub const fn real(name: &'static str) -> Self {
        Self { name, kind: Kind::Real, is_optional: false }
    }

    /// Floating-point numbers, some of them absent.
    pub const fn optional_real(name: &'static str) -> Self {
        Self { name, kind: Kind::Real, is_optional: true }
    }

    /// Texts.
    pub const fn text(name: &'static str) -> Self {
        Self { name, kind: Kind::Text, is_optional: false }
    }

    /// Texts, some of them absent.
    pub const fn optional_text(name: &'static str) -> Self {
        Self { name, kind: Kind::Text, is_optional: true }
    }

    fn parquet_type(&self) -> parquet::errors::Result<TypePtr> {
        let physical = match self.kind {
            Kind::Integer => Physical::INT64,
            Kind::Real => Physical::DOUBLE,
            Kind::Text => Physical::BYTE_ARRAY,
        };
        let repetition = if self.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let builder = Type::primitive_type_builder(self.name, physical).with_repetition(repetition);
        let logical = (self.kind == Kind::Text).then_some(LogicalType::String);
        Ok(Arc::new(builder.with_logical_type(logical).build()?))
    }

    fn fits(&self, values: &Values) -> bool {
        let (kind, is_optional) = match values {
            Values::Integers(_) => (Kind::Integer, false),
            Values::OptionalIntegers(_) => (Kind::Integer, true),
            Values::Reals(_) => (Kind::Real, false),
            Values::OptionalReals(_) => (Kind::Real, true),
            Values::Texts(_) => (Kind::Text, false),
            Values::Few(texts, rows) => {
                return self.kind == Kind::Text
                    && !self.is_optional
                    && rows.iter().all(|row| usize::from(*row) < texts.len());
            }
            Values::OptionalTexts(_) => (Kind::Text, true),
        };
        self.kind == kind && self.is_optional == is_optional
    }
}

/// The values of one column, row by row.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Values {
    Integers(Vec<i64>),
    OptionalIntegers(Vec<Option<i64>>),
    Reals(Vec<f64>),
    OptionalReals(Vec<Option<f64>>),
    Texts(Vec<Arc<str>>),
    OptionalTexts(Vec<Option<Arc<str>>>),
    /// Texts of which there are few: all of them, and which one each row has.
    Few(Vec<Arc<str>>, Vec<u8>),
}

impl Values {
    /// How many rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::OptionalIntegers(values) => values.len(),
            Self::Reals(values) => values.len(),
            Self::OptionalReals(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::OptionalTexts(values) => values.len(),
            Self::Few(_, rows) => rows.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An error of the Parquet library as one of ours: of the file system, or of a file that is no table.
fn table_error(error: parquet::errors::ParquetError, doing: impl FnOnce() -> String) -> Error {
    match error {
        parquet::errors::ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(error) => Error::from_io(*error, doing()),
            Err(source) => Error::new(ErrorKind::Internal, doing()).caused_by(source),
        },
        other => Error::new(ErrorKind::Invalid, doing()).caused_by(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: [Column; 6] = [
        Column::integer("whole"),
        Column::optional_integer("perhaps"),
        Column::real("part"),
        Column::optional_real("perhaps_part"),
        Column::text("word"),
        Column::optional_text("perhaps_word"),
    ];

    type Row = (i64, Option<i64>, f64, Option<f64>, String, Option<String>);

    fn columns(rows: &[Row]) -> Vec<Values> {
        vec![
            Values::Integers(rows.iter().map(|row| row.0).collect()),
            Values::OptionalIntegers(rows.iter().map(|row| row.1).collect()),
            Values::Reals(rows.iter().map(|row| row.2).collect()),
            Values::OptionalReals(rows.iter().map(|row| row.3).collect()),
            Values::Texts(rows.iter().map(|row| row.4.as_str().into()).collect()),
            Values::OptionalTexts(rows.iter().map(|row| row.5.as_deref().map(Into::into)).collect()),
        ]
    }

    fn write(batches: &[Vec<Row>]) -> Vec<u8> {
        let mut writer = TableWriter::new(Vec::new(), "things", &COLUMNS).expect("columns that make sense");
        for batch in batches {
            writer.write(&columns(batch)).expect("memory takes everything");
        }
        writer.finish().expect("it ends")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_was_written_reads_back_and_equal_rows_are_equal_bytes(
            batches in prop::collection::vec(prop::collection::vec(any::<Row>(), 0..20), 0..4),
        ) {
            let bytes = write(&batches);
            prop_assert_eq!(&bytes, &write(&batches));
            let table = TableReader::from_bytes("things", bytes).and_then(|reader| reader.read())
                .expect("what was written");
            let rows: Vec<Row> = batches.concat();
            prop_assert_eq!(table.rows(), rows.len());
            prop_assert_eq!(table.integers("whole").expect("there").to_vec(),
                rows.iter().map(|row| row.0).collect::<Vec<_>>());
            prop_assert_eq!(table.optional_integers("perhaps").expect("there").to_vec(),
                rows.iter().map(|row| row.1).collect::<Vec<_>>());
            let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(table.reals("part").expect("there")),
                rows.iter().map(|row| row.2.to_bits()).collect::<Vec<_>>());
            let words: Vec<String> = table.texts("word").expect("there").iter().map(ToString::to_string).collect();
            prop_assert_eq!(words, rows.iter().map(|row| row.4.clone()).collect::<Vec<_>>());
            let words: Vec<Option<String>> = table.optional_texts("perhaps_word").expect("there").iter()
                .map(|word| word.as_deref().map(str::to_owned)).collect();
            prop_assert_eq!(words, rows.iter().map(|row| row.5.clone()).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>()) {
            let row = || (1, Some(2), 3.0, None, "four".to_owned(), Some("five".to_owned()));
            let mut bytes = write(&[vec![row(), row()], vec![row()]]);
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = TableReader::from_bytes("things", bytes.clone()).and_then(|reader| reader.read());
            bytes.truncate(cut.index(bytes.len()));
            let _ = TableReader::from_bytes("things", bytes).and_then(|reader| reader.read());
        }
    }

    #[test]
    fn few_texts_by_their_numbers_read_as_texts() {
        let names: Vec<Arc<str>> = vec!["read".into(), "write".into(), "ok".into()];
        let rows: Vec<u8> = (0..3000u32).map(|row| (row * row % 7 % 3) as u8).collect();
        let columns = [Column::text("word")];
        let mut writer = TableWriter::new(Vec::new(), "things", &columns).expect("columns that make sense");
        writer.write(&[Values::Few(names.clone(), rows.clone())]).expect("memory takes everything");
        assert_eq!(
            writer.write(&[Values::Few(names.clone(), vec![3])]).expect_err("there is no fourth").kind(),
            ErrorKind::Internal
        );
        let bytes = writer.finish().expect("it ends");
        let table =
            TableReader::from_bytes("things", bytes).and_then(|reader| reader.read()).expect("a table");
        let expected: Vec<_> = rows.iter().map(|row| Arc::clone(&names[usize::from(*row)])).collect();
        assert_eq!(table.texts("word").expect("there"), expected);
    }

    #[test]
    fn a_column_that_is_not_there_and_a_file_that_is_none_are_told() {
        let table =
            TableReader::from_bytes("things", write(&[])).and_then(|reader| reader.read()).expect("a table");
        assert_eq!((table.rows(), table.integers("whole").expect("there").len()), (0, 0));
        let error = table.integers("else").expect_err("it is not there");
        assert_eq!(error.to_string(), "the table `things` has no column `else` of integers");
        assert!(table.texts("whole").is_err(), "those are no texts");
        assert!(TableReader::from_bytes("others", write(&[])).is_err(), "another table");
        assert!(TableReader::from_bytes("things", b"PAR1 or not".to_vec()).is_err());
    }
}
