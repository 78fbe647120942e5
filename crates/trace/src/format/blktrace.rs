//! blktrace's binary records: 48 bytes each, in the byte order of the machine that recorded, and as many bytes behind them
//! as they say. (`include/uapi/linux/blktrace_api.h`, version 7.)

use crate::access::{Access, Operation};
use crate::format::SECTOR;

/// Bytes of a record before what belongs to it.
pub(crate) const RECORD_BYTES: usize = 48;
/// The beginning of a record, with the version in its lowest byte.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
/// The action in the lower half: a request is queued.
const QUEUED: u32 = 1;
/// Bits of the upper half.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const READ: u32 = 1;

/// A record, or why it is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Nothing, if it says nothing of an access.
    pub access: Option<Access>,
    /// Bytes that follow it and belong to it.
    pub extra_bytes: usize,
}

/// Whether a trace that begins so is one.
pub(crate) fn is_beginning(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|magic| is_little_endian(*magic).is_some())
}

/// The byte order that a record's first four bytes tell.
fn is_little_endian(magic: [u8; 4]) -> Option<bool> {
    if u32::from_le_bytes(magic) == MAGIC | VERSION {
        Some(true)
    } else if u32::from_be_bytes(magic) == MAGIC | VERSION {
        Some(false)
    } else {
        None
    }
}

/// What a record says.
pub(crate) fn parse(bytes: &[u8; RECORD_BYTES]) -> Result<Event, &'static str> {
    let word = |at: usize| -> [u8; 4] { bytes[at..at + 4].try_into().expect("four bytes") };
    let little = is_little_endian(word(0)).ok_or("no record of blktrace's version 7")?;
    let short = |at: usize| -> u16 {
        let bytes = bytes[at..at + 2].try_into().expect("two bytes");
        if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    };
    let number = |at: usize| -> u32 {
        if little { u32::from_le_bytes(word(at)) } else { u32::from_be_bytes(word(at)) }
    };
    let long = |at: usize| -> u64 {
        let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
        if little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) }
    };
    let (time, sector, length, action, device) = (long(8), long(16), number(24), number(28), number(36));
    let extra_bytes = usize::from(short(46));
    let (event, kind) = (action & 0xffff, action >> 16);
    if event != QUEUED || kind & NOTIFY != 0 {
        return Ok(Event { access: None, extra_bytes });
    }
    let operation = match kind {
        kind if kind & DISCARD != 0 => Operation::Discard,
        kind if kind & FLUSH != 0 && length == 0 => Operation::Flush,
        kind if kind & WRITE != 0 => Operation::Write,
        kind if kind & READ != 0 => Operation::Read,
        _ => return Ok(Event { access: None, extra_bytes }),
    };
    if length == 0 && operation != Operation::Flush {
        return Ok(Event { access: None, extra_bytes });
    }
    let offset =
        if length == 0 { 0 } else { sector.checked_mul(SECTOR).ok_or("the sector is beyond any device")? };
    let access = Access { at_ns: time, operation, device, offset, length: length.into(), took_ns: None };
    Ok(Event { access: Some(access), extra_bytes })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record as the kernel writes it, in either byte order.
    pub(crate) fn record(
        little: bool,
        time: u64,
        sector: u64,
        bytes: u32,
        action: u32,
        extra: u16,
    ) -> Vec<u8> {
        let mut record = Vec::new();
        let mut put = |value: u64, size: usize| {
            let le = value.to_le_bytes();
            let mut field = le[..size].to_vec();
            if !little {
                field.reverse();
            }
            record.extend(field);
        };
        for (value, size) in [
            (u64::from(MAGIC | VERSION), 4),
            (1, 4),
            (time, 8),
            (sector, 8),
            (bytes.into(), 4),
            (action.into(), 4),
            (99, 4),
            (8 << 20 | 16, 4),
            (0, 4),
            (0, 2),
            (extra.into(), 2),
        ] {
            put(value, size);
        }
        record
    }

    #[test]
    fn records_of_either_byte_order_are_read() {
        for little in [true, false] {
            let bytes = record(little, 5_000, 100, 4096, QUEUED | WRITE << 16, 7);
            assert!(is_beginning(&bytes));
            let record = parse(bytes.first_chunk().expect("48 bytes")).expect("a record");
            let access = record.access.expect("a queued write");
            assert_eq!((access.at_ns, access.offset, access.length), (5_000, 51_200, 4096));
            assert_eq!(
                (access.operation, access.device, record.extra_bytes),
                (Operation::Write, 8 << 20 | 16, 7)
            );
        }
    }

    #[test]
    fn what_is_no_queued_access_is_passed_over() {
        for action in [7 | WRITE << 16, QUEUED | NOTIFY << 16, QUEUED] {
            let bytes = record(true, 0, 0, 512, action, 0);
            assert_eq!(parse(bytes.first_chunk().expect("48")).expect("a record").access, None);
        }
        let kind = |bytes: u32, action: u32| {
            let bytes = record(true, 0, 0, bytes, action, 0);
            parse(bytes.first_chunk().expect("48")).expect("a record").access.map(|access| access.operation)
        };
        assert_eq!(kind(0, QUEUED | (FLUSH | WRITE) << 16), Some(Operation::Flush));
        assert_eq!(kind(512, QUEUED | (DISCARD | WRITE) << 16), Some(Operation::Discard));
        assert_eq!(kind(512, QUEUED | READ << 16), Some(Operation::Read));
        assert!(parse(&[0; RECORD_BYTES]).is_err());
    }
}
