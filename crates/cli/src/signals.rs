//! Signals that end a command in an orderly way.

use rotproof_block::Error;
use rotproof_trial::host::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A signal asks the command to stop: it keeps what it has done, and cleans up. A second one asks for haste: nothing is
/// kept, but cleaned up all the same.
pub fn cancel_on_signals() -> Result<Cancel, Error> {
    let cancel = Cancel::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let asked = cancel.clone();
        // SAFETY: the handler stores into atomics and does nothing else, which is async-signal-safe.
        unsafe { signal_hook::low_level::register(signal, move || asked.cancel(signal)) }
            .map_err(|error| Error::from_io(error, "installing the handlers of signals"))?;
    }
    Ok(cancel)
}
