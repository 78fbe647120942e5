//! What the faults do to the bytes of a request, and to the device.

use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Operation, Phase};
use rotproof_fault::{Bits, Direction, Draw, Effect, NewPart, OperationKind, Persistence, RuleState, Tear};

use super::{BLOCK, BLOCKS, Model, SECTOR, StickyBlock, extent, part, touched};
use crate::cases::Ask;

impl Model {
    /// Whether it is a place that distorts data.
    pub(super) fn is_data_place(&self, place: &StickyBlock) -> bool {
        self.acts(place.rule) && distorts(self.rules[place.rule].effect)
    }

    /// Whether a place distorts any byte of that part of its block.
    pub(super) fn distorts(&self, number: usize, part: &std::ops::Range<usize>) -> bool {
        let place = &self.places[number];
        match self.rules[place.rule].effect {
            Effect::BitFlip(Bits::At { byte, .. } | Bits::Mask { byte, .. }) => {
                part.contains(&(byte as usize))
            }
            _ => place.range.start < part.end && part.start < place.range.end,
        }
    }

    /// Distorts a whole block as the first `count` places do.
    pub(super) fn distort(&self, block: u64, bytes: &mut [u8], count: usize) {
        for place in
            self.places[..count].iter().filter(|place| place.block == block && self.is_data_place(place))
        {
            apply(self.rules[place.rule].effect, &place.range, bytes);
        }
    }

    pub(super) fn read(&mut self, ask: &Ask, hits: &[(u64, usize)], time_ns: u64) -> Vec<u8> {
        let mut data = Vec::new();
        for block in touched(ask) {
            let extent = extent(block);
            let before = ContentHash::of(&self.truth[extent.clone()]);
            let mut image = self.shown[extent.clone()].to_vec();
            for number in 0..self.places.len() {
                let place = &self.places[number];
                if place.block != block || !self.is_data_place(place) {
                    continue;
                }
                let (rule, effect) = (place.rule, self.rules[place.rule].effect);
                apply(effect, &place.range, &mut image);
                if self.distorts(number, &part(ask, block)) && self.places[number].recorded != Some(before) {
                    self.places[number].recorded = Some(before);
                    self.record_block(rule, ask, block, before, &image, time_ns, false);
                }
            }
            for &(_, rule) in hits.iter().filter(|(hit, _)| *hit == block) {
                let effect = self.rules[rule].effect;
                if distorts(effect) && self.is_sticky(rule) && self.has_place(rule, block) {
                    continue;
                }
                if effect == Effect::StaleRead {
                    let Some((range, bytes)) = &self.previous[block as usize] else { continue };
                    image[range.clone()].copy_from_slice(bytes);
                } else {
                    apply(effect, &part(ask, block), &mut image);
                }
                self.record_block(rule, ask, block, before, &image, time_ns, !self.is_sticky(rule));
                if self.is_sticky(rule) {
                    self.add_place(rule, block, part(ask, block), Some(before));
                }
            }
            data.extend_from_slice(&image[part(ask, block)]);
        }
        data
    }

