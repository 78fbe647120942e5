//! The map of what a trial works on, which is made for it and gone afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_kinds::Map;
use rotproof_trial::file::{Overrides, TrialFile};
use rotproof_trial::runner::{self, RunOptions};

use super::MapArgs;
use crate::fail::CommandError;
use crate::output::Output;
use crate::signals::cancel_on_signals;
use crate::snippet;

/// Whether a file is meant as a trial, by its name.
pub(super) fn is_meant(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml"))
}

/// Makes what the trial works on, and reads it.
pub(super) fn read_map(args: &MapArgs, output: Output) -> Result<Map, CommandError> {
    let overrides = Overrides { seed: None, faults: Vec::new(), values: args.values.clone() };
    let (trial, warnings) = TrialFile::open_and_warn(&args.device, &overrides)
        .map_err(|mistakes| CommandError::Mistakes(vec![mistakes]))?;
    if !warnings.list.is_empty() {
        output.note(snippet::render_warnings(&warnings, output.stderr_paint()));
    }
    let options = RunOptions {
        // No results are written.
        results: PathBuf::new(),
        overwrite: false,
        replay: None,
        cancel: cancel_on_signals()?,
        monitor: Arc::default(),
    };
    let (map, noticed) = runner::map(&trial, &options)?;
    noticed.iter().for_each(|what| output.note(format_args!("note: {what}")));
    Ok(map)
}
