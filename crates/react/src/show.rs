//! The table as text, as a page in Markdown, as a picture, and as a Parquet table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_plot::{Anchor, Color, Item, Scene, html};
use rotproof_record::table::{Column, Values, write_table};

use crate::campaign::Campaign;
use crate::cell::{Copies, Done, Outcome};
use crate::effect::Effect;
use crate::operation::Operation;

/// What the letters mean, a line each. What stands for a mount is in [`LEGEND_OF_DATABASES`] a new start of the program.
const LEGEND: [&str; 13] = [
    "R  recovered: noticed, and everything is right, at once and after the next mount",
    "E  the operation reported an error",
    "B  it handed out, or kept, something wrong without an error",
    "C  it crashed or hung",
    "S  the file system stopped: read-only or shut down",
    "e b c s  the same, but only after the next mount",
    "r  as R, but it was noticed at the next mount only",
    ".  the bad block was met and nothing came of it: not noticed, nothing wrong",
    "-  not reached: the operation never met such a block",
    "?  unknown: nobody could see it",
    "columns: mount, recover after a crash, statfs, readdir, lookup, read,",
    "write, create, unlink, rename (each with syncfs), fsync, umount, fsck",
    "* in front of a kind: all copies are bad, not one",
];

/// The same for databases.
const LEGEND_OF_DATABASES: [&str; 12] = [
    "R  recovered: noticed, and everything is right, at once and later",
    "E  the operation reported an error",
    "B  it handed out something wrong without an error",
    "C  it crashed or hung",
    "e b c  the same, but only when the program was started anew",
    "r  as R, but it was noticed by the program that was started anew only",
    ".  the bad piece was met and nothing came of it: not noticed, nothing wrong",
    "-  not reached: the operation never met such a piece",
    "?  unknown: nobody could see it",
    "columns: open, recover after a crash, select, index_lookup, insert, update,",
    "delete, integrity_check, vacuum; checkpoint where there is a write-ahead log",
    "a piece is a page, a record or header of the journal, a frame of the log",
];

/// The same for LMDB.
const LEGEND_OF_LMDB: [&str; 12] = [
    "R  recovered: noticed, and everything is right, at once and later",
    "E  the operation reported an error",
    "B  it handed out something wrong without an error",
    "C  it crashed or hung",
    "e b c  the same, but only when a program was started anew",
    "r  as R, but it was noticed by the program that was started anew only",
    ".  the bad page was met and nothing came of it: not noticed, nothing wrong",
    "-  not reached: the operation never met such a page",
    "?  unknown: nobody could see it",
    "columns: open (mdb_dump -l), recover after a crash (mdb_stat), select (all, by",
    "mdb_dump), get (mdb_load -N), insert, update (mdb_load), stat (mdb_stat -e -f",
    "-a), copy (mdb_copy), compact (mdb_copy -c)",
];

/// The same for PostgreSQL.
const LEGEND_OF_POSTGRES: [&str; 13] = [
    "R  recovered: noticed, and everything is right, at once and later",
    "E  the operation reported an error, or the program would not start",
    "B  it handed out something wrong without an error",
    "C  it crashed or hung",
    "S  it stopped with a PANIC, which takes a server with all its sessions down",
    "e b c s  the same, but only when the program was started anew",
    "r  as R, but it was noticed by the program that was started anew only",
    ".  the bad page was met and nothing came of it: not noticed, nothing wrong",
    "-  not reached: the operation never met such a page",
    "?  unknown: nobody could see it",
    "columns: open, recover after a crash, select (all, by the table),",
    "index_lookup, insert, update, delete, integrity_check (amcheck), vacuum (full);",
    "each with a start before it, and a checkpoint behind it",
];

