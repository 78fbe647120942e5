//! Frames over the serial line: four bytes of length (little endian, of what follows), one of kind, the payload.
//! The payload is masked; the host side is `src/link.rs`, and both must agree.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A message of FUSE.
pub const FUSE: u8 = 1;
/// A number, a blank, a line of text; the answer begins with the same number.
pub const CONTROL: u8 = 2;
/// Sent to the host alone: so many bytes of the line have been taken, as four bytes. The kernel's line discipline comes
/// to a stop when much more than 4 KiB wait in it, so the host never has more under way than it knows to be taken.
pub const TAKEN: u8 = 3;
/// How much is taken before that is said, in bytes.
const TOLD_EVERY: usize = 1024;
/// No frame is longer: a write of 128 KiB with its header fits.
const LENGTH_MAX: usize = (128 << 10) + 4096 + 1;
const MASK: u8 = 0xA5;

pub struct Frame {
    pub kind: u8,
    pub payload: Vec<u8>,
}

pub struct Link {
    line: File,
    writer: Mutex<File>,
    /// Bytes that were taken since the host was told. Only the thread that receives changes it.
    taken: AtomicUsize,
}

impl Link {
    pub fn new(line: File) -> Self {
        let writer = line.try_clone().expect("a second descriptor");
        Self { line, writer: Mutex::new(writer), taken: AtomicUsize::new(0) }
    }

    /// The next frame; none once the line has ended or makes no sense.
    pub fn receive(&self) -> Option<Frame> {
        let mut head = [0; 5];
        self.take(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if !(1..=LENGTH_MAX).contains(&length) {
            return None;
        }
        let mut payload = vec![0; length - 1];
        self.take(&mut payload)?;
        mask(&mut payload);
        Some(Frame { kind: head[4], payload })
    }

    fn take(&self, bytes: &mut [u8]) -> Option<()> {
        let mut line = &self.line;
        for part in bytes.chunks_mut(TOLD_EVERY) {
            line.read_exact(part).ok()?;
            let taken = self.taken.load(Ordering::Relaxed) + part.len();
            let is_told = taken >= TOLD_EVERY;
            self.taken.store(if is_told { 0 } else { taken }, Ordering::Relaxed);
            if is_told {
                self.send(TAKEN, &mut (taken as u32).to_le_bytes());
            }
        }
        Some(())
    }

    /// Sends a frame; the payload is masked in place.
    pub fn send(&self, kind: u8, payload: &mut [u8]) {
        mask(payload);
        let mut head = [0; 5];
        head[..4].copy_from_slice(&(payload.len() as u32 + 1).to_le_bytes());
        head[4] = kind;
        let mut line = self.writer.lock().expect("no worker panics with the lock");
        // Without a host there is nobody to tell.
        let _ = line.write_all(&head).and_then(|()| line.write_all(payload));
    }
}

fn mask(bytes: &mut [u8]) {
    for byte in bytes {
        *byte ^= MASK;
    }
}
