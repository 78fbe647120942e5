//! What the verbs of `rotproof volume` found, for people and as JSON.

use rotproof_spec::Bytes;
use rotproof_volume::checksum::ChecksumKind;
use rotproof_volume::copies::MemberState;
use rotproof_volume::volume::{Inspection, Upkeep};
use serde_json::{Value, json};

use crate::output::{Paint, visible};
use crate::units::{bytes, counted};

/// What is on record of a volume.
pub fn status(found: &Inspection, paint: Paint) -> String {
    let status = &found.status;
    let copies = match found.options.ways {
        1 => "one copy".to_owned(),
        ways => format!("{ways} copies"),
    };
    let checksum = found.options.checksum.map_or("no checksums", ChecksumKind::word);
    let mirrors = status.members.len() / usize::from(found.options.ways);
    let stripe = if mirrors > 1 {
        format!(", striped by {}", Bytes(found.options.chunk_bytes.into()))
    } else {
        String::new()
    };
    let id = format!("{:032x}", status.id);
    let mut lines = vec![
        format!("{}  {}, {copies}, {checksum}{stripe}", paint.bold(id), bytes(status.size_bytes)),
        String::new(),
    ];
    for (number, member) in status.members.iter().enumerate() {
        let name: String = member.name.as_deref().unwrap_or("-").chars().map(visible).collect();
        let state = match &member.state {
            MemberState::Current => paint.good("current").to_string(),
            MemberState::Behind { missed_bytes } => {
                paint.notable(format!("behind by up to {}", bytes(*missed_bytes))).to_string()
            }
            MemberState::Failed { why } => paint.bad(format!("not in use: {why}")).to_string(),
        };
        lines.push(format!("  {number:>2}  {name}  {state}"));
    }
    for note in &found.notes {
        lines.extend([String::new(), format!("{} {note}", paint.notable("note:"))]);
    }
    if found.is_open {
        let note = "it is in use, or was not closed in order; it looks after that when it is opened";
        lines.extend([String::new(), format!("{} {note}", paint.notable("note:"))]);
    }
    lines.join("\n")
}

/// The same for programs.
pub fn status_json(found: &Inspection) -> Value {
    let members = found.status.members.iter().enumerate().map(|(number, member)| {
        let (state, missed_bytes, why) = match &member.state {
            MemberState::Current => ("current", 0, None),
            MemberState::Behind { missed_bytes } => ("behind", *missed_bytes, None),
            MemberState::Failed { why } => ("failed", 0, Some(why)),
        };
        json!({ "member": number, "path": member.name, "state": state, "missed_bytes": missed_bytes, "why": why })
    });
    json!({
        "id": format!("{:032x}", found.status.id),
        "generation": found.status.generation,
        "size_bytes": found.status.size_bytes,
        "copies": found.options.ways,
        "chunk_bytes": found.options.chunk_bytes,
        "checksum": found.options.checksum.map(ChecksumKind::word),
        "is_open": found.is_open,
        "members": members.collect::<Vec<_>>(),
        "notes": found.notes,
    })
}

/// What a rebuild or a scrub came to.
pub fn upkeep(upkeep: &Upkeep, paint: Paint) -> String {
    let mut lines = vec![
        format!("  copied     {}", bytes(upkeep.copied_bytes)),
        format!("  repaired   {}", bytes(upkeep.repaired_bytes)),
    ];
    if upkeep.differing_bytes > 0 {
        let blocks = counted(upkeep.differing_bytes / 4096, "block");
        lines.push(format!("  differing  {blocks}: without checksums nobody knows which copy is right"));
    }
    lines.push(String::new());
    lines.push(match (upkeep.left_bytes, upkeep.differing_bytes) {
        (0, 0) => paint.good("DONE").to_string(),
        (0, _) => format!("{}  copies differ", paint.bad("NOT WHOLE")),
        (left, _) => format!("{}  {} could not be read or written", paint.bad("NOT WHOLE"), bytes(left)),
    });
    lines.join("\n")
}

/// The same for programs.
pub fn upkeep_json(upkeep: &Upkeep) -> Value {
    json!({
        "copied_bytes": upkeep.copied_bytes,
        "repaired_bytes": upkeep.repaired_bytes,
        "left_bytes": upkeep.left_bytes,
        "differing_bytes": upkeep.differing_bytes,
    })
}
