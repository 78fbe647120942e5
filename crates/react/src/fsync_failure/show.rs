//! The table of failed fsyncs, as text and as a page in Markdown.

use std::fmt::Write as _;

use super::{BlockKind, Change, FsyncFailure, Holds, Moment, Often};

const HEADS: [&str; 13] = [
    "file system",
    "block",
    "change",
    "fails",
    "met at",
    "write",
    "fsync",
    "2nd fsync",
    "close",
    "memory",
    "evicted",
    "disk",
    "goes on",
];

fn cells(failure: &FsyncFailure) -> [String; 13] {
    let cell = &failure.cell;
    let name = match cell.mode.as_str() {
        "" => cell.file_system.clone(),
        mode => format!("{} {}", cell.file_system, mode.trim_start_matches("data=")),
    };
    let block = match cell.block {
        BlockKind::Data => "data",
        BlockKind::Metadata => "metadata",
        BlockKind::Journal => "journal",
    };
    let change = match cell.change {
        Change::Overwrite => "overwrite",
        Change::Append => "append",
    };
    let often = match cell.often {
        Often::Once => "once",
        Often::Always => "always",
    };
    let met = match failure.failed_at {
        None => "never",
        Some(Moment::Write) => "write",
        Some(Moment::Fsync) => "fsync",
        Some(Moment::SecondFsync) => "2nd fsync",
        Some(Moment::Close) => "close",
        Some(Moment::Later) => "later",
        Some(Moment::Unmount) => "unmount",
    };
    let holds = |holds: &Holds| match holds {
        Holds::New => "new".to_owned(),
        Holds::Old => "old".to_owned(),
        Holds::Zeros => "zeros".to_owned(),
        Holds::Other => "other".to_owned(),
        Holds::Error(error) => error.clone(),
    };
    let goes_on = match failure.still_writes.as_str() {
        "ok" => "yes".to_owned(),
        error => error.to_owned(),
    };
    [
        name,
        block.to_owned(),
        change.to_owned(),
        often.to_owned(),
        met.to_owned(),
        failure.write.clone(),
        failure.fsync.clone(),
        failure.second_fsync.clone(),
        failure.close.clone(),
        holds(&failure.in_memory),
        holds(&failure.evicted),
        holds(&failure.on_disk),
        goes_on,
    ]
}

/// The table for a terminal.
pub fn fsync_failure_table(failures: &[FsyncFailure]) -> String {
    let rows: Vec<[String; 13]> = failures.iter().map(cells).collect();
    let width = |column: usize| {
        let longest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        longest.max(HEADS[column].len())
    };
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![line(&HEADS.map(str::to_owned))];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

/// The same as a table in Markdown.
pub fn fsync_failure_page(failures: &[FsyncFailure]) -> String {
    let mut text = format!("| {} |\n|{}\n", HEADS.join(" | "), "---|".repeat(HEADS.len()));
    for failure in failures {
        let _ = writeln!(text, "| {} |", cells(failure).map(|cell| cell.replace('|', "/")).join(" | "));
    }
    text
}
