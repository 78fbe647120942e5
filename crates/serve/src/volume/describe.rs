//! What a volume is like, as JSON: the same of one that is served and of one that nobody uses.

use rotproof_volume::checksum::{ChecksumKind, ChecksumReport};
use rotproof_volume::copies::MemberState;
use rotproof_volume::versions::{RoomReport, VersionInfo};
use rotproof_volume::volume::{VolumeOptions, VolumeStatus};
use serde_json::{Value, json};

/// What there is to tell of a volume. What only an open volume knows is null for others: `versions`, `lost_blocks`, `checks`.
pub fn status_json(
    status: &VolumeStatus,
    options: &VolumeOptions,
    is_open: bool,
    notes: &[String],
    checks: Option<&ChecksumReport>,
    versions: Option<(Vec<VersionInfo>, RoomReport)>,
) -> Value {
    let members = status.members.iter().enumerate().map(|(number, member)| {
        let (state, missed_bytes, why) = match &member.state {
            MemberState::Current => ("current", 0, None),
            MemberState::Behind { missed_bytes } => ("behind", *missed_bytes, None),
            MemberState::Failed { why } => ("failed", 0, Some(why)),
        };
        json!({ "member": number, "path": member.name, "state": state, "missed_bytes": missed_bytes, "why": why })
    });
    let segments = status.segments().into_iter().map(|segment| {
        json!({ "first_member": segment.members.start, "members": segment.members.len(), "member_bytes": segment.bytes })
    });
    let policy = options.versions.map(|policy| {
        let every = (policy.every_ms > 0).then_some(policy.every_ms as f64 / 1000.0);
        json!({ "every_seconds": every, "keep": policy.keep, "reserve_percent": policy.reserve_percent })
    });
    let (versions, room) = versions.unzip();
    json!({
        "id": format!("{:032x}", status.id),
        "generation": status.generation,
        "size_bytes": status.size_bytes,
        "copies": options.ways,
        "chunk_bytes": options.chunk_bytes,
        "checksum": options.checksum.map(ChecksumKind::word),
        "is_open": is_open,
        "members": members.collect::<Vec<_>>(),
        "spares": status.spares,
        "segments": segments.collect::<Vec<_>>(),
        "versions_policy": policy,
        "versions": versions,
        "room": room,
        "lost_blocks": checks.map(|_| status.lost_blocks),
        "checks": checks,
        "notes": notes,
    })
}
