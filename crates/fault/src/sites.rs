//! The places of a stack where faults act: one engine each, and one ledger, one clock and one numbering of rules for all.
//!
//! Whoever runs or serves a stack talks to this, not to the engines: a rule says by its name where it acts, and here that
//! name finds its engine. The data path knows nothing of it; each faults layer asks its own engine.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result, Time};
use rotproof_spec::nearest;

use crate::engine::{Common, Engine, EngineOptions, OnCut, Recogniser, RuleReport};
use crate::ledger::Ledger;
use crate::resolved::ResolvedRule;
use crate::rule_state::RuleState;

/// The engines of a stack, by the names of their places.
#[derive(Clone, Default)]
pub struct Sites {
    engines: Vec<Arc<Engine>>,
    common: Common,
    /// Of each rule, by its position in the plan, which engine has it.
    homes: Arc<Mutex<Vec<usize>>>,
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.engines.iter().map(|engine| engine.site())).finish()
    }
}

impl Sites {
    /// Adds a place called `name`, without rules, and gives its engine.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there is one of that name.
    pub fn add(&mut self, name: &str, options: EngineOptions) -> Result<Arc<Engine>> {
        if self.engines.iter().any(|engine| **engine.site() == *name) {
            let context = format!("two places for faults are called `{name}`");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let engine = Engine::at(name.into(), options, self.common.clone());
        self.engines.push(Arc::clone(&engine));
        Ok(engine)
    }

    /// The engines, in the order in which the stack describes their places.
    pub fn engines(&self) -> &[Arc<Engine>] {
        &self.engines
    }

    /// Whether there is no place for faults.
    pub fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    /// The names and sizes of the places.
    pub fn list(&self) -> SiteList {
        SiteList(
            self.engines
                .iter()
                .map(|engine| (engine.site().to_string(), Some(engine.device_size())))
                .collect(),
        )
    }

    /// Adds rules as [`Engine::add_rules`] does, each at the place that it names. Names are given over all places, so that
    /// a name finds one rule.
    ///
    /// Fails with [`ErrorKind::Invalid`], and adds none, if a name is taken, or if a rule names no place of the stack or has to.
    pub fn add_rules(&self, rules: Vec<ResolvedRule>) -> Result<Vec<Arc<str>>> {
        let list = self.list();
        let homes_of_new: Vec<usize> =
            rules.iter().map(|rule| list.place(rule.rule.on.as_deref())).collect::<Result<_, _>>().map_err(
                |unplaced| Error::new(ErrorKind::Invalid, format!("{}; {}", unplaced.message, unplaced.help)),
            )?;
        let mut homes = self.homes.lock();
        let first = homes.len();
        let mut rules = rules;
        if self.engines.len() > 1 {
            self.name(&mut rules, first)?;
        }
        let mut parts: Vec<(Vec<ResolvedRule>, Vec<u32>)> = vec![Default::default(); self.engines.len()];
        for (offset, (rule, &home)) in rules.into_iter().zip(&homes_of_new).enumerate() {
            parts[home].0.push(rule);
            parts[home].1.push(u32::try_from(first + offset).unwrap_or(u32::MAX));
        }
        let mut names: Vec<Arc<str>> = vec!["".into(); homes_of_new.len()];
        for (engine, (rules, numbers)) in self.engines.iter().zip(parts) {
            // Of several places all names are known to be free by now.
            let given = engine.add_numbered(rules, numbers.iter().copied())?;
            for (name, number) in given.into_iter().zip(numbers) {
                names[number as usize - first] = name;
            }
        }
        homes.extend(homes_of_new);
        Ok(names)
    }

    /// Gives each rule a name that no rule of any place has.
    fn name(&self, rules: &mut [ResolvedRule], first: usize) -> Result<()> {
        let (mut present, mut ever) = (HashSet::new(), HashSet::new());
        for report in self.engines.iter().flat_map(|engine| engine.report()) {
            if report.state != RuleState::Removed {
                present.insert(report.name.clone());
            }
            ever.insert(report.name);
        }
        for name in rules.iter().filter_map(|rule| rule.rule.name.as_ref()) {
            if !present.insert(name.clone()) {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!(
                        "there is a rule called `{name}` already; give it another name, or remove that rule first"
                    ),
                ));
            }
            ever.insert(name.clone());
        }
        let mut next = first;
        for rule in rules {
            next += 1;
            while rule.rule.name.is_none() {
                let name = format!("fault-{next}");
                if ever.insert(name.clone()) {
                    rule.rule.name = Some(name);
                } else {
                    next += 1;
                }
            }
        }
        Ok(())
    }

    /// The engine that has a rule of this name. Where none has, any knows what to say.
    fn home(&self, name: &str) -> Result<&Arc<Engine>> {
        let has_it = |engine: &&Arc<Engine>| {
            engine.report().iter().any(|report| report.name == name && report.state != RuleState::Removed)
        };
        match self.engines.as_slice() {
            [only] => Ok(only),
            several => several.iter().find(has_it).ok_or_else(|| self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let reports = self.report();
        let present = reports.iter().filter(|report| report.state != RuleState::Removed);
        let context = if reports.iter().any(|report| report.name == name) {
            format!("the rule `{name}` was removed; add it again")
        } else if let Some(meant) = nearest(name, present.map(|report| report.name.as_str())) {
            format!("there is no rule called `{name}`; did you mean `{meant}`?")
        } else {
            format!("there is no rule called `{name}`; a list of the rules names them")
        };
        Error::new(ErrorKind::Invalid, context)
    }

    /// As [`Engine::set_states`], for rules of any place; if a name is wrong, none is changed.
    pub fn set_states(&self, names: &[impl AsRef<str>], state: RuleState) -> Result<()> {
        for (engine, names) in self.by_home(names)? {
            engine.set_states(&names, state)?;
        }
        Ok(())
    }

    /// As [`Engine::release`], for rules of any place.
    pub fn release(&self, names: Option<&[impl AsRef<str>]>) -> Result<usize> {
        let Some(names) = names else { return Ok(self.release_all()) };
        let mut released = 0;
        for (engine, names) in self.by_home(names)? {
            released += engine.release(Some(&names))?;
        }
        Ok(released)
    }

    fn by_home<'a>(&self, names: &'a [impl AsRef<str>]) -> Result<Vec<(&Arc<Engine>, Vec<&'a str>)>> {
        let mut parts: Vec<(&Arc<Engine>, Vec<&str>)> = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            let home = self.home(name)?;
            match parts.iter_mut().find(|(engine, _)| Arc::ptr_eq(engine, home)) {
                Some((_, names)) => names.push(name),
                None => parts.push((home, vec![name])),
            }
        }
        Ok(parts)
    }

    /// As [`Engine::release_all`], at all places.
    pub fn release_all(&self) -> usize {
        self.engines.iter().map(|engine| engine.release_all()).sum()
    }

    /// As [`Engine::restore_power`], at all places.
    pub fn restore_power(&self) {
        self.engines.iter().for_each(|engine| engine.restore_power());
    }

    /// As [`Engine::forget_repairs`], at all places.
    pub fn forget_repairs(&self) {
        self.engines.iter().for_each(|engine| engine.forget_repairs());
    }

    /// Has `on_cut` told when a rule of any place takes the power. It must not wait for requests to the stack. The first one to be
    /// given stays.
    pub fn when_power_goes(&self, on_cut: OnCut) {
        // A second one would tell of another trial.
        drop(self.common.on_cut.set(on_cut));
    }

    /// As [`Engine::mark`], at all places.
    pub fn mark(&self, text: &str) {
        self.engines.iter().for_each(|engine| engine.mark(text));
    }

    /// As [`Engine::set_place`], for a rule of any place.
    pub fn set_place(&self, name: &str, offset: u64) -> Result<()> {
        self.home(name)?.set_place(name, offset)
    }

    /// As [`Engine::set_places`], for a rule of any place.
    pub fn set_places(&self, name: &str, ranges: &[Range<u64>]) -> Result<()> {
        self.home(name)?.set_places(name, ranges)
    }

    /// As [`Engine::set_recogniser`], at all places.
    pub fn set_recogniser(&self, recogniser: &Arc<Recogniser>) {
        self.engines.iter().for_each(|engine| engine.set_recogniser(Arc::clone(recogniser)));
    }

    /// As [`Engine::keep_sectors`], at all places.
    pub fn keep_sectors(&self) {
        self.engines.iter().for_each(|engine| engine.keep_sectors());
    }

    /// As [`Engine::load_began`]: when the first request of the phase *run* came at any place.
    pub fn load_began(&self) -> Option<Time> {
        self.common.clock.began()
    }

    /// Everything that was injected, at whatever place.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.common.ledger
    }

    /// What each rule has met and done so far, in the order in which they were added, at whatever place.
    pub fn report(&self) -> Vec<RuleReport> {
        let homes = self.homes.lock();
        let mut reports: Vec<_> = self.engines.iter().map(|engine| engine.report().into_iter()).collect();
        homes.iter().filter_map(|&home| reports[home].next()).collect()
    }
}

