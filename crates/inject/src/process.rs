//! The memory of a process, which goes on meanwhile: read by `process_vm_readv`, changed through `/proc/PID/mem`.
//!
//! A byte is looked at and then written, in two calls; between them the process may write it too. Right after, what
//! stands there is looked at again.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::maps::parse_maps;
use crate::memory::{Memory, Region};
use crate::needle::{Needles, PAGE_BYTES};

/// Bytes that are copied at once to be searched: they stay in the cache of the processor.
const CHUNK: usize = 256 << 10;

/// A process that is looked into. It needs the right to trace it.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: libc::pid_t,
    memory: File,
    pages: File,
}

thread_local! {
    static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl ProcessMemory {
    /// Opens the memory of the process with that id. Fails with [`ErrorKind::Missing`] without the right or without the process, and
    /// with [`ErrorKind::Gone`] if it has just ended.
    pub fn open(pid: u32) -> Result<Self> {
        let number = libc::pid_t::try_from(pid)
            .map_err(|_| Error::new(ErrorKind::Invalid, format!("{pid} is no process id")))?;
        let open = |name: &str, write| {
            let path = format!("/proc/{pid}/{name}");
            OpenOptions::new().read(true).write(write).open(&path).map_err(|error| {
                let context = match error.raw_os_error() {
                    Some(libc::ENOENT | libc::ESRCH) => format!("there is no process {pid}"),
                    _ => format!(
                        "{path} cannot be opened; to look into another process takes root or CAP_SYS_PTRACE"
                    ),
                };
                // One that has ended is in the table until its parent takes notice.
                let has_ended = error.raw_os_error() == Some(libc::ESRCH);
                let kind = if has_ended { ErrorKind::Gone } else { ErrorKind::Missing };
                Error::new(kind, context).caused_by(error)
            })
        };
        Ok(Self { pid: number, memory: open("mem", true)?, pages: open("pagemap", false)? })
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Result<()> {
        let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
        // SAFETY: the local part is an exclusive borrow that lives across the call; the remote one is checked by the kernel.
        let read = unsafe { libc::process_vm_readv(self.pid, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(read) {
            Ok(read) if read == to.len() => Ok(()),
            Ok(_) => Err(gone(self.pid, address)),
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EFAULT | libc::ESRCH) => Err(gone(self.pid, address).caused_by(error)),
                    _ => Err(error).doing(|| format!("reading the memory of process {}", self.pid)),
                }
            }
        }
    }

    /// The stretches of `range` of which there are pages in memory.
    fn present(&self, range: &Range<u64>) -> Result<Vec<Range<u64>>> {
        const PRESENT: u64 = 1 << 63;
        const BATCH: usize = 4096;
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut page = range.start / PAGE_BYTES as u64;
        let end = range.end.div_ceil(PAGE_BYTES as u64);
        let mut entries = vec![0u8; BATCH * 8];
        while page < end {
            let count = usize::try_from(end - page).unwrap_or(BATCH).min(BATCH);
            let read = self
                .pages
                .read_at(&mut entries[..count * 8], page * 8)
                .doing(|| format!("reading which pages process {} has", self.pid))?;
            if read < 8 {
                break;
            }
            for entry in entries[..read].chunks_exact(8) {
                let is_present =
                    entry.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte)) & PRESENT != 0;
                if is_present {
                    let (start, stop) = (page * PAGE_BYTES as u64, (page + 1) * PAGE_BYTES as u64);
                    match found.last_mut() {
                        Some(last) if last.end == start => last.end = stop,
                        _ => found.push(start..stop),
                    }
                }
                page += 1;
            }
        }
        Ok(found)
    }
}

fn gone(pid: libc::pid_t, address: u64) -> Error {
    Error::new(ErrorKind::Gone, format!("process {pid} has nothing at {address:#x} any more"))
}

impl Memory for ProcessMemory {
    fn regions(&self) -> Result<Vec<Region>> {
        let pid = self.pid;
        let maps = std::fs::read(format!("/proc/{pid}/maps")).map_err(|error| {
            Error::new(ErrorKind::Gone, format!("process {pid} has ended, or may not be looked into"))
                .caused_by(error)
        })?;
        let mut regions = Vec::new();
        for mapping in parse_maps(&maps) {
            let present = self.present(&mapping.range)?;
            regions.extend(present.into_iter().map(|range| Region { range, kind: Some(mapping.kind) }));
        }
        Ok(regions)
    }

