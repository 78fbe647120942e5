//! From devices in any order to the members of one volume: who belongs to it, who is missing, who has missed what.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rotproof_block::{Buffer, Context, Device, Error, ErrorKind, Request, Result, Runtime, Submission};

use super::book::{Page, Spare};
use crate::member::{Bits, COPY_BYTES, Known, MemberEntry, MemberRecord, data_bytes, places};

/// A device that is offered as a member, with what people call it.
#[derive(Clone)]
pub struct Candidate {
    /// A path, for messages.
    pub name: String,
    /// Itself.
    pub device: Arc<dyn Device>,
}

/// How long a device may take to say anything: a disk may have to start turning, and a member that is left out must be rebuilt.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the other copies of its record may take once one was read: as one that cannot be read, one that does not come counts
/// as not there.
const PATIENCE_FOR_MORE: Duration = Duration::from_secs(1);

/// Reads what a device says of the volume that it is a member of; `None` if it says nothing, or does not answer within 20 seconds.
///
/// Fails with [`ErrorKind::Unsupported`] where the volume is of a later version.
pub async fn read_record(candidate: &Candidate, runtime: &Runtime) -> Result<Option<MemberRecord>> {
    let queue = candidate.device.open_queue(runtime)?;
    let size = candidate.device.info().size;
    if data_bytes(size).is_none() {
        return Ok(None);
    }
    let mut reads: Vec<(u64, Option<Submission>)> = places(size)
        .into_iter()
        .flatten()
        .map(|place| {
            let read = Request::read(place, Buffer::stale(COPY_BYTES as usize), Context::default());
            (place, Some(queue.submit(read)))
        })
        .collect();
    let (mut newest, mut refused): (Option<MemberRecord>, Option<Error>) = (None, None);
    let mut end = runtime.sleep(PATIENCE);
    let mut is_patient = true;
    poll_fn(|context| {
        for (place, read) in &mut reads {
            let Some(Poll::Ready(completion)) = read.as_mut().map(|read| Pin::new(read).poll(context)) else {
                continue;
            };
            *read = None;
            // One that cannot be read is one that is not there: there are others.
            if completion.result.is_err() {
                continue;
            }
            match MemberRecord::decode(&completion.buffer, *place) {
                Ok(Some(record)) => {
                    if newest.as_ref().is_none_or(|newest| newest.generation < record.generation) {
                        newest = Some(record);
                    }
                }
                Ok(None) => {}
                Err(error) => refused = Some(error.while_doing(&candidate.name)),
            }
        }
        if is_patient && newest.is_some() {
            (is_patient, end) = (false, runtime.sleep(PATIENCE_FOR_MORE));
        }
        match reads.iter().all(|(_, read)| read.is_none()) {
            true => Poll::Ready(()),
            false => Pin::new(&mut end).poll(context),
        }
    })
    .await;
    match refused {
        Some(error) => Err(error),
        None => Ok(newest),
    }
}

/// The members of a volume.
#[derive(Clone)]
pub(super) struct Assembled {
    pub(super) newest: MemberRecord,
    /// One for each member.
    pub(super) pages: Vec<Page>,
    pub(super) spares: Vec<Spare>,
    /// What each is called; why it is not there, if it is not.
    pub(super) names: Vec<Result<String, String>>,
    /// What people should know.
    pub(super) notes: Vec<String>,
}

impl Assembled {
    /// Fails with [`ErrorKind::Missing`] unless they are this volume, with all that was on record when its record had this generation.
    pub(super) fn refuse_older(&self, volume: u128, generation: u64) -> Result<()> {
        if self.newest.volume == volume && self.newest.generation >= generation {
            return Ok(());
        }
        let context = format!(
            "no member answers that knows the volume as it was in use (change {generation} of {volume:032x}); what is there is change {} of \
             {:032x}",
            self.newest.generation, self.newest.volume
        );
        Err(Error::new(ErrorKind::Missing, context))
    }

