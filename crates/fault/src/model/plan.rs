//! The rules of a trial: those that were written, and between them those that its models are drawn into.

use std::collections::HashMap;
use std::ops::Range;

use rotproof_spec::{Path, Problems};

use super::DrawnFrom;
use super::entry::{FaultEntry, ModelEntry};
use crate::contradiction::validate_rules;
use crate::rule::Rule;
use crate::sites::{SiteList, Unplaced};

/// All rules of a trial, in the order in which the engine takes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The rules; each has a name.
    pub rules: Vec<Rule>,
    /// The models, in their order.
    pub models: Vec<DrawnModel>,
    /// The rules on memory. Their numbers go on after those of the others.
    pub on_memory: Vec<Rule>,
}

/// What a model was drawn into.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnModel {
    /// Its name.
    pub name: String,
    /// Which model, as in the short form: `bit_rot, acceleration=1e6`.
    pub model: String,
    /// Where its rules are among those of the plan; empty if chance made none.
    pub rules: Range<usize>,
}

impl Plan {
    /// Draws the models of `entries`, each for the device of its place; a place whose size is not known, or that is not there,
    /// counts as empty. The same for the same arguments, always.
    pub fn draw(entries: &[FaultEntry], seed: u64, sites: &SiteList) -> Self {
        let mut plan = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            let name = entry.name_or_default(index);
            let device_size = sites.size(entry.on()).unwrap_or(0);
            match entry {
                FaultEntry::Rule(rule) if rule.is_on_memory() => {
                    plan.on_memory.push(Rule { name: Some(name.into_owned()), ..rule.clone() });
                }
                FaultEntry::Rule(rule) => {
                    plan.rules.push(Rule { name: Some(name.into_owned()), ..rule.clone() });
                }
                FaultEntry::Model(ModelEntry { model, on, during, .. }) => {
                    let drawn = model.draw(&DrawnFrom { seed, name: &name, device_size });
                    let first = plan.rules.len();
                    plan.rules.extend(drawn.into_iter().map(|rule| Rule {
                        name: Some(format!("{name}.{}", rule.name.as_deref().unwrap_or_default())),
                        on: on.clone(),
                        during: during.clone(),
                        ..rule
                    }));
                    plan.models.push(DrawnModel {
                        name: name.into_owned(),
                        model: model.to_string(),
                        rules: first..plan.rules.len(),
                    });
                }
            }
        }
        plan
    }

    /// The model that the rule at that position was drawn from.
    pub fn model_of(&self, rule: usize) -> Option<&DrawnModel> {
        self.models.iter().find(|model| model.rules.contains(&rule))
    }

    /// The rules of a model.
    pub fn rules_of(&self, model: &DrawnModel) -> &[Rule] {
        self.rules.get(model.rules.clone()).unwrap_or_default()
    }
}

/// Reports everything that makes no sense in the faults of a trial: in each by itself, and among them. `path` is where
/// the list stands in the document.
pub fn validate_plan(entries: &[FaultEntry], path: &Path, sites: &SiteList, problems: &mut Problems) {
    let mut rules: Vec<Vec<(usize, &Rule)>> = vec![Vec::new(); sites.0.len()];
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        if let FaultEntry::Rule(rule) = entry
            && rule.is_on_memory()
        {
            rule.validate_on_memory(&path, problems);
            if sites.0.iter().any(|(name, _)| name == crate::MEMORY) {
                problems.add_with_help(
                    &path.key("on"),
                    "a place for faults in the stack is called `memory`, so it is not clear what is meant",
                    "give that `faults` layer another name",
                );
            }
            continue;
        }
        let place = sites.place(entry.on());
        if let Err(Unplaced { message, help }) = &place {
            problems.add_with_help(&path.key("on"), message, help);
        }
        let device_size = sites.size(entry.on());
        match entry {
            FaultEntry::Rule(rule) => {
                rule.validate(&path, device_size, problems);
                if let Ok(place) = place {
                    rules[place].push((index, rule));
                }
            }
            FaultEntry::Model(ModelEntry { model, during, name, .. }) => {
                let path_of_model = path.key("model").key(model.word());
                model.validate(&path_of_model, device_size, problems);
                // What else it has, it has as a rule.
                let rule = Rule {
                    name: name.clone(),
                    during: during.clone(),
                    ..Rule::new(crate::Effect::MediumError)
                };
                rule.validate(&path, None, problems);
            }
        }
    }
    validate_names(entries, path, problems);
    for rules in rules {
        validate_rules(&rules, path, problems);
    }
}

