//! What the kernel said about a device since a moment: `/dev/kmsg`, filtered by the device's name.
//!
//! Useful to somebody who asks why a file system gave up. Never needed: where the log may not be read, it is empty.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Longest record that the kernel hands out (`CONSOLE_EXT_LOG_MAX`).
const RECORD_BYTES_MAX: usize = 8192;
/// Lines kept; the first ones, as they name the cause.
const LINES_MAX: usize = 200;

/// A place in the kernel's log.
#[derive(Debug)]
pub struct KernelLog {
    log: Option<File>,
}

impl KernelLog {
    /// From now on.
    pub fn follow() -> Self {
        let open = || {
            let mut log = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
            log.seek(SeekFrom::End(0))?;
            std::io::Result::Ok(log)
        };
        Self { log: open().ok() }
    }

    /// The lines that have come since the last call, or since [`KernelLog::follow`], and name `device` (such as
    /// `loop3`): at most the first 200, and the number of those left out.
    pub fn new_lines_about(&mut self, devices: &[String]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut left_out = 0u64;
        self.read_on(|line| {
            if !devices.iter().any(|device| names(&line, device)) {
            } else if lines.len() < LINES_MAX {
                lines.push(line);
            } else {
                left_out += 1;
            }
        });
        if left_out > 0 {
            lines.push(format!("... and {left_out} more lines"));
        }
        lines
    }

    fn read_on(&mut self, mut take: impl FnMut(String)) {
        let Some(log) = &mut self.log else { return };
        let mut record = [0u8; RECORD_BYTES_MAX];
        loop {
            match log.read(&mut record) {
                Ok(0) => return,
                Ok(length) => {
                    if let Some(line) = message_of(&record[..length]) {
                        take(line);
                    }
                }
                // Old records were overwritten before we read them; the next read goes on with what is left.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Nothing new (EAGAIN), or not readable after all.
                Err(_) => return,
            }
        }
    }
}

/// The text of a record `6,339,5140900,-;text\n KEY=value\n`.
fn message_of(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (_, text) = record.split_once(';')?;
    Some(text.lines().next()?.to_owned())
}

/// Whether the line names exactly this device: `loop1` is not in `loop12`.
fn names(line: &str, device: &str) -> bool {
    line.match_indices(device).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + device.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_cut_to_its_text() {
        let record = b"3,1,2,-;EXT4-fs error (device loop1): ext4_find_entry:1455\n SUBSYSTEM=block\n";
        assert_eq!(message_of(record).as_deref(), Some("EXT4-fs error (device loop1): ext4_find_entry:1455"));
        assert_eq!(message_of(b"no separator"), None);
    }

    #[test]
    fn a_device_is_named_by_its_whole_name() {
        assert!(names("EXT4-fs (loop1): mounted", "loop1"));
        assert!(names("I/O error, dev loop1, sector 8", "loop1"));
        assert!(!names("EXT4-fs (loop12): mounted", "loop1"));
        assert!(names("loop12 and loop1", "loop1"));
    }
}
