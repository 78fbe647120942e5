//! How far a campaign has come, as a file to go on from: a line that says what it is of, then a line for each sequence that is
//! done.
//!
//! A line is written once its sequence is done and what fails of it is kept. A last line that was cut off, by `kill -9` or a
//! full disk, is a sequence that was not done, and is done again.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result};
use rotproof_crash::{FailingState, Unknown};
use rotproof_machine::{Locked, lock_folder};
use serde::{Deserialize, Serialize};

use super::CampaignOptions;

/// Name of the file in the folder of the results.
pub const CAMPAIGN_PROGRESS: &str = "progress.jsonl";
/// Version of the file.
const FORMAT: u32 = 1;

/// What a campaign is of: what is found depends on all of it. One that goes on must be the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignHead {
    format: u32,
    rotproof: String,
    /// Release and build of the kernel whose file system it is.
    kernel: String,
    subject: String,
    mount: Vec<String>,
    /// The checker looks at the states of every so manieth sequence; 0 of none.
    checker_every: usize,
    /// States of each sequence, at most.
    states: u64,
    seed: u64,
    /// How many sequences, and a hash of all their steps.
    sequences: usize,
    steps: String,
}

impl CampaignHead {
    /// What these options come to on this machine.
    pub fn of(options: &CampaignOptions) -> Result<Self> {
        let words = |steps: &Vec<_>| steps.iter().map(|step| format!("{step}\n")).collect::<String>() + "\n";
        let text: String = options.sequences.iter().map(words).collect();
        Ok(Self {
            format: FORMAT,
            rotproof: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel()?,
            subject: options.kind.name().to_owned(),
            mount: options.mount.clone(),
            checker_every: options.checker_every,
            states: options.states_max,
            seed: options.seed,
            sequences: options.sequences.len(),
            steps: ContentHash::of(text.as_bytes()).to_string(),
        })
    }

    /// A name for the folder of the results, which no other campaign has.
    pub fn folder_name(&self) -> Result<String> {
        let id = ContentHash::of(&line_of(self, || "writing JSON".to_owned())?).to_string();
        Ok(format!("{}-{}", self.subject, &id[..8.min(id.len())]))
    }

    /// How `there`, of which the file is, differs from this.
    fn difference(&self, there: &Self) -> Option<String> {
        let list = |options: &[String]| match options {
            [] => "none".to_owned(),
            options => options.join(","),
        };
        let switch = |every: usize| if every > 0 { "on" } else { "off" }.to_owned();
        let fields = [
            ("Rotproof", there.rotproof.clone(), self.rotproof.clone()),
            ("kernel", there.kernel.clone(), self.kernel.clone()),
            ("file system", there.subject.clone(), self.subject.clone()),
            ("seed", there.seed.to_string(), self.seed.to_string()),
            ("states of each sequence", there.states.to_string(), self.states.to_string()),
            ("mount options", list(&there.mount), list(&self.mount)),
            ("fsck", switch(there.checker_every), switch(self.checker_every)),
            ("number of sequences", there.sequences.to_string(), self.sequences.to_string()),
        ];
        let other = fields.into_iter().find(|(_, there, here)| there != here);
        match other {
            Some((what, there, here)) => Some(format!("its {what} is {there}, and here it is {here}")),
            None => (self != there).then(|| "its sequences are others".to_owned()),
        }
    }
}

/// A sequence that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {
    /// Its number, from 1.
    pub sequence: usize,
    /// States that were looked at.
    pub checked: u64,
    /// The states that fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailingState>,
    /// Those of which nobody knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<Unknown>,
    /// What the smallest failure of each kind is, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stories: Vec<String>,
}

/// The file. Nobody else goes on from it meanwhile.
#[derive(Debug)]
pub(super) struct Progress {
    file: File,
    path: PathBuf,
    /// Bytes of whole lines.
    whole: u64,
    _locked: Locked,
}

