//! The engine: the rules at work on one device, what they have done to it, and the ledger of it.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Error, ErrorKind, Phase, Power, Result};
use rotproof_spec::nearest;
use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;
use crate::active_rule::ActiveRule;
use crate::clock::Clock;
use crate::effect::Effect;
use crate::few::Few;
use crate::geometry::Header;
use crate::hang::Hangs;
use crate::index::Index;
use crate::ledger::Ledger;
use crate::matching::OperationKind;
use crate::overlay::Overlay;
use crate::passage::Gate;
use crate::power_cut::PowerCut;
use crate::record::{TargetKey, is_unnamed, unnamed};
use crate::resolved::ResolvedRule;
use crate::rule::Rule;
use crate::rule_state::RuleState;
use crate::statistics::Statistics;
use crate::target::Target;

/// What an engine must know of where it acts.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Root of everything that chance decides.
    pub seed: u64,
    /// Size in bytes of the device that the faults act on.
    pub device_size: u64,
}

/// What the engines of one stack have in common.
#[derive(Clone, Default)]
pub(crate) struct Common {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) clock: Arc<Clock>,
    /// What can lose its power anywhere in the stack.
    powers: Arc<Mutex<Vec<Arc<dyn Power>>>>,
    /// Who is told when a rule takes the power, of whatever devices.
    pub(crate) on_cut: Arc<OnceLock<OnCut>>,
    /// The rule that has taken the power of the whole stack.
    blackout: Arc<ArcSwapOption<ActiveRule>>,
    /// Some rule, which knows it, has made its device read-only, or has taken it away.
    has_latched: Arc<AtomicBool>,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

/// Decides what happens to the requests of one device, and remembers what has. Shared by all queues of the device;
/// each begins its requests at its own [`Gate`].
pub struct Engine {
    /// The name of the place where it acts.
    pub(crate) site: Arc<str>,
    pub(crate) seed: u64,
    pub(crate) device_size: u64,
    pub(crate) index: Arc<ArcSwap<Index>>,
    /// Held while the index is replaced, so that no two changes lose each other.
    changes: Mutex<Changes>,
    /// What has passed by since a rule waits to choose from it.
    statistics: Mutex<Statistics>,
    pub(crate) overlay: Overlay,
    ledger: Arc<Ledger>,
    pub(crate) hangs: Hangs,
    pub(crate) clock: Arc<Clock>,
    /// See [`Common`].
    pub(crate) has_latched: Arc<AtomicBool>,
    pub(crate) blackout: Arc<ArcSwapOption<ActiveRule>>,
    powers: Arc<Mutex<Vec<Arc<dyn Power>>>>,
    on_cut: Arc<OnceLock<OnCut>>,
    /// What is below this place and can lose its power.
    power: OnceLock<Arc<dyn Power>>,
    recogniser: OnceLock<Arc<Recogniser>>,
    pub(crate) keeps_sectors: AtomicBool,
}

/// Is told that the power goes, on the thread of the request that it goes with, before anybody has an answer to that.
pub type OnCut = Box<dyn Fn() + Send + Sync>;

/// Says of the bytes of a block whether the load has made them; `None` if that cannot be told.
pub type Recogniser = dyn Fn(&[u8]) -> Option<bool> + Send + Sync;

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("device_size", &self.device_size).finish_non_exhaustive()
    }
}

/// What a change of the rules leaves to be done.
#[derive(Debug, Default)]
struct Changes {
    /// Indexes that have been replaced, as long as a request may go by them.
    replaced: Vec<Weak<Index>>,
    /// Rules that were removed, whose places such a request may still have to find.
    leaving: Vec<u32>,
}

impl Engine {
    /// An engine with these rules. Of rules with one name, which [`crate::validate_all`] refuses, all but the first
    /// are called as if they had none.
    pub fn new(mut rules: Vec<ResolvedRule>, options: EngineOptions) -> Arc<Self> {
        let engine = Self::at(unnamed(), options, Common::default());
        let mut names = HashSet::new();
        for ResolvedRule { rule, .. } in &mut rules {
            rule.name.take_if(|name| !names.insert(name.clone()));
        }
        engine.add_rules(rules).expect("no two of them have a name in common");
        engine
    }

