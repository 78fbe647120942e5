//! What was seen to fail, one way at a time, as far as the verdict goes by it.

use std::collections::HashMap;
use std::ops::Range;

use rotproof_block::{ContentHash, ErrorKind, Phase, Time};
use rotproof_fault::{OperationKind, SECTORS};
use rotproof_load::engine::{Incident, LoadOperation};
use rotproof_load::{Classification, ContentId, Failure, Oracle, Unflushed, Way, Workload};

use super::Evidence;

/// What a failure looks like, as far as it says what can have caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A read was refused.
    Unreadable,
    /// Something else was refused: a write, a flush, an operation on a name.
    Refused,
    /// A whole other block, an older one, or nothing: as if the subject had looked in the wrong place.
    Elsewhere,
    /// A name that is gone, or should be, or a length.
    Name,
    /// Sectors of different versions, each where it belongs.
    Torn,
    /// The right block with other bits, or its sectors in other places.
    Within,
}

/// What one way in which a block failed means for the verdict.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which failing block; several findings may be of one. `None` for a request that failed and then succeeded when
    /// it was repeated: the application was told, but no block is lost.
    pub failure: Option<usize>,
    /// Which object it is in.
    pub object: u32,
    /// Hashes of what may be there.
    pub expected: Vec<ContentHash>,
    /// Hash of what was read; `None` if there was an error, or the load was told of it later.
    pub found: Option<ContentHash>,
    /// Of what was read in part: the hashes of its whole sectors, as the ledger has them.
    pub found_sectors: Option<Box<[Option<u32>; SECTORS]>>,
    /// What it looks like.
    pub sign: Sign,
    /// What was found is what the block held before, or nothing, as if its last write had never been.
    pub is_older: bool,
    /// An error has told of it.
    pub is_told: bool,
    /// That error is that it took too long.
    pub timed_out: bool,
    /// The bytes of the object that the block is.
    pub offset: u64,
    /// Of a request that failed: the bytes of the object that were asked for; none for a flush.
    pub request: Option<Range<u64>>,
    /// Of a request that failed, where the load tells: when it was sent.
    pub sent: Option<Time>,
    /// Of a request that failed and has no blocks: what it was to do.
    pub operation: Option<OperationKind>,
    /// The place on the device, where the subject does not move blocks.
    pub device_offset: Option<u64>,
    /// Of a request that failed and then succeeded block by block: its bytes on the device, where the subject does not move blocks.
    pub asked: Option<Range<u64>>,
    /// In which phase.
    pub phase: Phase,
    /// When it was first seen.
    pub time: Time,
    /// What should be there was left to the page cache: an error below may have kept it from ever being written, with
    /// nobody told.
    pub may_be_unwritten: bool,
}

impl Finding {
    /// Whether it can be of these bytes of the device, going by its place.
    pub(super) fn lies_in(&self, suffered: &Range<u64>) -> bool {
        match (self.device_offset, &self.asked) {
            (Some(offset), _) => suffered.contains(&offset),
            (None, Some(asked)) => suffered.start < asked.end && asked.start < suffered.end,
            (None, None) => true,
        }
    }
}

/// All that the load and its check saw; `failures` are all blocks that failed.
pub(super) fn findings(evidence: &Evidence<'_>, failures: &[Failure]) -> Vec<Finding> {
    let mut findings = of_blocks(evidence, &Requests::of(evidence), failures);
    findings.extend(of_requests(evidence));
    tell_of_what_was_given_up(failures, &mut findings);
    findings
}

/// What blocks show that failed; their numbers are those among `failures`.
pub(super) fn of_blocks(
    evidence: &Evidence<'_>,
    requests: &Requests<'_>,
    failures: &[Failure],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_cached = is_cached(evidence);
    for (number, failure) in failures.iter().enumerate() {
        findings.extend(failure.ways.iter().map(|way| {
            let sign = sign(way);
            let request = requests.of_block(failure.object_index, way.time, failure.offset_bytes);
            // Where there is no file system any more, a name that is not there says only that.
            let is_told = !way.is_wrong_data() || evidence.is_unreachable && sign == Sign::Name;
            Finding {
                failure: Some(number),
                object: failure.object_index,
                // What was never written is judged only where it is to be zeros.
                expected: way
                    .expected
                    .iter()
                    .filter_map(|version| version.hash.or_else(|| (!is_told).then(zeros)))
                    .collect(),
                found: way.found.filter(|_| !is_told && sign != Sign::Name),
                found_sectors: way.found_sectors.clone(),
                sign,
                is_older: matches!(way.what, Classification::Stale(_) | Classification::Zeroed),
                is_told,
                timed_out: way.what.error() == Some(ErrorKind::TimedOut),
                offset: failure.offset_bytes,
                request: request.map(bytes_of),
                sent: request.map(|request| request.sent),
                operation: None,
                device_offset: evidence.blocks_stay.then_some(failure.offset_bytes),
                asked: None,
                phase: way.phase,
                time: way.time,
                may_be_unwritten: is_cached,
            }
        }));
    }
    findings
}

