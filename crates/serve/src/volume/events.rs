//! What has become different between two looks at a volume.

use std::collections::BTreeMap;

use rotproof_volume::copies::MemberState;
use rotproof_volume::volume::Volume;
use serde_json::{Value, json};

/// What a look at a volume has seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Name and state of each member.
    pub members: Vec<(Option<String>, MemberState)>,
    /// Blocks and bytes that were written again because a copy was wrong or could not be read.
    pub repaired_bytes: u64,
    /// Reads of blocks of which no copy is right.
    pub unrecoverable: u64,
    /// Blocks of which no copy is right.
    pub lost_blocks: u64,
    /// Versions: name, and whether they were captured by themselves.
    pub versions: BTreeMap<u64, (String, bool)>,
    /// Automatic versions that went for want of room.
    pub given_up: u64,
    /// Bytes of room that nobody holds.
    pub free_bytes: u64,
    /// Copies that were wrong when another was right.
    pub wrong_copies: u64,
    /// Requests that a member did not answer in time.
    pub late: u64,
}

impl Look {
    /// Looks.
    pub fn at(volume: &Volume) -> Self {
        let (status, checks) = (volume.status(), volume.checksum_report().unwrap_or_default());
        let reports = volume.reports();
        let versions = volume.versions().ok();
        let room = versions.map(|versions| versions.room());
        Self {
            members: status.members.into_iter().map(|member| (member.name, member.state)).collect(),
            repaired_bytes: checks.repaired * 4096
                + reports.iter().map(|member| member.repaired_bytes).sum::<u64>(),
            unrecoverable: checks.unrecoverable,
            lost_blocks: status.lost_blocks,
            versions: versions
                .map(|versions| versions.names())
                .unwrap_or_default()
                .into_iter()
                .map(|(id, name, is_automatic)| (id, (name, is_automatic)))
                .collect(),
            given_up: room.map_or(0, |room| room.given_up),
            free_bytes: room.map_or(0, |room| room.free_bytes),
            wrong_copies: checks.wrong_copies,
            late: reports.iter().map(|member| member.late).sum(),
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its word.
    pub word: &'static str,
    /// What there is to tell of it: an object.
    pub details: Value,
}

/// What has happened between two looks.
pub fn between(before: &Look, now: &Look) -> Vec<Event> {
    let mut events = Vec::new();
    let mut tell = |word, details| events.push(Event { word, details });
    // One copy more or fewer gives members other numbers.
    let is_as_many = before.members.len() == now.members.len();
    for (number, (name, state)) in now.members.iter().enumerate() {
        let same = |(other, _): &&(Option<String>, MemberState)| other == name;
        let known = if is_as_many { before.members.get(number) } else { before.members.iter().find(same) };
        let Some((name_before, state_before)) = known else { continue };
        if name_before != name {
            tell("member_replaced", json!({ "member": number, "path": name }));
        }
        if state_before == state {
            continue;
        }
        match (state_before, state) {
            (_, MemberState::Failed { why }) => {
                tell("member_failed", json!({ "member": number, "path": name, "why": why }));
            }
            // How much it is makes no other event.
            (MemberState::Behind { .. }, MemberState::Behind { .. }) => {}
            (_, MemberState::Behind { missed_bytes }) => {
                let details = json!({ "member": number, "path": name, "missed_bytes": missed_bytes });
                tell("member_behind", details);
            }
            (_, MemberState::Current) => tell("member_current", json!({ "member": number, "path": name })),
        }
    }
    let mut count = |word, before: u64, now: u64, unit: &str| {
        if now > before {
            tell(word, json!({ unit: now - before }));
        }
    };
    count("repaired", before.repaired_bytes, now.repaired_bytes, "bytes");
    count("unrecoverable", before.unrecoverable, now.unrecoverable, "reads");
    count("lost", before.lost_blocks, now.lost_blocks, "blocks");
    count("version_given_up", before.given_up, now.given_up, "versions");
    for (id, (name, is_automatic)) in &now.versions {
        if !before.versions.contains_key(id) {
            let details = json!({ "version": id, "name": name, "is_automatic": is_automatic });
            tell("version_captured", details);
        }
    }
    for (id, (name, _)) in &before.versions {
        if !now.versions.contains_key(id) {
            tell("version_gone", json!({ "version": id, "name": name }));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_is_no_event_and_what_is_different_is_one() {
        let member = |state| (Some("a".to_owned()), state);
        let before = Look { members: vec![member(MemberState::Current)], ..Look::default() };
        assert!(between(&before, &before).is_empty());
        let behind = |missed_bytes| Look {
            members: vec![member(MemberState::Behind { missed_bytes })],
            ..Look::default()
        };
        let failed = Look {
            members: vec![member(MemberState::Failed { why: "it is gone".into() })],
            repaired_bytes: 8192,
            lost_blocks: 2,
            versions: [(4, ("four".to_owned(), false))].into(),
            ..Look::default()
        };
        let words = |one: &Look, other: &Look| -> Vec<&str> {
            between(one, other).iter().map(|event| event.word).collect()
        };
        assert_eq!(words(&before, &behind(1)), ["member_behind"]);
        assert!(words(&behind(1), &behind(2)).is_empty());
        assert_eq!(words(&behind(2), &before), ["member_current"]);
        assert_eq!(words(&before, &failed), ["member_failed", "repaired", "lost", "version_captured"]);
        assert_eq!(between(&before, &failed)[1].details, json!({ "bytes": 8192 }));
        assert_eq!(words(&failed, &before), ["member_current", "version_gone"]);
        // One that came, and one before it that went.
        let more = Look {
            members: vec![(Some("b".to_owned()), MemberState::Current), member(MemberState::Current)],
            ..Look::default()
        };
        assert!(words(&before, &more).is_empty() && words(&more, &before).is_empty());
        assert_eq!(words(&more, &behind(1)), ["member_behind"]);
    }
}