/// The places where faults may act, as a description names them: each with the size in bytes of its device, as far as
/// that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteList(pub Vec<(String, Option<u64>)>);

/// Why a rule has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaced {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl SiteList {
    /// One place without a name of its own, over a device of that size.
    pub fn unnamed(device_size: Option<u64>) -> Self {
        Self(vec![(crate::record::UNNAMED_SITE.to_owned(), device_size)])
    }

    /// Which place a rule with this `on` acts at.
    pub fn place(&self, on: Option<&str>) -> Result<usize, Unplaced> {
        let names = || self.0.iter().map(|(name, _)| name.as_str());
        let all = || names().collect::<Vec<_>>().join(", ");
        match on {
            Some(on) => names().position(|name| name == on).ok_or_else(|| Unplaced {
                message: format!("no place for faults is called `{on}`"),
                help: match nearest(on, names()) {
                    Some(meant) => format!("did you mean `{meant}`? There are: {}", all()),
                    None => format!("there are: {}", all()),
                },
            }),
            None if self.0.len() == 1 => Ok(0),
            None => Err(Unplaced {
                message: "the stack has several places for faults, and this names none".into(),
                help: format!("say where it acts: on: one of {}", all()),
            }),
        }
    }

    /// The size of the device on which faults with this `on` act, as far as it is known.
    pub fn size(&self, on: Option<&str>) -> Option<u64> {
        self.place(on).ok().and_then(|place| self.0[place].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;
    use rotproof_block::{Buffer, Context, Phase, Request};

    use crate::geometry::Header;

    fn rule(text: &str) -> ResolvedRule {
        text.parse::<Rule>().unwrap_or_else(|why| panic!("{text}: {why}")).into()
    }

    fn sites(names: &[&str]) -> Sites {
        let mut sites = Sites::default();
        for name in names {
            sites.add(name, EngineOptions { seed: 1, device_size: 1 << 20 }).expect("another name");
        }
        sites
    }

    /// Which blocks of the place a write of each is failed.
    fn failed(engine: &Arc<Engine>) -> Vec<u64> {
        let gate = engine.gate();
        let fails = |&block: &u64| {
            let context = Context { phase: Phase::Run, ..Context::default() };
            let request = Request::write(block * 4096, Buffer::zeroed(4096), context);
            let header = Header::of(&request);
            gate.begin(&header, &request.buffer).is_some_and(|passage| !passage.is_quiet())
        };
        (0..256).filter(fails).collect()
    }

    #[test]
    fn equal_rules_at_two_places_fail_other_blocks_and_one_without_a_name_is_as_a_single_engine() {
        let sites = sites(&["faults", "left", "right"]);
        let text = "write, probability=20%/block: error";
        let placed = |on: &str| rule(&format!("on={on}, {text}"));
        sites
            .add_rules(vec![placed("faults"), placed("left"), placed("right")])
            .expect("places that are there");
        let of = |place: usize| failed(&sites.engines()[place]);
        let alone = Engine::new(vec![rule(text)], EngineOptions { seed: 1, device_size: 1 << 20 });
        let (unnamed, left, right) = (of(0), of(1), of(2));
        assert_eq!(unnamed, failed(&alone));
        assert!(left != right && left != unnamed && right != unnamed);
        assert!([&left, &right].into_iter().all(|blocks| (20..90).contains(&blocks.len())));
    }

    #[test]
    fn rules_are_numbered_named_and_found_over_all_places() {
        let sites = sites(&["left", "right"]);
        let first = vec![rule("on=right, write: error"), rule("on=left, read: error")];
        assert_eq!(
            sites.add_rules(first).expect("added").iter().map(|name| &**name).collect::<Vec<_>>(),
            ["fault-1", "fault-2"]
        );
        sites.add_rules(vec![rule("on=right, name=slow, read: delay(1ms)")]).expect("added");
        let names = |sites: &Sites| sites.report().into_iter().map(|report| report.name).collect::<Vec<_>>();
        assert_eq!(names(&sites), ["fault-1", "fault-2", "slow"]);
        let twice = sites.add_rules(vec![rule("on=left, name=slow, write: error")]).expect_err("taken");
        assert!(twice.to_string().contains("called `slow` already"), "{twice}");
        sites.set_states(&["slow", "fault-2"], RuleState::Paused).expect("both are there");
        let states: Vec<_> = sites.report().into_iter().map(|report| report.state).collect();
        assert_eq!(states, [RuleState::Active, RuleState::Paused, RuleState::Paused]);
        let error = sites.set_states(&["fault-1", "solw"], RuleState::Removed).expect_err("no such rule");
        assert!(error.to_string().contains("did you mean `slow`"), "{error}");
        assert_eq!(sites.report()[0].state, RuleState::Active, "none is changed");
    }

    #[test]
    fn a_rule_says_where_it_acts_where_there_is_a_choice() {
        let sites = sites(&["left", "right"]);
        for (text, part) in [
            ("write: error", "names none; say where it acts: on: one of left, right"),
            ("on=lefft, write: error", "called `lefft`; did you mean `left`? There are: left, right"),
        ] {
            let error = sites.add_rules(vec![rule(text)]).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(sites.report().is_empty());
    }
}
