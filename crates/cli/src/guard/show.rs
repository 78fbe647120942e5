//! What the verbs of `rotproof guard` found, for people.

use rotproof_guard::Store;
use rotproof_guard::check::{BlockPlace, CheckReport};
use rotproof_guard::status::Status;
use rotproof_guard::take::TakeReport;
use serde_json::Value;

use crate::output::{Paint, visible};
use crate::units::{bytes, count, counted};

/// Files or blocks that are shown one by one.
const SHOWN_MAX: usize = 10;

/// What `init` and `accept` took in.
pub fn taken(report: &TakeReport, store: &Store, paint: Paint) -> String {
    let mut lines = vec![
        paint.bold(store.root().display()).to_string(),
        String::new(),
        format!("  files      {}", count(report.files)),
        format!("  taken in   {}, {}", count(report.taken_in), bytes(report.bytes)),
    ];
    list(&mut lines, paint, "changed all the time; once more later", &report.busy);
    let failed: Vec<String> = report.failed.iter().map(|(file, why)| format!("{file}: {why}")).collect();
    list(&mut lines, paint, "not read", &failed);
    lines.push(String::new());
    lines.push(match (report.is_complete, report.failed.is_empty() && report.busy.is_empty()) {
        (false, _) => format!("{}  the same command goes on from here", paint.notable("STOPPED")),
        (true, true) => format!("{}  every file is guarded", paint.good("DONE")),
        (true, false) => format!("{}  not every file is guarded", paint.bad("INCOMPLETE")),
    });
    lines.join("\n")
}

/// What `check` and `repair` found.
pub fn checked(report: &CheckReport, store: &Store, paint: Paint) -> String {
    let mut lines = vec![
        paint.bold(store.root().display()).to_string(),
        String::new(),
        format!("  files      {}, {}", count(report.files), bytes(report.bytes)),
        format!("  right      {}", counted(report.blocks, "block")),
        format!("  repaired   {}", count(report.repaired_count)),
        format!("  wrong      {}", count(report.rotten_count)),
    ];
    if report.foreign_blocks > 0 {
        lines.push(format!(
            "  changed    {}, or wrong: nobody can tell",
            counted(report.foreign_blocks, "block")
        ));
    }
    if report.copies_unseen > 0 {
        let blocks = counted(report.copies_unseen, "block");
        lines.push(format!(
            "  unseen     the copies of {blocks}, which have no place of their own on the volume"
        ));
    }
    if report.torn > 0 {
        lines.push(format!("  torn       {}, by a crash, taken in as found", count(report.torn)));
    }
    if report.tables_removed > 0 {
        lines.push(format!("  removed    {}", counted(report.tables_removed, "table of a deleted file")));
    }
    let place = |place: &BlockPlace| format!("{}, block {}", place.file, place.block);
    let places = |list: &[BlockPlace]| list.iter().map(place).collect::<Vec<_>>();
    list(&mut lines, paint, "wrong", &places(&report.rotten));
    list(&mut lines, paint, "repaired", &places(&report.repaired));
    list(&mut lines, paint, "changed behind the guard's back; `accept` takes it in", &report.foreign);
    list(&mut lines, paint, "never taken in; `accept` does so", &report.unguarded);
    let failed: Vec<String> = report.failed.iter().map(|(file, why)| format!("{file}: {why}")).collect();
    list(&mut lines, paint, "not read", &failed);
    lines.push(String::new());
    lines.push(match (report.is_complete, report.is_clean()) {
        (_, false) => format!("{}  not every block is vouched for", paint.bad("FAIL")),
        (false, true) => format!("{}  stopped early; what was read is right", paint.notable("PASS SO FAR")),
        (true, true) => format!("{}  every block is right", paint.good("PASS")),
    });
    lines.join("\n")
}

/// What `status` tells.
pub fn status(status: &Status, paint: Paint) -> String {
    let share = match status.bytes {
        0 => String::new(),
        all => format!(", {:.2}% of the data", status.table_bytes as f64 * 100.0 / all as f64),
    };
    let switch = match status.switch_seconds {
        None => "static: the light sum while in memory".to_owned(),
        Some(0) => "always the strong sum".to_owned(),
        Some(seconds) => format!("dynamic: the strong sum after {} s", count(seconds.into())),
    };
    let mut lines = vec![
        paint.bold(&status.root).to_string(),
        String::new(),
        format!("  sums       {}, {}", status.light, status.strong),
        format!("  mode       {switch}"),
        format!("  files      {}, {}", count(status.files), bytes(status.bytes)),
        format!("  guarded    {}", count(status.guarded)),
        format!("  tables     {}{share}", bytes(status.table_bytes)),
        format!("  in use     {}", count(status.open)),
    ];
    let verified = &status.verified;
    let kinds = [
        (verified.light, format!("by {}", status.light)),
        (verified.strong, format!("by {}", status.strong)),
        (verified.boundary, "on their way to the disk".to_owned()),
    ];
    let kinds: Vec<String> = kinds
        .iter()
        .filter(|(blocks, _)| *blocks > 0)
        .map(|(blocks, how)| format!("{} {how}", count(*blocks)))
        .collect();
    if !kinds.is_empty() {
        lines.push(format!("  verified   blocks: {}", kinds.join(", ")));
    }
    for error in &status.errors {
        let blocks: Vec<String> = error.blocks.iter().map(ToString::to_string).collect();
        let what = format!(
            "{} of {} failed before being durable: {}",
            counted(error.failed, "block"),
            clean(&error.file),
            blocks.join(" ")
        );
        lines.push(format!("  {}", paint.bad(what)));
    }
    list(&mut lines, paint, "changed behind the guard's back; `accept` takes it in", &status.foreign);
    list(&mut lines, paint, "never taken in; `accept` does so", &status.unguarded);
    if !status.events.is_empty() {
        lines.extend([String::new(), "  so far".to_owned()]);
        for (what, number) in &status.events {
            lines.push(format!("    {:<24} {}", word(what), counted(*number, "block")));
        }
    }
    lines.join("\n")
}

/// The word that JSON has for it.
fn word(what: &impl serde::Serialize) -> String {
    match serde_json::to_value(what) {
        Ok(Value::String(word)) => word.replace('_', " "),
        _ => String::new(),
    }
}

fn clean(text: &str) -> String {
    text.chars().map(visible).collect()
}

fn list(lines: &mut Vec<String>, paint: Paint, heading: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    lines.extend([String::new(), format!("  {}", paint.notable(heading))]);
    lines.extend(items.iter().take(SHOWN_MAX).map(|item| format!("    {}", clean(item))));
    if items.len() > SHOWN_MAX {
        lines.push(format!("    and {} more", count((items.len() - SHOWN_MAX) as u64)));
    }
}
