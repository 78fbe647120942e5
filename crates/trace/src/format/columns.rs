//! Which column of a table of values holds what: by the user's word, or as a published trace has it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::SECTOR;

/// What a column can hold.
const ROLES: [&str; 6] = ["time", "operation", "offset", "length", "device", "took"];
/// What every trace must tell.
const NEEDED: [&str; 4] = ["time", "operation", "offset", "length"];

/// Names of columns, each for what it holds, some with a factor: `time=ts,operation=op,offset=lbn*512,length=len`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct ColumnNames(Vec<(String, Named)>);

/// A column and what its numbers are multiplied by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Named {
    /// Its name in the first line, or its number from 1 where there are no names.
    pub(crate) column: String,
    pub(crate) factor: u64,
}

impl ColumnNames {
    /// The column that holds this.
    pub(crate) fn of(&self, role: &str) -> Option<&Named> {
        self.0.iter().find(|(known, _)| known == role).map(|(_, named)| named)
    }

    /// Whether columns are numbered, so that there is no line of names.
    pub(crate) fn are_numbers(&self) -> bool {
        self.0.iter().all(|(_, named)| named.column.parse::<usize>().is_ok())
    }

    /// The names, for a message.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, named)| named.column.as_str())
    }
}

impl FromStr for ColumnNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write for example time=ts,operation=op,offset=lbn*512,length=len";
        let mut columns: Vec<(String, Named)> = Vec::new();
        for part in text.split(',') {
            let (role, column) =
                part.split_once('=').ok_or_else(|| format!("`{part}` names no column; {EXAMPLE}"))?;
            let role = role.trim();
            if !ROLES.contains(&role) {
                return Err(format!("no column holds `{role}`; they hold {}", ROLES.join(", ")));
            }
            if columns.iter().any(|(known, _)| known == role) {
                return Err(format!("`{role}` is given twice"));
            }
            let (column, factor) = match column.split_once('*') {
                Some((column, factor)) => {
                    let factor = factor.trim().parse().ok().filter(|factor| *factor > 0);
                    (
                        column,
                        factor.ok_or_else(|| format!("`{part}` has no whole factor above 0; {EXAMPLE}"))?,
                    )
                }
                None => (column, 1),
            };
            if factor != 1 && !matches!(role, "offset" | "length") {
                return Err(format!("`{role}` takes no factor; for times give the unit with --time-unit"));
            }
            let column = column.trim().to_lowercase();
            if column.is_empty() {
                return Err(format!("`{part}` names no column; {EXAMPLE}"));
            }
            columns.push((role.to_owned(), Named { column, factor }));
        }
        let missing: Vec<&str> =
            NEEDED.into_iter().filter(|needed| columns.iter().all(|(role, _)| role != needed)).collect();
        match missing.as_slice() {
            [] => Ok(Self(columns)),
            missing => Err(format!("no column is named for the {}; {EXAMPLE}", missing.join(", "))),
        }
    }
}

impl fmt::Display for ColumnNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (role, Named { column, factor })) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{role}={column}")?;
            if *factor != 1 {
                write!(f, "*{factor}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for ColumnNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ColumnNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The unit of the times of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TimeUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Ticks of Windows.
    #[serde(rename = "100ns")]
    HundredNanoseconds,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
}

impl TimeUnit {
    /// In nanoseconds.
    pub(crate) fn nanoseconds(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Milliseconds => 1_000_000,
            Self::Microseconds => 1_000,
            Self::HundredNanoseconds => 100,
            Self::Nanoseconds => 1,
        }
    }
}

impl FromStr for TimeUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "s" => Self::Seconds,
            "ms" => Self::Milliseconds,
            "us" => Self::Microseconds,
            "100ns" => Self::HundredNanoseconds,
            "ns" => Self::Nanoseconds,
            _ => return Err(format!("`{text}` is none of s, ms, us, 100ns and ns")),
        })
    }
}

/// How a published trace of values is laid out: the number of each column from 0, its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// How its line of names begins, if it has one.
    pub(crate) header: &'static str,
    pub(crate) fields: usize,
    pub(crate) time: (usize, u64),
    pub(crate) operation: usize,
    pub(crate) offset: (usize, u64),
    pub(crate) length: (usize, u64),
    pub(crate) device: Option<usize>,
    pub(crate) took: Option<(usize, u64)>,
    /// Whether 0 is a read and 1 a write.
    pub(crate) is_numbered: bool,
}

/// SYSTOR '17 (C. Lee and others: Understanding Storage Traffic Characteristics on Enterprise Virtual Desktop
/// Infrastructure): `Timestamp,Response,IOType,LUN,Offset,Size`, seconds and bytes.
pub(crate) const SYSTOR: Layout = Layout {
    header: "Timestamp,Response",
    fields: 6,
    time: (0, 1_000_000_000),
    took: Some((1, 1_000_000_000)),
    operation: 2,
    device: Some(3),
    offset: (4, 1),
    length: (5, 1),
    is_numbered: false,
};

/// Tencent's block storage (Y. Zhang and others: OSCA, ATC 2020): `Timestamp,Offset,Size,IOType,VolumeID`, seconds and sectors.
pub(crate) const TENCENT: Layout = Layout {
    header: "Timestamp,Offset",
    fields: 5,
    time: (0, 1_000_000_000),
    took: None,
    operation: 3,
    device: Some(4),
    offset: (1, SECTOR),
    length: (2, SECTOR),
    is_numbered: true,
};

/// Alibaba's virtual disks (J. Li and others: An In-Depth Analysis of Cloud Block Storage Workloads, IISWC 2020):
/// `device_id,opcode,offset,length,timestamp`, bytes and microseconds.
pub(crate) const ALIBABA: Layout = Layout {
    header: "device_id,opcode",
    fields: 5,
    time: (4, 1_000),
    took: None,
    operation: 1,
    device: Some(0),
    offset: (2, 1),
    length: (3, 1),
    is_numbered: false,
};

/// `CloudPhysics` (C. Waldspurger and others: SHARDS, FAST 2015), as values: `ts,lbn,op,len`, microseconds, sectors and bytes;
/// operations are SCSI's codes.
pub(crate) const CLOUDPHYSICS: Layout = Layout {
    header: "ts,lb",
    fields: 4,
    time: (0, 1_000),
    took: None,
    operation: 2,
    device: None,
    offset: (1, SECTOR),
    length: (3, 1),
    is_numbered: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_named_once_and_all_that_are_needed() {
        let text = "time=ts,operation=op,offset=lbn*512,length=len,device=vol";
        let columns: ColumnNames = text.parse().expect("columns");
        assert_eq!(columns.to_string(), text);
        assert_eq!(columns.of("offset"), Some(&Named { column: "lbn".into(), factor: 512 }));
        assert!(!columns.are_numbers());
        assert!(
            "time=1,operation=2,offset=3,length=4".parse::<ColumnNames>().expect("numbers").are_numbers()
        );
        for (text, wanted) in [
            ("time=ts,operation=op", "offset, length"),
            ("time=a,time=b,operation=o,offset=f,length=l", "twice"),
            ("when=a", "no column holds `when`"),
            ("time", "names no column"),
            ("time=a*5,operation=o,offset=f,length=l", "--time-unit"),
            ("time=a,operation=o,offset=f*0,length=l", "factor"),
        ] {
            let error = text.parse::<ColumnNames>().expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
