//! Values between commas: under a line of names, in any order; by names or numbers that the user gives; or laid out as a
//! published trace is.
//!
//! Names that are known by themselves. Times: `time_s`, `time_ms`, `time_us`, `time_ns` (`time` and `timestamp` are seconds
//! unless the unit is given). Places: `offset` in bytes, `sector` or `lba` in sectors. Lengths: `length`, `size` or
//! `bytes`, or `sectors`. What: `op`, `operation` or `type`, in words, letters or SCSI's codes. Optional: `device`, and `took_ns`,
//! `took_us`, `took_ms`, `took_s`. Other columns are passed over.

use super::columns::{ColumnNames, Layout, Named, TimeUnit};
use super::{Devices, Parsed, SECTOR};
use crate::access::{Access, Operation};
use crate::number::{digits, nanoseconds};

/// Where what stands: the number of a column, with its unit in nanoseconds or bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    time: (usize, u64),
    place: (usize, u64),
    length: (usize, u64),
    operation: usize,
    device: Option<usize>,
    took: Option<(usize, u64)>,
    /// Whether 0 is a read and 1 a write.
    is_numbered: bool,
}

fn time_unit(name: &str, usual: u64) -> Option<u64> {
    Some(match name {
        "time" | "timestamp" => usual,
        "time_s" | "seconds" => 1_000_000_000,
        "time_ms" => 1_000_000,
        "time_us" => 1000,
        "time_ns" => 1,
        _ => return None,
    })
}

/// The names of a first line.
fn names_of(line: &str) -> Vec<String> {
    line.split(',').map(|name| name.trim().trim_matches('"').to_ascii_lowercase()).collect()
}

