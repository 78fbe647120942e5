//! Places the rules whose target is a block of a file by its extent: asks the file system of the subject before a phase, and
//! tells the engine. It relies on offsets of the file system being offsets where the faults act, which the check of the
//! trial has made sure of.

use std::path::Path;

use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_fault::{BLOCK_BYTES, Rule, Sites, Target};

/// Tells `sites` where the blocks of files in `folder` lie that `rules`, as far as they are enabled in `phase`, aim at by
/// extent. A rule that knows its place already keeps it.
pub(super) fn place_extents(sites: &Sites, rules: &[Rule], phase: Phase, folder: &Path) -> Result<()> {
    for (index, rule) in rules.iter().enumerate() {
        let Some(Target::Extent { file, block }) = &rule.matching.target else { continue };
        if !rule.during.iter().any(|enabled| Phase::from(*enabled) == phase) {
            continue;
        }
        let name = rule.name_or_default(index);
        match rotproof_block::extent_map::place_of(&folder.join(file), block * BLOCK_BYTES, BLOCK_BYTES) {
            Ok(offset) => sites.set_place(&name, offset)?,
            // The check finds out for itself that a file is lost; the fault then meets nothing.
            Err(error) if phase == Phase::Check && !is_answer(&error) => {}
            Err(error) => {
                let what = format!("placing the fault `{name}`; without `by: extent` it goes by content");
                return Err(error.while_doing(what));
            }
        }
    }
    Ok(())
}

/// Whether the file system has answered, if only that the block has no place.
fn is_answer(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Missing | ErrorKind::Unsupported)
}
