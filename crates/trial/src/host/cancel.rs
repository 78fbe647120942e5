//! The wish of the user to stop, as a signal handler may express it and everybody else can ask for.
//!
//! Owns no handler: the command line installs them, and stores the signal's number into [`Cancel::signal_cell`].
//! A second signal only stores again, so it never kills the clean-up that the first one began.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rotproof_block::{Error, ErrorKind, Result};

/// Whether the run shall end early, and which signal said so. Clones are the same wish.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicUsize>);

impl Cancel {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to stop on behalf of `signal`, a positive signal number.
    pub fn cancel(&self, signal: i32) {
        self.0.store(usize::try_from(signal).unwrap_or_default(), Ordering::Relaxed);
    }

    /// Zero, or the number of the signal. Storing into it is all that a signal handler need do, and all that it may.
    pub fn signal_cell(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0)
    }

    /// Whether somebody has asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The signal that asked, if one did.
    pub fn signal(&self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
    }

    /// An error of kind [`ErrorKind::Cancelled`] if somebody has asked: for the places where work can stop.
    pub fn check(&self) -> Result<()> {
        match self.signal() {
            None => Ok(()),
            Some(signal) => Err(Error::new(ErrorKind::Cancelled, format!("stopped by {}", name_of(signal)))),
        }
    }
}

fn name_of(signal: i32) -> String {
    match signal {
        libc::SIGINT => "SIGINT (Ctrl-C)".into(),
        libc::SIGTERM => "SIGTERM".into(),
        libc::SIGHUP => "SIGHUP".into(),
        other => format!("signal {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clones_see_the_signal_and_a_second_one_only_replaces_it() {
        let cancel = Cancel::new();
        let clone = cancel.clone();
        assert!(clone.check().is_ok());
        cancel.signal_cell().store(2, Ordering::Relaxed);
        assert!(clone.is_cancelled());
        let error = clone.check().expect_err("cancelled");
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(error.to_string().contains("Ctrl-C"));
        cancel.cancel(libc::SIGTERM);
        assert_eq!(clone.signal(), Some(libc::SIGTERM));
    }
}