const SHORT: [(Operation, &str); 26] = [
    (Operation::Open, "opn"),
    (Operation::Mount, "mnt"),
    (Operation::Recover, "rec"),
    (Operation::Statfs, "stf"),
    (Operation::Readdir, "rdd"),
    (Operation::Lookup, "lkp"),
    (Operation::Read, "rd"),
    (Operation::Write, "wr"),
    (Operation::Create, "cre"),
    (Operation::Unlink, "unl"),
    (Operation::Rename, "ren"),
    (Operation::Fsync, "fsy"),
    (Operation::Umount, "umt"),
    (Operation::Fsck, "fck"),
    (Operation::Select, "sel"),
    (Operation::Get, "get"),
    (Operation::IndexLookup, "idx"),
    (Operation::Insert, "ins"),
    (Operation::Update, "upd"),
    (Operation::Delete, "del"),
    (Operation::IntegrityCheck, "chk"),
    (Operation::Vacuum, "vac"),
    (Operation::Checkpoint, "ckp"),
    (Operation::Stat, "sta"),
    (Operation::Copy, "cpy"),
    (Operation::Compact, "cmp"),
];

/// The columns: operations of which there are cells.
fn columns(campaign: &Campaign) -> Vec<(Operation, &'static str)> {
    let here: BTreeSet<Operation> = campaign.cells.iter().map(|done| done.cell.operation).collect();
    SHORT.into_iter().filter(|(operation, _)| here.contains(operation)).collect()
}

/// Rows in their order: kind and copies.
fn rows(cells: &[&Done]) -> Vec<(String, Copies)> {
    let mut seen = BTreeSet::new();
    let rows = cells.iter().map(|done| (done.cell.kind.clone(), done.cell.copies));
    rows.filter(|row| seen.insert(row.clone())).collect()
}

fn row_name((kind, copies): &(String, Copies)) -> String {
    if *copies == Copies::All { format!("*{kind}") } else { kind.clone() }
}

/// The cells of one effect as lines: a row for each kind that any operation reached.
fn block(campaign: &Campaign, effect: Effect) -> Vec<String> {
    let cells: Vec<&Done> = campaign.cells.iter().filter(|done| done.cell.effect == effect).collect();
    let width = campaign
        .cells
        .iter()
        .map(|done| done.cell.kind.len() + 1)
        .max()
        .unwrap_or(0)
        .max(effect.word().len());
    let operations = columns(campaign);
    let mut head = format!("{:width$}", effect.word());
    operations.iter().for_each(|(_, word)| head += &format!(" {word:>3}"));
    let mut lines = vec![head];
    let mut never = Vec::new();
    for row in rows(&cells) {
        let of_row = |operation: Operation| {
            let mut found = cells.iter().filter(|done| done.cell.operation == operation);
            found.find(|done| (done.cell.kind.as_str(), done.cell.copies) == (row.0.as_str(), row.1))
        };
        let letters: Vec<&str> = operations
            .iter()
            .map(|(operation, _)| of_row(*operation).map_or("", |done| done.letters()))
            .collect();
        if letters.iter().all(|letters| matches!(*letters, "-" | "")) {
            never.push(row_name(&row));
            continue;
        }
        let mut line = format!("{:width$}", row_name(&row));
        letters.iter().for_each(|letters| line += &format!(" {letters:>3}"));
        lines.push(line.trim_end().to_owned());
    }
    if !never.is_empty() && lines.len() > 1 {
        let mut line = "never reached:".to_owned();
        for name in never {
            if line.len() + name.len() + 1 > 76 {
                lines.push(std::mem::replace(&mut line, " ".to_owned()));
            }
            line += &format!(" {name}");
        }
        lines.push(line);
    }
    lines
}

fn effects(campaign: &Campaign) -> Vec<Effect> {
    let here: BTreeSet<Effect> = campaign.cells.iter().map(|done| done.cell.effect).collect();
    here.into_iter().collect()
}

/// The whole table for people, 80 columns wide at most.
pub fn table(campaign: &Campaign) -> String {
    let mut lines =
        vec![format!("{} on {}, seed {}", campaign.head.subject, campaign.head.kernel, campaign.head.seed)];
    for effect in effects(campaign) {
        let block = block(campaign, effect);
        if block.len() > 1 {
            lines.push(String::new());
            lines.extend(block);
        }
    }
    lines.push(String::new());
    lines.push(summary(campaign));
    lines.push(String::new());
    let legend = match campaign.head.subject.as_str() {
        "lmdb" => &LEGEND_OF_LMDB[..],
        subject if subject.starts_with("postgres") => &LEGEND_OF_POSTGRES,
        subject if subject.starts_with("sqlite") => &LEGEND_OF_DATABASES,
        _ => &LEGEND,
    };
    lines.extend(legend.iter().map(|&line| line.to_owned()));
    lines.join("\n")
}

