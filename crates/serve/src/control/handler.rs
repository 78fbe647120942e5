//! What the requests of the control protocol do.

use std::sync::Arc;
use std::time::Instant;

use rotproof_block::Error;
use rotproof_fault::{
    FaultEntry, Injection, ResolvedRule, Rule, RuleReport, RuleState, Sites, validate_plan,
};
use rotproof_spec::{Path, Problems};
use rotproof_trial::file::validate_rule_to_serve;
use serde_json::{Value, json};

use super::protocol::{Action, ErrorBody, FaultKind, Greeting, VERSION};
use crate::Ready;
use crate::exports::Exports;
use crate::volume::Keeper;

/// Rules of one page of `list`, and records of one page of `injections`, at most.
const PAGE_MAX: usize = 1000;

/// Bytes of a page of `list` beyond which it ends with the rule that it has come to.
const PAGE_BYTES: usize = 1 << 20;

/// Rules that may be added to a stack in its life. Removed ones count, because reports still show them.
const ADDED_MAX: usize = 1 << 16;

/// Bytes that requests to add rules may have in all.
const ADDED_BYTES_MAX: usize = 64 << 20;

/// What is served.
#[derive(Clone, Debug)]
pub struct ServedStack {
    /// Where it is to be found.
    pub ready: Ready,
    /// Since when.
    pub began: Instant,
}

/// Carries out requests on the faults of one stack.
#[derive(Debug)]
pub struct Handler {
    sites: Sites,
    served: ServedStack,
    added: usize,
    added_bytes: usize,
    keeper: Option<Arc<Keeper>>,
    exports: Option<Arc<Exports>>,
}

type Answer = Result<Value, ErrorBody>;

fn invalid(message: impl Into<String>) -> ErrorBody {
    ErrorBody::new(FaultKind::Invalid, message)
}

#[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` asks for")]
fn refused(error: Error) -> ErrorBody {
    invalid(error.to_string())
}

impl Handler {
    /// One that changes the rules of `sites`.
    pub fn new(sites: Sites, served: ServedStack) -> Self {
        Self { sites, served, added: 0, added_bytes: 0, keeper: None, exports: None }
    }

    /// Has it take tasks for the volume that `keeper` looks after.
    #[must_use]
    pub fn with_volume(self, keeper: Option<Arc<Keeper>>) -> Self {
        Self { keeper, ..self }
    }

    /// Has it tell of exports as they are at the time.
    #[must_use]
    pub(crate) fn with_exports(self, exports: Arc<Exports>) -> Self {
        Self { exports: Some(exports), ..self }
    }

    /// What every connection begins with.
    pub fn greeting(&self) -> Greeting {
        let Ready { name, pid, .. } = &self.served.ready;
        Greeting { rotproof: "control".into(), version: VERSION, name: name.clone(), pid: *pid }
    }

    /// Carries out what was asked for in a line of so many bytes.
    pub(super) fn handle(&mut self, action: Action, line_bytes: usize) -> Answer {
        match action {
            Action::Status {} => Ok(self.status()),
            Action::Add { rules } => self.add(rules.into_iter().map(Rule::from).collect(), line_bytes),
            Action::List { from, removed, targets } => Ok(self.list(from, removed, targets)),
            Action::Pause { rules } => self.set_states(&rules, RuleState::Paused),
            Action::Resume { rules } => self.set_states(&rules, RuleState::Active),
            Action::Remove { rules } => self.set_states(&rules, RuleState::Removed),
            Action::Release { rules } => {
                let released = self.sites.release(rules.as_deref()).map_err(refused)?;
                Ok(json!({ "released": released }))
            }
            Action::Injections { from, count, rule } => self.injections(from, count, rule.as_deref()),
            Action::VolumeStatus {} => Ok(self.keeper()?.status()),
            Action::VolumeTask { task } => {
                let task = self.keeper()?.begin(task).map_err(refused)?;
                Ok(json!({ "task": task }))
            }
            Action::VolumeRead { copy, offset, length } => {
                self.keeper()?.read_copy(copy, offset, length).map_err(refused)
            }
            Action::VolumeProgress { task } => {
                let report = self.keeper()?.task(task);
                let report = report.ok_or_else(|| invalid(format!("no task {task} is remembered")))?;
                Ok(json!(report))
            }
        }
    }

    fn keeper(&self) -> Result<&Keeper, ErrorBody> {
        self.keeper.as_deref().ok_or_else(|| invalid("there is not one volume in this stack"))
    }