    /// One without rules, at a place with that name.
    pub(crate) fn at(site: Arc<str>, options: EngineOptions, common: Common) -> Arc<Self> {
        let EngineOptions { seed, device_size } = options;
        // Equal rules at two places must not fail the same blocks together.
        let seed = if is_unnamed(&site) { seed } else { mix(seed, SITE_STREAM, site_key(&site)) };
        Arc::new(Self {
            site,
            seed,
            device_size,
            index: Arc::new(ArcSwap::from_pointee(Index::new(Vec::new(), Vec::new()))),
            changes: Mutex::default(),
            statistics: Mutex::default(),
            overlay: Overlay::new(device_size.div_ceil(BLOCK_BYTES)),
            ledger: common.ledger,
            hangs: Hangs::default(),
            clock: common.clock,
            has_latched: common.has_latched,
            blackout: common.blackout,
            powers: common.powers,
            on_cut: common.on_cut,
            power: OnceLock::new(),
            recogniser: OnceLock::new(),
            keeps_sectors: AtomicBool::new(false),
        })
    }

    /// Adds rules behind those that are there, whose positions and counters stay, and gives their names: a rule
    /// without one gets the next free of fault-1, fault-2, ... They act on every request that is submitted from now
    /// on, all of them, and never on part of one.
    ///
    /// Fails with [`ErrorKind::Invalid`], and adds none, if a name is given twice or is that of a rule that has not
    /// been removed.
    pub fn add_rules(&self, rules: Vec<ResolvedRule>) -> Result<Vec<Arc<str>>> {
        let first = self.index.load().rules.len();
        let numbers = first..first + rules.len();
        self.add_numbered(rules, numbers.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
    }

    /// The same, for rules that have other positions in a plan than here.
    pub(crate) fn add_numbered(
        &self,
        rules: Vec<ResolvedRule>,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Result<Vec<Arc<str>>> {
        let mut changes = self.changes.lock();
        let old = self.index.load_full();
        let names = names_for(&old, &rules)?;
        if rules.is_empty() {
            return Ok(names);
        }
        let (mut all, mut states) = (old.rules.clone(), old.states.clone());
        for ((rule, name), number) in rules.into_iter().zip(&names).zip(numbers) {
            let index = u32::try_from(all.len()).expect("fewer than 2^32 rules fit in memory");
            let name = Arc::clone(name);
            let rule = ActiveRule::new(rule, name, (index, number), self.seed, self.device_size, &self.clock);
            all.push(Arc::new(rule));
            states.push(RuleState::Active);
        }
        self.replace(&old, Index::new(all, states), &mut changes);
        Ok(names)
    }

    /// Lets a rule act, pauses it, or removes it for good. As with [`Engine::add_rules`] that concerns requests which
    /// are submitted from now on; those under way go by the rules as they were. What a rule has already stored wrong
    /// stays wrong until it is overwritten.
    ///
    /// Fails with [`ErrorKind::Invalid`] if no rule has that name, or the one that had it was removed.
    pub fn set_state(&self, name: &str, state: RuleState) -> Result<()> {
        self.set_states(&[name], state)
    }

    /// As [`Engine::set_state`], for several rules as one change: if a name is wrong, none is changed.
    pub fn set_states(&self, names: &[impl AsRef<str>], state: RuleState) -> Result<()> {
        let mut changes = self.changes.lock();
        let old = self.index.load_full();
        let mut states = old.states.clone();
        let mut changed = Vec::new();
        for name in names {
            let rule = find(&old, name.as_ref())?;
            if std::mem::replace(&mut states[rule.index as usize], state) != state {
                changed.push(Arc::clone(rule));
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        if state == RuleState::Removed {
            changes.leaving.extend(changed.iter().map(|rule| rule.index));
        }
        self.replace(&old, Index::new(old.rules.clone(), states), &mut changes);
        if state != RuleState::Active {
            self.restore_power_of(&changed);
            // What they hold back was let go by the index that is in force now.
            self.hangs.release(|rule| changed.iter().any(|changed| changed.index == rule));
        }
        Ok(())
    }

    /// A rule that acts no more keeps nobody in the dark.
    fn restore_power_of(&self, rules: &[Arc<ActiveRule>]) {
        let cuts =
            |rule: &Arc<ActiveRule>| matches!(rule.effect(), Effect::PowerCut(_)) && rule.has_latched();
        if rules.iter().any(cuts) {
            self.restore_power();
        }
    }

    /// Lets the requests that hang now come back: those that rules with these names hold, or all of them. Requests
    /// that these rules hit later hang again. Gives how many were released.
    ///
    /// Fails with [`ErrorKind::Invalid`], and releases none, if no rule has one of the names.
    pub fn release(&self, names: Option<&[impl AsRef<str>]>) -> Result<usize> {
        let Some(names) = names else { return Ok(self.release_all()) };
        let index = self.index.load();
        let rules: Vec<u32> =
            names.iter().map(|name| Ok(find(&index, name.as_ref())?.index)).collect::<Result<_>>()?;
        Ok(self.hangs.release(|rule| rules.contains(&rule)))
    }

    /// Lets all requests that hang now come back, and gives how many those were. What rules hit later hangs again.
    pub fn release_all(&self) -> usize {
        self.hangs.release(|_| true)
    }

    /// Says where the block lies that a rule with [`Target::Extent`] is to hit: at `offset`, in bytes, on the device that
    /// the faults act on. Until then the rule matches nothing. It is said once, and what is said later changes nothing:
    /// what the rule has hit then stays hit. A rule that replays a ledger goes to where it hit then.
    ///
    /// Fails with [`ErrorKind::Invalid`] if no rule has that name or it has another target, and with
    /// [`ErrorKind::OutOfRange`] if the device ends before.
    pub fn set_place(&self, name: &str, offset: u64) -> Result<()> {
        let mut changes = self.changes.lock();
        let old = self.index.load_full();
        let Some(rule) = present(&old).find(|rule| *rule.name == *name) else {
            return Err(unknown(name, &old));
        };
        if !matches!(rule.rule.matching.target, Some(Target::Extent { .. })) {
            let context =
                format!("the rule `{name}` has no target that is told its place; give it `by: extent`");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if offset >= self.device_size {
            let context = format!("the place {offset} of the rule `{name}` is beyond the device");
            return Err(Error::new(ErrorKind::OutOfRange, context));
        }
        if rule.set_place(offset / BLOCK_BYTES) {
            self.replace(&old, Index::new(old.rules.clone(), old.states.clone()), &mut changes);
        }
        Ok(())
    }

    /// The same for a rule with [`Target::Type`], which hits the blocks of all these ranges of bytes, each in whole
    /// blocks. With none it goes on matching nothing.
    pub fn set_places(&self, name: &str, ranges: &[Range<u64>]) -> Result<()> {
        let mut changes = self.changes.lock();
        let old = self.index.load_full();
        let Some(rule) = present(&old).find(|rule| *rule.name == *name) else {
            return Err(unknown(name, &old));
        };
        if !matches!(rule.rule.matching.target, Some(Target::Type { .. })) {
            let context = format!("the rule `{name}` does not go by the kind of a block; give it a `type`");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if let Some(beyond) = ranges.iter().find(|range| range.end > self.device_size) {
            let context = format!("the place {} of the rule `{name}` is beyond the device", beyond.start);
            return Err(Error::new(ErrorKind::OutOfRange, context));
        }
        let blocks = ranges.iter().map(|range| range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES));
        if rule.set_places(blocks.collect()) {
            self.replace(&old, Index::new(old.rules.clone(), old.states.clone()), &mut changes);
        }
        Ok(())
    }

    /// Makes `new` what requests go by from now on.
    fn replace(&self, old: &Arc<Index>, new: Index, changes: &mut Changes) {
        let watches = |index: &Index, block: u64| {
            let rules = index.rules.iter().filter(|rule| index.acts(rule.index));
            rules.filter(|rule| rule.effect() == Effect::StaleRead).any(|rule| rule.aims().covers(block))
        };
        let begins_to_watch = |rule: &Arc<ActiveRule>| {
            rule.effect() == Effect::StaleRead && new.acts(rule.index) && !old.acts(rule.index)
        };
        if new.rules.iter().any(begins_to_watch) {
            // What was kept when such a rule last acted has been followed by writes that nobody watched.
            self.overlay.change_all(|block, state| {
                state.previous.take_if(|_| !watches(old, block));
            });
        }
        if old.wanted != new.wanted {
            self.statistics.lock().restart(old.wanted, new.wanted);
        }
        changes.replaced.push(Arc::downgrade(old));
        self.index.store(Arc::new(new));
        self.forget_leaving(changes);
    }

    /// Takes note of a request for the rules that wait to choose from what passes by, and lets those choose whose
    /// moment has come.
    pub(crate) fn observe(&self, index: &Index, header: &Header, payload: &[u8]) {
        let phase = header.context.phase;
        let is_asked = matches!(header.operation.into(), OperationKind::Read | OperationKind::Write);
        let mut has_chosen = false;
        {
            let mut statistics = self.statistics.lock();
            for &number in index.waiting.iter().filter(|_| is_asked) {
                let rule = &index.rules[number as usize];
                if rule.rule.is_enabled(phase) {
                    has_chosen |= rule.choose(&mut statistics, header, payload, self.device_size);
                }
            }
            if phase != Phase::Setup {
                statistics.add(header, payload, index.wanted);
            }
        }
        if has_chosen {
            let mut changes = self.changes.lock();
            let old = self.index.load_full();
            self.replace(&old, Index::new(old.rules.clone(), old.states.clone()), &mut changes);
        }
    }

    /// Forgets the places of removed rules, unless a request under way may go by an index in which they act. A queue
    /// keeps the index that it has seen last, so that may be as late as the next change or report.
    fn forget_leaving(&self, changes: &mut Changes) {
        changes.replaced.retain(|index| index.strong_count() > 0);
        if changes.replaced.is_empty() && !changes.leaving.is_empty() {
            let leaving: HashSet<u32> = changes.leaving.drain(..).collect();
            self.overlay.change_all(|_, state| {
                state.sticky.retain_mut(|place| !leaving.contains(&place.rule));
            });
        }
    }

    /// Forgets which writes would put right what was injected so far: after this none of it counts as repaired any more. For the
    /// end of a run, when nobody writes; it frees most of what transient faults leave in memory.
    pub fn forget_repairs(&self) {
        self.overlay.change_all(|_, state| state.unrepaired = Few::default());
    }

    /// Lets the ledger say of what it records whether the load had made it. It is asked for each block that is hit, with the
    /// whole of it as it should be. The first to be set stays.
    pub fn set_recogniser(&self, recogniser: Arc<Recogniser>) {
        // A second one would have records speak of different loads.
        drop(self.recogniser.set(recogniser));
    }

    /// Lets the ledger say from now on what single sectors of a block that is hit read as, for who reads blocks in part.
    pub fn keep_sectors(&self) {
        self.keeps_sectors.store(true, Ordering::Relaxed);
    }

    /// Tells the engine of what is below its place and can lose its power. The first to be told stays.
    pub fn set_power(&self, power: Arc<dyn Power>) {
        if self.power.set(Arc::clone(&power)).is_ok() {
            self.powers.lock().push(power);
        }
    }

    /// Takes the power, as a hit of `rule` has it.
    pub(crate) fn cut_power(&self, rule: &Arc<ActiveRule>, cut: PowerCut) {
        if cut.everywhere {
            self.blackout.store(Some(Arc::clone(rule)));
            for (power, number) in self.powers.lock().iter().zip(0..) {
                power.cut(cut.kept(number));
            }
        } else if let Some(power) = self.power.get() {
            power.cut(cut.kept(0));
        }
        if let Some(on_cut) = self.on_cut.get() {
            on_cut();
        }
    }

    /// Gives the power back that rules of this place have taken, of whatever devices. What was lost is lost.
    pub fn restore_power(&self) {
        let index = self.index.load();
        let cuts =
            |rule: &&Arc<ActiveRule>| matches!(rule.effect(), Effect::PowerCut(_)) && rule.has_latched();
        for rule in index.rules.iter().filter(cuts) {
            rule.unlatch();
            let is_everywhere = matches!(rule.effect(), Effect::PowerCut(PowerCut { everywhere: true, .. }));
            if is_everywhere {
                self.powers.lock().iter().for_each(|power| power.restore());
                self.blackout.store(None);
            } else if let Some(power) = self.power.get() {
                power.restore();
            }
        }
    }

    pub(crate) fn recognise(&self, truth: &[u8]) -> Option<bool> {
        self.recogniser.get().and_then(|recognise| recognise(truth))
    }

    /// The name of the place where it acts.
    pub fn site(&self) -> &Arc<str> {
        &self.site
    }

    /// Size in bytes of the device that the faults act on.
    pub fn device_size(&self) -> u64 {
        self.device_size
    }

    pub(crate) fn device_blocks(&self) -> u64 {
        self.device_size.div_ceil(BLOCK_BYTES)
    }

    /// Where the requests of one queue begin.
    pub fn gate(self: &Arc<Self>) -> Gate {
        Gate::new(Arc::clone(self))
    }

    /// When the first request of the phase *run* came, from which windows in time count; `None` before that, and if no rule
    /// has such a window.
    pub fn load_began(&self) -> Option<rotproof_block::Time> {
        self.clock.began()
    }

    /// Everything that was injected.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The load has set a mark. Rules that wait for it hit the first match that is submitted from now on; those that are paused do not
    /// count it.
    pub fn mark(&self, text: &str) {
        let index = self.index.load();
        index.rules.iter().filter(|rule| index.acts(rule.index)).for_each(|rule| rule.note_mark(text));
    }

    /// What each rule has met and done so far, in the order in which they were added; removed ones too.
    pub fn report(&self) -> Vec<RuleReport> {
        self.forget_leaving(&mut self.changes.lock());
        let hanging = self.hangs.counts();
        let report = |(rule, state): (&Arc<ActiveRule>, &RuleState)| RuleReport {
            name: rule.name.to_string(),
            rule: rule.rule.clone(),
            state: *state,
            matches: rule.matches(),
            hits: rule.hits(),
            hanging: hanging.get(&rule.index).copied().unwrap_or(0),
            targets: rule
                .aims()
                .iter()
                .map(|(target, hits)| TargetReport { target: target.clone(), hits })
                .collect(),
        };
        let index = self.index.load();
        index.rules.iter().zip(&index.states).map(report).collect()
    }
}

/// Keeps what is drawn for places with a name apart from all else.
const SITE_STREAM: u64 = 0x5173_5e5e_d0f5_17e5;

fn site_key(site: &str) -> u64 {
    ContentHash::of(site.as_bytes()).0 as u64
}

/// The rules that have not been removed.
fn present(index: &Index) -> impl Iterator<Item = &Arc<ActiveRule>> {
    let states = index.rules.iter().zip(&index.states);
    states.filter(|(_, state)| **state != RuleState::Removed).map(|(rule, _)| rule)
}

/// What `rules` are called beside those that are there.
fn names_for(index: &Index, rules: &[ResolvedRule]) -> Result<Vec<Arc<str>>> {
    let mut taken: HashSet<Arc<str>> = present(index).map(|rule| Arc::clone(&rule.name)).collect();
    for name in rules.iter().filter_map(|rule| rule.rule.name.as_deref()) {
        if !taken.insert(name.into()) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "there is a rule called `{name}` already; give it another name, or remove that rule first"
                ),
            ));
        }
    }
    // The name of a removed rule may be given again, but not by accident.
    taken.extend(index.rules.iter().map(|rule| Arc::clone(&rule.name)));
    let mut next_number = index.rules.len();
    let names = rules.iter().map(|rule| {
        next_number += 1;
        if let Some(name) = &rule.rule.name {
            return name.as_str().into();
        }
        loop {
            let name: Arc<str> = format!("fault-{next_number}").into();
            if taken.insert(Arc::clone(&name)) {
                return name;
            }
            next_number += 1;
        }
    });
    Ok(names.collect())
}

/// The rule that has this name and was not removed.
fn find<'a>(index: &'a Index, name: &str) -> Result<&'a Arc<ActiveRule>> {
    present(index).find(|rule| *rule.name == *name).ok_or_else(|| unknown(name, index))
}

