//! What is kept of states that fail: the recording, what the device held before, and for each state a file that says how it is
//! made again.

use std::path::{Path, PathBuf};

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_crash::recording::Reader;
use rotproof_crash::{Contents, StateDescription};

/// Name of a recording that is kept.
pub const RECORDING: &str = "recording";
/// Name of the image of what the device held before; without it, it held zeros.
pub const BASE: &str = "base.img";

/// Name of the file of a failing state.
pub fn state_name(index: u64) -> String {
    format!("state-{index}.json")
}

/// What a recorded device held before, if an image of it lies beside a recording or state.
pub fn base_beside(file: &Path) -> Option<PathBuf> {
    let base = file.with_file_name(BASE);
    base.exists().then_some(base)
}

/// Writes the image of a state that was kept, as a power loss would have left the device, and says in words what it is.
///
/// Without `recording`, that of the folder in which the state lies is taken; without `base`, the image beside the state or the recording.
/// Fails with [`ErrorKind::Missing`] if there is no recording.
pub fn write_state(
    state: &Path,
    recording: Option<&Path>,
    base: Option<&Path>,
    image: &Path,
) -> Result<String> {
    let recording = recording.map_or_else(|| state.with_file_name(RECORDING), Path::to_owned);
    if !recording.exists() {
        let context = format!(
            "{} is not there; a state needs what was kept with it, or name its recording with `--recording FILE`",
            recording.display()
        );
        return Err(Error::new(ErrorKind::Missing, context));
    }
    let description = StateDescription::read(state)?;
    let base = base.map(Path::to_owned).or_else(|| base_beside(state)).or_else(|| base_beside(&recording));
    let (_, rebuilt) = description.rebuild(&recording, base.as_deref())?;
    let header = Reader::open(&recording)?.header();
    Contents::open(&recording, header, base.as_deref())?.write_image(&rebuilt.image.snapshot, image)?;
    Ok(description.words())
}
