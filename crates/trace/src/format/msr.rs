//! MSR Cambridge: seven fields between commas. Times count 100 ns since 1601, response times 100 ns.
//! (D. Narayanan, A. Donnelly, A. Rowstron: Write Off-Loading, FAST 2008; the format in SNIA IOTTA's description.)

use super::columns::TimeUnit;
use super::{Devices, Parsed};
use crate::access::{Access, Operation};
use crate::number::digits;

/// How the line of names begins that some of them have.
pub(super) const HEADER: &str = "Timestamp,Hostname";

pub(super) fn parse(line: &str, devices: &mut Devices, unit: Option<TimeUnit>) -> Parsed {
    if line.starts_with("Timestamp,") {
        return Ok(None);
    }
    let unit_ns = unit.unwrap_or(TimeUnit::HundredNanoseconds).nanoseconds();
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, host, disk, operation, offset, size, took] = fields[..] else {
        return Err("not seven fields");
    };
    // Nanoseconds since 1601 fit into 64 bits until 2185.
    let at_ns =
        digits(time).and_then(|time| time.checked_mul(unit_ns)).ok_or("the time is no whole number")?;
    let number = digits(disk).ok_or("the disk is no number")?;
    let operation = match operation {
        "Read" | "read" | "R" => Operation::Read,
        "Write" | "write" | "W" => Operation::Write,
        _ => return Err("the type is neither Read nor Write"),
    };
    let offset = digits(offset).ok_or("the offset is no number")?;
    let length = digits(size).filter(|&length| length > 0).ok_or("the size is no number above 0")?;
    let took_ns = match took {
        // Nobody knows how long it took.
        "" => None,
        took => {
            let took_ns = digits(took).and_then(|took| took.checked_mul(unit_ns));
            Some(took_ns.ok_or("the response time is no whole number")?)
        }
    };
    let device = devices.number_of(&format!("{host}.{disk}"), u32::try_from(number).ok());
    Ok(Some(Access { at_ns, operation, device, offset, length, took_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_traces() {
        let mut names = Devices::default();
        let parse = |line: &str, names: &mut _| parse(line, names, None).expect("a line").expect("an access");
        let first = parse("128166372003061629,usr,0,Read,7014609920,24576,41286", &mut names);
        let second = parse("128166372016382155,usr,1,Write,2517565440,4096,900", &mut names);
        assert_eq!(second.at_ns - first.at_ns, 13_320_526 * 100);
        assert_eq!((first.device, second.device), (0, 1), "each disk of a host is one");
        assert_eq!((first.offset, first.length, first.took_ns), (7_014_609_920, 24_576, Some(4_128_600)));
        assert_eq!((first.operation, second.operation), (Operation::Read, Operation::Write));
        let unknown = parse("128166372016382155,usr,1,Write,2517565440,4096,", &mut names);
        assert_eq!(unknown.took_ns, None, "what is missing stays so");
        let nanoseconds = super::parse("5000,usr,1,Write,0,4096,70", &mut names, Some(TimeUnit::Nanoseconds));
        let nanoseconds = nanoseconds.expect("a line").expect("an access");
        assert_eq!((nanoseconds.at_ns, nanoseconds.took_ns), (5000, Some(70)));
    }

    #[test]
    fn a_line_that_is_none_says_why() {
        let mut names = Devices::default();
        let header = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
        assert_eq!(parse(header, &mut names, None), Ok(None));
        for line in
            ["1,usr,0,Read,0,512", "x,usr,0,Read,0,512,1", "1,usr,0,Trim,0,512,1", "1,usr,0,Read,-1,512,1"]
        {
            assert!(parse(line, &mut names, None).is_err(), "{line}");
        }
        assert!(names.is_empty(), "a line that is none names no disk");
    }
}
