//! How far an exploration has come, as a file to go on from. Written beside and renamed, so it is whole at any time.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::{ExploreOptions, FailingState, Unknown};
use crate::recording::Reader;
use crate::states::StateOptions;

/// Version of the file.
const FORMAT: u32 = 1;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    format: u32,
    /// Says which states are meant by their numbers.
    states: String,
    /// States looked at.
    pub checked: u64,
    /// All with a smaller number are done.
    through: u64,
    /// Others that are.
    beyond: BTreeSet<u64>,
    pub failures: Vec<FailingState>,
    pub unknown: Vec<Unknown>,
}

impl Saved {
    /// What the file says if there is one, else nothing yet.
    pub(super) fn begin(options: &ExploreOptions) -> Result<Self> {
        let states = name_of(options)?;
        let fresh = Self { format: FORMAT, states: states.clone(), ..Self::default() };
        let Some(path) = &options.resume else { return Ok(fresh) };
        let doing = || format!("reading {}", path.display());
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(fresh),
            text => text.doing(doing)?,
        };
        let saved: Self = serde_json::from_slice(&text)
            .map_err(|error| Error::new(ErrorKind::Invalid, doing()).caused_by(error))?;
        if saved.format != FORMAT || saved.states != states {
            let context = format!(
                "{} is the progress of another exploration: another recording, seed, choice of states or check; remove \
                 it or name another place",
                path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(saved)
    }

    pub(super) fn is_done(&self, index: u64) -> bool {
        index < self.through || self.beyond.contains(&index)
    }

    pub(super) fn done(&mut self, index: u64) {
        self.beyond.insert(index);
        while self.beyond.remove(&self.through) {
            self.through += 1;
        }
    }

    pub(super) fn sort(&mut self) {
        self.failures.sort_by_key(|failure| failure.index);
        self.unknown.sort_by_key(|unknown| unknown.index);
    }

    pub(super) fn save(&self, options: &ExploreOptions) -> Result<()> {
        let Some(path) = &options.resume else { return Ok(()) };
        let doing = || format!("writing {}", path.display());
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::new(ErrorKind::Internal, doing()).caused_by(error))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let mut file = File::create(&beside).doing(doing)?;
        file.write_all(&text).and_then(|()| file.sync_data()).doing(doing)?;
        std::fs::rename(&beside, path).doing(doing)
    }
}

/// What the numbers of states depend on, and who looks at them; not how many of them are looked at.
fn name_of(options: &ExploreOptions) -> Result<String> {
    let looked_at_by = &options.looked_at_by;
    let StateOptions {
        recording,
        base: _,
        ways,
        limits,
        states_max,
        seed,
        unit_bytes,
        begin,
        marks_matter,
        is_shared,
        known_max,
    } = &options.states;
    let id = Reader::open(recording)?.header().id;
    let text =
        format!("{id:032x} {ways:?} {limits:?} {seed} {unit_bytes:?} {begin} {marks_matter} {looked_at_by}");
    // Shares depend on how many states there are to be.
    let text = if *is_shared { format!("{text} {states_max}") } else { text };
    // An image that was forgotten is given again, under a number of its own.
    let text = if *known_max == u64::MAX { text } else { format!("{text} known {known_max}") };
    Ok(ContentHash::of(text.as_bytes()).to_string())
}
