//! What there is to tell of a volume that is served.

use rotproof_volume::copies::MemberState;

use super::exposition::Page;
use crate::volume::KeeperFigures;

/// Adds the figures of a volume to a page.
pub(super) fn figures(page: &mut Page, stack: (&str, &str), figures: &KeeperFigures) {
    let KeeperFigures { look, task, hook } = figures;
    let count = |of: fn(&MemberState) -> bool| look.members.iter().filter(|(_, state)| of(state)).count();
    let states = [
        ("current", count(|state| matches!(state, MemberState::Current))),
        ("behind", count(|state| matches!(state, MemberState::Behind { .. }))),
        ("failed", count(|state| matches!(state, MemberState::Failed { .. }))),
    ];
    page.family("rotproof_volume_members", "gauge", "Members of the volume, by what they are like.");
    for (state, count) in states {
        page.sample("rotproof_volume_members", &[stack, ("state", state)], count);
    }
    let missed = look.members.iter().map(|(_, state)| match state {
        MemberState::Behind { missed_bytes } => *missed_bytes,
        MemberState::Current | MemberState::Failed { .. } => 0,
    });
    let single: [(&str, &str, &str, u64); 8] = [
        ("missed_bytes", "gauge", "Bytes that members in use have missed.", missed.sum()),
        ("lost_blocks", "gauge", "Blocks of 4 KiB of which no copy is right.", look.lost_blocks),
        ("repaired_bytes_total", "counter", "Bytes written again as a copy was bad.", look.repaired_bytes),
        ("wrong_copies_total", "counter", "Copies of blocks without their checksum.", look.wrong_copies),
        ("unrecoverable_total", "counter", "Reads of blocks that no copy has right.", look.unrecoverable),
        ("late_requests_total", "counter", "Requests not answered in time by a member.", look.late),
        ("versions", "gauge", "Versions that the volume keeps.", look.versions.len() as u64),
        ("free_bytes", "gauge", "Room that neither data nor versions hold.", look.free_bytes),
    ];
    for (name, kind, help, value) in single {
        let name = format!("rotproof_volume_{name}");
        page.family(&name, kind, help);
        page.sample(&name, &[stack], value);
    }
    page.family("rotproof_volume_task_bytes", "gauge", "Bytes of the task that is being done.");
    if let Some(task) = task {
        for (part, value) in [("done", task.done_bytes), ("of", task.of_bytes)] {
            let labels = [stack, ("task", task.verb), ("part", part)];
            page.sample("rotproof_volume_task_bytes", &labels, value);
        }
    }
    if let Some(hook) = hook {
        page.family("rotproof_volume_hook_total", "counter", "Events for the hook, by what became of them.");
        for (fate, value) in [("done", hook.done), ("failed", hook.failed), ("dropped", hook.dropped)] {
            page.sample("rotproof_volume_hook_total", &[stack, ("fate", fate)], value);
        }
    }
}
