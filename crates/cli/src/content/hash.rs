//! `rotproof content hash`: the hashes of a file's blocks, by which a rule finds them wherever a stack puts them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind};
use rotproof_load::BLOCK_BYTES;
use serde_json::json;

use super::args::HashArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;

/// A large file has many blocks.
const SHOWN_AT_ONCE_BYTES: usize = 32 << 10;

/// Prints what was asked for, in the order that was asked for.
pub(super) fn hash(args: &HashArgs, output: Output) -> Result<Exit, CommandError> {
    let name = args.file.display();
    let mut file = File::open(&args.file).doing(|| format!("opening {name}"))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(
            Error::new(ErrorKind::Invalid, format!("{name} is a folder; give one of its files")).into()
        );
    }
    // Of a block device too.
    let length = file.seek(SeekFrom::End(0)).doing(|| format!("finding the size of {name}"))?;
    let all = 0..length.div_ceil(BLOCK_BYTES as u64);
    if let Some(beyond) = args.blocks.iter().find(|blocks| blocks.end > all.end) {
        let has = match all.end {
            0 => "is empty".to_owned(),
            1 => "has block 0 only".to_owned(),
            end => format!("has blocks 0 to {}", end - 1),
        };
        let why = format!("there is no block {}; {name} {has}", beyond.end - 1);
        return Err(Error::new(ErrorKind::Invalid, why).into());
    }
    let wanted = if args.blocks.is_empty() { std::slice::from_ref(&all) } else { &args.blocks };
    let mut found = Vec::new();
    let mut text = String::new();
    for blocks in wanted {
        let hashed = hash_blocks(&mut file, blocks, |block, hash| {
            if args.json {
                found.push(json!({ "block": block, "offset": block * BLOCK_BYTES as u64, "content": hash.to_string() }));
            } else {
                text += &format!("{hash}  {block}\n");
                if text.len() >= SHOWN_AT_ONCE_BYTES {
                    output.result(std::mem::take(&mut text).trim_end());
                }
            }
        });
        hashed.doing(|| format!("reading {name}"))?;
    }
    if args.json {
        output.json(&json!({ "file": args.file, "blocks": found }));
    } else if !text.is_empty() {
        output.result(text.trim_end());
    }
    Ok(Exit::Pass)
}

/// Reads the blocks one after the other; what the last lacks is zeros, as on the disk below a file system.
fn hash_blocks(
    file: &mut File,
    blocks: &Range<u64>,
    mut tell: impl FnMut(u64, ContentHash),
) -> io::Result<()> {
    file.seek(SeekFrom::Start(blocks.start * BLOCK_BYTES as u64))?;
    let mut input = io::BufReader::with_capacity(1 << 20, file);
    let mut data = vec![0; BLOCK_BYTES];
    for block in blocks.clone() {
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match input.read(&mut data[filled..]) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        data[filled..].fill(0);
        tell(block, ContentHash::of(&data));
    }
    Ok(())
}
