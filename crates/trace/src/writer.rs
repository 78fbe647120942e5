//! A trace written anew, in a format that has room for it.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};

use crate::access::{Access, Operation};
use crate::format::{Format, SECTOR};

/// Why a trace cannot be written in a format.
#[derive(Debug)]
pub enum Unwritable {
    /// Only the tools that print it write it.
    Format(Format),
    /// The format has no word for the operation.
    Operation(Format, Operation),
    /// The output failed.
    Io(io::Error),
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(format) => {
                write!(f, "{} is read and not written; write spc, msr, fio, disksim or csv", format.name())
            }
            Self::Operation(format, operation) => {
                let (format, word) = (format.name(), operation.word());
                write!(f, "{format} has no {word}; leave such accesses out, or write csv or fio")
            }
            Self::Io(error) => write!(f, "writing the trace: {error}"),
        }
    }
}

impl std::error::Error for Unwritable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Format(_) | Self::Operation(..) => None,
        }
    }
}

/// Writes accesses one after the other.
pub struct Writer<W> {
    output: W,
    format: Format,
    /// Devices that fio has been told of; it replays none that it has not.
    opened: BTreeSet<u32>,
    last_ns: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace in `format`. Fails if that is not written here, or the output fails.
    pub fn new(mut output: W, format: Format) -> Result<Self, Unwritable> {
        match format {
            Format::Spc | Format::Msr | Format::Disksim => {}
            Format::Fio => writeln!(output, "fio version 3 iolog").map_err(Unwritable::Io)?,
            Format::Csv => {
                writeln!(output, "time_ns,op,device,offset,length,took_ns").map_err(Unwritable::Io)?;
            }
            Format::Blkparse
            | Format::Blktrace
            | Format::Systor
            | Format::Tencent
            | Format::Alibaba
            | Format::Cloudphysics => return Err(Unwritable::Format(format)),
        }
        Ok(Self { output, format, opened: BTreeSet::new(), last_ns: 0 })
    }

    /// Whether the format has a word for it.
    pub fn knows(&self, operation: Operation) -> bool {
        match self.format {
            Format::Fio | Format::Csv => true,
            _ => matches!(operation, Operation::Read | Operation::Write),
        }
    }

    /// Writes an access. Formats that count in sectors get its first and last whole.
    pub fn write(&mut self, access: &Access) -> Result<(), Unwritable> {
        let Access { at_ns, operation, device, offset, length, took_ns } = *access;
        if !self.knows(operation) {
            return Err(Unwritable::Operation(self.format, operation));
        }
        let is_read = operation == Operation::Read;
        let output = &mut self.output;
        let written = match self.format {
            Format::Spc => {
                let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
                let letter = if is_read { 'R' } else { 'W' };
                writeln!(output, "{device},{},{length},{letter},{seconds}.{rest:09}", offset / SECTOR)
            }
            Format::Msr => {
                let word = if is_read { "Read" } else { "Write" };
                // What is not known stays so: 0 would say that it took no time.
                let took = took_ns.map_or_else(String::new, |took| (took / 100).to_string());
                writeln!(output, "{},trace,{device},{word},{offset},{length},{took}", at_ns / 100)
            }
            Format::Disksim => {
                let (first, end) = (offset / SECTOR, offset.saturating_add(length).div_ceil(SECTOR));
                let (milliseconds, rest) = (at_ns / 1_000_000, at_ns % 1_000_000);
                let flags = u8::from(is_read);
                writeln!(output, "{milliseconds}.{rest:06} {device} {first} {} {flags}", end - first)
            }
            Format::Fio => {
                let time = at_ns / 1000;
                if self.opened.insert(device) {
                    writeln!(output, "{time} device-{device} add\n{time} device-{device} open")
                        .map_err(Unwritable::Io)?;
                }
                self.last_ns = at_ns;
                let action = match operation {
                    Operation::Discard => "trim",
                    Operation::Flush => "sync",
                    Operation::Read | Operation::Write => operation.word(),
                };
                writeln!(output, "{time} device-{device} {action} {offset} {length}")
            }
            Format::Csv => {
                let took = took_ns.map_or_else(String::new, |took| took.to_string());
                writeln!(output, "{at_ns},{},{device},{offset},{length},{took}", operation.word())
            }
            Format::Blkparse
            | Format::Blktrace
            | Format::Systor
            | Format::Tencent
            | Format::Alibaba
            | Format::Cloudphysics => return Err(Unwritable::Format(self.format)),
        };
        written.map_err(Unwritable::Io)
    }

    /// Ends the trace.
    pub fn finish(mut self) -> Result<W, Unwritable> {
        let time = self.last_ns / 1000;
        for device in &self.opened {
            writeln!(self.output, "{time} device-{device} close").map_err(Unwritable::Io)?;
        }
        self.output.flush().map_err(Unwritable::Io)?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reader::{Limits, Reader};

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            entries in prop::collection::vec((0u64..1 << 50, any::<bool>(), 0u32..4, 0u64..1 << 40, 1u64..1000), 1..40),
        ) {
            let mut time = 0;
            let accesses: Vec<Access> = entries
                .into_iter()
                .map(|(step, is_read, device, sector, sectors)| {
                    // In units that every format has.
                    time += step / 1000 * 1000;
                    let operation = if is_read { Operation::Read } else { Operation::Write };
                    let (offset, length) = (sector * SECTOR, sectors * SECTOR);
                    Access { at_ns: time, operation, device, offset, length, took_ns: None }
                })
                .collect();
            let began = accesses[0].at_ns;
            for format in [Format::Spc, Format::Msr, Format::Disksim, Format::Fio, Format::Csv] {
                let mut writer = Writer::new(Vec::new(), format).expect("is written");
                for access in &accesses {
                    writer.write(access).expect("memory takes it");
                }
                let bytes = writer.finish().expect("memory takes it");
                let read: Vec<Access> = Reader::new(&bytes[..], format, Limits { malformed: 0 })
                    .collect::<Result<_, _>>()
                    .expect("is of its format");
                prop_assert_eq!(read.len(), accesses.len());
                for (read, access) in read.iter().zip(&accesses) {
                    prop_assert_eq!(read.at_ns, access.at_ns - began, "{}", format.name());
                    prop_assert_eq!((read.operation, read.offset, read.length), (access.operation, access.offset, access.length));
                    prop_assert_eq!((read.device, read.took_ns), (access.device, None), "{}", format.name());
                }
            }
        }
    }

    #[test]
    fn what_a_format_has_no_word_for_is_said() {
        let flush =
            Access { at_ns: 0, operation: Operation::Flush, device: 0, offset: 0, length: 0, took_ns: None };
        let mut writer = Writer::new(Vec::new(), Format::Spc).expect("is written");
        assert!(!writer.knows(Operation::Flush));
        assert!(writer.write(&flush).expect_err("no word").to_string().contains("spc has no flush"));
        assert!(
            Writer::new(Vec::new(), Format::Blktrace).err().expect("only read").to_string().contains("csv")
        );
        let mut writer = Writer::new(Vec::new(), Format::Fio).expect("is written");
        writer.write(&flush).expect("fio syncs");
        let bytes = writer.finish().expect("memory takes it");
        let read: Vec<_> =
            Reader::new(&bytes[..], Format::Fio, Limits::default()).filter_map(Result::ok).collect();
        assert_eq!(read, [flush]);
    }
}
