//! What a table is written to, with a memory for why it took no more: the Parquet library tells only the words of that, and not
//! always.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// The number of the first error of the system; 0 for none.
#[derive(Clone, Debug, Default)]
pub(super) struct Note(Arc<AtomicI32>);

impl Note {
    /// The error, if there was one.
    pub(super) fn error(&self) -> Option<io::Error> {
        let errno = self.0.load(Ordering::Relaxed);
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    }
}

pub(super) struct Noting<W> {
    output: W,
    note: Note,
}

impl<W> Noting<W> {
    pub(super) fn new(output: W) -> (Self, Note) {
        let note = Note::default();
        (Self { output, note: note.clone() }, note)
    }

    pub(super) fn into_output(self) -> W {
        self.output
    }

    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Some(errno) = result.as_ref().err().and_then(io::Error::raw_os_error) {
            // The first is why.
            let _ = self.note.0.compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
        }
        result
    }
}

impl<W: Write> Write for Noting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes);
        self.noted(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.output.flush();
        self.noted(flushed)
    }
}
