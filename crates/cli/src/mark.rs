//! `rotproof mark`: a command that is the load of a trial says what holds from now on, in the recording.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Args;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind};

use crate::exit::Exit;
use crate::fail::CommandError;

/// Where a trial says which socket is its own.
const SOCKET: &str = "ROTPROOF_MARK_SOCKET";

/// `rotproof mark`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
For commands that are the load of a trial whose stack has `record`: a mark comes
behind all that was written before, and is in the recording when this ends. The
check of a state finds the marks that came before the crash in $ROTPROOF_MARKS.
Others write a line to the socket $ROTPROOF_MARK_SOCKET and wait for `ok`.")]
pub struct MarkArgs {
    /// What holds from now on, such as \"transaction 17 acknowledged\"
    #[arg(value_name = "TEXT")]
    pub text: String,

    /// The socket, if not that of the trial
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Sets the mark, and ends when it is set.
pub fn mark(args: &MarkArgs) -> Result<Exit, CommandError> {
    let of_trial = std::env::var_os(SOCKET).map(PathBuf::from);
    let Some(socket) = args.socket.clone().or(of_trial) else {
        let what =
            "nobody takes marks: this is for a command that is the load of a trial whose stack has `record`";
        return Err(Error::new(ErrorKind::Invalid, what).into());
    };
    let doing = || format!("setting a mark through {}", socket.display());
    let mut stream = UnixStream::connect(&socket).doing(doing)?;
    stream.write_all(format!("{}\n", args.text.replace('\n', " ")).as_bytes()).doing(doing)?;
    stream.read_exact(&mut [0; 3]).doing(doing)?;
    Ok(Exit::Pass)
}