impl Progress {
    /// Begins in `folder`, which is made, or goes on there: gives the sequences that are done, in order. What the campaign will keep,
    /// `kept`, must not be there yet if nothing says that it is this one's.
    ///
    /// Fails with [`ErrorKind::Invalid`] if the folder has the progress of another campaign or something else that is no progress, with
    /// [`ErrorKind::Refused`] if somebody is at work there or what is there would be replaced.
    pub(super) fn begin(
        folder: &Path,
        head: &CampaignHead,
        kept: impl IntoIterator<Item = PathBuf>,
    ) -> Result<(Self, Vec<Done>)> {
        std::fs::create_dir_all(folder).doing(|| format!("making {}", folder.display()))?;
        let locked = lock_folder(folder)?;
        let path = folder.join(CAMPAIGN_PROGRESS);
        let doing = || format!("reading {}", path.display());
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(mut file) => file.read_to_end(&mut bytes).map(drop).doing(doing)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).doing(doing),
        }
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = bytes[..whole].split_inclusive(|&byte| byte == b'\n');
        let done = match lines.next() {
            Some(first) => {
                look_at_head(first, head, &path)?;
                lines
                    .zip(1..)
                    .map(|(line, number)| done_of(line, number, head, &path))
                    .collect::<Result<_>>()?
            }
            None => {
                if let Some(other) = kept.into_iter().find(|path| path.exists()) {
                    let what = format!(
                        "{} is there, of an exploration that cannot go on; remove it or name another folder with `--results`",
                        other.display()
                    );
                    return Err(Error::new(ErrorKind::Refused, what));
                }
                Vec::new()
            }
        };
        let doing = || format!("writing {}", path.display());
        // Not truncated as it is opened: only what was cut off goes.
        let file = OpenOptions::new().append(true).create(true).open(&path).doing(doing)?;
        file.set_len(whole as u64).doing(doing)?;
        let mut progress = Self { file, path, whole: whole as u64, _locked: locked };
        if whole == 0 {
            progress.append(head)?;
        }
        Ok((progress, done))
    }

    /// Notes that a sequence is done.
    pub(super) fn note(&mut self, done: &Done) -> Result<()> {
        self.append(done)
    }

    /// Takes the file away.
    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).doing(|| format!("removing {}", self.path.display()))
    }

    fn append(&mut self, value: &impl Serialize) -> Result<()> {
        let doing = || format!("writing {}", self.path.display());
        let line = line_of(value, doing)?;
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // What comes first is why it could not be written; whoever goes on does not take what is left of the line for one.
            let _ = self.file.set_len(self.whole);
        }
        written.doing(doing)?;
        self.whole += line.len() as u64;
        Ok(())
    }
}

fn line_of(value: &impl Serialize, doing: impl Fn() -> String) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)
        .map_err(|error| Error::new(ErrorKind::Internal, doing()).caused_by(error))?;
    line.push(b'\n');
    Ok(line)
}

/// Fails unless the first line says that the file is of the same campaign.
fn look_at_head(line: &[u8], head: &CampaignHead, path: &Path) -> Result<()> {
    /// What every version has.
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let invalid = |what: String| {
        let what = format!("{} {what}; remove it or name another folder with `--results`", path.display());
        Error::new(ErrorKind::Invalid, what)
    };
    let version: Version = serde_json::from_slice(line)
        .map_err(|error| invalid("is not the progress of an exploration".into()).caused_by(error))?;
    if version.format != FORMAT {
        let what = format!("has form {}, and this Rotproof knows form {FORMAT}", version.format);
        return Err(invalid(what));
    }
    let there: CampaignHead =
        serde_json::from_slice(line).map_err(|error| invalid("is damaged".into()).caused_by(error))?;
    match head.difference(&there) {
        Some(difference) => Err(invalid(format!("is the progress of another exploration: {difference}"))),
        None => Ok(()),
    }
}

fn done_of(line: &[u8], number: usize, head: &CampaignHead, path: &Path) -> Result<Done> {
    let damaged = |why: String| {
        let what = format!(
            "line {} of {} {why}; remove the file, or name another folder with `--results`",
            number + 1,
            path.display()
        );
        Error::new(ErrorKind::Invalid, what)
    };
    let done: Done = serde_json::from_slice(line)
        .map_err(|error| damaged("is no sequence that is done".into()).caused_by(error))?;
    if done.sequence != number || number > head.sequences {
        return Err(damaged(format!("is of sequence {}, which is not the next", done.sequence)));
    }
    Ok(done)
}

fn kernel() -> Result<String> {
    let read = |name: &str| {
        let path = format!("/proc/sys/kernel/{name}");
        std::fs::read_to_string(&path).map(|text| text.trim().to_owned()).doing(|| format!("reading {path}"))
    };
    Ok(format!("{} {}", read("osrelease")?, read("version")?))
}

#[cfg(test)]
mod tests;
