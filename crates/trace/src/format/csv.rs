//! Values between commas under a line of names, in any order. Times: `time_s`, `time_ms`, `time_us`, `time_ns` (`time` and
//! `timestamp` are seconds). Places: `offset` in bytes, `sector` or `lba` in sectors. Lengths: `length`, `size` or `bytes`,
//! or `sectors`. What: `op`, `operation` or `type`, in words or letters. Optional: `device`, and `took_ns`, `took_us`,
//! `took_ms`, `took_s`. Other columns are passed over.

use std::collections::HashMap;

use super::{Parsed, SECTOR, number_of};
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
}

fn time_unit(name: &str) -> Option<u64> {
    Some(match name {
        "time" | "timestamp" | "time_s" | "seconds" => 1_000_000_000,
        "time_ms" => 1_000_000,
        "time_us" => 1000,
        "time_ns" => 1,
        _ => return None,
    })
}

impl Columns {
    /// What a first line says; what is missing, if it is not such a line.
    pub(crate) fn of(line: &str) -> Result<Self, &'static str> {
        let names: Vec<String> =
            line.split(',').map(|name| name.trim().trim_matches('"').to_ascii_lowercase()).collect();
        let find = |unit: &dyn Fn(&str) -> Option<u64>| {
            names.iter().enumerate().find_map(|(index, name)| Some((index, unit(name)?)))
        };
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
        let took = |name: &str| time_unit(&name.strip_prefix("took").map(|unit| format!("time{unit}"))?);
        let operation = |name: &str| matches!(name, "op" | "operation" | "type").then_some(1);
        let device = |name: &str| (name == "device").then_some(1);
        Ok(Self {
            time: find(&time_unit).ok_or("no column for the time: time_s, time_ms, time_us or time_ns")?,
            place: find(&place).ok_or("no column for the place: offset, or sector")?,
            length: find(&length).ok_or("no column for the length: length, or sectors")?,
            operation: find(&operation).ok_or("no column for the operation: op")?.0,
            device: find(&device).map(|(index, _)| index),
            took: find(&took),
        })
    }

    pub(crate) fn parse(&self, line: &str, names: &mut HashMap<String, u32>) -> Parsed {
        let fields: Vec<&str> = line.split(',').map(|field| field.trim().trim_matches('"')).collect();
        let field = |index: usize| fields.get(index).copied().ok_or("fewer fields than names");
        let operation = match field(self.operation)? {
            "r" | "R" | "read" | "Read" | "READ" => Operation::Read,
            "w" | "W" | "write" | "Write" | "WRITE" => Operation::Write,
            "f" | "F" | "flush" | "sync" | "FLUSH" => Operation::Flush,
            "d" | "D" | "discard" | "trim" | "DISCARD" => Operation::Discard,
            _ => return Err("the operation is none of read, write, flush, discard"),
        };
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
            Some(index) => number_of(names, field(index)?),
            None => 0,
        };
        Ok(Some(Access { at_ns, operation, device, offset, length, took_ns }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_may_come_in_any_order_and_unit() {
        let columns = Columns::of("op,host,sectors,time_ms,LBA,took_us,device").expect("all there");
        let mut names = HashMap::new();
        let access = columns.parse("W,x,8,1.5,100,250,sdb", &mut names).expect("a line").expect("an access");
        assert_eq!((access.at_ns, access.offset, access.length), (1_500_000, 51_200, 4096));
        assert_eq!((access.took_ns, access.operation), (Some(250_000), Operation::Write));
        let flush = columns.parse("flush,x,,2,,,sdb", &mut names).expect("a line").expect("an access");
        assert_eq!((flush.length, flush.took_ns, flush.device), (0, None, access.device));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(Columns::of("offset,length,op").expect_err("no time").contains("time"));
        assert!(Columns::of("time,length,op").expect_err("no place").contains("offset"));
        assert!(Columns::of("time,offset,op").expect_err("no length").contains("length"));
        assert!(Columns::of("time,offset,length").expect_err("no operation").contains("op"));
        let columns = Columns::of("time,offset,length,op").expect("all there");
        for line in ["1,2,3", "x,0,512,read", "1,x,512,read", "1,0,0,read", "1,0,512,leap"] {
            assert!(columns.parse(line, &mut HashMap::new()).is_err(), "{line}");
        }
    }
}
