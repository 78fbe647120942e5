//! Signals that end a command in an orderly way.

use rotproof_block::Error;
use rotproof_machine::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// A signal asks the command to stop: it keeps what it has done, and cleans up. A second one asks for haste: nothing is
/// kept, but cleaned up all the same.
pub fn cancel_on_signals() -> Result<Cancel, Error> {
    let cancel = Cancel::new();
    // Who has started it by nohup wants it to outlive the terminal.
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
        let asked = cancel.clone();
        // SAFETY: the handler stores into atomics and does nothing else, which is async-signal-safe.
        unsafe { signal_hook::low_level::register(signal, move || asked.cancel(signal)) }
            .map_err(|error| Error::from_io(error, "installing the handlers of signals"))?;
    }
    Ok(cancel)
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail, rather than end the process with nothing said or removed.
/// A handler that does nothing, because programs that are started have none, while they would inherit that it is ignored.
pub fn survive_file_size_limit() {
    // SAFETY: the handler does nothing.
    // Without it, the process ends where a limit is met, as it did before.
    let _ = unsafe { signal_hook::low_level::register(SIGXFSZ, || ()) };
}

/// Whether whoever started this process wants it not to hear of the signal.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeros is a valid action, into which the kernel writes; nothing is changed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
