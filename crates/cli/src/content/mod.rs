//! `rotproof content`: derives from real data what a load can write like it, merges what was derived, and names the
//! blocks of a file by their hashes.

mod args;
mod hash;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rotproof_block::error::IoContext;
use rotproof_load::content::COMPRESSIBLE_MAX;
use rotproof_load::duplicates::read_distribution;
use rotproof_load::scan::{ScanOptions, Scanned, scan};
use rotproof_load::{BLOCK_BYTES, Distribution};
use serde_json::{Value, json};

pub use args::ContentArgs;
use args::{ContentVerb, MergeArgs, ScanArgs};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::progress::{Progress, Snapshot};
use crate::signals::cancel_on_signals;
use crate::units;

/// Bytes that a followed content takes, about.
const CONTENT_BYTES: u64 = 32;

/// Calls the verb.
pub fn content(args: &ContentArgs, output: Output) -> Result<Exit, CommandError> {
    match &args.verb {
        ContentVerb::Scan(args) => scan_data(args, output),
        ContentVerb::Merge(args) => merge(args, output),
        ContentVerb::Hash(args) => hash::hash(args, output),
    }
}

fn scan_data(args: &ScanArgs, output: Output) -> Result<Exit, CommandError> {
    let cancel = cancel_on_signals()?;
    let threads = args
        .threads
        .map_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get), usize::from);
    let bytes = Arc::new(AtomicU64::new(0));
    let found = {
        let shown = Arc::clone(&bytes);
        let _progress = Progress::start(output, args.quiet || args.json, move || Snapshot {
            phase: "scan".to_owned(),
            bytes: shown.load(Ordering::Relaxed),
            ..Snapshot::default()
        });
        let is_cancelled = || cancel.is_cancelled();
        let contents_max = usize::try_from(args.memory.0 / CONTENT_BYTES).unwrap_or(usize::MAX);
        scan(&args.paths, &ScanOptions { threads, contents_max, bytes: &bytes, is_cancelled: &is_cancelled })?
    };
    let Some(found) = found else {
        output.note("interrupted; a part of the data says nothing of the rest");
        return Ok(cancel.signal().map_or(Exit::Interrupted, Exit::of_signal));
    };
    for why in &found.unreadable {
        output.note(format_args!("not scanned: {why}"));
    }
    let file = args.output.as_ref().map_or_else(|| "FILE".to_owned(), |file| file.display().to_string());
    let comment = scanned_comment(&found, &file);
    let mut json = to_json(&found.distribution);
    json["blocks"] = found.blocks.into();
    json["files"] = found.files.into();
    json["compressible"] = found.compressible.into();
    json["sampled"] = found.sampled.into();
    json["unreadable"] = found.unreadable.clone().into();
    write(&found.distribution, &comment, &json, args.output.as_deref(), args.json, output)
}

fn merge(args: &MergeArgs, output: Output) -> Result<Exit, CommandError> {
    let mut merged = Distribution::default();
    for file in &args.files {
        merged.merge(&read_distribution(file)?);
    }
    let comment =
        figures(&merged, &format!("{} distributions, as if no content were in two", args.files.len()));
    let json = to_json(&merged);
    write(&merged, &comment, &json, args.output.as_deref(), args.json, output)
}

/// The comment at the head of a file: what was found, and how a trial uses it.
fn scanned_comment(found: &Scanned, file: &str) -> String {
    let read = format!(
        "{} in {}",
        units::bytes(found.blocks * BLOCK_BYTES as u64),
        units::counted(found.files, "file")
    );
    let mut text = figures(&found.distribution, &read);
    if found.sampled > 1 {
        let _ = writeln!(text, "# a sample: one content in {} was followed (--memory)", found.sampled);
    }
    let saved = format!("{:.1}%", 100.0 * found.compressible);
    let _ = writeln!(text, "# {saved} of a content compressible by LZ4, in blocks of 4 KiB");
    let most = format!("{:.1}%", 100.0 * found.compressible.min(COMPRESSIBLE_MAX));
    let _ = writeln!(text, "# load: {{ duplicates: {{ file: {file} }}, compressible: {most} }}");
    text
}

fn figures(distribution: &Distribution, what: &str) -> String {
    format!(
        "# {what}\n# {:.1}% can be saved by storing equal blocks once\n# {:.1}% have no duplicate; at most {} \
         duplicates of one content\n",
        100.0 * distribution.savable(),
        100.0 * distribution.unique(),
        units::count(distribution.most()),
    )
}

fn to_json(distribution: &Distribution) -> Value {
    let lines: Vec<Value> = distribution
        .lines()
        .map(|(duplicates, contents)| json!({ "duplicates": duplicates, "contents": contents }))
        .collect();
    json!({
        "savable": distribution.savable(),
        "unique": distribution.unique(),
        "most_duplicates": distribution.most(),
        "distribution": lines,
    })
}

fn write(
    distribution: &Distribution,
    comment: &str,
    json: &Value,
    file: Option<&std::path::Path>,
    as_json: bool,
    output: Output,
) -> Result<Exit, CommandError> {
    if let Some(file) = file {
        std::fs::write(file, format!("{comment}{distribution}"))
            .doing(|| format!("writing {}", file.display()))?;
    }
    if as_json {
        output.json(json);
    } else if let Some(file) = file {
        let text: Vec<&str> = comment.lines().map(|line| line.trim_start_matches("# ")).collect();
        output.result(text.join("\n"));
        output.note(format_args!("Wrote {}.", file.display()));
    } else {
        output.result(format!("{comment}{distribution}").trim_end());
    }
    Ok(Exit::Pass)
}
