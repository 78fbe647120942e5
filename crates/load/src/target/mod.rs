//! Which contents a symbolic target means, known before anything is written: the streams are run dry.
//!
//! Source: AchillesBench, where "corrupt the block at offset X of file A" becomes "corrupt the block with hash H".

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use rotproof_block::{ContentHash, Error, ErrorKind, Result};
use rotproof_fault::Target;
use rotproof_spec::{Bytes, nearest};

use crate::BLOCK_BYTES;
use crate::content::{ContentId, Stage};
use crate::stream::{Step, WrittenBlock};
use crate::workload::Workload;

/// A content that a target means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetContent {
    /// What faults match.
    pub hash: ContentHash,
    /// Which content of the load it is.
    pub content: ContentId,
    /// What it is, for people: `a: block 7`.
    pub label: String,
    /// In how many blocks the load writes it; 0 if that is not known beforehand.
    pub writes: u64,
    /// Where it still is when the load has ended, as object and block of the object, if that is known beforehand.
    pub places: Vec<(u32, u64)>,
}

/// The contents that each target means, in the last stage that writes; never none for any of them.
///
/// Fails with [`ErrorKind::Invalid`] where a target makes no sense for this load: a file or block that it does not
/// have or never writes, duplicates where there are none, or an end by time, after which nobody can say beforehand
/// what will have been written.
pub fn resolve(workload: &Workload, targets: &[Target]) -> Result<Vec<Vec<TargetContent>>> {
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    resolve_in(workload, stage_of(workload)?, targets)
}

/// As [`resolve`], in a stage that writes: of what it writes itself, and for the block of a file that it leaves alone, of
/// what is there. [`TargetContent::places`] are those at its end.
pub fn resolve_in(workload: &Workload, stage: Stage, targets: &[Target]) -> Result<Vec<Vec<TargetContent>>> {
    if stage == Stage::Run && workload.spec().has_unforeseen_end() {
        return targets
            .iter()
            .map(|target| first_content(workload, target).map(|content| vec![content]))
            .collect();
    }
    let wishes: Vec<Wish> =
        targets.iter().map(|target| Wish::of(workload, stage, target)).collect::<Result<_>>()?;
    let dry_run = DryRun::of(workload, stage, &wishes)?;
    let chosen: Vec<Vec<Choice>> = wishes
        .iter()
        .zip(targets)
        .map(|(wish, target)| dry_run.choose(wish, target))
        .collect::<Result<_>>()?;
    Ok(dry_run.describe(chosen))
}

