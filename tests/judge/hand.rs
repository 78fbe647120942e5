//! The other hand: writes to the medium below all faults, as no rule ever did, and keeps account of it.

use std::collections::HashSet;
use std::sync::Arc;

use rotproof_block::ContentHash;
use rotproof_load::Content;

use crate::account::{Account, Legal};
use crate::dice::Dice;
use crate::leaf::Leaf;
use crate::witness::{Contents, Event};

/// When it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// In the middle of the load, after so many answers.
    During(usize),
    /// When the load is done, before caches are emptied.
    AfterRun,
    /// When the subject is there again, before all is read back.
    BeforeCheck,
}

/// What it means to do.
#[derive(Clone, Debug)]
pub struct Plan {
    pub moment: Moment,
    pub blocks: u64,
    /// It means the subject's own data rather than the load's.
    pub metadata: bool,
    /// It means blocks that faults have hit before it.
    pub jealous: bool,
    pub seed: u64,
}

/// What it did to one block.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "some of it is for those who read what is wrong")]
pub struct Blow {
    pub offset: u64,
    pub before: u128,
    pub after: u128,
    pub how: &'static str,
}

impl Plan {
    pub fn draw(dice: &mut Dice, has_metadata: bool) -> Self {
        let moment = match dice.below(5) {
            0 => Moment::During(dice.within(1, 400) as usize),
            1 | 2 => Moment::AfterRun,
            _ => Moment::BeforeCheck,
        };
        Self {
            moment,
            blocks: dice.within(1, 5),
            metadata: has_metadata && dice.chance(20),
            jealous: dice.chance(40),
            seed: dice.next(),
        }
    }

    /// Strikes. `hit` are the places that faults have hit by now, on the medium; `made` is what recognises the contents of a
    /// load of files.
    pub fn strike(
        &self,
        leaf: &Leaf,
        (events, contents): (&[Event], &Contents),
        hit: &[u64],
        made: Option<&Content>,
    ) -> Vec<Blow> {
        let mut dice = Dice::new(self.seed, 7);
        let account = Account::of(events, contents);
        let current: HashSet<u128> = account
            .legal
            .values()
            .filter_map(|legal| match legal {
                Legal::Versions(versions) => Some(versions[0]),
                Legal::Anything => None,
            })
            .collect();
        let on_leaf = leaf.contents();
        // Of a load of files nobody has listened in to, only that it is its own.
        let is_made = |offsets: &[u64]| {
            made.is_some_and(|content| {
                offsets.iter().all(|&offset| content.made(&leaf.read(offset)) == Some(true))
            })
        };
        let is_wanted = |content: &u128, offsets: &[u64]| {
            if made.is_some() {
                return is_made(offsets) != self.metadata;
            }
            if self.metadata { !account.written.contains(content) } else { current.contains(content) }
        };
        let mut places: Vec<(u64, u128)> = on_leaf
            .iter()
            .filter(|(content, offsets)| is_wanted(content, offsets))
            .flat_map(|(content, offsets)| offsets.iter().map(|offset| (*offset, *content)))
            .collect();
        places.sort_unstable();
        if self.jealous {
            let hit: HashSet<u64> = hit.iter().map(|offset| offset / 4096 * 4096).collect();
            let those: Vec<_> = places.iter().filter(|(offset, _)| hit.contains(offset)).copied().collect();
            places = if those.is_empty() { places } else { those };
        }
        let mut blows = Vec::new();
        for _ in 0..self.blocks {
            if places.is_empty() {
                break;
            }
            let (offset, before) = places.swap_remove(dice.below(places.len() as u64) as usize);
            let (how, bytes) =
                self.damage(&mut dice, &leaf.read(offset), (&account, contents), &places, leaf, before);
            let after = ContentHash::of(&bytes).0;
            if after == before {
                continue;
            }
            leaf.write(offset, &bytes);
            blows.push(Blow { offset, before, after, how });
        }
        blows
    }

    fn damage(
        &self,
        dice: &mut Dice,
        old: &[u8],
        (account, contents): (&Account, &Contents),
        places: &[(u64, u128)],
        leaf: &Leaf,
        before: u128,
    ) -> (&'static str, Vec<u8>) {
        let older = || -> Option<Arc<[u8]>> {
            let versions = account.versions.values().find(|versions| versions.contains(&before))?;
            let earlier = versions.iter().take_while(|version| **version != before).last()?;
            contents.get(earlier).cloned()
        };
        match dice.below(6) {
            0 => {
                let mut bytes = old.to_vec();
                bytes[dice.below(4096) as usize] ^= 1 << dice.below(8);
                ("flip", bytes)
            }
            1 => ("zeros", vec![0; 4096]),
            2 => ("noise", (0..512).flat_map(|_| dice.next().to_le_bytes()).collect()),
            3 if !places.is_empty() => {
                let (offset, _) = places[dice.below(places.len() as u64) as usize];
                ("another", leaf.read(offset))
            }
            4 => ("ones", vec![0xff; 4096]),
            _ => match older() {
                Some(bytes) => ("older", bytes.to_vec()),
                None => ("zeros", vec![0; 4096]),
            },
        }
    }
}
