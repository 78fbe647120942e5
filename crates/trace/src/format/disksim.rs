//! DiskSim's default ASCII: arrival in milliseconds, device, first block, blocks, and flags of which the lowest bit is a
//! read. Blocks are sectors. (J. Bucy et al.: The DiskSim Simulation Environment Version 4.0, section 9.)

use super::columns::TimeUnit;
use super::{Parsed, SECTOR};
use crate::access::{Access, Operation};
use crate::number::{digits, nanoseconds, whole};

pub(super) fn parse(line: &str, unit: Option<TimeUnit>) -> Parsed {
    if line.starts_with('#') {
        return Ok(None);
    }
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [time, device, block, blocks, flags] = fields[..] else { return Err("not five fields") };
    let at_ns = nanoseconds(time, unit.unwrap_or(TimeUnit::Milliseconds).nanoseconds())
        .ok_or("the time is no number")?;
    let device = digits(device).and_then(|n| u32::try_from(n).ok()).ok_or("the device is no number")?;
    let block = whole(block).ok_or("the block is no number")?;
    let blocks = digits(blocks).filter(|&blocks| blocks > 0).ok_or("the blocks are no number above 0")?;
    let flags =
        flags.strip_prefix("0x").map_or_else(|| digits(flags), |hex| u64::from_str_radix(hex, 16).ok());
    let flags = flags.ok_or("the flags are no number")?;
    let operation = if flags & 1 == 1 { Operation::Read } else { Operation::Write };
    let (offset, length) =
        block.checked_mul(SECTOR).zip(blocks.checked_mul(SECTOR)).ok_or("the block is beyond any device")?;
    Ok(Some(Access { at_ns, operation, device, offset, length, took_ns: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_manual() {
        let access = parse("1.250 2 100 8 1", None).expect("a line").expect("an access");
        assert_eq!((access.at_ns, access.device), (1_250_000, 2));
        assert_eq!((access.offset, access.length, access.operation), (51_200, 4096, Operation::Read));
        assert_eq!(parse("0.0 0 0 1 0x2", None).map(|a| a.map(|a| a.operation)), Ok(Some(Operation::Write)));
        assert_eq!(parse("# a remark", None), Ok(None));
        for line in ["0.0 0 0 1", "x 0 0 1 0", "0 0 0 0 1", "0 0 0 1 y", "0 0 0.5 1 1"] {
            assert!(parse(line, None).is_err(), "{line}");
        }
    }
}
