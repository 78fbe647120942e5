//! The judge's own account of what the application must have been handed, from nothing but what it asked for and the
//! answers it got: slow, plain, and without the load's oracle.

use std::collections::{HashMap, HashSet};

use rotproof_block::{ErrorKind, Phase};

use crate::witness::{Contents, Event, Kind};

/// A block of an object.
pub type Spot = (u32, u64);

/// What a block may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Legal {
    /// Never written, or given up: anything.
    Anything,
    /// The last write that succeeded, then those since that failed; with several, sector by sector.
    Versions(Vec<u128>),
}

/// What went wrong for the application at one block, once.
#[derive(Clone, Debug)]
pub struct Seen {
    pub spot: Spot,
    /// Number of the event.
    pub event: usize,
    /// What it might have held.
    pub expected: Vec<u128>,
    /// What it got instead; `None` for an error.
    pub found: Option<u128>,
    /// Other bytes could be the loss that a failed flush has told of.
    pub may_be_unflushed: bool,
}

/// A request that failed, whether or not a block is lost with it.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub event: usize,
    /// What may lie in any block of it; of a write also what was to be written.
    pub contents: HashSet<u128>,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Account {
    pub legal: HashMap<Spot, Legal>,
    /// Each block that failed, in the order of the events.
    pub seen: Vec<Seen>,
    pub refusals: Vec<Refusal>,
    /// Reads that brought what nobody could judge: event, block, what came.
    pub unjudged: Vec<(usize, Spot, u128)>,
    /// Those of blocks of which a write has failed: it may have been stored, in part too.
    pub doubtful: HashSet<(usize, Spot)>,
    /// Blocks that no write has succeeded on since one failed.
    half_written: HashSet<Spot>,
    /// Right reads: event, block, what came.
    pub right: Vec<(usize, Spot, u128)>,
    /// All that was ever sent to be written.
    pub written: HashSet<u128>,
    /// Each block's contents, in the order of the writes.
    pub versions: HashMap<Spot, Vec<u128>>,
    /// Blocks of which a first write was made durable, so that what was there before cannot come back; as far as one worker's
    /// flushes tell.
    pub settled: HashSet<Spot>,
    /// Blocks of each object that were written since the last flush, and when the first of those writes completed.
    unflushed: HashMap<u32, HashMap<Spot, u64>>,
    /// When a flush of each object last came back with an error.
    flush_failed: HashMap<u32, u64>,
    /// What had to be read back when the check began, and was neither read nor refused.
    pub unchecked: Vec<Spot>,
    /// What each block had to hold when the check began.
    pub at_check: HashMap<Spot, Vec<u128>>,
}