    /// Fails with [`ErrorKind::Missing`] if members that are missing may have been used without those that are here, which would then be
    /// old: of every mirror there is one that had part in what those wrote last. Those that are `given_up` do not count.
    pub(super) fn refuse_behind(&self, given_up: impl Fn(usize) -> bool) -> Result<()> {
        let newest = &self.newest;
        let last = Known { session: newest.session, generation: newest.generation };
        // One that was missing before could only be ahead of a record that somebody here has written without it, and then on purpose.
        let may_be_ahead = |member: &usize| {
            let page = &self.pages[*member];
            let had_part = page.entry.known == last || page.entry.known == Known::default();
            page.device.is_none() && had_part && !given_up(*member)
        };
        let ways = usize::from(newest.layout.ways);
        let mirrors = 0..self.pages.len() / ways;
        let of_each: Option<Vec<usize>> =
            mirrors.map(|mirror| (mirror * ways..(mirror + 1) * ways).find(may_be_ahead)).collect();
        let Some(members) = of_each.filter(|members| !members.is_empty()) else { return Ok(()) };
        let all: Vec<String> = members.iter().map(usize::to_string).collect();
        let context = format!(
            "missing members had part in what was done last ({}): if they have been used without those that are here, these are old; give \
             them too, or say `degraded` if they are lost",
            all.join(", ")
        );
        Err(Error::new(ErrorKind::Missing, context))
    }
}

