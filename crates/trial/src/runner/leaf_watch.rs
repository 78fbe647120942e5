//! Keeps an eye on a leaf that may fail by itself, so that a trial whose backing store is gone ends at once and says so, instead
//! of a verdict on a subject that could not help it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_layers::Stack;
use rotproof_machine::{Cancel, start_thread};

/// How often the leaf is looked at, and how much later than otherwise a signal is noticed.
const INTERVAL: Duration = Duration::from_millis(50);
/// What is stored in the load's cell to stop it; no signal has this number.
const LEAF_FAILED: usize = usize::MAX;

/// Watches until it is ended. Where nothing can fail it is only the user's wish to stop.
pub(super) struct LeafWatch<'a> {
    stack: &'a Stack,
    stop: Arc<AtomicUsize>,
    watcher: Option<(Sender<()>, JoinHandle<()>)>,
}

impl<'a> LeafWatch<'a> {
    pub(super) fn start(stack: &'a Stack, cancel: &Cancel) -> Result<Self> {
        let Some(check) = stack.leaf_check() else {
            return Ok(Self { stack, stop: cancel.signal_cell(), watcher: None });
        };
        let stop = Arc::new(AtomicUsize::new(0));
        let (ender, ended) = channel::<()>();
        let (stop_of_load, user) = (Arc::clone(&stop), cancel.signal_cell());
        let watch = move || {
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let signal = user.load(Ordering::Relaxed);
                let wish = if signal == 0 && check().is_err() { LEAF_FAILED } else { signal };
                if wish != 0 {
                    stop_of_load.store(wish, Ordering::Relaxed);
                    break;
                }
            }
        };
        let watcher = start_thread("leaf-watch", watch)?;
        Ok(Self { stack, stop, watcher: Some((ender, watcher)) })
    }

    /// What the load looks at: it stops where this is not zero.
    pub(super) fn stop_cell(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.stop)
    }

    /// Ends the watch, and fails as the leaf did.
    pub(super) fn end(self) -> Result<()> {
        if let Some((ender, watcher)) = self.watcher {
            drop(ender);
            // It only reads and stores, so it has nothing to panic on.
            let _ = watcher.join();
        }
        self.stack.check_leaves().map_err(ground_is_gone)
    }
}

/// The failure of the leaf, if it has failed, instead of what came of it.
pub(super) fn blame(stack: &Stack, consequence: Error) -> Error {
    match stack.check_leaves() {
        Err(error) if consequence.kind() != ErrorKind::Cancelled => ground_is_gone(error),
        _ => consequence,
    }
}

fn ground_is_gone(error: Error) -> Error {
    error.while_doing("what the stack stands on failed by itself, so there is no verdict")
}
