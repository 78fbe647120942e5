//! What can be known of a rule before the run: that it can never hit, or only if the load takes longer than it needs to.
//!
//! Only what is certain is said. A file system sends requests of its own, flushes, discards and metadata, so of what passes
//! below one only tags, phases and times are looked at. On `raw` the requests are those of the load, which can be gone
//! through without a device.

use rotproof_fault::{EnabledPhase, Moment, OperationKind, Rule, Schedule, Target};
use rotproof_layers::DeviceSpec;
use rotproof_load::RampUp;
use rotproof_spec::{Path, Problems, Span};
use rotproof_subject::SubjectSpec;

use super::traffic::Traffic;
use super::trial_file::TrialFile;

/// A key of the rule, why it cannot hit, and what to do.
type Reason = (&'static str, String, String);

/// Slower than this, in requests a second, hardly any device is ...
const SLOW_REQUESTS_PER_SECOND: f64 = 100.0;
/// ... and no memory without a kernel, unless a fault holds it up.
const SLOW_MEMORY_REQUESTS_PER_SECOND: f64 = 5000.0;

impl TrialFile {
    /// Reports the rules that can never hit, or perhaps never, as far as that is known before the run.
    pub(super) fn warn(&self, problems: &mut Problems) {
        let path = Path::root().key("faults");
        let traffic = Traffic::of(self);
        for (index, entry) in self.faults.iter().enumerate() {
            // What a model is drawn into comes by chance.
            let Some(rule) = entry.rule().filter(|rule| !rule.is_on_memory()) else { continue };
            let never = self
                .disabled(rule)
                .or_else(|| self.untagged(rule))
                .or_else(|| self.unmarked(rule))
                .or_else(|| traffic.as_ref()?.never(index, rule));
            let told = match never {
                Some(reason) => Some(("can", reason)),
                None => self.perhaps_too_late(rule).map(|reason| ("may", reason)),
            };
            if let Some((can, (key, why, help))) = told {
                let path = key.split('.').fold(path.index(index), |path, key| path.key(key));
                problems.add_with_help(&path, format!("this rule {can} never hit: {why}"), help);
            }
        }
    }

    /// The phases that this trial has.
    fn has_phase(&self, phase: EnabledPhase) -> bool {
        let load = &self.load;
        match phase {
            EnabledPhase::Prefill if load.personality.is_some() => true,
            EnabledPhase::Prefill => self.has_prefill(),
            EnabledPhase::Run => true,
            EnabledPhase::Check => load.command.as_ref().is_none_or(|command| command.check.is_some()),
        }
    }

    /// Whether a load of blocks writes everything first.
    pub(super) fn has_prefill(&self) -> bool {
        let load = &self.load;
        load.command.is_none() && load.prefill.unwrap_or_else(|| load.reads_anything())
    }

    fn disabled(&self, rule: &Rule) -> Option<Reason> {
        if rule.during.iter().any(|phase| self.has_phase(*phase)) {
            return None;
        }
        let phases: Vec<&str> = rule.during.iter().map(|phase| phase.word()).collect();
        let help = match (rule.during.0.as_slice(), &self.load.command) {
            ([EnabledPhase::Check], Some(_)) => "give the command a `check`, or take `during: run`",
            (_, Some(_)) => "take `during: run`; faults sleep while a command is prepared",
            (_, None) => "add `prefill: true` to the load, or `run` to `during`",
        };
        let why = format!(
            "it is enabled in the phase {} alone, which this load does not have",
            phases.join(" and ")
        );
        Some(("during", why, help.to_owned()))
    }

    /// Tags come from the load, by the names of its objects; none comes through a kernel.
    fn untagged(&self, rule: &Rule) -> Option<Reason> {
        let tags = &rule.matching.tag;
        if tags.is_empty() {
            return None;
        }
        let names: Vec<String> = match self.subject.on_top() {
            SubjectSpec::Raw | SubjectSpec::Fat => {
                self.objects(None).into_iter().map(|object| object.name).collect()
            }
            SubjectSpec::Device
            | SubjectSpec::FileSystem(_)
            | SubjectSpec::Zfs(_)
            | SubjectSpec::Machine(_)
            | SubjectSpec::Guard(_)
            | SubjectSpec::Volume(_) => Vec::new(),
        };
        let is_met = |name: &str| tags.iter().any(|pattern| pattern.matches(name));
        if is_met("") || names.iter().any(|name| is_met(name)) {
            return None;
        }
        let (why, help) = match names.as_slice() {
            [] => (
                format!("no tag comes through the kernel to what is below {}", self.subject.name()),
                "match by operation, offset or content, or take fat as the subject, whose files have their names as tags"
                    .to_owned(),
            ),
            [one] => (
                format!("no request here has such a tag; those of the load have `{one}`"),
                format!("leave `tag` out, or take `{one}`"),
            ),
            [first, .., last] => (
                format!("no request here has such a tag; those of the load have the names of its files, `{first}` to `{last}`"),
                format!("take one of them, such as `{first}`"),
            ),
        };
        Some(("match.tag", why, help))
    }

    /// Only a command sets marks of its own; other loads set some where states of a power loss are explored.
    fn unmarked(&self, rule: &Rule) -> Option<Reason> {
        rule.schedule.mark()?;
        let load = &self.load;
        if load.command.is_some() || self.crash.is_some() {
            return None;
        }
        let why = "it waits for a mark, and this load sets none".to_owned();
        let help = "take a command as the load, which sets marks with `rotproof mark`, or another schedule"
            .to_owned();
        Some(("schedule", why, help))
    }

    /// How long the load lasts at the most, if that is said.
    fn longest(&self) -> Option<Span> {
        // One that is counted takes as long as it takes.
        let ramp_up = self.load.ramp_up.map_or(Some(Span::default()), RampUp::time)?;
        let duration = self.load.duration.filter(|_| self.load.command.is_none())?;
        Some(Span(duration.0.saturating_add(ramp_up.0)))
    }

    fn opens_after_the_load(&self, rule: &Rule) -> Option<(&'static str, Span, Span)> {
        let (key, at) = opens(rule)?;
        let longest = self.longest()?;
        (at.0 > longest.0).then_some((key, at, longest))
    }

    /// A window that opens when the load is over, or may be.
    fn perhaps_too_late(&self, rule: &Rule) -> Option<Reason> {
        if let Some((key, at, longest)) = self.opens_after_the_load(rule) {
            let has_check =
                self.has_phase(EnabledPhase::Check) && rule.during.0.contains(&EnabledPhase::Check);
            let rest = match has_check {
                true => "; then only the check is left, if that takes until then",
                // The last requests may have to be waited for, and a file system has something to write back.
                false => "; what is left of it then is hardly more than a last flush",
            };
            let why = format!(
                "it waits for {at} after the load began, which ends after {longest} at the latest{rest}"
            );
            return Some((key, why, format!("let it begin before {longest}, or the load last longer")));
        }
        let (key, at) = opens(rule)?;
        let load = &self.load;
        if load.duration.is_some() || load.leaves_requests_to_others() || load.trace.is_some() {
            return None;
        }
        let jobs = load.jobs();
        // What waits by itself takes as long as it takes.
        if jobs.iter().any(|job| job.burst.is_some() || job.think_time.is_some()) {
            return None;
        }
        let smallest = jobs.iter().map(|job| job.block_size.smallest_bytes()).min()?;
        let target = || self.size().map(|bytes| bytes / smallest);
        let by_bytes = load.total.map(|bytes| bytes.0.div_ceil(smallest));
        let requests = [load.requests, by_bytes].into_iter().flatten().min().or_else(target)?;
        let paces: Option<f64> = jobs.iter().map(|job| job.rate.as_ref().map(|rate| rate.requests)).sum();
        let is_held_up = self.faults.iter().any(|entry| match entry.rule() {
            Some(other) => other != rule && other.effect.only_delays(),
            None => true,
        });
        let is_memory =
            self.subject == SubjectSpec::Raw && matches!(self.stack.leaf(), Some(DeviceSpec::Memory(_)));
        let slow = match is_memory && !is_held_up {
            true => SLOW_MEMORY_REQUESTS_PER_SECOND,
            false => SLOW_REQUESTS_PER_SECOND,
        };
        let pace = paces.unwrap_or(slow);
        let seconds = requests as f64 / pace.max(f64::MIN_POSITIVE);
        (at.0.as_secs_f64() >= seconds).then(|| {
            let by_then = match paces {
                Some(_) => {
                    format!("at its rate the load of {requests} requests is over after {seconds:.1} s")
                }
                None => format!("a load of {requests} requests is probably over by then"),
            };
            let why = format!("it waits for {at} after the load began, and {by_then}");
            (key, why, "let it begin earlier, or end the load by `duration`".to_owned())
        })
    }

    /// The size in bytes of all devices of the stack together, as far as it is known without opening them.
    pub(super) fn size(&self) -> Option<u64> {
        self.whole_stack().sizes(&super::validate::bytes_of_file).into_iter().sum()
    }
}

/// When a rule that goes by time begins to act, after the load began, and the key that says it.
fn opens(rule: &Rule) -> Option<(&'static str, Span)> {
    if let Some((at, _)) = rule.schedule.window() {
        return Some(("schedule", at));
    }
    match &rule.matching.target {
        Some(Target::Seen(seen)) => match seen.moment {
            Moment::At(at) => Some(("match.target", at)),
            Moment::After(_) => None,
        },
        _ => None,
    }
}

/// How many matches must come before a schedule hits for the first time.
pub(super) fn matches_needed(schedule: Schedule) -> u64 {
    match schedule {
        Schedule::Nth(n) => n,
        Schedule::After(n) => n.saturating_add(1),
        Schedule::Between { from, .. } => from,
        Schedule::Every(cycle) => {
            cycle.offset.saturating_add(cycle.n.saturating_sub(cycle.burst.min(cycle.n))).saturating_add(1)
        }
        _ => 1,
    }
}

/// How many bytes must match before a schedule hits for the first time.
pub(super) fn bytes_needed(schedule: Schedule) -> u64 {
    match schedule {
        Schedule::Byte(number) => number.0,
        _ => 0,
    }
}

/// What the requests of an operation are called.
pub(super) fn plural(operation: OperationKind) -> &'static str {
    match operation {
        OperationKind::Read => "reads",
        OperationKind::Write => "writes",
        OperationKind::Flush => "flushes",
        OperationKind::Discard => "discards",
    }
}
