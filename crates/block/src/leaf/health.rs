//! What a leaf on a real file knows of failures that are its own: the disk is full, the file is gone, the hardware
//! errs. No fault that anybody injected looks like these, and no verdict can be reached in spite of them.

use std::sync::{Arc, OnceLock};

use crate::{Error, ErrorKind};

/// The first failure of one leaf. Costs nothing as long as there is none.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<(ErrorKind, String)>);

impl Health {
    /// Keeps what made a request fail, if it is the first. What the file merely cannot do is no failure.
    pub(crate) fn note(&self, error: &Error) {
        if error.kind() != ErrorKind::Unsupported {
            self.0.get_or_init(|| (error.kind(), error.to_string()));
        }
    }

    /// The first failure.
    pub(crate) fn first_failure(&self) -> Option<Error> {
        self.0.get().map(|(kind, text)| Error::new(*kind, text.clone()))
    }
}

/// A queue's share in the health of its device. Counted by the queue's own thread, so that a request that carries it
/// costs no atomic operation.
#[derive(Debug, Default)]
pub(crate) struct Witness(pub(crate) Arc<Health>);

impl Witness {
    /// See [`Health::note`].
    #[cold]
    pub(crate) fn note(&self, error: &Error) {
        self.0.note(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_kept_and_what_is_unsupported_is_none() {
        let health = Health::default();
        health.note(&Error::new(ErrorKind::Unsupported, "no discard"));
        assert!(health.first_failure().is_none());
        health.note(&Error::from_errno(libc::ENOSPC, "writing"));
        health.note(&Error::medium());
        assert_eq!(health.first_failure().expect("noted").kind(), ErrorKind::NoSpace);
    }
}