fn unknown(name: &str, index: &Index) -> Error {
    let context = if index.rules.iter().any(|rule| *rule.name == *name) {
        format!("the rule `{name}` was removed; add it again")
    } else if let Some(meant) = nearest(name, present(index).map(|rule| &*rule.name)) {
        format!("there is no rule called `{name}`; did you mean `{meant}`?")
    } else {
        match present(index).count() {
            0 => format!("there is no rule called `{name}`: there are none at all"),
            _ => format!("there is no rule called `{name}`; a list of the rules names them"),
        }
    };
    Error::new(ErrorKind::Invalid, context)
}

/// What one rule has met and done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleReport {
    /// Name of the rule.
    pub name: String,
    /// The rule as it was written.
    pub rule: Rule,
    /// Whether it acts.
    #[serde(default)]
    pub state: RuleState,
    /// Matches that its schedule has seen: blocks for effects on data, requests for errors and delays.
    pub matches: u64,
    /// Injections that the ledger has of it.
    pub hits: u64,
    /// Requests that it holds back now.
    #[serde(default, skip_serializing_if = "is_none")]
    pub hanging: u64,
    /// Everything it aims at: each range of `offset`, or each content. Empty for a rule that hits anywhere, or has not
    /// chosen yet.
    pub targets: Vec<TargetReport>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// How often one aim of a rule was hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetReport {
    /// Which one.
    pub target: TargetKey,
    /// How often it was hit; a request that hits several aims at once counts for each.
    pub hits: u64,
}