impl Account {
    pub fn of(events: &[Event], contents: &Contents) -> Self {
        let mut account = Self::default();
        let mut failed_flushes: HashSet<u32> = HashSet::new();
        let mut to_check: Option<HashSet<Spot>> = None;
        for (number, event) in events.iter().enumerate() {
            let spots = (event.block..event.block + event.blocks).map(|block| (event.object, block));
            if event.phase == Phase::Check && to_check.is_none() {
                let judged = account.legal.iter().filter_map(|(spot, legal)| match legal {
                    Legal::Versions(versions) => Some((*spot, versions.clone())),
                    Legal::Anything => None,
                });
                account.at_check = judged.collect();
                to_check = Some(account.at_check.keys().copied().collect());
            }
            match (event.kind, event.error) {
                (Kind::Flush, None) => {
                    // It covers what had completed when it was sent.
                    let unflushed = account.unflushed.entry(event.object).or_default();
                    let covered = unflushed.extract_if(|_, completed| *completed <= event.submitted);
                    account.settled.extend(covered.map(|(spot, _)| spot));
                }
                (Kind::Flush, Some(error)) => {
                    if error != ErrorKind::Unsupported {
                        failed_flushes.insert(event.object);
                        // A flush that succeeds later takes nothing of it back.
                        account.unflushed.remove(&event.object);
                        account.flush_failed.insert(event.object, event.completed);
                        account.refusals.push(Refusal { event: number, contents: HashSet::new() });
                    }
                }
                (Kind::Discard, error) => {
                    if error == Some(ErrorKind::Unsupported) {
                        continue;
                    }
                    for spot in spots {
                        account.legal.insert(spot, Legal::Anything);
                    }
                    if error.is_some() {
                        account.refusals.push(Refusal { event: number, contents: HashSet::new() });
                    }
                }
                (Kind::Write, error) => account.write(number, event, spots, error.is_some()),
                (Kind::Read, Some(_)) => {
                    let mut all = HashSet::new();
                    for spot in spots {
                        let expected = account.expected(spot);
                        all.extend(&expected);
                        // A check finds out itself which block of several it is.
                        if event.phase == Phase::Check && event.blocks > 1 {
                            continue;
                        }
                        if let Some(to_check) = &mut to_check {
                            to_check.remove(&spot);
                        }
                        let seen =
                            Seen { spot, event: number, expected, found: None, may_be_unflushed: false };
                        account.seen.push(seen);
                    }
                    account.refusals.push(Refusal { event: number, contents: all });
                }
                (Kind::Read, None) => {
                    for (spot, &found) in spots.zip(&event.contents) {
                        if let Some(to_check) = &mut to_check {
                            to_check.remove(&spot);
                        }
                        match account.legal.get(&spot) {
                            None | Some(Legal::Anything) => {
                                account.unjudged.push((number, spot, found));
                                if account.half_written.contains(&spot) {
                                    account.doubtful.insert((number, spot));
                                }
                            }
                            Some(Legal::Versions(legal)) if is_legal(legal, found, contents) => {
                                account.right.push((number, spot, found));
                            }
                            Some(Legal::Versions(legal)) => {
                                let expected = legal.clone();
                                let may_be_unflushed = failed_flushes.contains(&event.object);
                                let found = Some(found);
                                let seen = Seen { spot, event: number, expected, found, may_be_unflushed };
                                account.seen.push(seen);
                            }
                        }
                    }
                }
            }
        }
        // A check reads again what it could not read: what came last is what counts.
        let mut last: HashMap<Spot, usize> = HashMap::new();
        for (number, event) in events.iter().enumerate() {
            if event.phase == Phase::Check && (event.blocks == 1 || event.error.is_none()) {
                last.extend(
                    (event.block..event.block + event.blocks).map(|block| ((event.object, block), number)),
                );
            }
        }
        account.seen.retain(|seen| {
            let is_of_check = events[seen.event].phase == Phase::Check && seen.found.is_none();
            !is_of_check || last.get(&seen.spot) == Some(&seen.event)
        });
        account.unchecked = to_check.into_iter().flatten().collect();
        account
    }

    fn write(&mut self, number: usize, event: &Event, spots: impl Iterator<Item = Spot>, has_failed: bool) {
        let mut all: HashSet<u128> = event.contents.iter().copied().collect();
        for (spot, &content) in spots.zip(&event.contents) {
            self.written.insert(content);
            self.versions.entry(spot).or_default().push(content);
            // What was under way by then may be lost with what it told of, whatever succeeds later.
            if self.flush_failed.get(&spot.0).is_none_or(|&failed| failed < event.submitted) {
                self.unflushed.entry(spot.0).or_default().entry(spot).or_insert(event.completed);
            }
            if has_failed {
                self.half_written.insert(spot);
            } else {
                self.half_written.remove(&spot);
            }
            if !has_failed {
                self.legal.insert(spot, Legal::Versions(vec![content]));
                continue;
            }
            all.extend(self.expected(spot));
            if let Some(Legal::Versions(versions)) = self.legal.get_mut(&spot)
                && !versions.contains(&content)
            {
                versions.push(content);
            }
            let expected = vec![content];
            self.seen.push(Seen { spot, event: number, expected, found: None, may_be_unflushed: false });
        }
        if has_failed {
            self.refusals.push(Refusal { event: number, contents: all });
        }
    }

    fn expected(&self, spot: Spot) -> Vec<u128> {
        match self.legal.get(&spot) {
            Some(Legal::Versions(versions)) => versions.clone(),
            None | Some(Legal::Anything) => Vec::new(),
        }
    }

    /// In how many blocks each content must be in the end.
    pub fn wanted(&self) -> HashMap<u128, u64> {
        let mut wanted = HashMap::new();
        for legal in self.legal.values() {
            if let Legal::Versions(versions) = legal {
                *wanted.entry(versions[0]).or_default() += 1;
            }
        }
        wanted
    }
}

/// Whether it is one of the versions, or each of its sectors is one of theirs.
fn is_legal(legal: &[u128], found: u128, contents: &Contents) -> bool {
    if legal.contains(&found) {
        return true;
    }
    if legal.len() == 1 {
        return false;
    }
    let bytes = &contents[&found];
    (0..8).all(|sector| {
        let of = |bytes: &[u8]| bytes[sector * 512..][..512].to_vec();
        legal.iter().any(|version| of(&contents[version]) == of(bytes))
    })
}
