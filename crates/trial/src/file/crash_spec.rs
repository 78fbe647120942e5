//! `crash:`: the states that a power loss during the load may leave, explored once the load is over.

use rotproof_crash::Way;
use rotproof_crash_fs::MEMORY_MIN_BYTES;
use rotproof_load::CommandLine;
use rotproof_spec::{Bytes, Path, Problems, Span, number_in_range};
use rotproof_subject::{FileSystem, SubjectSpec};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::trial_file::{Stop, TrialFile};

/// What is explored, and how a state is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "keys such as states and check")]
pub struct CrashSpec {
    /// At most so many states. Default 1000.
    pub states: u64,
    /// No state is begun after so long. Default: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// The ways to choose states, in their order. Default: the order in which they find most.
    #[schemars(schema_with = "ways_schema")]
    pub ways: Vec<Way>,
    /// Looks at each mounted state; exit code 0 is good. Default: the `check` of the command that is the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CommandLine>,
    /// How long that may take. Default 30s.
    pub timeout: Span,
    /// Let the file system's own checker look at every state too. Default no.
    pub fsck: bool,
    /// Whose kernel mounts the states, and so recovers them. Default host.
    pub mounted_by: MountedBy,
    /// Further cuts of each state while its recovery is under way. Default 0.
    pub second_cuts: u32,
    /// The unit inside which the disk never tears a write: 512 to 1MiB, a power of two. Default 4KiB.
    pub atomic: Bytes,
    /// At which moments of the load the power goes. Default any.
    pub at: CrashMoment,
    /// States looked at at the same time. Default: one for each CPU, up to 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// What may be taken of memory for what is written to states, and for the images that are known. Default: 512MiB for each
    /// worker, and no bound on the images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Stops after so many states that fail. Default 100.
    pub failures_max: u64,
    /// So many states of one moment, for each way. Default 20.
    pub per_moment: u64,
}

/// When the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CrashMoment {
    /// At any moment of the load.
    Any,
    /// When the subject was killed, with `stop: kill_with_power`.
    Kill,
}

/// Whose kernel mounts the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MountedBy {
    /// That of this machine.
    Host,
    /// That of guests as the subject has them, with `subject: machine`.
    Guest,
}

impl Default for CrashSpec {
    fn default() -> Self {
        Self {
            states: 1000,
            duration: None,
            ways: Way::IN_ORDER.to_vec(),
            check: None,
            timeout: Span(std::time::Duration::from_secs(30)),
            fsck: false,
            mounted_by: MountedBy::Host,
            second_cuts: 0,
            atomic: Bytes(4096),
            at: CrashMoment::Any,
            workers: None,
            memory: None,
            failures_max: 100,
            per_moment: 20,
        }
    }
}

fn ways_schema(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<String> = Way::ALL.into_iter().map(Way::name).collect();
    json_schema!({ "type": "array", "items": { "enum": names }, "minItems": 1 })
}

/// More are not to be expected of a machine.
const STATES_MAX: u64 = 100_000_000;
const WORKERS_MAX: u64 = 256;
const SECOND_CUTS_MAX: u64 = 100;
const ATOMIC_MAX: u64 = 1 << 20;

