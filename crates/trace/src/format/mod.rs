//! The formats, and how one tells which a trace is in.

mod blkparse;
pub(crate) mod blktrace;
mod columns;
mod csv;
mod devices;
mod disksim;
mod fio;
mod msr;
mod spc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::Access;

use columns::{ALIBABA, CLOUDPHYSICS, Layout, SYSTOR, TENCENT};
pub use columns::{ColumnNames, TimeUnit};
use csv::Columns;
pub(crate) use devices::Devices;

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
    /// SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`.
    Systor,
    /// Tencent's block storage: `Timestamp,Offset,Size,IOType,VolumeID`.
    Tencent,
    /// Alibaba's virtual disks: `device_id,opcode,offset,length,timestamp`.
    Alibaba,
    /// `CloudPhysics` as values: `ts,lbn,op,len`.
    Cloudphysics,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Spc,
        Self::Msr,
        Self::Blkparse,
        Self::Blktrace,
        Self::Fio,
        Self::Disksim,
        Self::Csv,
        Self::Systor,
        Self::Tencent,
        Self::Alibaba,
        Self::Cloudphysics,
    ];

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
            Self::Systor => "systor",
            Self::Tencent => "tencent",
            Self::Alibaba => "alibaba",
            Self::Cloudphysics => "cloudphysics",
        }
    }

    /// How its values are laid out, if it is one of values.
    fn layout(self) -> Option<&'static Layout> {
        match self {
            Self::Systor => Some(&SYSTOR),
            Self::Tencent => Some(&TENCENT),
            Self::Alibaba => Some(&ALIBABA),
            Self::Cloudphysics => Some(&CLOUDPHYSICS),
            _ => None,
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
        // Some lines of names would do for a trace of any columns, in other units.
        if first.starts_with(msr::HEADER) {
            return Some(Self::Msr);
        }
        let published = [Self::Systor, Self::Tencent, Self::Alibaba, Self::Cloudphysics];
        let has_header =
            |format: &Self| format.layout().is_some_and(|layout| first.starts_with(layout.header));
        if let Some(format) = published.into_iter().find(has_header) {
            return Some(format);
        }
        if Columns::of(first, None).is_ok() {
            return Some(Self::Csv);
        }
        // What has no line of names is told by its fields; one of four values could be anything.
        let candidates =
            [Self::Msr, Self::Spc, Self::Blkparse, Self::Disksim, Self::Systor, Self::Alibaba, Self::Tencent];
        let score = |format: Self| {
            let mut lines_of = Lines::new(&Reading::of(format));
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

/// How a trace is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// How it is written.
    pub format: Format,
    /// Of values, which column holds what; default: by the names of the first line.
    pub columns: Option<ColumnNames>,
    /// The unit of its times, where the format's own is not meant.
    pub time_unit: Option<TimeUnit>,
}

impl Reading {
    /// As the format is described.
    pub fn of(format: Format) -> Self {
        Self { format, columns: None, time_unit: None }
    }

    /// Whether a trace that begins like this can be read so; else what is missing, and what to do.
    pub fn check(&self, beginning: &[u8]) -> Result<(), String> {
        if self.format != Format::Csv {
            return match (&self.columns, self.time_unit) {
                (Some(_), _) => {
                    Err(format!("columns are named of csv, and this is read as {}", self.format.name()))
                }
                (_, Some(_)) if matches!(self.format, Format::Blkparse | Format::Blktrace | Format::Fio) => {
                    Err(format!("the times of {} have one unit", self.format.name()))
                }
                _ => Ok(()),
            };
        }
        let text = String::from_utf8_lossy(beginning);
        let Some(first) = text.lines().map(str::trim).find(|line| !line.is_empty()) else { return Ok(()) };
        let found = match &self.columns {
            Some(columns) if columns.are_numbers() => return Ok(()),
            Some(columns) => Columns::named(columns, Some(first), self.time_unit).map_err(|why| {
                let names: Vec<&str> = columns.names().collect();
                format!("{why} ({} were given)", names.join(", "))
            }),
            None => Columns::of(first, self.time_unit).map_err(str::to_owned),
        };
        let seen: String = first.chars().filter(|c| !c.is_control()).take(100).collect();
        found.map(drop).map_err(|why| {
            format!("{why}; the first line is `{seen}`; name columns with --columns time=ts,operation=op,offset=lbn*512,length=len")
        })
    }
}

/// A text format at work: what earlier lines said that later ones need.
#[derive(Debug)]
pub(crate) struct Lines {
    reading: Reading,
    devices: Devices,
    columns: Option<Columns>,
    is_first: bool,
    fio: fio::State,
}

impl Lines {
    pub(crate) fn new(reading: &Reading) -> Self {
        let columns = match (&reading.columns, reading.format.layout()) {
            (_, Some(layout)) => Some(Columns::laid_out(layout, reading.time_unit)),
            (Some(columns), None) if columns.are_numbers() => {
                Columns::named(columns, None, reading.time_unit).ok()
            }
            _ => None,
        };
        let reading = reading.clone();
        Self { reading, devices: Devices::default(), columns, is_first: true, fio: fio::State::default() }
    }

    /// What a line that is not empty says.
    pub(crate) fn parse(&mut self, line: &str) -> Parsed {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let unit = self.reading.time_unit;
        match self.reading.format {
            Format::Spc => spc::parse(line, unit),
            Format::Msr => msr::parse(line, &mut self.devices, unit),
            Format::Blkparse => blkparse::parse(line),
            Format::Fio => self.fio.parse(line, &mut self.devices),
            Format::Disksim => disksim::parse(line, unit),
            Format::Csv | Format::Systor | Format::Tencent | Format::Alibaba | Format::Cloudphysics => {
                let header = self.reading.format.layout().map(|layout| layout.header);
                if is_first && header.is_some_and(|header| line.starts_with(header)) {
                    return Ok(None);
                }
                if let Some(columns) = &self.columns {
                    let fields = self.reading.format.layout().map(|layout| layout.fields);
                    if fields.is_some_and(|fields| line.split(',').count() != fields) {
                        return Err("not as many fields as the format has");
                    }
                    return columns.parse(line, &mut self.devices);
                }
                self.columns = Some(match &self.reading.columns {
                    Some(columns) => Columns::named(columns, Some(line), unit)?,
                    None => Columns::of(line, unit)?,
                });
                Ok(None)
            }
            Format::Blktrace => Err("binary records are no lines"),
        }
    }
}

/// Bytes of a sector, in which most formats count.
pub(crate) const SECTOR: u64 = 512;