fn validate_names(entries: &[FaultEntry], path: &Path, problems: &mut Problems) {
    let names: Vec<_> =
        entries.iter().enumerate().map(|(index, entry)| entry.name_or_default(index)).collect();
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (index, name) in names.iter().enumerate() {
        if let Some(&other) = first.get(&**name) {
            problems.add(
                &path.index(index).key("name"),
                format!("{} is called `{name}` too; reports could not tell them apart", path.index(other)),
            );
        } else {
            first.insert(name, index);
        }
    }
    for (index, name) in names.iter().enumerate() {
        // Rules of a model are called NAME.part.
        let stem = name.match_indices('.').find_map(|(at, _)| first.get(&name[..at]));
        if let Some(&model) = stem.filter(|model| matches!(entries[**model], FaultEntry::Model(_))) {
            problems.add_with_help(
                &path.index(index).key("name"),
                format!("a rule of the model `{}` ({}) may be called so", names[model], path.index(model)),
                "give it another name",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(texts: &[&str]) -> Vec<FaultEntry> {
        texts.iter().map(|text| text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))).collect()
    }

    fn problems(texts: &[&str]) -> Vec<String> {
        let mut problems = Problems::default();
        validate_plan(&entries(texts), &Path::root().key("faults"), &of_size(16 << 20), &mut problems);
        problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    fn of_size(bytes: u64) -> SiteList {
        SiteList::unnamed(Some(bytes))
    }

    const MODELS: [&str; 6] = [
        "name=media, during=run: model(latent_sector_errors, acceleration=1e6, over=10s)",
        "name=ude: model(undetected_disk_errors, dropped=1e-3, near_off_track=1e-3, far_off_track=1e-3, read=1e-3)",
        "name=rot: model(bit_rot, acceleration=1e6, over=10s)",
        "name=slow: model(fail_slow, form=transient, share=5%, over=10s)",
        "name=dying: model(dying_disk, over=10s)",
        "name=dead: model(whole_disk_failure, acceleration=1e9)",
    ];

    #[test]
    fn a_plan_has_the_rules_of_its_models_in_their_places() {
        let mut texts = vec!["write, once: zeros"];
        texts.extend(MODELS);
        texts.push("name=last, read, once: error");
        let plan = Plan::draw(&entries(&texts), 1, &of_size(16 << 20));
        assert_eq!(plan.rules[0].name.as_deref(), Some("fault-1"));
        assert_eq!(plan.rules.last().and_then(|rule| rule.name.as_deref()), Some("last"));
        let mut next = 1;
        for model in &plan.models {
            assert_eq!(model.rules.start, next);
            assert!(!model.rules.is_empty(), "{}", model.model);
            next = model.rules.end;
            for (rule, index) in plan.rules_of(model).iter().zip(model.rules.clone()) {
                let name = rule.name.as_deref().unwrap_or_default();
                assert!(name.starts_with(&format!("{}.", model.name)), "{name}");
                assert_eq!(plan.model_of(index), Some(model));
            }
        }
        assert_eq!(next, plan.rules.len() - 1);
        assert_eq!(plan.model_of(0), None);
        let media = plan.rules_of(&plan.models[0]);
        assert!(media.iter().all(|rule| rule.during.0 == [crate::EnabledPhase::Run]));
    }

    #[test]
    fn what_is_drawn_depends_on_seed_name_and_size_and_makes_sense_as_rules() {
        for size in [4096u64, 1 << 20, (64 << 20) + 512] {
            for seed in 0..20 {
                let plan = Plan::draw(&entries(&MODELS), seed, &of_size(size));
                assert_eq!(plan, Plan::draw(&entries(&MODELS), seed, &of_size(size)));
                let mut found = Problems::default();
                crate::validate_all(&plan.rules, &Path::root(), Some(size), &mut found);
                let found: Vec<_> = found.into_iter().map(|problem| problem.message).collect();
                assert_eq!(found, [""; 0], "{size} bytes, seed {seed}");
            }
        }
        let rot = |text: &str, seed: u64| Plan::draw(&entries(&[text]), seed, &of_size(64 << 20)).rules;
        let same = rot("name=a: model(bit_rot, acceleration=1e6)", 1);
        assert_ne!(rot("name=a: model(bit_rot, acceleration=1e6)", 2), same);
        assert_ne!(
            rot("name=b: model(bit_rot, acceleration=1e6)", 1)[0].matching.offset,
            same[0].matching.offset
        );
    }

    #[test]
    fn a_sensible_model_has_no_problems() {
        assert_eq!(problems(&MODELS), [""; 0]);
        let defaults = [
            "model(latent_sector_errors)",
            "model(undetected_disk_errors, read=1e-15)",
            "model(bit_rot)",
            "model(fail_slow)",
            "model(dying_disk)",
            "model(whole_disk_failure)",
        ];
        assert_eq!(problems(&defaults), [""; 0]);
    }

    #[test]
    fn each_mistake_is_found_at_its_place() {
        for (text, place, part) in [
            ("model(latent_sector_errors, rate=1e7)", "latent_sector_errors.rate", "out of range"),
            (
                "model(latent_sector_errors, acceleration=1e13)",
                "latent_sector_errors.acceleration",
                "out of range",
            ),
            ("model(latent_sector_errors, acceleration=1e10)", "latent_sector_errors", "at most 10000"),
            ("model(latent_sector_errors, life=0)", "latent_sector_errors.life", "does not live"),
            ("model(latent_sector_errors, life=36501d)", "latent_sector_errors.life", "does not live"),
            ("model(latent_sector_errors, over=0)", "latent_sector_errors.over", "laid out"),
            ("model(latent_sector_errors, distance=100)", "latent_sector_errors.distance", "out of range"),
            ("model(latent_sector_errors, run=4KiB)", "latent_sector_errors.run", "out of range"),
            ("model(latent_sector_errors, further=1001)", "latent_sector_errors.further", "out of range"),
            ("model(undetected_disk_errors)", "undetected_disk_errors", "nothing ever happens"),
            ("model(undetected_disk_errors, read=2)", "undetected_disk_errors.read", "out of range"),
            ("model(undetected_disk_errors, read=1e-19)", "undetected_disk_errors.read", "too small"),
            ("model(bit_rot, bits=0)", "bit_rot.bits", "cannot flip"),
            ("model(bit_rot, bits=4097)", "bit_rot.bits", "cannot flip"),
            ("model(bit_rot, acceleration=1e11)", "bit_rot", "at most 10000"),
            ("model(fail_slow, slowness=0)", "fail_slow.slowness", "no slowness"),
            ("model(fail_slow, share=10%)", "fail_slow.share", "slow for good"),
            ("model(fail_slow, form=partial, share=0)", "fail_slow.share", "all or nothing"),
            ("model(fail_slow, form=partial, share=100%)", "fail_slow.share", "all or nothing"),
            ("model(fail_slow, form=transient)", "fail_slow", "over which"),
            ("model(fail_slow, form=stops, over=1s, spell=0)", "fail_slow.spell", "no time"),
            ("model(fail_slow, form=stops, over=1s, spell=1s)", "fail_slow", "at most 10000"),
            ("model(dying_disk, errors=10001)", "dying_disk.errors", "at most 10000"),
            ("model(dying_disk, growth=0.5)", "dying_disk.growth", "out of range"),
            ("model(dying_disk, delay_to=0.1ms)", "dying_disk.delay_to", "falls"),
            ("model(dying_disk, delay_to=2h)", "dying_disk.delay_to", "longer than"),
            ("model(dying_disk, errors=0, delay_from=0, delay_to=0)", "dying_disk", "nothing ever"),
            ("model(whole_disk_failure, afr=0)", "whole_disk_failure.afr", "is none"),
            ("model(whole_disk_failure, afr=100%)", "whole_disk_failure.afr", "is none"),
            ("model(whole_disk_failure, shape=0)", "whole_disk_failure.shape", "out of range"),
            ("model(whole_disk_failure, acceleration=0)", "whole_disk_failure.acceleration", "out of range"),
            ("model(whole_disk_failure, age=36501d)", "whole_disk_failure.age", "no device"),
        ] {
            let found = problems(&[text]);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with(&format!("faults[0].model.{place}: ")), "{text}: {}", found[0]);
            assert!(found[0].contains(part), "{text}: {}", found[0]);
        }
        for (texts, place, part) in [
            (["name=\" \": model(bit_rot)", "once: error"], "faults[0].name", "empty"),
            (["during=run|run: model(bit_rot)", "once: error"], "faults[0].during[1]", "twice"),
            (["name=a: model(bit_rot)", "name=a, once: error"], "faults[1].name", "called `a` too"),
            (["name=a: model(bit_rot)", "name=a.b, once: error"], "faults[1].name", "may be called so"),
        ] {
            let found = problems(&texts);
            assert_eq!(found.len(), 1, "{texts:?}: {found:?}");
            assert!(found[0].starts_with(place) && found[0].contains(part), "{}", found[0]);
        }
        let found = problems(&["model(bit_rot)", "zeros", "zeros"]);
        assert!(found[0].starts_with("faults[2]: this contradicts fault-2 (faults[1])"), "{found:?}");
    }
}