/// Errors that left no block failing.
pub(super) fn of_requests(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for report in evidence.files.iter().flat_map(|files| &files.reports) {
        let told = |incident: &rotproof_load::personality::FileIncident| {
            of_request(report.phase, incident.time, incident.error)
        };
        findings.extend(report.incidents.iter().map(told));
    }
    for report in evidence.reports {
        for incident in &report.incidents {
            // All others have their blocks among the failures.
            let is_silent_retry = report.phase == Phase::Check && incident.operation == LoadOperation::Read;
            let has_no_blocks = matches!(incident.operation, LoadOperation::Flush | LoadOperation::Discard);
            if !is_silent_retry && !has_no_blocks {
                continue;
            }
            let sign = if is_silent_retry { Sign::Unreadable } else { Sign::Refused };
            findings.push(Finding {
                object: incident.object,
                sent: Some(incident.sent),
                operation: match incident.operation {
                    LoadOperation::Flush => Some(OperationKind::Flush),
                    LoadOperation::Discard => Some(OperationKind::Discard),
                    LoadOperation::Read | LoadOperation::Write => None,
                },
                expected: evidence.load.map_or_else(Vec::new, |load| contents_of(load, incident)),
                asked: (evidence.blocks_stay && is_silent_retry).then(|| bytes_of(incident)),
                sign,
                ..of_request(report.phase, incident.time, incident.error)
            });
        }
    }
    findings
}

/// Names that were not made durable may be lost with a file system that gave up; that it did, it said.
fn tell_of_what_was_given_up(failures: &[Failure], findings: &mut [Finding]) {
    let gives_up = |way: &&Way| {
        matches!(way.what, Classification::Refused { .. }) || way.what.error() == Some(ErrorKind::ReadOnly)
    };
    let ways = failures.iter().flat_map(|failure| &failure.ways);
    if let Some(since) = ways.filter(gives_up).map(|way| way.time).min() {
        for finding in findings.iter_mut().filter(|finding| finding.sign == Sign::Name) {
            finding.is_told |= since <= finding.time;
        }
    }
}

/// The reads and writes that failed, by object and time. A check reads each block of such a read again, by itself.
pub(super) struct Requests<'a>(HashMap<(u32, Time), Vec<&'a Incident>>);

impl<'a> Requests<'a> {
    pub(super) fn of(evidence: &Evidence<'a>) -> Self {
        let mut requests: HashMap<_, Vec<&Incident>> = HashMap::new();
        let reports = evidence.reports.iter().filter(|report| report.phase != Phase::Check);
        for incident in reports.flat_map(|report| &report.incidents) {
            if matches!(incident.operation, LoadOperation::Read | LoadOperation::Write) {
                requests.entry((incident.object, incident.time)).or_default().push(incident);
            }
        }
        Self(requests)
    }

    /// The one that failed for the block at `offset` at that time.
    fn of_block(&self, object: u32, time: Time, offset: u64) -> Option<&'a Incident> {
        self.0.get(&(object, time))?.iter().copied().find(|request| bytes_of(request).contains(&offset))
    }
}

fn bytes_of(request: &Incident) -> Range<u64> {
    request.offset_bytes..request.offset_bytes.saturating_add(request.length_bytes)
}

fn zeros() -> ContentHash {
    ContentHash::of(&[0; rotproof_load::BLOCK_BYTES])
}

/// Whether what the load wrote and read went through the page cache.
pub(super) fn is_cached(evidence: &Evidence<'_>) -> bool {
    evidence.files.is_some()
        || evidence.load.is_some_and(|(workload, _)| workload.spec().file_access().is_cached())
}

/// An error that left no block failing.
fn of_request(phase: Phase, time: Time, error: ErrorKind) -> Finding {
    Finding {
        failure: None,
        object: 0,
        expected: Vec::new(),
        found: None,
        found_sectors: None,
        sign: Sign::Refused,
        is_older: false,
        is_told: true,
        timed_out: error == ErrorKind::TimedOut,
        offset: 0,
        request: None,
        sent: None,
        operation: None,
        device_offset: None,
        asked: None,
        phase,
        time,
        may_be_unwritten: false,
    }
}

fn sign(way: &Way) -> Sign {
    use Classification as What;
    match way.what {
        What::Unreadable { .. } => Sign::Unreadable,
        What::Unwritable { .. } | What::Refused { .. } => Sign::Refused,
        What::Zeroed
        | What::Stale(_)
        | What::Unflushed(Unflushed { write: Some(_), .. })
        | What::Misdirected(_)
        | What::Noise => Sign::Elsewhere,
        What::Lost | What::Undeleted | What::WrongSize { .. } => Sign::Name,
        // Nothing shows that a block which holds none of its versions has it from a flush that failed.
        What::Torn { .. } | What::Unflushed(Unflushed { write: None, .. }) => Sign::Torn,
        What::FlippedBits { .. } | What::Ones | What::Misplaced { .. } => Sign::Within,
    }
}

/// Hashes of all that may lie where a request of the check failed; none for a flush or a discard.
fn contents_of((workload, oracle): (&Workload, &Oracle), incident: &Incident) -> Vec<ContentHash> {
    let block_bytes = rotproof_load::BLOCK_BYTES as u64;
    let first = workload.layout().object_blocks(incident.object).start + incident.offset_bytes / block_bytes;
    if incident.operation == LoadOperation::Discard {
        return Vec::new();
    }
    (first..first + incident.length_bytes / block_bytes)
        .flat_map(|block| oracle.legal(block))
        .filter(|&content| content != ContentId::NEVER_WRITTEN)
        .map(|content| workload.content().hash(content))
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::injection_group::tests::hash;
    use super::*;

    /// The wrong block, read at 20 ns.
    pub(in crate::verdict) fn wrong(expected: u128, found: u128) -> Finding {
        Finding {
            failure: Some(0),
            expected: vec![hash(expected)],
            found: Some(hash(found)),
            sign: Sign::Elsewhere,
            is_told: false,
            ..of_request(Phase::Run, Time(20), ErrorKind::Medium)
        }
    }

    /// An error instead.
    pub(in crate::verdict) fn unreadable(expected: u128) -> Finding {
        Finding { found: None, sign: Sign::Unreadable, is_told: true, ..wrong(expected, 0) }
    }
}
