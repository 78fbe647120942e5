//! The exports of a stack while it is served: more are made, they become larger, and somebody uses them.

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_layers::NamedDevice;
use rotproof_machine::registry::CleanupStack;

use crate::export::{Address, ExportKind, Exporter};

/// All exports of a stack, and what takes them back.
#[derive(Debug)]
pub(crate) struct Exports(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    exporter: Exporter,
    /// None once they have ended.
    cleanup: Option<CleanupStack>,
    kinds: Vec<ExportKind>,
    addresses: Vec<Address>,
}

impl Exports {
    /// Offers every device of `exporter` in each of these ways.
    pub(crate) fn open(
        mut exporter: Exporter,
        kinds: &[ExportKind],
        mut cleanup: CleanupStack,
    ) -> Result<Self> {
        let mut addresses = Vec::new();
        for &kind in kinds {
            addresses.extend(exporter.open(kind, &mut cleanup)?);
        }
        let (cleanup, kinds) = (Some(cleanup), kinds.to_vec());
        Ok(Self(Mutex::new(Inner { exporter, cleanup, kinds, addresses })))
    }

    /// Where they are to be found.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.0.lock().addresses.clone()
    }

    /// Bytes of all devices together, as they are now.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.0.lock().exporter.infos().map(|info| info.size).sum()
    }

    /// Offers one more device in every way that the others are offered in. If one of them fails the others stay.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there is a device of its name.
    pub(crate) fn add(&self, device: NamedDevice) -> Result<Vec<Address>> {
        let Inner { exporter, cleanup: Some(cleanup), kinds, addresses } = &mut *self.0.lock() else {
            return Err(Error::new(ErrorKind::Gone, "nothing is offered any more"));
        };
        let number = exporter.add(device)?;
        let mut made = Vec::new();
        for &kind in kinds.iter() {
            let of_kind = exporter.open_further(number, kind, cleanup)?;
            addresses.extend(of_kind.iter().cloned());
            made.extend(of_kind);
        }
        Ok(made)
    }

    /// The devices may have become larger: those who can be told are.
    pub(crate) fn resized(&self) -> Result<()> {
        self.0.lock().exporter.resized()
    }

    /// Fails with [`ErrorKind::Refused`] if somebody uses one of them.
    pub(crate) fn refuse_used(&self) -> Result<()> {
        match self.0.lock().exporter.user() {
            None => Ok(()),
            Some(user) => {
                let context = format!("the volume is in use: {user}; end that first");
                Err(Error::new(ErrorKind::Refused, context))
            }
        }
    }

    /// Ends all at once, so that every request to them fails.
    pub(crate) fn abort(&self) {
        self.0.lock().exporter.abort();
    }

    /// Takes all of them back, the last made first, and lets go of the devices. What could not be taken back is told.
    pub(crate) fn end(&self) -> Vec<Error> {
        let inner = &mut *self.0.lock();
        let failures = inner.cleanup.take().map(|mut cleanup| cleanup.undo_all());
        inner.exporter.forget();
        failures.unwrap_or_default()
    }

    /// As [`Exports::end`]; what cannot be taken back stays in the run's record.
    pub(crate) fn give_up(&self) {
        let inner = &mut *self.0.lock();
        drop(inner.cleanup.take());
        inner.exporter.forget();
    }
}