    fn status(&self) -> Value {
        let Ready { name, pid, size_bytes, block_size_bytes, exports, .. } = &self.served.ready;
        let now = self.exports.as_ref().map(|exports| (exports.size_bytes(), exports.addresses()));
        let (size_bytes, exports) = now.unwrap_or_else(|| (*size_bytes, exports.clone()));
        let reports = self.sites.report();
        let count = |state| reports.iter().filter(|report| report.state == state).count();
        let sum = |value: fn(&RuleReport) -> u64| reports.iter().map(value).sum::<u64>();
        json!({
            "name": name,
            "pid": pid,
            "size_bytes": size_bytes,
            "block_size_bytes": block_size_bytes,
            "exports": exports,
            "seconds": self.served.began.elapsed().as_secs(),
            "rules": {
                "active": count(RuleState::Active),
                "paused": count(RuleState::Paused),
                "removed": count(RuleState::Removed),
            },
            "injections": sum(|report| report.hits),
            "hanging": sum(|report| report.hanging),
        })
    }

    fn add(&mut self, rules: Vec<Rule>, line_bytes: usize) -> Answer {
        if self.added + rules.len() > ADDED_MAX || self.added_bytes + line_bytes > ADDED_BYTES_MAX {
            let message = format!(
                "{ADDED_MAX} rules, or {} MiB of them, is all that can be added to one stack; serve it anew",
                ADDED_BYTES_MAX >> 20
            );
            return Err(ErrorBody::new(FaultKind::Limit, message));
        }
        if rules.is_empty() {
            return Err(invalid("there is no rule to add"));
        }
        let (path, mut problems) = (Path::root().key("rules"), Problems::default());
        let entries: Vec<FaultEntry> = rules.iter().cloned().map(FaultEntry::Rule).collect();
        validate_plan(&entries, &path, &self.sites.list(), &mut problems);
        for (index, rule) in rules.iter().enumerate() {
            validate_rule_to_serve(rule, &path.index(index), &mut problems);
        }
        if let Some(problem) = problems.iter().next() {
            let help = problem.help.as_ref().map_or(String::new(), |help| format!("; {help}"));
            return Err(invalid(format!("{}: {}{help}", problem.path, problem.message)));
        }
        let count = rules.len();
        let resolved = rules.into_iter().map(ResolvedRule::from).collect();
        let names = self.sites.add_rules(resolved).map_err(refused)?;
        self.added += count;
        self.added_bytes += line_bytes;
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        Ok(json!({ "names": names }))
    }

    fn set_states(&self, names: &[String], state: RuleState) -> Answer {
        self.sites.set_states(names, state).map_err(refused)?;
        Ok(json!({ "state": state, "names": names }))
    }

    fn list(&self, from: u64, removed: bool, targets: bool) -> Value {
        let reports = self.sites.report();
        let mut rules = Vec::new();
        let mut bytes = 0;
        let mut next = None;
        let first = usize::try_from(from).unwrap_or(usize::MAX);
        for (position, report) in reports.into_iter().enumerate().skip(first) {
            if report.state == RuleState::Removed && !removed {
                continue;
            }
            if rules.len() == PAGE_MAX || bytes > PAGE_BYTES {
                next = Some(position);
                break;
            }
            let rule = rule_json(&report, targets);
            bytes += rule["short"].as_str().map_or(0, str::len);
            bytes += rule["targets"].as_array().map_or(0, |targets| targets.len() * 100);
            rules.push(rule);
        }
        json!({ "rules": rules, "next": next })
    }

    fn injections(&self, from: Option<u64>, count: u64, rule: Option<&str>) -> Answer {
        let ledger = self.sites.ledger();
        let total = ledger.len() as u64;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(PAGE_MAX);
        if let Some(rule) = rule
            && !self.sites.report().iter().any(|report| report.name == rule)
        {
            return Err(invalid(format!("there is no rule called `{rule}`, and there was none")));
        }
        let from = from.unwrap_or(total.saturating_sub(count as u64)).max(ledger.first_kept());
        let records = ledger
            .records_from(from, count)
            .map_err(|error| ErrorBody::new(FaultKind::Internal, error.to_string()))?;
        let next = from.saturating_add(records.len() as u64);
        let wanted = records.into_iter().filter(|record| rule.is_none_or(|rule| *record.name == *rule));
        let injections: Vec<Value> = wanted.map(record_json).collect::<Result<_, _>>()?;
        Ok(json!({ "injections": injections, "from": from, "next": next, "total": total }))
    }
}

fn rule_json(report: &RuleReport, targets: bool) -> Value {
    let short = Rule { name: None, ..report.rule.clone() }.to_string();
    let mut value = json!({
        "name": report.name,
        "state": report.state,
        "matches": report.matches,
        "hits": report.hits,
        "hanging": report.hanging,
        "short": short,
    });
    if targets {
        value["targets"] = json!(report.targets);
    }
    value
}

/// A line of the ledger but for the contents of a request's blocks, which may be long.
fn record_json(mut record: Injection) -> Answer {
    record.blocks.clear();
    serde_json::to_value(record).map_err(|error| ErrorBody::new(FaultKind::Internal, error.to_string()))
}
