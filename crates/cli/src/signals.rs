//! Signals that end a command in an orderly way.

use rotproof_block::Error;
use rotproof_trial::host::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A signal asks the command to stop, and it cleans up; a second one does not interrupt that.
pub fn cancel_on_signals() -> Result<Cancel, Error> {
    let cancel = Cancel::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, cancel.signal_cell(), number)
            .map_err(|error| Error::from_io(error, "installing the handlers of signals"))?;
    }
    Ok(cancel)
}