fn summary(campaign: &Campaign) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for done in &campaign.cells {
        *counts.entry(done.letters()).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(letters, count)| format!("{letters} {count}")).collect();
    let more = if campaign.is_complete { "" } else { ", not complete" };
    format!("{} cells{more}: {}", campaign.cells.len(), parts.join(", "))
}

/// The table as a part of a page in Markdown: the letters, how it was noticed, and what was done.
pub fn page(campaign: &Campaign) -> String {
    let mut text = format!(
        "## {}\n\n{}, seed {}. {}.\n",
        campaign.head.subject,
        campaign.head.kernel,
        campaign.head.seed,
        summary(campaign)
    );
    for effect in effects(campaign) {
        let block = block(campaign, effect);
        if block.len() > 1 {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n```text\n{}\n```\n", block.join("\n"));
        }
    }
    text.push_str("\nHow it was noticed, and what was done, over all cells that were reached:\n\n| effect | noticed by | did | letters | cells |\n|---|---|---|---|---|\n");
    let mut counts: BTreeMap<(Effect, &str, &str, &str), usize> = BTreeMap::new();
    for done in &campaign.cells {
        if let Outcome::Reached(reaction) = &done.outcome {
            let key =
                (done.cell.effect, reaction.noticed.word(), reaction.did.as_str(), reaction.letters.as_str());
            *counts.entry(key).or_default() += 1;
        }
    }
    for ((effect, noticed, did, letters), count) in counts {
        let _ = writeln!(text, "| {effect} | {noticed} | {did} | `{letters}` | {count} |");
    }
    text
}

fn color(letters: &str) -> Color {
    match letters {
        "-" | "" => Color(0xf4, 0xf4, 0xf4),
        "." => Color(0xd8, 0xd8, 0xd8),
        "?" => Color(0xff, 0xff, 0xff),
        "R" | "r" => Color(0x00, 0x9e, 0x73),
        letters if letters.contains(['C', 'c']) => Color(0x22, 0x22, 0x22),
        letters if letters.contains(['B', 'b']) => Color(0xc0, 0x1c, 0x28),
        letters if letters.contains(['S', 's']) => Color(0xe6, 0x9f, 0x00),
        _ => Color(0x56, 0xb4, 0xe9),
    }
}

/// The whole table as a picture: a panel for each effect, side by side.
pub fn picture(campaign: &Campaign) -> Scene {
    const CELL: (f64, f64) = (24.0, 15.0);
    const TOP: f64 = 70.0;
    let all: Vec<&Done> = campaign.cells.iter().collect();
    let rows = rows(&all);
    let left = rows.iter().map(|row| row_name(row).len()).max().unwrap_or(0) as f64 * 7.5 + 20.0;
    let text = |at, text: &str, color, anchor, is_bold| Item::Text {
        at,
        text: text.to_owned(),
        size: if is_bold { 15.0 } else { 11.0 },
        color,
        anchor,
        is_upright: false,
        is_bold,
    };
    let title = format!("{} on {}, seed {}", campaign.head.subject, campaign.head.kernel, campaign.head.seed);
    let mut items = vec![text((10.0, 20.0), &title, Color::INK, Anchor::Start, true)];
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + index as f64 * CELL.1 + 11.0;
        items.push(text((left - 6.0, y), &row_name(row), Color::INK, Anchor::End, false));
    }
    let mut x = left;
    for effect in effects(campaign) {
        items.push(text((x, 42.0), effect.word(), Color::INK, Anchor::Start, true));
        for (operation, word) in columns(campaign) {
            items.push(text((x + 11.0, TOP - 8.0), word, Color::INK, Anchor::Middle, false));
            for done in
                all.iter().filter(|done| (done.cell.effect, done.cell.operation) == (effect, operation))
            {
                let row = rows
                    .iter()
                    .position(|(kind, copies)| *kind == done.cell.kind && *copies == done.cell.copies);
                let y = TOP + row.unwrap_or(0) as f64 * CELL.1;
                let letters = done.letters();
                let mut drawn =
                    vec![Item::Area { place: [x, y, CELL.0 - 1.0, CELL.1 - 1.0], color: color(letters) }];
                if !matches!(letters, "-" | ".") {
                    let ink =
                        if letters.contains(['B', 'b', 'C', 'R', 'r']) { Color::PAPER } else { Color::INK };
                    drawn.push(text((x + 11.0, y + 11.0), letters, ink, Anchor::Middle, false));
                }
                items.push(Item::Group { kind: "cell", title: told(done), items: drawn });
            }
            x += CELL.0;
        }
        x += 14.0;
    }
    Scene { width: x + 10.0, height: TOP + rows.len() as f64 * CELL.1 + 20.0, items }
}

