//! How much memory a trial takes at the most whose device fails nearly everywhere: ten million faults on a million blocks, of a
//! file of 4 GiB on disk. Each trial is a process of its own, this program once more, which says what it took.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_trial::file::{Overrides, TrialFile};
use rotproof_trial::runner;
use serde::{Deserialize, Serialize};

use crate::figure::{Bar, Figure};
use crate::{Effort, machine};

const BLOCKS: u64 = 1_000_000;
const BLOCKS_QUICK: u64 = 100_000;
/// Faults of each block.
const HITS: u64 = 10;
/// What a trial may take that has a million failing blocks: 300 MB.
const RESIDENT_MIB_MAX: f64 = 300e6 / 1048576.0;
const RULES: [&str; 4] = ["read: error", "read: zeros", "read: noise", "read, sticky: zeros"];

/// What a trial took.
#[derive(Debug, Serialize, Deserialize)]
struct Taken {
    peak_kib: u64,
    seconds: f64,
    hits: u64,
    failures: u64,
}

/// Runs one trial of each kind, and one of a tenth of its size, or two smaller ones.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let blocks = if effort.is_quick { BLOCKS_QUICK } else { BLOCKS };
    for rule in RULES {
        let (small, large) = (trial(rule, blocks / 10)?, trial(rule, blocks)?);
        let name = format!("{rule}, {} thousand failing blocks", large.failures / 1_000);
        let mib = [(large.peak_kib as f64 / 1024.0, RESIDENT_MIB_MAX)];
        let is_full = !effort.is_quick;
        let bar = is_full.then_some(Bar::AtMost(1.0));
        let what = format!("{name}: resident at the most / 300 MB");
        found(Figure::from_rounds(what, "MiB", &mib, bar));
        let grown = (large.peak_kib as f64 - small.peak_kib as f64) * 1024.0;
        let each = grown / large.failures.saturating_sub(small.failures).max(1) as f64;
        let asked = RESIDENT_MIB_MAX * 1048576.0 / BLOCKS as f64;
        let what = format!("{name}: each more of them / asked for");
        found(Figure::from_rounds(what, "bytes", &[(each, asked)], None));
        let rate = large.hits as f64 / large.seconds / 1e3;
        let what = format!("{name}: faults, results included");
        found(Figure::from_rounds(what, "k/s", &[(rate, rate)], None));
    }
    Ok(())
}

fn trial(rule: &str, blocks: u64) -> Result<Taken> {
    let folder = machine::folder_on_disk()?;
    let program = std::env::current_exe().map_err(machine::no_folder)?;
    let child = Command::new(program)
        .arg("--trial")
        .args([folder.path().as_os_str(), rule.as_ref(), blocks.to_string().as_ref()])
        .stderr(Stdio::inherit())
        .output()
        .doing(|| "running a trial in a process of its own".to_owned())?;
    if !child.status.success() {
        return Err(Error::new(ErrorKind::Internal, format!("the trial of `{rule}` did not end well")));
    }
    serde_json::from_slice(&child.stdout)
        .map_err(|error| Error::new(ErrorKind::Internal, "what the trial said of itself").caused_by(error))
}

/// The trial, in a process of its own.
pub fn serve(folder: &Path, rule: &str, blocks: &str) -> Result<()> {
    let wrong = |what: String| Error::new(ErrorKind::Internal, what);
    let blocks: u64 = blocks.parse().map_err(|_| wrong(format!("`{blocks}` is no number of blocks")))?;
    let file = folder.join("device.img");
    let yaml = format!(
        "name: failing\nseed: 7\nruntime: simulated\nstack:\n  - file: {{ path: '{}', size: {}KiB }}\n  - faults\nsubject: raw\n\
         load: {{ pattern: sequential, reads: 100%, block_size: 4KiB, requests: {}, prefill: true }}\nfaults:\n  - '{rule}'\n\
         expect: {{ failures: {blocks}, silent: any, reported: any, unexplained: 0, assumed: 0 }}\n",
        file.display(),
        blocks * 4,
        blocks * HITS,
    );
    let trial = TrialFile::parse("trial.yaml", yaml.as_bytes(), &Overrides::default())
        .map_err(|mistakes| wrong(format!("the trial has {} mistakes", mistakes.list.len())))?;
    let options = machine::run_options(folder.join("results"));
    let began = Instant::now();
    let report = runner::run(&trial, &options)?.report;
    if !report.verdict.passes() {
        return Err(wrong(format!("the trial did not pass: {:?}", report.expectations)));
    }
    let taken = Taken {
        peak_kib: peak_kib()?,
        seconds: began.elapsed().as_secs_f64(),
        hits: report.counts.injections,
        failures: report.counts.failures,
    };
    let text =
        serde_json::to_vec(&taken).map_err(|error| wrong("its figures".to_owned()).caused_by(error))?;
    std::io::stdout().write_all(&text).doing(|| "telling what it took".to_owned())
}

/// What of this process was in memory at the most.
fn peak_kib() -> Result<u64> {
    let path = "/proc/self/status";
    let text = fs::read_to_string(path).doing(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"));
    let kib = line.and_then(|kib| kib.trim().parse().ok());
    kib.ok_or_else(|| Error::new(ErrorKind::Internal, format!("{path} has no VmHWM")))
}
