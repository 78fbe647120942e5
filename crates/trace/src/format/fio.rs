//! fio's I/O log: a line that says the version, then actions on files. In version 2 `wait` moves the time on, by
//! microseconds; in version 3 each line begins with the time, in microseconds. (fio(1), "Trace file format"; the unit of
//! version 3 as fio 3.33 writes it.)

use super::{Devices, Parsed};
use crate::access::{Access, Operation};
use crate::number::digits;

/// What earlier lines said.
#[derive(Debug, Default)]
pub(super) struct State {
    version: Option<u8>,
    /// Version 2: the waits so far.
    now_ns: u64,
}

/// The version that a first line says.
pub(super) fn version(line: &str) -> Option<u8> {
    match line.trim() {
        "fio version 2 iolog" => Some(2),
        "fio version 3 iolog" => Some(3),
        _ => None,
    }
}

impl State {
    pub(super) fn parse(&mut self, line: &str, devices: &mut Devices) -> Parsed {
        let Some(known) = self.version else {
            self.version = Some(version(line).ok_or("the first line is not `fio version 2 iolog` or 3")?);
            return Ok(None);
        };
        let mut fields = line.split_ascii_whitespace();
        let at_ns = if known == 3 {
            let time = fields.next().and_then(digits).and_then(|time| time.checked_mul(1000));
            time.ok_or("the time is no number of microseconds")?
        } else {
            self.now_ns
        };
        let (file, action) = fields.next().zip(fields.next()).ok_or("no file and action")?;
        let operation = match action {
            "add" | "open" | "close" => return Ok(None),
            "wait" if known == 2 => {
                // The offset is how long.
                let wait = fields.next().and_then(digits).and_then(|wait| wait.checked_mul(1000));
                let wait = wait.ok_or("the wait is no number of microseconds")?;
                self.now_ns = self.now_ns.saturating_add(wait);
                return Ok(None);
            }
            "read" => Operation::Read,
            "write" => Operation::Write,
            "trim" => Operation::Discard,
            "sync" | "datasync" | "sync_file_range" => Operation::Flush,
            _ => return Err("an unknown action"),
        };
        let mut number = || fields.next().and_then(digits);
        let (offset, length) = match operation {
            Operation::Flush => (0, 0),
            _ => {
                let offset = number().ok_or("the offset is no number")?;
                let length = number().filter(|&length| length > 0);
                (offset, length.ok_or("the length is no number above 0")?)
            }
        };
        // What is written here calls devices so.
        let own = file.strip_prefix("device-").and_then(|number| number.parse().ok());
        let device = devices.number_of(file, own);
        Ok(Some(Access { at_ns, operation, device, offset, length, took_ns: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Parsed> {
        let (mut state, mut names) = (State::default(), Devices::default());
        text.lines().map(|line| state.parse(line, &mut names)).collect()
    }

    #[test]
    fn in_version_2_waits_move_the_time_on() {
        let lines = all(
            "fio version 2 iolog\n/a add\n/a open\n/a read 4096 512\n/a wait 150 0\n/b write 0 8192\n/a datasync 0 0\n/a trim 0 4096\n/a close",
        );
        let accesses: Vec<Access> = lines.into_iter().filter_map(|line| line.expect("a line")).collect();
        let short: Vec<_> =
            accesses.iter().map(|a| (a.at_ns, a.operation, a.device, a.offset, a.length)).collect();
        assert_eq!(
            short,
            [
                (0, Operation::Read, 0, 4096, 512),
                (150_000, Operation::Write, 1, 0, 8192),
                (150_000, Operation::Flush, 0, 0, 0),
                (150_000, Operation::Discard, 0, 0, 4096),
            ]
        );
    }

    #[test]
    fn in_version_3_every_line_has_its_time() {
        let lines = all(
            "fio version 3 iolog\n19 /x add\n131 /x read 61440 4096\n100884 /x write 0 4096\n200000 /x wait 5 0",
        );
        assert_eq!(lines[2].as_ref().map(|a| a.map(|a| a.at_ns)), Ok(Some(131_000)));
        assert_eq!(lines[3].as_ref().map(|a| a.map(|a| a.at_ns)), Ok(Some(100_884_000)));
        assert!(lines[4].is_err(), "no waits in version 3");
        assert!(all("fio version 1 iolog")[0].is_err());
        assert!(all("fio version 2 iolog\n/x read 1")[1].is_err());
        assert!(all("fio version 2 iolog\n/x leap 1 2")[1].is_err());
    }
}