/// A cell in one line.
fn told(done: &Done) -> String {
    let what = match &done.outcome {
        Outcome::NotReached => "not reached".to_owned(),
        Outcome::Hung(why) | Outcome::Unknown(why) => why.clone(),
        Outcome::Reached(reaction) => {
            let parts = [&reaction.answer, &reaction.after, &reaction.said];
            let parts: Vec<&str> =
                parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            format!("noticed: {}; {}; {}", reaction.noticed.word(), reaction.did, parts.join(" | "))
        }
    };
    format!("{}: {} ({}) {what}", done.cell.name(), done.letters(), done.harm)
}

const COLUMNS: [Column; 13] = [
    Column::text("subject"),
    Column::text("kernel"),
    Column::integer("seed"),
    Column::text("kind"),
    Column::text("copies"),
    Column::text("effect"),
    Column::text("operation"),
    Column::text("letters"),
    Column::optional_text("noticed"),
    Column::optional_text("did"),
    Column::text("harm"),
    Column::text("told"),
    Column::integer("took_ms"),
];

/// Writes `reactions.parquet`, `table.txt`, `page.md` and `table.html` into the folder, in the place of older ones.
pub fn write_results(campaign: &Campaign, folder: &Path) -> Result<()> {
    let cells = &campaign.cells;
    let texts =
        |of: &dyn Fn(&Done) -> String| Values::Texts(cells.iter().map(|done| Arc::from(of(done))).collect());
    let reaction = |of: &dyn Fn(&crate::Reaction) -> String| {
        let one = |done: &Done| match &done.outcome {
            Outcome::Reached(reaction) => Some(Arc::from(of(reaction))),
            _ => None,
        };
        Values::OptionalTexts(cells.iter().map(one).collect())
    };
    let integer = |of: &dyn Fn(&Done) -> u64| {
        Values::Integers(cells.iter().map(|done| i64::try_from(of(done)).unwrap_or(i64::MAX)).collect())
    };
    let values = [
        texts(&|_| campaign.head.subject.clone()),
        texts(&|_| campaign.head.kernel.clone()),
        integer(&|_| campaign.head.seed),
        texts(&|done| done.cell.kind.clone()),
        texts(&|done| done.cell.copies.word().to_owned()),
        texts(&|done| done.cell.effect.word().to_owned()),
        texts(&|done| done.cell.operation.word().to_owned()),
        texts(&|done| done.letters().to_owned()),
        reaction(&|reaction| reaction.noticed.word().to_owned()),
        reaction(&|reaction| reaction.did.clone()),
        texts(&|done| done.harm.clone()),
        texts(&told),
        integer(&|done| done.milliseconds),
    ];
    let path = folder.join("reactions.parquet");
    let fresh = folder.join("reactions.parquet.new");
    let replace = || -> Result<()> {
        if fresh.exists() {
            fs::remove_file(&fresh).doing(|| format!("removing {}", fresh.display()))?;
        }
        write_table(&fresh, "reactions", &COLUMNS, &values)?;
        fs::rename(&fresh, &path).doing(|| format!("writing {}", path.display()))
    };
    replace()?;
    let text = table(campaign);
    let picture = picture(campaign);
    for (name, content) in [
        ("table.txt", format!("{text}\n")),
        ("page.md", page(campaign)),
        ("table.html", html(&format!("How {} reacts", campaign.head.subject), &picture, &text)),
    ] {
        let path = folder.join(name);
        fs::write(&path, content).doing(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