    pub(super) fn mutate(&mut self, ask: &Ask, hits: &[(u64, usize)], time_ns: u64) -> Vec<u8> {
        let fill = if ask.operation == Operation::WRITE { ask.fill } else { 0 };
        for block in touched(ask) {
            let extent = extent(block);
            let inside = part(ask, block);
            let written = extent.start + inside.start..extent.start + inside.end;
            let old = self.shown[written.clone()].to_vec();
            let is_write = OperationKind::from(ask.operation) == OperationKind::Write;
            if is_write && ask.phase != Phase::Setup && self.is_watched(block) {
                self.previous[block as usize] = Some((inside.clone(), old.clone()));
            }
            self.truth[written.clone()].fill(fill);
            self.shown[written.clone()].fill(fill);
            self.lying[written.clone()].fill(false);
            if inside.len() == extent.len() {
                let (rules, states) = (&self.rules, &self.states);
                self.places.retain(|place| {
                    let heals = Persistence::UntilRewritten { spares: None };
                    let acts = states[place.rule] == RuleState::Active;
                    place.block != block || rules[place.rule].persistence != heals || !acts
                });
            }
            // What a discard of the whole block leaves is nobody's content.
            let is_known = ask.operation != Operation::Discard || inside.len() < extent.len();
            let before = is_known.then(|| ContentHash::of(&self.truth[extent.clone()]));
            let own: Vec<usize> =
                hits.iter().filter(|(hit, _)| *hit == block).map(|(_, rule)| *rule).collect();
            let makes_place = |rule: usize| self.is_sticky(rule) && distorts(self.rules[rule].effect);
            // A place that is bad already is not hit again, and a sector alone is not torn.
            let is_whole = |rule: usize| {
                matches!(self.rules[rule].effect, Effect::TornWrite(_)) && inside.len() < 2 * SECTOR
            };
            let own: Vec<usize> = own
                .into_iter()
                .filter(|&rule| !(is_whole(rule) || makes_place(rule) && self.has_place(rule, block)))
                .collect();
            self.settle_repairs(block, before, !own.is_empty(), time_ns);
            for rule in own {
                let effect = self.rules[rule].effect;
                let is_place = self.is_sticky(rule) && distorts(effect);
                let before = before.expect("nothing on data hits a discard");
                if is_place {
                    self.add_place(rule, block, inside.clone(), Some(before));
                } else {
                    self.lie(block, effect, &inside, &old);
                    if self.is_sticky(rule) {
                        self.add_place(rule, block, 0..0, None);
                    }
                }
                let mut image = self.shown[extent.clone()].to_vec();
                self.distort(block, &mut image, self.places.len());
                self.record_block(rule, ask, block, before, &image, time_ns, !self.is_sticky(rule));
            }
            let Some(before) = before else { continue };
            for number in 0..self.places.len() {
                let place = &self.places[number];
                let wanted = self.rules[place.rule].matching.operation;
                let concerned =
                    ask.operation != Operation::Discard && OperationKind::Write.is_matched_by(wanted);
                if place.block == block
                    && self.is_data_place(place)
                    && concerned
                    && self.distorts(number, &inside)
                    && place.recorded != Some(before)
                {
                    let rule = place.rule;
                    self.places[number].recorded = Some(before);
                    let mut image = self.shown[extent.clone()].to_vec();
                    self.distort(block, &mut image, self.places.len());
                    self.record_block(rule, ask, block, before, &image, time_ns, false);
                }
            }
        }
        for &(block, rule) in hits {
            if let Effect::MisdirectedWrite(direction) = self.rules[rule].effect {
                self.land(rule, direction, ask, block, fill, time_ns);
            }
        }
        Vec::new()
    }

    /// A write to `block` lands on another one.
    pub(super) fn land(
        &mut self,
        rule: usize,
        direction: Direction,
        ask: &Ask,
        block: u64,
        fill: u8,
        time_ns: u64,
    ) {
        let foreign = match direction {
            Direction::By(by) => (block + by.0 / BLOCK) % BLOCKS,
            Direction::To(to) => (to.0 / BLOCK).min(BLOCKS - 1),
            Direction::Anywhere(_) => unreachable!("chance is not the model's"),
        };
        let extent = extent(foreign);
        let inside = part(ask, block);
        let inside = inside.start..inside.end.min(extent.len());
        if foreign == block || inside.is_empty() {
            return;
        }
        let landed = extent.start + inside.start..extent.start + inside.end;
        self.shown[landed.clone()].fill(fill);
        self.lying[landed].fill(true);
        let before = ContentHash::of(&self.truth[extent.clone()]);
        let mut image = self.shown[extent].to_vec();
        self.distort(foreign, &mut image, self.places.len());
        // As if a request for just that part of the foreign block had been hit.
        let offset = foreign * BLOCK + inside.start as u64;
        let there = Ask { offset, length: inside.len() as u64, ..ask.clone() };
        self.record_block(rule, &there, foreign, before, &image, time_ns, true);
    }

