//! A thread that moves what is old in a long ledger from memory to a file without a name, while the run goes on.
//!
//! The threads that inject faults must not wait for a disk: what they serve may be what the disk waits for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_fault::Ledger;
use rotproof_record::scratch_file;

/// How often it looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The thread; it ends with this.
pub(super) struct Spiller {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Spiller {
    /// Begins, with a file on the file system of `folder`.
    pub(super) fn begin(ledger: &Arc<Ledger>, folder: &Path) -> Result<Self> {
        ledger.spill_to(scratch_file(folder)?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (ledger, ends) = (Arc::clone(ledger), Arc::clone(&is_over));
        let spill = move || {
            while !ends.load(Ordering::Relaxed) {
                // On a full disk the rest stays in memory; that results have no room is told when they are written.
                if ledger.spill().is_err() {
                    return;
                }
                std::thread::park_timeout(PAUSE);
            }
        };
        let thread = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(spill)
            .doing(|| "starting the thread that looks after the ledger".to_owned())?;
        Ok(Self { is_over, thread: Some(thread) })
    }

    /// Ends it.
    pub(super) fn end(self) {
        drop(self);
    }
}

impl Drop for Spiller {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; if it did, the ledger is still whole.
            let _ = thread.join();
        }
    }
}
