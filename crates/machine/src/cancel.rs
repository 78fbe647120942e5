//! The wish of the user to stop, as a signal handler may express it and everybody else can ask for.
//!
//! Owns no handler: the command line installs them, and calls [`Cancel::cancel`]. A second signal asks for haste: what
//! would still be kept is given up, but the clean-up that the first one began goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rotproof_block::{Error, ErrorKind, Result};

/// Whether the run shall end early, and which signal said so. Clones are the same wish.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    signal: Arc<AtomicUsize>,
    is_in_haste: Arc<AtomicBool>,
}

impl Cancel {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to stop on behalf of `signal`, a positive signal number; whoever asks again is in haste. It only stores into
    /// atomics, so a signal handler may call it.
    pub fn cancel(&self, signal: i32) {
        if self.signal.swap(usize::try_from(signal).unwrap_or_default(), Ordering::Relaxed) != 0 {
            self.is_in_haste.store(true, Ordering::Relaxed);
        }
    }

    /// Zero, or the number of the signal, for who does not know this type.
    pub fn signal_cell(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.signal)
    }

    /// Whether somebody has asked.
    pub fn is_cancelled(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Whether somebody has asked twice, and does not want to wait for anything but the clean-up.
    pub fn is_in_haste(&self) -> bool {
        self.is_in_haste.load(Ordering::Relaxed)
    }

    /// The signal that asked, if one did.
    pub fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
    }

    /// An error of kind [`ErrorKind::Cancelled`] if somebody has asked: for the places where work can stop.
    pub fn check(&self) -> Result<()> {
        match self.signal() {
            None => Ok(()),
            Some(signal) => Err(Error::new(ErrorKind::Cancelled, format!("stopped by {}", name_of(signal)))),
        }
    }

    /// The same if somebody has asked twice: for the places where what was done is to be kept.
    pub fn check_haste(&self) -> Result<()> {
        if self.is_in_haste() { self.check() } else { Ok(()) }
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
    fn all_clones_see_the_signal_and_a_second_one_replaces_it_and_is_in_haste() {
        let cancel = Cancel::new();
        let clone = cancel.clone();
        assert!(clone.check().is_ok());
        cancel.cancel(libc::SIGINT);
        assert!(clone.is_cancelled() && !clone.is_in_haste() && clone.check_haste().is_ok());
        assert_eq!(clone.signal_cell().load(Ordering::Relaxed), 2);
        let error = clone.check().expect_err("cancelled");
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(error.to_string().contains("Ctrl-C"));
        cancel.cancel(libc::SIGTERM);
        assert_eq!(clone.signal(), Some(libc::SIGTERM));
        assert!(clone.is_in_haste() && clone.check_haste().is_err());
    }
}
