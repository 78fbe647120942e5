//! `rotproof client`: one machine's share of a load, for the `rotproof load --client` at the other end of standard input and
//! output.

use std::io::{self, BufReader};

use rotproof_measure::load::clients;

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::signals::cancel_on_signals;

/// Does what it is told.
pub fn client() -> Result<Exit, CommandError> {
    let cancel = cancel_on_signals()?;
    clients::serve(BufReader::new(io::stdin()), io::stdout(), &cancel)?;
    Ok(Exit::Pass)
}
