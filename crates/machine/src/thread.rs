//! Starting a thread where there may be no room for one.

use std::thread::{Builder, JoinHandle};

use rotproof_block::{Error, Result};

/// Starts one that is called so. Fails where the process may have no more of them, or has no memory left for its stack.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let started = Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| Error::from_io(error, format!("starting the thread {name}")))
}
