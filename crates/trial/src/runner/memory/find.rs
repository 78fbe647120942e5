//! Finding the blocks of memory that a rule means, at one look.

use std::collections::HashMap;

use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Result};
use rotproof_fault::{BLOCK_BYTES, Copies, Match, Target, TargetKey};
use rotproof_inject::{PAGE_BYTES, Region};
use rotproof_spec::{ByteRange, End};

use super::view::View;
use super::{MemoryFaults, RuleOnMemory, State};

/// How often a place is drawn anew that is of another kind than the rule wants.
const DRAWS_MAX: u64 = 4096;

/// A block that a look has found.
pub(super) struct Found {
    /// Number of the memory among those looked at.
    pub(super) of: usize,
    pub(super) address: u64,
    pub(super) found_by: &'static str,
    pub(super) kind: Option<&'static str>,
    pub(super) is_living: Option<bool>,
    pub(super) copies: usize,
    pub(super) target: Option<TargetKey>,
}

impl Found {
    pub(super) fn at((of, address): (usize, u64), found_by: &'static str) -> Self {
        Self { of, address, found_by, kind: None, is_living: None, copies: 1, target: None }
    }
}

impl MemoryFaults {
    /// What the rule means, as it is now.
    pub(super) fn find(&self, state: &State, index: usize, views: &[View<'_>]) -> Result<Vec<Found>> {
        let own = &state.rules[index];
        let matching = &own.rule.matching;
        let views: Vec<(usize, &View<'_>)> =
            views.iter().enumerate().filter(|(_, view)| permits(matching, view)).collect();
        let views = &views[..];
        let mut found = if let Some(Target::File { file, block }) = &matching.target {
            find_block_of_file(own, (file, *block), views)?
        } else if !matching.content.is_empty() {
            let wanted: HashMap<ContentHash, String> =
                matching.content.iter().map(|hash| (hash.0, hash.to_string())).collect();
            scan(views, &wanted)?
        } else if !matching.address.is_empty() {
            let mut found = Vec::new();
            for &(of, view) in views {
                let regions = view.regions()?;
                let pages = matching.address.iter().flat_map(|range| pages_of(range, &regions));
                found.extend(pages.map(|page| Found::at((of, page), "its address")));
            }
            found
        } else {
            return self.draw_places(state, index, views);
        };
        let is_process = views.iter().any(|(_, view)| view.process().is_some());
        let is_file_system = views.iter().any(|(_, view)| view.is_file_system());
        let is_all = matching.copies == Some(Copies::All);
        // A guest is asked for each of them.
        if is_process || is_all || !matching.kind.is_empty() || !matching.content.is_empty() {
            for found in &mut found {
                let Some((_, view)) = views.iter().find(|(of, _)| *of == found.of) else { continue };
                found.kind = view.kind(found.address)?;
                found.is_living = found.is_living.or_else(|| view.is_living(found.kind?));
            }
        }
        if !matching.kind.is_empty() {
            found.retain(|found| is_wanted(matching, found.kind));
        }
        let is_block = !matching.content.is_empty() || matching.target.is_some();
        if is_block && !is_all && is_process && !(is_file_system && matching.target.is_some()) {
            // Which of a program's copies is in use, only the program knows.
            found.truncate(1);
        } else if !matching.content.is_empty() && !is_all && matching.kind.is_empty() {
            found.retain(|found| found.is_living == Some(true));
        }
        Ok(found)
    }

    /// Blocks of memory that holds something, where chance says. A place counts even if it is drawn twice.
    fn draw_places(&self, state: &State, index: usize, views: &[(usize, &View<'_>)]) -> Result<Vec<Found>> {
        let matching = &state.rules[index].rule.matching;
        let mut regions = Vec::new();
        for (_, view) in views {
            regions.push(view.regions()?);
        }
        let pages: u64 = regions.iter().flatten().map(pages_in).sum();
        let mut found = Vec::new();
        let mut draws = 0;
        let count = matching.places.unwrap_or(1);
        while (found.len() as u64) < count && pages > 0 && draws < count.saturating_mul(DRAWS_MAX) {
            let key = u64::from(self.first) + index as u64;
            let drawn = mix(self.seed ^ key, state.looks, draws) % pages;
            draws += 1;
            let Some((number, address)) = page_number(&regions, drawn) else { continue };
            let (of, view) = views[number];
            let mut drawn = Found::at((of, address), "chance");
            if !matching.kind.is_empty() {
                drawn.kind = view.kind(address)?;
                if !is_wanted(matching, drawn.kind) {
                    continue;
                }
            }
            found.push(drawn);
        }
        Ok(found)
    }
}

/// Whether a rule means this process at all.
fn permits(matching: &Match, view: &View<'_>) -> bool {
    let name = view.process().unwrap_or_default();
    matching.process.is_empty() || matching.process.iter().any(|pattern| pattern.matches(name))
}

fn is_wanted(matching: &Match, kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| matching.kind.iter().any(|wanted| wanted.word() == kind))
}

/// The page in which the guest's kernel caches the block, while that holds what is meant; with `copies: all` all other copies
/// too. Of processes what they hold of the block as its file reads now.
fn find_block_of_file(
    own: &RuleOnMemory,
    (file, block): (&str, u64),
    views: &[(usize, &View<'_>)],
) -> Result<Vec<Found>> {
    let wanted: HashMap<ContentHash, String> =
        own.contents.iter().map(|target| (target.content, target.label.clone())).collect();
    let mut found = Vec::new();
    for &(of, view) in views {
        let View::Machine(memory) = view else {
            let is_meant =
                |bytes: Vec<u8>| wanted.is_empty() || wanted.contains_key(&ContentHash::of(&bytes));
            if view.is_file_system() && !view.block_now(file, block)?.is_some_and(is_meant) {
                continue;
            }
            let copies = view.copies_of_block(file, block)?;
            found.extend(copies.into_iter().map(|address| Found::at((of, address), "its content")));
            continue;
        };
        if let Some(address) = memory.page_of(file, block)? {
            let mut page = vec![0; PAGE_BYTES];
            view.bytes().read(address, &mut page)?;
            let hash = ContentHash::of(&page);
            if let Some(label) = wanted.get(&hash) {
                let target = Some(TargetKey::Content { hash, label: label.as_str().into() });
                let found_by = "the guest's kernel, which says where it caches the block";
                found.push(Found { is_living: Some(true), target, ..Found::at((of, address), found_by) });
            }
        }
    }
    if own.rule.matching.copies == Some(Copies::All) && !wanted.is_empty() {
        let living = found.first().map(|found| found.address);
        found.extend(scan(views, &wanted)?.into_iter().filter(|found| Some(found.address) != living));
    }
    let copies = found.len();
    found.iter_mut().for_each(|found| found.copies = copies);
    Ok(found)
}

/// Every page that holds one of these contents.
fn scan(views: &[(usize, &View<'_>)], wanted: &HashMap<ContentHash, String>) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut page = vec![0; PAGE_BYTES];
    for &(of, view) in views {
        for region in view.regions()? {
            for number in 0..pages_in(&region) {
                let address = region.range.start + number * PAGE_BYTES as u64;
                view.bytes().read(address, &mut page)?;
                let hash = ContentHash::of(&page);
                if let Some(label) = wanted.get(&hash) {
                    let target = Some(TargetKey::Content { hash, label: label.as_str().into() });
                    found.push(Found { target, ..Found::at((of, address), "its content") });
                }
            }
        }
    }
    let copies = found.len();
    found.iter_mut().for_each(|found| found.copies = copies);
    Ok(found)
}

fn pages_in(region: &Region) -> u64 {
    (region.range.end - region.range.start) / PAGE_BYTES as u64
}

/// The memory and the address of the page with that number among all that hold something.
fn page_number(memories: &[Vec<Region>], mut number: u64) -> Option<(usize, u64)> {
    for (of, region) in
        memories.iter().enumerate().flat_map(|(of, regions)| regions.iter().map(move |r| (of, r)))
    {
        let pages = pages_in(region);
        if number < pages {
            return Some((of, region.range.start + number * PAGE_BYTES as u64));
        }
        number -= pages;
    }
    None
}

/// The addresses of the blocks in a range, of those that hold something.
fn pages_of(range: &ByteRange, regions: &[Region]) -> Vec<u64> {
    let start = range.start / BLOCK_BYTES * BLOCK_BYTES;
    let end = match range.end {
        End::At(end) => end,
        End::OneBlock => start + BLOCK_BYTES,
        End::Open => u64::MAX,
    };
    let within = |region: &Region| {
        let from = region.range.start.max(start);
        (from..region.range.end.min(end)).step_by(BLOCK_BYTES as usize)
    };
    regions.iter().flat_map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64) -> Region {
        Region { range: start..end, kind: None }
    }

    #[test]
    fn places_are_counted_over_all_that_holds_something() {
        let memories =
            [vec![region(4096, 3 * 4096)], Vec::new(), vec![region(4096, 8192), region(40_960, 45_056)]];
        let places: Vec<_> = (0..5).map(|number| page_number(&memories, number)).collect();
        assert_eq!(places, [Some((0, 4096)), Some((0, 8192)), Some((2, 4096)), Some((2, 40_960)), None]);
    }

    #[test]
    fn the_blocks_of_a_range_are_those_that_hold_something() {
        let regions = [region(0, 16_384), region(40_960, 45_056)];
        let of = |text: &str| pages_of(&text.parse().expect(text), &regions);
        assert_eq!(of("4KiB..12KiB"), [4096, 8192]);
        assert_eq!(of("8KiB..1MiB"), [8192, 12_288, 40_960]);
        assert_eq!(of("4KiB"), [4096]);
        assert_eq!(of("12KiB.."), [12_288, 40_960]);
        assert!(of("20KiB").is_empty());
    }
}
