//! Moments and spans on the clock of a run: a row of `marks.parquet`.

use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result, Time};
use serde::Serialize;

use crate::phase::current;
use crate::table::{Column, Table, Values};

/// What a mark is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// A part of the run: `prefill`, `ramp_up`, `run`, `cool_down`, `check`.
    Phase,
    /// A rule was enabled and its schedule let it hit: the window of a fault.
    Window,
    /// From the first to the last injection of a rule, and how many there were.
    Injections,
    /// Something happened at one moment: the first error of a kind that the load met.
    Event,
}

impl MarkKind {
    const ALL: [Self; 4] = [Self::Phase, Self::Window, Self::Injections, Self::Event];

    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Phase => "phase",
            Self::Window => "window",
            Self::Injections => "injections",
            Self::Event => "event",
        }
    }

    /// Whether that is its word, or was in the first form of results.
    fn is_word(self, word: &str) -> bool {
        word == self.word() || (self == Self::Injections && word == "hits")
    }
}

/// A moment or a span that belongs beside the intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Of what.
    pub kind: MarkKind,
    /// Of which phase, rule or event.
    pub name: Arc<str>,
    /// In nanoseconds since the run began.
    pub from_ns: u64,
    /// The end of a span; none of a moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
    /// How often, for what can be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// What there is to say of it for people; may be empty.
    pub text: Arc<str>,
}

impl Mark {
    /// A span.
    pub fn span(kind: MarkKind, name: &str, from: Time, until: Time) -> Self {
        Self {
            kind,
            name: name.into(),
            from_ns: from.0,
            until_ns: Some(until.0),
            count: None,
            text: "".into(),
        }
    }

    /// A moment.
    pub fn moment(kind: MarkKind, name: &str, at: Time) -> Self {
        Self { kind, name: name.into(), from_ns: at.0, until_ns: None, count: None, text: "".into() }
    }
}

/// The columns of `marks.parquet`, in their order.
pub(crate) const COLUMNS: [Column; 6] = [
    Column::text("kind"),
    Column::text("name"),
    Column::integer("from_ns"),
    Column::optional_integer("until_ns"),
    Column::optional_integer("count"),
    Column::text("text"),
];

/// Marks as columns.
pub(crate) fn to_columns(marks: &[Mark]) -> Vec<Values> {
    let optional = |value: fn(&Mark) -> Option<u64>| {
        Values::OptionalIntegers(
            marks
                .iter()
                .map(|mark| value(mark).map(|value| i64::try_from(value).unwrap_or(i64::MAX)))
                .collect(),
        )
    };
    vec![
        Values::Texts(marks.iter().map(|mark| mark.kind.word().into()).collect()),
        Values::Texts(marks.iter().map(|mark| Arc::clone(&mark.name)).collect()),
        Values::Integers(marks.iter().map(|mark| mark.from_ns as i64).collect()),
        optional(|mark| mark.until_ns),
        optional(|mark| mark.count),
        Values::Texts(marks.iter().map(|mark| Arc::clone(&mark.text)).collect()),
    ]
}

/// The marks of a table that was read.
pub(crate) fn from_table(table: &Table) -> Result<Vec<Mark>> {
    let (kinds, names, texts) = (table.texts("kind")?, table.texts("name")?, table.texts("text")?);
    let from = table.integers("from_ns")?;
    let (until, count) = (table.optional_integers("until_ns")?, table.optional_integers("count")?);
    let rows = (0..table.rows()).map(|row| {
        let kind = MarkKind::ALL.into_iter().find(|kind| kind.is_word(&kinds[row])).ok_or_else(|| {
            let message = format!("marks.parquet has a mark of the unknown kind `{}`", kinds[row]);
            Error::new(ErrorKind::Invalid, message)
        })?;
        Ok(Mark {
            kind,
            name: if kind == MarkKind::Phase { current(&names[row]) } else { Arc::clone(&names[row]) },
            from_ns: from[row].unsigned_abs(),
            until_ns: until[row].map(i64::unsigned_abs),
            count: count[row].map(i64::unsigned_abs),
            text: Arc::clone(&texts[row]),
        })
    });
    rows.collect()
}