    pub(super) fn lie(&mut self, block: u64, effect: Effect, inside: &std::ops::Range<usize>, old: &[u8]) {
        let extent = extent(block);
        match effect {
            Effect::LostWrite | Effect::MisdirectedWrite(_) => {
                self.shown[extent.start + inside.start..extent.start + inside.end].copy_from_slice(old);
            }
            Effect::TornWrite(Tear { new, sectors, .. }) => {
                let all = inside.len() / SECTOR;
                let stored = usize::from(sectors.expect("the model is told how many")).clamp(1, all - 1);
                let kept = match new {
                    NewPart::First => stored..all,
                    NewPart::Last => 0..all - stored,
                    other => unreachable!("{other} is not the model's"),
                };
                let kept = kept.start * SECTOR..kept.end * SECTOR;
                let start = extent.start + inside.start;
                self.shown[start + kept.start..start + kept.end].copy_from_slice(&old[kept]);
            }
            other => apply(other, inside, &mut self.shown[extent.clone()]),
        }
        let lying = match effect {
            Effect::BitFlip(Bits::At { byte, .. } | Bits::Mask { byte, .. }) => {
                byte as usize..byte as usize + 1
            }
            _ => inside.clone(),
        };
        self.lying[extent.start + lying.start..extent.start + lying.end].fill(true);
    }

    pub(super) fn settle_repairs(
        &mut self,
        block: u64,
        truth: Option<ContentHash>,
        is_hit: bool,
        time_ns: u64,
    ) {
        let is_clean = !is_hit
            && !self.lying[extent(block)].contains(&true)
            && !self.places.iter().any(|place| place.block == block && self.is_data_place(place));
        let (here, elsewhere) =
            std::mem::take(&mut self.unrepaired).into_iter().partition(|entry| entry.1 == block);
        self.unrepaired = elsewhere;
        let here: Vec<(usize, u64, ContentHash)> = here;
        for (record, _, wanted) in here {
            if truth == Some(wanted) && is_clean {
                // The last of the record's blocks repairs it.
                if !self.unrepaired.iter().any(|entry| entry.0 == record) {
                    self.records[record].repaired_at_ns = Some(time_ns);
                }
            } else if truth == Some(wanted) && !is_hit {
                self.unrepaired.push((record, block, wanted));
            } else {
                // It will never be whole again.
                self.unrepaired.retain(|entry| entry.0 != record);
                self.unrepaired.push((record, u64::MAX, wanted));
            }
        }
    }
}

/// Whether a write that is hit leaves old data where new should be.
pub(super) fn keeps_old(effect: Effect) -> bool {
    matches!(effect, Effect::LostWrite | Effect::TornWrite(_) | Effect::MisdirectedWrite(_))
}

/// Whether a bad place lies by itself.
fn distorts(effect: Effect) -> bool {
    matches!(effect, Effect::BitFlip(_) | Effect::Zeros | Effect::Ones | Effect::Noise(_))
}

/// What an effect does to the bytes `range` of a block, given the whole of it.
fn apply(effect: Effect, range: &std::ops::Range<usize>, block: &mut [u8]) {
    match effect {
        Effect::BitFlip(Bits::At { byte, bit }) => block[byte as usize] ^= 1 << bit,
        Effect::BitFlip(Bits::Mask { byte, mask }) => block[byte as usize] ^= mask,
        Effect::Zeros => block[range.clone()].fill(0),
        Effect::Ones => block[range.clone()].fill(0xff),
        Effect::Noise(Draw(draw)) => {
            let key = draw.expect("the model is told what chance said");
            for place in range.clone() {
                block[place] = mix(key, 1, place as u64 / 8).to_le_bytes()[place % 8];
            }
        }
        other => unreachable!("{other:?} is no change of data"),
    }
}
