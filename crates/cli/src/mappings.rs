//! `rotproof hold-mappings`: the process that holds the mappings of a load's files, started by a run whose own process
//! serves the device below them.

use crate::exit::Exit;
use crate::fail::CommandError;

/// Does so until nobody needs them any more.
pub fn hold() -> Result<Exit, CommandError> {
    rotproof_load::hold_mappings()?;
    Ok(Exit::Pass)
}