/// The stage whose contents are meant: what the load writes, or if it only reads, what it reads.
fn stage_of(workload: &Workload) -> Result<Stage> {
    if workload.spec().writes_anything() {
        Ok(Stage::Run)
    } else if workload.has_prefill() {
        Ok(Stage::Prefill)
    } else {
        Err(invalid(
            "a load that only reads, without `prefill: true`, writes no content that a target could name",
        ))
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// A target in terms of blocks.
enum Wish {
    MostDuplicated(u64),
    Unique(u64),
    /// The first content of this block of the target.
    Block(u64),
    /// Contents of the blocks that end at multiples of so many blocks of their object.
    EveryInPlace(u64),
    /// The last of every so many blocks that a worker writes.
    EveryInTime(u64),
}

impl Wish {
    fn of(workload: &Workload, stage: Stage, target: &Target) -> Result<Self> {
        let spec = workload.spec();
        match target {
            Target::MostDuplicated { count } | Target::Unique { count } if *count == 0 => {
                Err(invalid("a target of 0 contents means nothing; give at least 1"))
            }
            Target::MostDuplicated { .. } if spec.duplicates.is_none() => Err(invalid(
                "the target `most_duplicated` needs duplicates; set `duplicates` of the load above 0%",
            )),
            Target::MostDuplicated { count } => Ok(Self::MostDuplicated(*count)),
            Target::Unique { count } => Ok(Self::Unique(*count)),
            Target::File { file, block } => block_of(workload, file, *block).map(Self::Block),
            Target::Extent { .. } | Target::Type { .. } => Err(invalid(format!(
                "where `{target}` lies is known only to the file system, once it is written"
            ))),
            Target::Seen(_) => {
                Err(invalid(format!("what `{target}` stands for is known only once requests have come")))
            }
            Target::LastBlockOfEvery(bytes) => {
                let Bytes(each) = *bytes;
                if each == 0 || !each.is_multiple_of(BLOCK_BYTES as u64) {
                    return Err(invalid(format!(
                        "`last_block_of_every: {bytes}` is no multiple of a block of 4KiB; give one, such as 64MiB"
                    )));
                }
                let blocks = each / BLOCK_BYTES as u64;
                let is_in_order = spec.is_in_order();
                let is_prefill = stage == Stage::Prefill;
                Ok(if is_in_order || is_prefill {
                    Self::EveryInPlace(blocks)
                } else {
                    Self::EveryInTime(blocks)
                })
            }
        }
    }
}

/// The target block that a file name and a block of it mean.
fn block_of(workload: &Workload, file: &str, block: u64) -> Result<u64> {
    let objects = workload.objects();
    let Some(object) = objects.iter().position(|object| object.name == file) else {
        let names = objects.iter().map(|object| object.name.as_str());
        let hint = match nearest(file, names.clone()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("it has {}", names.take(8).collect::<Vec<_>>().join(", ")),
        };
        return Err(invalid(format!("the load has no file `{file}`; {hint}")));
    };
    let blocks = workload.layout().object_blocks(object as u32);
    let count = blocks.end - blocks.start;
    if block >= count {
        return Err(invalid(format!("`{file}` has no block {block}; it has {count} blocks of 4KiB, from 0")));
    }
    Ok(blocks.start + block)
}

fn never_written(workload: &Workload, block: u64) -> Error {
    invalid(format!(
        "the load never writes {}; choose another block, let the load write more, or use `pattern: sequential`",
        workload.name_of_block(block)
    ))
}

/// For loads that end by time: the first content of a block, if the stream comes by it before long.
fn first_content(workload: &Workload, target: &Target) -> Result<TargetContent> {
    let Target::File { file, block } = target else {
        return Err(invalid(
            "a load that may end by `duration` or `until_steady` does not know beforehand what it will write; give \
             `total` or `requests` instead, or use a target of the form { file: a, block: 7 }",
        ));
    };
    let block = block_of(workload, file, *block)?;
    let worker = workload.worker_of_block(block);
    let part = workload.part(worker);
    // A uniform pattern misses a given place for 32 rounds with probability e^-32.
    let limit = (part.places.end - part.places.start).saturating_mul(32).saturating_add(1000);
    let written = workload
        .stream(Stage::Run, worker)
        .ending_after(limit)
        .written()
        .find(|written| written.block == block)
        .ok_or_else(|| never_written(workload, block))?;
    Ok(TargetContent {
        hash: workload.content().hash(written.content),
        content: written.content,
        label: workload.name_of_block(block),
        writes: 0,
        places: Vec::new(),
    })
}

/// Keeps `written` for every stretch that ends with the block of that number.
fn note_ends(stretches: &mut Stretches, number: u64, written: &WrittenBlock) {
    for (blocks, ends) in stretches {
        if (number + 1).is_multiple_of(*blocks) {
            ends.push(*written);
        }
    }
}

struct Choice {
    content: ContentId,
    label: String,
}

/// What running the streams without I/O has shown.
struct DryRun<'a> {
    workload: &'a Workload,
    stage: Stage,
    /// What each block of the target holds in the end.
    holds: Vec<ContentId>,
    /// How often a content was written again.
    times: HashMap<ContentId, u64>,
    /// The first content of each block that is asked for, once it has one.
    first: HashMap<u64, Option<ContentId>>,
    /// What was written at the ends of stretches, by the blocks of a stretch.
    in_place: Stretches,
    in_time: Stretches,
}

type Stretches = BTreeMap<u64, Vec<WrittenBlock>>;

impl<'a> DryRun<'a> {
    /// `stage` is the last one that writes, and has an end.
    fn of(workload: &'a Workload, stage: Stage, wishes: &[Wish]) -> Result<Self> {
        let blocks =
            usize::try_from(workload.layout().blocks()).expect("eight bytes a block fit the address space");
        let mut dry_run = Self {
            workload,
            stage,
            holds: vec![ContentId::NEVER_WRITTEN; blocks],
            times: HashMap::new(),
            first: HashMap::new(),
            in_place: Stretches::new(),
            in_time: Stretches::new(),
        };
        for wish in wishes {
            match wish {
                Wish::MostDuplicated(_) | Wish::Unique(_) => {}
                Wish::Block(block) => drop(dry_run.first.insert(*block, None)),
                Wish::EveryInPlace(blocks) => drop(dry_run.in_place.insert(*blocks, Vec::new())),
                Wish::EveryInTime(blocks) => drop(dry_run.in_time.insert(*blocks, Vec::new())),
            }
        }
        for &each in workload.stages().iter().filter(|&&each| each <= stage) {
            for worker in 0..workload.workers() {
                let mut stream = workload.stream(each, worker);
                let contents = stream.contents();
                while let Some(step) = stream.next() {
                    match step {
                        Step::Write { extent, first, .. } => {
                            for (block, n) in extent.target_blocks().zip(first..) {
                                let content = contents.content(n);
                                let written =
                                    WrittenBlock { block, content, request: stream.requests() - 1, n };
                                dry_run.holds[block as usize] = content;
                                if each == stage {
                                    dry_run.note(&written, contents.may_repeat(content));
                                }
                            }
                        }
                        Step::Discard(extent) => {
                            let blocks = extent.target_blocks();
                            dry_run.holds[blocks.start as usize..blocks.end as usize]
                                .fill(ContentId::NEVER_WRITTEN);
                        }
                        Step::Read(_) | Step::Flush => {}
                    }
                }
                if let Some(trouble) = stream.take_trouble() {
                    return Err(trouble);
                }
            }
        }
        Ok(dry_run)
    }

    fn note(&mut self, written: &WrittenBlock, may_repeat: bool) {
        if may_repeat {
            *self.times.entry(written.content).or_default() += 1;
        }
        if !self.first.is_empty()
            && let Some(first) = self.first.get_mut(&written.block)
        {
            first.get_or_insert(written.content);
        }
        if !self.in_place.is_empty() {
            let (_, block) = self.workload.layout().locate(written.block);
            note_ends(&mut self.in_place, block, written);
        }
        note_ends(&mut self.in_time, written.n, written);
    }

    fn choose(&self, wish: &Wish, target: &Target) -> Result<Vec<Choice>> {
        match wish {
            Wish::MostDuplicated(count) => self.most_duplicated(*count),
            Wish::Unique(count) => self.unique(*count),
            Wish::Block(block) => self.block(*block).map(|choice| vec![choice]),
            Wish::EveryInPlace(blocks) => self.stretches(&self.in_place[blocks], target),
            Wish::EveryInTime(blocks) => self.stretches(&self.in_time[blocks], target),
        }
    }

    fn most_duplicated(&self, count: u64) -> Result<Vec<Choice>> {
        let mut ranking: Vec<(u64, ContentId)> = self
            .times
            .iter()
            .filter(|(_, times)| **times > 1)
            .map(|(&content, &times)| (times, content))
            .collect();
        ranking.sort_unstable_by_key(|&(times, content)| (std::cmp::Reverse(times), content));
        if (ranking.len() as u64) < count {
            return Err(invalid(format!(
                "the load writes only {} contents more than once, not {count}; raise `duplicates` or `total`",
                ranking.len()
            )));
        }
        let label = |(times, content): &(u64, ContentId)| Choice {
            content: *content,
            label: format!("content {content}, written {times} times"),
        };
        Ok(ranking.iter().take(count as usize).map(label).collect())
    }

    /// Contents that are written once and still there in the end, spread evenly over the target.
    fn unique(&self, count: u64) -> Result<Vec<Choice>> {
        let is_unique = |content: &ContentId| {
            content.stage() == Some(self.stage) && self.times.get(content).is_none_or(|times| *times == 1)
        };
        let available = self.holds.iter().filter(|content| is_unique(content)).count() as u64;
        if available < count {
            return Err(invalid(format!(
                "the load leaves only {available} contents that it wrote exactly once, not {count}; lower `duplicates` \
                 or raise `total`"
            )));
        }
        let mut wanted = (0..count)
            .map(|k| (u128::from(2 * k + 1) * u128::from(available) / u128::from(2 * count)) as u64);
        let mut next = wanted.next();
        let mut choices = Vec::new();
        let candidates = (0..).zip(&self.holds).filter(|(_, content)| is_unique(content));
        for (position, (block, &content)) in (0..).zip(candidates) {
            if next == Some(position) {
                choices.push(Choice { content, label: self.workload.name_of_block(block) });
                next = wanted.next();
            }
        }
        Ok(choices)
    }

    fn block(&self, block: u64) -> Result<Choice> {
        // What the load itself never writes, it may still read.
        let prefilled =
            Some(self.holds[block as usize]).filter(|&content| content != ContentId::NEVER_WRITTEN);
        let content = self.first[&block].or(prefilled).ok_or_else(|| never_written(self.workload, block))?;
        Ok(Choice { content, label: self.workload.name_of_block(block) })
    }

    fn stretches(&self, ends: &[WrittenBlock], target: &Target) -> Result<Vec<Choice>> {
        let mut seen = HashSet::new();
        let choices: Vec<Choice> = ends
            .iter()
            .filter(|written| seen.insert(written.content))
            .map(|written| Choice {
                content: written.content,
                label: self.workload.name_of_block(written.block),
            })
            .collect();
        if let (Target::LastBlockOfEvery(bytes), []) = (target, choices.as_slice()) {
            return Err(invalid(format!(
                "the load never completes a stretch of {bytes}; make `last_block_of_every` smaller"
            )));
        }
        Ok(choices)
    }

    /// Adds hashes and places, in one look at the blocks for all targets.
    fn describe(&self, chosen: Vec<Vec<Choice>>) -> Vec<Vec<TargetContent>> {
        let mut places: HashMap<ContentId, Vec<(u32, u64)>> =
            chosen.iter().flatten().map(|choice| (choice.content, Vec::new())).collect();
        for (block, content) in (0..).zip(&self.holds) {
            if let Some(places) = places.get_mut(content) {
                places.push(self.workload.layout().locate(block));
            }
        }
        let describe = |Choice { content, label }: Choice| TargetContent {
            hash: self.workload.content().hash(content),
            content,
            label,
            writes: self.times.get(&content).copied().unwrap_or(1),
            places: places[&content].clone(),
        };
        chosen.into_iter().map(|choices| choices.into_iter().map(describe).collect()).collect()
    }
}
