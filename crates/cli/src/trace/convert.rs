//! `rotproof trace convert`.

use std::fs::File;
use std::io::{BufWriter, Write, stdout};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind};
use rotproof_trace::{Access, Remap, Unwritable, Writer};

use super::args::ConvertArgs;
use super::{open, stopped, tell_malformed};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;

/// Units in which accesses are placed on a smaller device.
const BLOCK_BYTES: u64 = 4096;

/// Writes the trace as it is read.
pub fn convert(args: &ConvertArgs, output: Output) -> Result<Exit, CommandError> {
    let (mut reader, _) = open(&args.input)?;
    let to: Box<dyn Write> = match &args.output {
        Some(path) if path.as_os_str() != "-" => {
            Box::new(File::create_new(path).doing(|| format!("creating {}", path.display()))?)
        }
        _ => Box::new(stdout().lock()),
    };
    let mut writer =
        Writer::new(BufWriter::with_capacity(1 << 20, to), args.to.into()).map_err(unwritable)?;
    let remap = args.onto.and_then(|size| Remap::new(size, BLOCK_BYTES));
    let (mut written, mut left_out) = (0u64, 0u64);
    for access in reader.by_ref() {
        let access = access.map_err(stopped)?;
        if !writer.knows(access.operation) {
            left_out += 1;
            continue;
        }
        writer.write(&placed(access, remap)).map_err(unwritable)?;
        written += 1;
    }
    writer.finish().map_err(unwritable)?;
    tell_malformed(reader.malformed(), reader.shown(), output);
    if left_out > 0 {
        output.note(format_args!(
            "{left_out} flushes and discards were left out: the format has no word for them"
        ));
    }
    let plural = if written == 1 { "access" } else { "accesses" };
    output.note(format_args!("Wrote {written} {plural}."));
    Ok(Exit::Pass)
}

/// The access where it lies on the smaller device, all on one.
fn placed(access: Access, remap: Option<Remap>) -> Access {
    match remap {
        Some(remap) => {
            let (offset, length) = remap.place(&access);
            Access { offset, length, device: 0, ..access }
        }
        None => access,
    }
}

fn unwritable(error: Unwritable) -> CommandError {
    CommandError::Error(match error {
        Unwritable::Io(error) => Error::from_io(error, "writing the trace"),
        error => Error::new(ErrorKind::Invalid, error.to_string()),
    })
}