/// Finds out what these devices are together.
pub(super) async fn assemble(candidates: Vec<Candidate>, runtime: &Runtime) -> Result<Assembled> {
    let mut records: Vec<(Candidate, MemberRecord)> = Vec::new();
    let mut strangers = Vec::new();
    for candidate in candidates {
        let Some(record) = read_record(&candidate, runtime).await? else {
            strangers.push(candidate.name);
            continue;
        };
        if let Some((first, known)) = records.first()
            && known.volume != record.volume
        {
            let context = format!(
                "{} is a member of another volume ({:032x}) than {} ({:032x})",
                candidate.name, record.volume, first.name, known.volume
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        records.push((candidate, record));
    }
    let newest = records.iter().map(|(_, record)| record).max_by_key(|record| record.generation);
    // One that says nothing may be a member whose records are lost, if one is missing. Nothing is written to it.
    let is_short = newest.is_some_and(|newest| {
        let is_here = |id: u128| records.iter().any(|(_, record)| record.own_id() == Some(id));
        let missing = newest.members.iter().filter(|entry| !is_here(entry.id)).count();
        missing + newest.spares.iter().filter(|spare| !is_here(**spare)).count() >= strangers.len()
    });
    if let (Some(stranger), false) = (strangers.first(), is_short) {
        let context =
            format!("{stranger} is no member of a volume; leave it out, or `rotproof volume create` one");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let Some(newest) = newest.cloned() else {
        return Err(Error::new(ErrorKind::Invalid, "no members are given"));
    };
    refuse_conflicts(&records)?;
    let mut names: Vec<Result<String, String>> =
        newest.members.iter().map(|_| Err("it is missing".to_owned())).collect();
    let mut pages: Vec<Page> =
        newest.members.iter().map(|entry| Page { device: None, entry: entry.clone() }).collect();
    let mut spares: Vec<Spare> = newest.spares.iter().map(|id| Spare { id: *id, candidate: None }).collect();
    let ways = usize::from(newest.layout.ways);
    let mut notes: Vec<String> = strangers
        .into_iter()
        .map(|name| {
            format!("{name} does not say what it is, or cannot be read; if it was a member, replace it")
        })
        .collect();
    for (candidate, record) in records {
        let own = record.own_id();
        if let Some(spare) = spares.iter_mut().find(|spare| Some(spare.id) == own) {
            spare.candidate = Some(candidate);
            continue;
        }
        let Some(index) = newest.members.iter().position(|entry| Some(entry.id) == own) else {
            notes.push(format!(
                "{} was a member once, and is none any more; it is left alone",
                candidate.name
            ));
            continue;
        };
        let needed = newest.layout.data_bytes_of(index / ways);
        if data_bytes(candidate.device.info().size).is_none_or(|bytes| bytes < needed) {
            let context = format!("{} has become smaller than the volume needs", candidate.name);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if let Ok(other) = &names[index] {
            let context =
                format!("{} and {other} are copies of the same member; leave one out", candidate.name);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if record.generation < newest.generation && !newest.members[index].missed.is_empty() {
            notes.push(format!(
                "{} was away, and has missed writes; rebuild brings it up to date",
                candidate.name
            ));
        }
        names[index] = Ok(candidate.name);
        pages[index].device = Some(candidate.device);
    }
    for (mirror, of) in names.chunks(ways).enumerate() {
        if of.iter().all(Result::is_err) {
            let members: Vec<String> =
                (mirror * ways..(mirror + 1) * ways).map(|member| member.to_string()).collect();
            let context = format!(
                "the volume cannot be opened without one of its members {}, which keep the same and are all missing",
                members.join(", ")
            );
            return Err(Error::new(ErrorKind::Missing, context));
        }
    }
    Ok(Assembled { newest, pages, spares, names, notes })
}

/// Two members of one mirror each of which says that the other has missed what that one knows nothing of have both gone on alone.
///
/// Who has merely been away longer knows less, and that is no conflict: what he says of the other, that one says of itself; or there
/// is a third of which he says nothing, and who has gone on with the other.
fn refuse_conflicts(records: &[(Candidate, MemberRecord)]) -> Result<()> {
    let entry = |of: &'_ MemberRecord, id: Option<u128>| -> Option<Bits> {
        of.members.iter().find(|entry| Some(entry.id) == id).map(|entry| entry.missed.clone())
    };
    let says_behind = |one: &MemberRecord, other: &MemberRecord| {
        let id = other.own_id();
        let (said, known) = (entry(one, id).unwrap_or_default(), entry(other, id).unwrap_or_default());
        said.ones().any(|bit| !known.has(bit))
    };
    // Their places say so only where both know of as many copies.
    let is_one_mirror = |one: &MemberRecord, other: &MemberRecord| {
        let ways = usize::from(one.layout.ways);
        one.layout.ways != other.layout.ways || one.index / ways == other.index / ways
    };
    for (number, (one, of_one)) in records.iter().enumerate() {
        for (other, of_other) in &records[number + 1..] {
            let conflicts = |one: &MemberRecord, other: &MemberRecord| {
                let is_known = |third: &MemberRecord| {
                    is_one_mirror(one, third)
                        && third.own_id() != one.own_id()
                        && third.own_id() != other.own_id()
                        && !says_behind(one, third)
                        && says_behind(third, one)
                };
                says_behind(one, other) && !records.iter().any(|(_, third)| is_known(third))
            };
            // Who went on from all that the other knows has not gone on without it: what that one says of it was mended since.
            let is_one_line = of_one.comes_after(of_other) || of_other.comes_after(of_one);
            // One that was let go and did not hear of it, and has gone on as if it had not been: the other has had records since that it
            // knows nothing of.
            let is_let_go = |one: &MemberRecord, by: &MemberRecord| {
                let knows =
                    |id: u128| by.members.iter().any(|entry| entry.id == id) || by.spares.contains(&id);
                let is_ahead = |entry: &MemberEntry| {
                    Some(entry.id) == by.own_id() && entry.known.generation < by.generation
                };
                one.generation >= by.generation
                    && one.own_id().is_some_and(|id| !knows(id))
                    && one.members.iter().any(is_ahead)
            };
            let is_split =
                is_one_mirror(of_one, of_other) && conflicts(of_one, of_other) && conflicts(of_other, of_one)
                    || is_let_go(of_one, of_other)
                    || is_let_go(of_other, of_one);
            if is_split && !is_one_line {
                let context = format!(
                    "{} and {} have each gone on without the other, so each has what the other lacks; open the volume with the \
                     one whose data you want to keep, and replace the other",
                    one.name, other.name
                );
                return Err(Error::new(ErrorKind::Refused, context));
            }
        }
    }
    Ok(())
}
