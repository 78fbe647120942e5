//! What the verbs of `rotproof volume` found, for people. All of it comes as JSON, from here or from who serves the volume.

use rotproof_spec::Bytes;
use serde_json::Value;

use crate::output::{Paint, visible};
use crate::table::{Align, Table};
use crate::units::{bytes, counted, duration};

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn shown(text: &str) -> String {
    text.chars().map(visible).collect()
}

/// What is known of a volume.
pub fn status(found: &Value, paint: Paint) -> String {
    let copies = match count(found, "copies") {
        1 => "one copy".to_owned(),
        copies => format!("{copies} copies"),
    };
    let checksum = found["checksum"].as_str().unwrap_or("no checksums");
    let members = list(found, "members");
    let is_striped =
        list(found, "segments").iter().any(|segment| count(segment, "members") > count(found, "copies"));
    let stripe = match is_striped {
        true => format!(", striped by {}", Bytes(count(found, "chunk_bytes"))),
        false => String::new(),
    };
    let segments = match list(found, "segments").len() {
        0 | 1 => String::new(),
        segments => format!(", {segments} segments"),
    };
    let policy = match &found["versions_policy"] {
        Value::Null => String::new(),
        policy => match policy["every_seconds"].as_f64() {
            Some(every) => {
                let every = duration(std::time::Duration::from_secs_f64(every));
                format!(", a version each {every}")
            }
            None => ", versions".to_owned(),
        },
    };
    let id = found["id"].as_str().unwrap_or_default();
    let size = bytes(count(found, "size_bytes"));
    let mut lines = vec![
        format!("{}  {size}, {copies}, {checksum}{stripe}{segments}{policy}", paint.bold(id)),
        String::new(),
    ];
    for member in members {
        let name = shown(member["path"].as_str().unwrap_or("-"));
        let state = match member["state"].as_str() {
            Some("current") => paint.good("current").to_string(),
            Some("behind") => {
                let missed = bytes(count(member, "missed_bytes"));
                paint.notable(format!("behind by up to {missed}")).to_string()
            }
            _ => {
                let why = shown(member["why"].as_str().unwrap_or_default());
                paint.bad(format!("not in use: {why}")).to_string()
            }
        };
        lines.push(format!("  {:>2}  {name}  {state}", count(member, "member")));
    }
    for (number, spare) in list(found, "spares").iter().enumerate() {
        let name = shown(spare.as_str().unwrap_or("-"));
        let state = if spare.is_null() { "a spare that is missing" } else { "a spare" };
        lines.push(format!("  {:>2}  {name}  {state}", format!("s{number}")));
    }
    if let Some(versions) = found["versions"].as_array() {
        let free = bytes(count(&found["room"], "free_bytes"));
        lines
            .extend([String::new(), format!("  {}, {free} free", counted(versions.len() as u64, "version"))]);
    }
    if count(found, "lost_blocks") > 0 {
        let lost = counted(count(found, "lost_blocks"), "block");
        lines
            .extend([String::new(), format!("  {}", paint.bad(format!("{lost} of which no copy is right")))]);
    }
    lines.extend(running(found));
    for note in list(found, "notes") {
        let note = note.as_str().unwrap_or_default();
        lines.extend([String::new(), format!("{} {note}", paint.notable("note:"))]);
    }
    if found["is_open"] == true && found["checks"].is_null() {
        let note = "it is in use, or was not closed in order; it looks after that when it is opened";
        lines.extend([String::new(), format!("{} {note}", paint.notable("note:"))]);
    }
    lines.join("\n")
}

/// What is being done to a volume that is served.
fn running(found: &Value) -> Vec<String> {
    let tasks = list(found, "tasks").iter().filter(|task| task["state"] == "running");
    let line = |task: &Value| {
        let verb = task["verb"].as_str().unwrap_or_default().replace('_', " ");
        let (done, of) = (bytes(count(task, "done_bytes")), bytes(count(task, "of_bytes")));
        format!("  {verb}: {done} of {of}")
    };
    let lines: Vec<String> = tasks.map(line).collect();
    if lines.is_empty() { lines } else { [vec![String::new()], lines].concat() }
}

/// Its versions.
pub fn versions(found: &Value, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("version", Align::Right),
        ("captured", Align::Left),
        ("holds", Align::Right),
        ("name", Align::Left),
    ]);
    for version in list(found, "versions") {
        let name = match (version["is_automatic"] == true, version["is_damaged"] == true) {
            (true, _) => "(by itself)".to_owned(),
            (false, true) => format!("{} (damaged)", shown(version["name"].as_str().unwrap_or_default())),
            (false, false) => shown(version["name"].as_str().unwrap_or_default()),
        };
        table.row([
            count(version, "id").to_string(),
            time(count(version, "time_ns")),
            bytes(count(version, "held_bytes")),
            name,
        ]);
    }
    let (free, all) = (count(&found["room"], "free_bytes"), count(&found["room"], "bytes"));
    let room = format!("{} of {} are free", bytes(free), bytes(all));
    if list(found, "versions").is_empty() {
        return format!("no versions; {room}");
    }
    format!("{}\n\n{room}", table.render(paint))
}

/// A time in UTC, from nanoseconds since 1970.
fn time(time_ns: u64) -> String {
    let seconds = time_ns / 1_000_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // From days to a date: Howard Hinnant, chrono-compatible low-level date algorithms, `civil_from_days`.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// What a rebuild or a scrub came to.
pub fn upkeep(upkeep: &Value, paint: Paint) -> String {
    let differing = count(upkeep, "differing_bytes");
    let mut lines = vec![
        format!("  copied     {}", bytes(count(upkeep, "copied_bytes"))),
        format!("  repaired   {}", bytes(count(upkeep, "repaired_bytes"))),
    ];
    if differing > 0 {
        let blocks = counted(differing / 4096, "block");
        lines.push(format!("  differing  {blocks}: without checksums nobody knows which copy is right"));
    }
    lines.push(String::new());
    lines.push(match (count(upkeep, "left_bytes"), differing) {
        (0, 0) => paint.good("DONE").to_string(),
        (0, _) => format!("{}  copies differ", paint.bad("NOT WHOLE")),
        (left, _) => format!("{}  {} could not be read or written", paint.bad("NOT WHOLE"), bytes(left)),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_392_000, "2026-11-23 00:00:00 UTC"),
        ] {
            assert_eq!(time(seconds * 1_000_000_000), text);
        }
    }
}