    fn find(&self, range: &Range<u64>, needles: &Needles, found: &mut dyn FnMut(usize, u64)) -> Result<()> {
        COPY.with_borrow_mut(|copy| {
            copy.resize(CHUNK, 0);
            let mut start = range.start;
            while start + (PAGE_BYTES as u64) <= range.end {
                let length = usize::try_from(range.end - start).unwrap_or(CHUNK).min(CHUNK);
                match self.copy(start, &mut copy[..length]) {
                    Ok(()) => {
                        needles.find(&copy[..length], &mut |number, at| found(number, start + at as u64));
                    }
                    // What it has given back meanwhile holds nothing.
                    Err(error) if error.kind() == ErrorKind::Gone => {}
                    Err(error) => return Err(error),
                }
                if length < CHUNK {
                    break;
                }
                // A block may lie across the end of the chunk.
                start += (CHUNK - PAGE_BYTES + 1) as u64;
            }
            Ok(())
        })
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.copy(address, bytes)
    }

    fn replace(&self, address: u64, before: u8, after: u8) -> Result<bool> {
        let mut now = [0];
        self.copy(address, &mut now)?;
        if now[0] != before {
            return Ok(false);
        }
        let written =
            self.memory.write_at(&[after], address).map_err(|error| match error.raw_os_error() {
                // Nobody writes through a mapping that shares a file's pages and may only read them, not even a debugger.
                Some(libc::EIO) => {
                    let context =
                        format!("process {} only reads the pages of a file at {address:#x}", self.pid);
                    Error::new(ErrorKind::ReadOnly, context).caused_by(error)
                }
                _ => Error::from_io(error, format!("writing the memory of process {}", self.pid)),
            })?;
        self.copy(address, &mut now)?;
        Ok(written == 1 && now[0] == after)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::flip::apply;
    use crate::maps::MappingKind;

    /// A shell that holds one variable, and says it when asked.
    struct Holder {
        child: Child,
        text: String,
    }

    impl Holder {
        fn start() -> Self {
            // 4096 letters, none of which stands on the command line.
            let script = "x=; i=0; while [ $i -lt 1024 ]; do x=$x$(printf %04x $((i*7919%65536))); i=$((i+1)); done; echo ready; while read l; do echo $x; done";
            let mut child = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a shell");
            let mut line = String::new();
            BufReader::with_capacity(1, child.stdout.as_mut().expect("piped"))
                .read_line(&mut line)
                .expect("said");
            let text = (0..1024u32).map(|i| format!("{:04x}", i * 7919 % 65536)).collect();
            Self { child, text }
        }

        fn say(&mut self) -> String {
            self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("asked");
            let mut line = String::new();
            BufReader::with_capacity(1, self.child.stdout.as_mut().expect("piped"))
                .read_line(&mut line)
                .expect("said");
            line.trim_end().to_owned()
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn a_variable_of_another_process_is_found_and_changed_while_it_runs() {
        let mut holder = Holder::start();
        assert_eq!(holder.say(), holder.text);
        let memory = ProcessMemory::open(holder.child.id()).expect("a child may be looked into");
        let block = holder.text.clone().into_bytes();
        let needles = Needles::new(&[&block]).expect("varied");
        let mut places = Vec::new();
        for region in memory.regions().expect("it lives") {
            memory
                .find(&region.range, &needles, &mut |_, at| places.push((at, region.kind)))
                .expect("it can be read");
        }
        assert!(!places.is_empty(), "the shell holds its variable");
        assert!(
            places.iter().all(|(_, kind)| matches!(kind, Some(MappingKind::Heap | MappingKind::Anonymous)))
        );
        let mut wrong = block.clone();
        wrong[2000] ^= 1;
        for &(address, _) in &places {
            apply(&memory, address, &block, &wrong).expect("changed");
        }
        assert_eq!(holder.say().into_bytes(), wrong, "it says what stands in its memory now");
    }

    #[test]
    fn a_process_that_is_not_there_is_explained() {
        let error = ProcessMemory::open(4_000_000).expect_err("no such process");
        assert_eq!(
            (error.kind(), error.to_string().contains("no process 4000000")),
            (ErrorKind::Missing, true)
        );
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("it starts");
        let memory = ProcessMemory::open(child.id()).expect("a child");
        child.kill().expect("ours");
        child.wait().expect("ended");
        assert_eq!(memory.regions().expect_err("it has ended").kind(), ErrorKind::Gone);
    }
}