impl CrashSpec {
    /// Reports what makes no sense in a trial as a whole. `path` is where it stands.
    pub(super) fn validate(&self, trial: &TrialFile, path: &Path, problems: &mut Problems) {
        let in_range = |problems: &mut Problems, key: &str, what: &str, number: u64, range| {
            number_in_range(problems, &path.key(key), what, number, range);
        };
        in_range(problems, "states", "the number of states", self.states, 1..=STATES_MAX);
        in_range(problems, "failures_max", "the number of failing states", self.failures_max, 1..=STATES_MAX);
        in_range(problems, "per_moment", "the number of states of a moment", self.per_moment, 1..=STATES_MAX);
        let second_cuts = u64::from(self.second_cuts);
        in_range(problems, "second_cuts", "the number of second cuts", second_cuts, 0..=SECOND_CUTS_MAX);
        if let Some(workers) = self.workers {
            in_range(problems, "workers", "the number of workers", u64::from(workers), 1..=WORKERS_MAX);
        }
        if !self.atomic.0.is_power_of_two() || !(512..=ATOMIC_MAX).contains(&self.atomic.0) {
            let what = format!(
                "writes are torn at multiples of a power of two, 512 to 1MiB, not of {}",
                self.atomic.0
            );
            problems.add(&path.key("atomic"), what);
        }
        if let Some(memory) = self.memory.filter(|memory| memory.0 < MEMORY_MIN_BYTES) {
            problems.add_with_help(
                &path.key("memory"),
                format!("{} bytes hold not even what recovery writes", memory.0),
                "give at least 4MiB, and 2MiB for each worker",
            );
        }
        if self.ways.is_empty() {
            problems.add(&path.key("ways"), "no way to choose states is left; name one, or leave `ways` out");
        }
        if self.timeout.0.is_zero() {
            problems.add(
                &path.key("timeout"),
                "a check that may take no time shows nothing; give for example 30s",
            );
        }
        match trial.subject {
            SubjectSpec::FileSystem(_) | SubjectSpec::Machine(_) => {}
            SubjectSpec::Raw | SubjectSpec::Device => self.validate_of_bytes(trial, path, problems),
            _ => problems.add_with_help(
                &Path::root().key("subject"),
                format!("states are mounted, and {} is no file system of a kernel", trial.subject.name()),
                "take ext4, xfs or btrfs, a machine with one of them, or raw or device",
            ),
        }
        if let Some(machine) = trial.subject.machine()
            && FileSystem::OF_MACHINES.contains(&machine.file_system.kind)
        {
            let kind = machine.file_system.kind;
            problems.add_with_help(
                &Path::root().key("subject"),
                format!("what {kind} promises of a power loss is not known here, so no state can be judged"),
                "take ext4, xfs or btrfs in the machine",
            );
        }
        if !trial.whole_stack().ends_recorded() {
            problems.add_with_help(
                &Path::root().key("stack"),
                "`crash` explores what the device on top of the stack is asked, and nothing records that",
                "put `record` at the end of the stack",
            );
        }
        if trial.whole_stack().lies_below_recording() {
            problems.add_with_help(
                &Path::root().key("stack"),
                "states come from what the recording was asked, so nothing would show that the cache below it ignores flushes",
                "put `record` below the `write_cache`",
            );
        }
        if self.at == CrashMoment::Kill && trial.stop != Stop::KillWithPower {
            problems.add_with_help(
                &path.key("at"),
                "the subject is not killed during the load, so there is no such moment",
                "add `stop: kill_with_power` and a rule that takes the power, or leave `at` out",
            );
        }
        if self.mounted_by == MountedBy::Guest && !matches!(trial.subject, SubjectSpec::Machine(_)) {
            problems.add_with_help(
                &path.key("mounted_by"),
                format!("the subject {} has no guest that could mount states", trial.subject.name()),
                "take `subject: { machine: { ... } }`, or leave `mounted_by` out",
            );
        }
        if trial.repeat > 1 {
            problems.add(&path.key("states"), "a trial with `crash` runs once; leave `repeat` out");
        }
    }

    /// Without a file system nothing recovers, nothing checks, and only a load of blocks knows what a state must hold.
    fn validate_of_bytes(&self, trial: &TrialFile, path: &Path, problems: &mut Problems) {
        let name = trial.subject.name();
        for (key, is_given) in [("fsck", self.fsck), ("second_cuts", self.second_cuts > 0)] {
            if is_given {
                problems.add_with_help(
                    &path.key(key),
                    format!(
                        "on {name} there is no file system that a state could be checked or recovered by"
                    ),
                    format!("leave `{key}` out, or take ext4, xfs or btrfs as the subject"),
                );
            }
        }
        let of_program = trial.load.command.as_ref().map(|command| command.check.is_some());
        if of_program == Some(false) && self.check.is_none() {
            problems.add_with_help(
                &path.key("check"),
                format!("nobody knows what the states of {name} must hold after a command"),
                "give a `check` that looks at `{target}`, a file that shows the state",
            );
        }
    }
}
