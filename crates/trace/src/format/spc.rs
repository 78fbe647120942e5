//! SPC: five fields between commas, more behind them for whoever wants them; blanks around fields are allowed.
//! (Storage Performance Council: SPC Trace File Format Specification, revision 1.0.1, 2002.)

use super::columns::TimeUnit;
use super::{Parsed, SECTOR};
use crate::access::{Access, Operation};
use crate::number::{digits, nanoseconds};

pub(super) fn parse(line: &str, unit: Option<TimeUnit>) -> Parsed {
    let unit_ns = unit.unwrap_or(TimeUnit::Seconds).nanoseconds();
    let mut fields = line.split(',').map(str::trim);
    let mut next = || fields.next().ok_or("fewer than five fields");
    let device = digits(next()?).and_then(|n| u32::try_from(n).ok()).ok_or("the unit (ASU) is no number")?;
    let block = digits(next()?).ok_or("the address (LBA) is no number")?;
    let length = digits(next()?).filter(|&length| length > 0).ok_or("the size is no number above 0")?;
    let operation = match next()? {
        "r" | "R" => Operation::Read,
        "w" | "W" => Operation::Write,
        _ => return Err("the operation is neither R nor W"),
    };
    let at_ns = nanoseconds(next()?, unit_ns).ok_or("the time is no number")?;
    let offset = block.checked_mul(SECTOR).ok_or("the address is beyond any device")?;
    Ok(Some(Access { at_ns, operation, device, offset, length, took_ns: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_specification() {
        let access = parse("0, 20941264, 8192, W, 0.551706, 7", None).expect("a line").expect("an access");
        assert_eq!((access.device, access.offset, access.length), (0, 20_941_264 * 512, 8192));
        assert_eq!((access.operation, access.at_ns), (Operation::Write, 551_706_000));
        for line in [
            "0,1,512,r",
            "a,1,512,r,0",
            "0,1,0,r,0",
            "0,1,512,x,0",
            "0,1,512,r,now",
            "0,99999999999999999999,512,r,0",
        ] {
            assert!(parse(line, None).is_err(), "{line}");
        }
    }
}
