//! The formats, and how one tells which a trace is in.

mod blkparse;
pub(crate) mod blktrace;
mod csv;
mod disksim;
mod fio;
mod msr;
mod spc;

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::Access;

pub(crate) use csv::Columns;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The trace file format of the Storage Performance Council, revision 1.0.1: `ASU,LBA,size,opcode,seconds`.
    Spc,
    /// The traces of Microsoft Research Cambridge (SNIA IOTTA): `time,host,disk,type,offset,size,response time`, times in
    /// 100 ns.
    Msr,
    /// What blkparse prints unless it is told otherwise; its queue events.
    Blkparse,
    /// blktrace's binary records, version 7; their queue events.
    Blktrace,
    /// fio's I/O log, version 2 or 3.
    Fio,
    /// DiskSim's ASCII: `milliseconds device block blocks flags`.
    Disksim,
    /// Comma-separated values under a line of names.
    Csv,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Spc, Self::Msr, Self::Blkparse, Self::Blktrace, Self::Fio, Self::Disksim, Self::Csv];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spc => "spc",
            Self::Msr => "msr",
            Self::Blkparse => "blkparse",
            Self::Blktrace => "blktrace",
            Self::Fio => "fio",
            Self::Disksim => "disksim",
            Self::Csv => "csv",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Which format a trace is in that begins with these bytes, of which there should be some lines. `None` if it is
    /// none of ours, or too little to tell.
    pub fn detect(beginning: &[u8]) -> Option<Self> {
        if blktrace::is_beginning(beginning) {
            return Some(Self::Blktrace);
        }
        // The last line may be cut off.
        let end = beginning.iter().rposition(|&byte| byte == b'\n').unwrap_or(beginning.len());
        let text = String::from_utf8_lossy(&beginning[..end]);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(20).collect();
        let first = *lines.first()?;
        if fio::version(first).is_some() {
            return Some(Self::Fio);
        }
        if Columns::of(first).is_ok() {
            return Some(Self::Csv);
        }
        let candidates = [Self::Msr, Self::Spc, Self::Blkparse, Self::Disksim];
        let score = |format: Self| {
            let mut lines_of = Lines::new(format);
            let is_own = |line: &&&str| match lines_of.parse(line) {
                Ok(Some(_)) => true,
                // Most events of blkparse are no accesses.
                Ok(None) => {
                    format == Self::Blkparse && line.starts_with(|first: char| first.is_ascii_digit())
                }
                Err(_) => false,
            };
            lines.iter().filter(is_own).count()
        };
        let (format, count) = candidates
            .into_iter()
            .map(|format| (format, score(format)))
            .rev()
            .max_by_key(|(_, count)| *count)?;
        (count * 2 > lines.len()).then_some(format)
    }
}

/// A line as a format understands it: an access whose time is absolute, nothing, or what is wrong.
pub(crate) type Parsed = Result<Option<Access>, &'static str>;

/// A text format at work: what earlier lines said that later ones need.
#[derive(Debug)]
pub(crate) struct Lines {
    format: Format,
    /// Devices that have names, by their order.
    names: HashMap<String, u32>,
    columns: Option<Columns>,
    fio: fio::State,
}

impl Lines {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, names: HashMap::new(), columns: None, fio: fio::State::default() }
    }

    /// What a line that is not empty says.
    pub(crate) fn parse(&mut self, line: &str) -> Parsed {
        match self.format {
            Format::Spc => spc::parse(line),
            Format::Msr => msr::parse(line, &mut self.names),
            Format::Blkparse => blkparse::parse(line),
            Format::Fio => self.fio.parse(line, &mut self.names),
            Format::Disksim => disksim::parse(line),
            Format::Csv => match &self.columns {
                Some(columns) => columns.parse(line, &mut self.names),
                None => {
                    self.columns = Some(Columns::of(line)?);
                    Ok(None)
                }
            },
            Format::Blktrace => Err("binary records are no lines"),
        }
    }
}

/// The number of a name: that of its first appearance.
pub(crate) fn number_of(names: &mut HashMap<String, u32>, name: &str) -> u32 {
    if let Some(number) = names.get(name) {
        return *number;
    }
    let number = u32::try_from(names.len()).unwrap_or(u32::MAX);
    names.insert(name.to_owned(), number);
    number
}

/// Bytes of a sector, in which most formats count.
pub(crate) const SECTOR: u64 = 512;