impl Columns {
    /// What a first line says; what is missing, if it is not such a line. Times without a unit in their name are in `unit`.
    pub(crate) fn of(line: &str, unit: Option<TimeUnit>) -> Result<Self, &'static str> {
        let names = names_of(line);
        let find = |unit: &dyn Fn(&str) -> Option<u64>| {
            names.iter().enumerate().find_map(|(index, name)| Some((index, unit(name)?)))
        };
        let usual = unit.map_or(1_000_000_000, TimeUnit::nanoseconds);
        let place = |name: &str| match name {
            "offset" => Some(1),
            "sector" | "lba" => Some(SECTOR),
            _ => None,
        };
        let length = |name: &str| match name {
            "length" | "size" | "bytes" => Some(1),
            "sectors" => Some(SECTOR),
            _ => None,
        };
        let took =
            |name: &str| time_unit(&name.strip_prefix("took").map(|unit| format!("time{unit}"))?, usual);
        let operation = |name: &str| matches!(name, "op" | "operation" | "type").then_some(1);
        let device = |name: &str| (name == "device").then_some(1);
        Ok(Self {
            time: find(&|name| time_unit(name, usual))
                .ok_or("no column for the time: time_s, time_ms, time_us or time_ns")?,
            place: find(&place).ok_or("no column for the place: offset, or sector")?,
            length: find(&length).ok_or("no column for the length: length, or sectors")?,
            operation: find(&operation).ok_or("no column for the operation: op")?.0,
            device: find(&device).map(|(index, _)| index),
            took: find(&took),
            is_numbered: false,
        })
    }

    /// By the names or numbers that the user has given. Without a line of names `line` is `None`.
    pub(crate) fn named(
        columns: &ColumnNames,
        line: Option<&str>,
        unit: Option<TimeUnit>,
    ) -> Result<Self, &'static str> {
        let names = line.map(names_of);
        let index = |named: &Named| match &names {
            Some(names) => names.iter().position(|name| *name == named.column),
            None => named.column.parse::<usize>().ok().and_then(|number| number.checked_sub(1)),
        };
        let place = |role: &str, otherwise: &'static str| -> Result<(usize, u64), &'static str> {
            let named = columns.of(role).ok_or(otherwise)?;
            Ok((index(named).ok_or(otherwise)?, named.factor))
        };
        let time = unit.map_or(1_000_000_000, TimeUnit::nanoseconds);
        let optional = |role: &str, otherwise: &'static str| match columns.of(role) {
            None => Ok(None),
            Some(named) => index(named).map(Some).ok_or(otherwise),
        };
        Ok(Self {
            time: (place("time", "there is no column of the name given for the time")?.0, time),
            place: place("offset", "there is no column of the name given for the offset")?,
            length: place("length", "there is no column of the name given for the length")?,
            operation: place("operation", "there is no column of the name given for the operation")?.0,
            device: optional("device", "there is no column of the name given for the device")?,
            took: optional("took", "there is no column of the name given for how long it took")?
                .map(|index| (index, time)),
            is_numbered: false,
        })
    }

    /// As a published trace is laid out; times in another unit, if one is given.
    pub(crate) fn laid_out(layout: &Layout, unit: Option<TimeUnit>) -> Self {
        let in_unit = |(index, usual): (usize, u64)| (index, unit.map_or(usual, TimeUnit::nanoseconds));
        Self {
            time: in_unit(layout.time),
            place: layout.offset,
            length: layout.length,
            operation: layout.operation,
            device: layout.device,
            took: layout.took.map(in_unit),
            is_numbered: layout.is_numbered,
        }
    }

    fn operation(&self, word: &str) -> Option<Operation> {
        if self.is_numbered {
            return match word {
                "0" => Some(Operation::Read),
                "1" => Some(Operation::Write),
                _ => None,
            };
        }
        // SCSI's codes of READ and WRITE with 6, 10, 12 and 16 bytes, in hexadecimal (SBC-4).
        let code = word.strip_prefix("0x").unwrap_or(word).to_ascii_lowercase();
        Some(match code.as_str() {
            "r" | "read" | "28" | "88" | "a8" | "08" => Operation::Read,
            "w" | "write" | "2a" | "8a" | "aa" | "0a" => Operation::Write,
            "f" | "flush" | "sync" => Operation::Flush,
            "d" | "discard" | "trim" => Operation::Discard,
            _ => return None,
        })
    }

    pub(crate) fn parse(&self, line: &str, devices: &mut Devices) -> Parsed {
        let fields: Vec<&str> = line.split(',').map(|field| field.trim().trim_matches('"')).collect();
        let field = |index: usize| fields.get(index).copied().ok_or("fewer fields than names");
        let operation = self
            .operation(field(self.operation)?)
            .ok_or("the operation is none of read, write, flush, discard")?;
        let at_ns = nanoseconds(field(self.time.0)?, self.time.1).ok_or("the time is no number")?;
        let scaled = |(index, unit): (usize, u64), otherwise: &'static str| {
            digits(field(index)?).and_then(|number| number.checked_mul(unit)).ok_or(otherwise)
        };
        let (offset, length) = if operation == Operation::Flush {
            (0, 0)
        } else {
            (scaled(self.place, "the place is no number")?, scaled(self.length, "the length is no number")?)
        };
        if length == 0 && operation != Operation::Flush {
            return Err("the length is 0");
        }
        let took_ns = match self.took {
            Some((index, unit)) if !field(index)?.is_empty() => {
                Some(nanoseconds(field(index)?, unit).ok_or("how long it took is no number")?)
            }
            _ => None,
        };
        let device = match self.device {
            Some(index) => devices.number_of(field(index)?, None),
            None => 0,
        };
        Ok(Some(Access { at_ns, operation, device, offset, length, took_ns }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::{ALIBABA, CLOUDPHYSICS, SYSTOR, TENCENT};
    use super::*;

    fn one(columns: &Columns, line: &str) -> Access {
        columns.parse(line, &mut Devices::default()).expect(line).expect("an access")
    }

    #[test]
    fn columns_may_come_in_any_order_and_unit() {
        let columns = Columns::of("op,host,sectors,time_ms,LBA,took_us,device", None).expect("all there");
        let mut devices = Devices::default();
        let access =
            columns.parse("W,x,8,1.5,100,250,sdb", &mut devices).expect("a line").expect("an access");
        assert_eq!((access.at_ns, access.offset, access.length), (1_500_000, 51_200, 4096));
        assert_eq!((access.took_ns, access.operation), (Some(250_000), Operation::Write));
        let flush = columns.parse("flush,x,,2,,,sdb", &mut devices).expect("a line").expect("an access");
        assert_eq!((flush.length, flush.took_ns, flush.device), (0, None, access.device));
        let columns = Columns::of("time,op,offset,size", Some(TimeUnit::Nanoseconds)).expect("all there");
        assert_eq!(one(&columns, "1500,r,0,512").at_ns, 1500);
    }

    #[test]
    fn columns_are_found_by_the_names_or_numbers_that_are_given() {
        let names: ColumnNames = "time=ts,operation=cmd,offset=lbn*512,length=len".parse().expect("columns");
        let columns = Columns::named(&names, Some("sn,ts,LBN,len,cmd"), Some(TimeUnit::Microseconds));
        let access = one(&columns.expect("all there"), "7,250,8,4096,2a");
        assert_eq!((access.at_ns, access.offset, access.length), (250_000, 4096, 4096));
        assert_eq!(access.operation, Operation::Write);
        let why = Columns::named(&names, Some("sn,ts,lba,len,cmd"), None).expect_err("no lbn");
        assert!(why.contains("offset"), "{why}");
        let numbers: ColumnNames = "time=1,operation=2,offset=3,length=4,device=5".parse().expect("columns");
        let access = one(&Columns::named(&numbers, None, None).expect("numbers"), "1.5,0x28,4096,512,9");
        assert_eq!((access.at_ns, access.operation, access.device), (1_500_000_000, Operation::Read, 9));
    }

    #[test]
    fn published_traces_are_laid_out_as_they_are_described() {
        let of = |layout: &Layout, line: &str| {
            let access = one(&Columns::laid_out(layout, None), line);
            (access.at_ns, access.operation, access.device, access.offset, access.length, access.took_ns)
        };
        use Operation::{Read, Write};
        assert_eq!(
            of(&SYSTOR, "1455592215.5,0.000250,R,4,4096,8192"),
            (1_455_592_215_500_000_000, Read, 4, 4096, 8192, Some(250_000))
        );
        assert_eq!(of(&SYSTOR, "1455592215.5,,W,4,4096,8192").5, None, "one that is missing stays so");
        assert_eq!(
            of(&TENCENT, "1538323200,12910952,128,0,1063"),
            (1_538_323_200_000_000_000, Read, 1063, 12_910_952 * 512, 65_536, None)
        );
        assert_eq!(
            of(&ALIBABA, "64,W,38654705664,4096,1577808000000046"),
            (1_577_808_000_000_046_000, Write, 64, 38_654_705_664, 4096, None)
        );
        assert_eq!(of(&CLOUDPHYSICS, "250,8,28,4096"), (250_000, Read, 0, 4096, 4096, None));
    }

    #[test]
    fn what_is_missing_is_said() {
        let of = |line: &str| Columns::of(line, None);
        assert!(of("offset,length,op").expect_err("no time").contains("time"));
        assert!(of("time,length,op").expect_err("no place").contains("offset"));
        assert!(of("time,offset,op").expect_err("no length").contains("length"));
        assert!(of("time,offset,length").expect_err("no operation").contains("op"));
        let columns = of("time,offset,length,op").expect("all there");
        for line in ["1,2,3", "x,0,512,read", "1,x,512,read", "1,0,0,read", "1,0,512,leap"] {
            assert!(columns.parse(line, &mut Devices::default()).is_err(), "{line}");
        }
    }
}
