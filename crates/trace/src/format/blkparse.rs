//! blkparse's text as it is unless told otherwise: `major,minor cpu sequence seconds pid action rwbs sector + sectors
//! [process]`. Requests count when they are queued (action Q), which is what programs asked for, before merging.
//! (blkparse(1), "Output description and formatting".)

use super::{Parsed, SECTOR};
use crate::access::{Access, Operation};
use crate::number::{digits, nanoseconds};

pub(super) fn parse(line: &str) -> Parsed {
    let mut fields = line.split_ascii_whitespace();
    let mut next = || fields.next().ok_or("fewer fields than blkparse prints");
    let device = next()?;
    let Some((major, minor)) = device.split_once(',') else {
        // The summary behind the events.
        return if is_summary(line) { Ok(None) } else { Err("the device is not major,minor") };
    };
    let number = |text: &str| digits(text).and_then(|n| u32::try_from(n).ok());
    let (major, minor) = number(major).zip(number(minor)).ok_or("the device is not major,minor")?;
    // As the kernel packs the two.
    let device = major.checked_shl(20).unwrap_or_default() | minor;
    digits(next()?).ok_or("the processor is no number")?;
    digits(next()?).ok_or("the sequence is no number")?;
    let at_ns = nanoseconds(next()?, 1_000_000_000).ok_or("the time is no number of seconds")?;
    digits(next()?).ok_or("the process is no number")?;
    if next()? != "Q" {
        return Ok(None);
    }
    let kind = next()?;
    let rest: Vec<&str> = fields.collect();
    let operation = if kind.contains('D') {
        Operation::Discard
    } else if kind.contains('R') {
        Operation::Read
    } else if kind.contains('W') {
        Operation::Write
    } else if kind.contains('F') {
        Operation::Flush
    } else {
        return Ok(None);
    };
    let (block, blocks) = match rest[..] {
        [block, "+", blocks, ..] => {
            let block = digits(block).ok_or("the sector is no number")?;
            (block, digits(blocks).ok_or("the number of sectors is no number")?)
        }
        // A flush has no place.
        _ if kind.contains('F') => (0, 0),
        _ => return Err("no `sector + sectors`"),
    };
    // A write of nothing that is to be flushed before is a flush.
    let operation = if blocks == 0 && kind.contains('F') { Operation::Flush } else { operation };
    if blocks == 0 && operation != Operation::Flush {
        return Err("no sectors");
    }
    let (offset, length) =
        block.checked_mul(SECTOR).zip(blocks.checked_mul(SECTOR)).ok_or("the sector is beyond any device")?;
    Ok(Some(Access { at_ns, operation, device, offset, length, took_ns: None }))
}

fn is_summary(line: &str) -> bool {
    ["CPU", "Total", "Throughput", "Events", "Skips", "Reads", "Read", "IO", "Writes", "PC", "Partial"]
        .iter()
        .any(|word| line.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(line: &str) -> Access {
        parse(line).expect("a line").expect("an access")
    }

    #[test]
    fn queue_events_are_accesses() {
        let write = access("  8,0    3        1     0.000107204   697  Q  WS 223490 + 8 [kjournald]");
        assert_eq!((write.device, write.offset, write.length), (8 << 20, 223_490 * 512, 4096));
        assert_eq!((write.operation, write.at_ns), (Operation::Write, 107_204));
        assert_eq!(access("8,16 0 2 1.5 9 Q RA 0 + 256 [x]").operation, Operation::Read);
        assert_eq!(access("8,16 0 2 1.5 9 Q DS 64 + 8 [x]").operation, Operation::Discard);
        let flush = access("8,16 0 3 1.6 9 Q FWS [jbd2]");
        assert_eq!((flush.operation, flush.length, flush.device), (Operation::Flush, 0, 8 << 20 | 16));
        assert_eq!(access("8,16 0 3 1.6 9 Q FWFS 64 + 8 [jbd2]").operation, Operation::Write);
    }

    #[test]
    fn other_events_and_the_summary_are_not() {
        for line in [
            "  8,0    3        2     0.000150000   697  C  WS 223490 + 8 [0]",
            "  8,0    3        0     0.000150000   697  m   N cfq697 insert_request",
            "CPU0 (sda):",
            " Reads Queued:          20,       80KiB",
            "Throughput (R/W): 0KiB/s / 10KiB/s",
        ] {
            assert_eq!(parse(line.trim()), Ok(None), "{line}");
        }
        for line in
            ["8,0 x 1 0.1 1 Q R 1 + 8 [x]", "sda 0 1 0.1 1 Q R 1 + 8 [x]", "8,0 0 1 0.1 1 Q R 1 8 [x]"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
