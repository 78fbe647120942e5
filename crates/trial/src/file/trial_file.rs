//! The trial file as a type: read, written, and described by a schema.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_document::{Diagnostic, Diagnostics, Source, read, read_source, source_from_bytes};
use rotproof_fault::{FaultEntry, Plan, SiteList, validate_plan};
use rotproof_layers::{DeviceSpec, StackSpec};
use rotproof_load::LoadSpec;
use rotproof_probe::{Probes, ProbesSpec};
use rotproof_record::{IntervalLength, RecordSpec};
use rotproof_spec::Problems;
use rotproof_subject::{ExportSpec, SubjectSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::crash_spec::CrashSpec;
use super::overrides::{Overrides, build};
use crate::expect::Expect;

/// A trial: a storage stack, what is built on it, the load, the faults, and what is expected of the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "keys such as stack, load and faults")]
pub struct TrialFile {
    /// How results call the trial. Default: the name of the file, without its extension.
    #[serde(default)]
    pub name: String,
    /// Root of everything random; a run repeats from it. Default 1.
    #[serde(default = "seed_default")]
    pub seed: u64,
    /// Where time and I/O come from. Default io_uring.
    #[serde(default)]
    pub runtime: RuntimeKind,
    /// Devices, bottom to top: a leaf, then layers.
    // Needed, but asked for by `StackSpec::validate`, so that a mistake in it hides none further down.
    #[serde(default)]
    pub stack: StackSpec,
    /// What is on trial. Default raw.
    #[serde(default)]
    pub subject: SubjectSpec,
    /// How this machine's kernel reaches the stack: `loop`, or `ublk`. For the subject device and file systems. Default loop.
    #[serde(default, skip_serializing_if = "ExportSpec::is_default")]
    pub export: ExportSpec,
    /// What is written and read. Default: the whole target is written once, in order.
    #[serde(default)]
    pub load: LoadSpec,
    /// How the state of the machine is sampled. Default: every second; off under the simulated runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
    /// What goes wrong: rules and models, each a map or its short form. Default: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultEntry>,
    /// How the subject is stopped between the load and the check. Default: it is unmounted.
    #[serde(default, skip_serializing_if = "Stop::is_default")]
    pub stop: Stop,
    /// How often the trial is run, each time with a seed of its own that follows from the trial's. Default 1.
    #[serde(default = "repeat_default", skip_serializing_if = "is_once")]
    pub repeat: u32,
    /// Explores what a power loss during the load may leave; the stack ends with `record`. Default: nothing is explored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<CrashSpec>,
    /// What is recorded over time. Default: intervals of a second.
    #[serde(default)]
    pub record: RecordSpec,
    /// What decides between pass and fail. Default: nothing silent, failed or unexplained.
    #[serde(default)]
    pub expect: Expect,
}

fn seed_default() -> u64 {
    1
}

fn repeat_default() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_once(repeat: &u32) -> bool {
    *repeat == 1
}

/// How the subject is stopped between the load and the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// In order: what it holds in caches is written.
    #[default]
    Unmount,
    /// Without a word to it, as if its machine lost its power after the last flush of the load; the stack keeps its power.
    Kill,
    /// Likewise, and if a rule takes the power of the stack during the load, at that moment.
    KillWithPower,
}

impl Stop {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Where time and I/O come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// The kernel's io_uring, and its clock.
    #[default]
    IoUring,
    /// Virtual time: thousands of trials in seconds, identical every time. Subjects raw and fat only.
    Simulated,
}

impl RuntimeKind {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            RuntimeKind::IoUring => "io_uring",
            RuntimeKind::Simulated => "simulated",
        }
    }
}

impl TrialFile {
    /// Reads the trial file at `path` with what the command line changes of it, and checks that it makes sense as a
    /// whole. Every default that does not depend on the running stack is filled in. Creates and touches nothing.
    pub fn open(path: &Path, overrides: &Overrides) -> Result<Self, Diagnostics> {
        let stem = path.file_stem().map_or_else(|| "trial".into(), |stem| stem.to_string_lossy());
        Self::from_source(&read_source(path)?, overrides, &stem, Self::validate, |_, _| {})
            .map(|(trial, _)| trial)
    }

    /// As [`TrialFile::open`], and what the trial permits but whoever wrote it will hardly have meant: rules that can never
    /// hit, as far as that is known before the run.
    pub fn open_and_warn(path: &Path, overrides: &Overrides) -> Result<(Self, Diagnostics), Diagnostics> {
        let stem = path.file_stem().map_or_else(|| "trial".into(), |stem| stem.to_string_lossy());
        Self::from_source(&read_source(path)?, overrides, &stem, Self::validate, Self::warn)
    }

    /// As [`TrialFile::open`], for the stack and the faults alone, which are to be served to other programs: checks
    /// what that needs, and looks at nothing else.
    pub fn open_to_serve(path: &Path, overrides: &Overrides) -> Result<Self, Diagnostics> {
        let stem = path.file_stem().map_or_else(|| "stack".into(), |stem| stem.to_string_lossy());
        Self::from_source(&read_source(path)?, overrides, &stem, Self::validate_to_serve, |_, _| {})
            .map(|(trial, _)| trial)
    }

    /// As [`TrialFile::open`], from the content of a file called `name`.
    pub fn parse(name: &str, bytes: &[u8], overrides: &Overrides) -> Result<Self, Diagnostics> {
        let stem = Path::new(name).file_stem().map_or_else(|| "trial".into(), |stem| stem.to_string_lossy());
        let source = source_from_bytes(name, bytes.to_vec())?;
        Self::from_source(&source, overrides, &stem, Self::validate, |_, _| {}).map(|(trial, _)| trial)
    }

    /// As [`TrialFile::open_to_serve`], from the content of a file called `name`.
    pub fn parse_to_serve(name: &str, bytes: &[u8], overrides: &Overrides) -> Result<Self, Diagnostics> {
        let source = source_from_bytes(name, bytes.to_vec())?;
        Self::from_source(&source, overrides, name, Self::validate_to_serve, |_, _| {})
            .map(|(trial, _)| trial)
    }

    /// As [`TrialFile::open_and_warn`], from the content of a file called `name`.
    pub fn parse_and_warn(
        name: &str,
        bytes: &[u8],
        overrides: &Overrides,
    ) -> Result<(Self, Diagnostics), Diagnostics> {
        let stem = Path::new(name).file_stem().map_or_else(|| "trial".into(), |stem| stem.to_string_lossy());
        let source = source_from_bytes(name, bytes.to_vec())?;
        Self::from_source(&source, overrides, &stem, Self::validate, Self::warn)
    }

    fn from_source(
        source: &Arc<Source>,
        overrides: &Overrides,
        stem: &str,
        validate: impl FnOnce(&Self, &mut Problems),
        warn: impl FnOnce(&Self, &mut Problems),
    ) -> Result<(Self, Diagnostics), Diagnostics> {
        let mut diagnostics = Vec::new();
        let trial = build(source, overrides, &mut diagnostics).and_then(|mut tree| {
            let mut trial: Self = read(&mut tree, &mut diagnostics)?;
            trial.fill_in(stem);
            let mut problems = Problems::default();
            trial.read_beside(Path::new(&source.name), &mut problems);
            validate(&trial, &mut problems);
            // Of what makes no sense nobody needs to know more.
            let mut warnings = Problems::default();
            if problems.is_empty() && diagnostics.is_empty() {
                warn(&trial, &mut warnings);
            }
            diagnostics.extend(problems.into_iter().map(|problem| Diagnostic::at_its_place(&tree, problem)));
            let warnings =
                warnings.into_iter().map(|problem| Diagnostic::at_its_place(&tree, problem)).collect();
            Some((trial, Diagnostics::new(&source.name, warnings)))
        });
        match trial {
            Some(trial) if diagnostics.is_empty() => Ok(trial),
            _ => Err(Diagnostics::new(&source.name, diagnostics)),
        }
    }

    /// Reads the files that the trial names, beside its own.
    fn read_beside(&mut self, own: &Path, problems: &mut Problems) {
        let folder = own.parent().unwrap_or(Path::new(""));
        if let Some(trace) = &mut self.load.trace
            && let Err(error) = trace.locate(folder)
        {
            problems.add_with_help(
                &rotproof_spec::Path::root().key("load").key("trace").key("file"),
                error.to_string(),
                "give a block trace; `rotproof trace info` says what is in one",
            );
        }
        if let Some(command) = &mut self.load.command
            && let Err(error) = command.locate(folder)
        {
            problems.add_with_help(
                &rotproof_spec::Path::root().key("load").key("command").key("fio"),
                error.to_string(),
                "give a job file of fio's, beside the trial file",
            );
        }
        self.expect.gates.iter_mut().for_each(|gate| gate.locate(folder));
        if let Err(error) = self.load.duplicates.read_file(folder) {
            problems.add_with_help(
                &rotproof_spec::Path::root().key("load").key("duplicates"),
                error.to_string(),
                "give a file of lines `<duplicates> <contents>`, as `rotproof content scan` writes it",
            );
        }
    }

    /// Gives the trial and its faults the names they have by default, and models the time over which they are laid out.
    fn fill_in(&mut self, stem: &str) {
        if self.name.is_empty() {
            stem.clone_into(&mut self.name);
        }
        if let (Some(personality), None) = (&self.load.personality, self.load.duration)
            && personality.options.loops.is_none()
        {
            self.load.duration = Some(rotproof_measure::load::DURATION_DEFAULT);
        }
        if self.record.interval == IntervalLength::Auto {
            // A window of steadiness is in seconds, whatever the load.
            let is_asked = self.record.steady.is_some() || self.load.until_steady.is_some();
            self.record.interval =
                self.record.interval.resolved((!is_asked).then(|| self.likely()).flatten());
        }
        if self.probes.is_none() {
            self.probes = Some(match self.runtime {
                RuntimeKind::IoUring => Probes::On(ProbesSpec::default()),
                RuntimeKind::Simulated => Probes::Off,
            });
        }
        if let Some(command) = &self.load.command {
            self.expect.of_command(command.check.is_some());
        }
        if self.crash.is_some() {
            self.expect.of_crash();
        }
        for (index, entry) in self.faults.iter_mut().enumerate() {
            let name = entry.name_or_default(index).into_owned();
            entry.set_name(name);
            if let (FaultEntry::Model(entry), Some(duration)) = (entry, self.load.duration) {
                entry.model.fill_in_over(duration);
            }
        }
    }

    /// About how long the load takes on a fast device, if that can be told from what it is to do: its intervals go by that, and
    /// are rather too many than too few.
    fn likely(&self) -> Option<Duration> {
        const BYTES_PER_SECOND: f64 = 500e6;
        const REQUESTS_PER_SECOND: f64 = 50e3;
        let load = &self.load;
        if load.trace.is_some() || load.command.is_some() || load.personality.is_some() {
            return load.duration.map(|duration| duration.0);
        }
        let by_bytes = load.total.map(|total| total.0 as f64 / BYTES_PER_SECOND);
        let by_requests = load.requests.map(|requests| requests as f64 / REQUESTS_PER_SECOND);
        let by_time = load.duration.map(|duration| duration.0.as_secs_f64());
        let first = [by_bytes, by_requests, by_time].into_iter().flatten().reduce(f64::min);
        let all = || self.size().map(|size| size as f64 / BYTES_PER_SECOND);
        Duration::try_from_secs_f64(first.or_else(all)?).ok()
    }

    /// The fault plan: the rules, and those that the models are drawn into. Fails if there are models and the size of
    /// the device that the faults act on cannot be found out.
    pub fn plan(&self) -> Result<Plan> {
        let sites = self.sites();
        let needs_size = |entry: &FaultEntry| entry.rule().is_none() && sites.size(entry.on()).is_none();
        match self.faults.iter().any(needs_size) {
            // Rules as they are written need to know nothing.
            false => self.plan_on(&sites),
            true => Err(Error::new(
                ErrorKind::Missing,
                "fault models are drawn for the size of the device, and its size cannot be found out; give the \
                     leaf of the stack a `size`, or run as a user who may read the device",
            )),
        }
    }

    /// What probes look at, if there are any.
    pub fn probes_spec(&self) -> Option<&ProbesSpec> {
        self.probes.as_ref().and_then(Probes::spec)
    }

    /// Whether some of the faults are models.
    pub fn has_models(&self) -> bool {
        self.faults.iter().any(|entry| entry.rule().is_none())
    }

    /// The fault plan for these places.
    pub fn plan_on(&self, sites: &SiteList) -> Result<Plan> {
        if self.has_models() {
            // What depends on the size of a block device could not be checked before.
            let mut problems = Problems::default();
            let path = rotproof_spec::Path::root().key("faults");
            validate_plan(&self.faults, &path, sites, &mut problems);
            if let Some(problem) = problems.into_iter().next() {
                let help = problem.help.map_or_else(String::new, |help| format!("; {help}"));
                let (path, message) = (problem.path, problem.message);
                return Err(Error::new(ErrorKind::Invalid, format!("{path}: {message}{help}")));
            }
        }
        Ok(Plan::draw(&self.faults, self.seed, sites))
    }

    /// The stack with what the subject makes of its devices: what is opened.
    pub fn whole_stack(&self) -> Cow<'_, StackSpec> {
        self.subject.whole_stack(&self.stack)
    }

    /// The places where faults act, with the sizes of their devices as far as those can be known before the stack is opened.
    pub fn sites(&self) -> SiteList {
        self.sites_over(&|_| None)
    }

    /// The same, where `measure` knows of leaves that are neither RAM nor files.
    pub(crate) fn sites_over(&self, measure: &dyn Fn(&DeviceSpec) -> Option<u64>) -> SiteList {
        self.stack.sites(&|leaf| match leaf {
            // Of a file as of a block device, where it ends.
            DeviceSpec::File(file) => File::open(&file.path).ok()?.seek(SeekFrom::End(0)).ok(),
            other => measure(other),
        })
    }

    /// As YAML that [`TrialFile::parse`] reads back as the same trial: the `trial.yaml` of the results.
    pub fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self)
            .map_err(|error| Error::new(ErrorKind::Internal, "writing the trial as YAML").caused_by(error))
    }

    /// The JSON Schema (2020-12) of trial files.
    pub fn schema() -> Value {
        let mut schema = schemars::schema_for!(TrialFile);
        schema.insert("title".into(), "Rotproof trial file".into());
        // Only the parser takes a file without a stack, to tell what else is wrong with it.
        schema.insert("required".into(), serde_json::json!(["stack"]));
        for name in ["stack", "name"] {
            if let Some(property) =
                schema.pointer_mut(&format!("/properties/{name}")).and_then(Value::as_object_mut)
            {
                property.remove("default");
            }
        }
        if let Some(stack) = schema.pointer_mut("/properties/stack").and_then(Value::as_object_mut) {
            stack.insert("minItems".into(), 1.into());
        }
        schema.to_value()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rotproof_document::Location;

    use super::*;

    /// Every example of the repository, with what a check of it on its own needs.
    fn examples() -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let mut files = Vec::new();
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the folder of examples") {
                let path = entry.expect("an entry").path();
                match path.extension() {
                    // Path files are of the reliability model; its own tests read them.
                    _ if path.ends_with("paths") || path.ends_with("fleets") => {}
                    _ if path.is_dir() => folders.push(path),
                    Some(extension) if extension == "yaml" => files.push(path),
                    _ => {}
                }
            }
        }
        files
    }

    #[test]
    fn every_example_makes_sense_and_reads_back_as_it_is_written() {
        let examples = examples();
        assert!(examples.len() > 10, "the examples are there");
        for path in examples {
            let trial =
                TrialFile::open(&path, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"));
            let yaml = trial.to_yaml().expect("a trial can be written");
            let again = TrialFile::parse("resolved.yaml", yaml.as_bytes(), &Overrides::default())
                .unwrap_or_else(|error| panic!("{error}\n{yaml}"));
            assert_eq!(again, trial, "{yaml}");
        }
    }

    #[test]
    fn our_reader_takes_every_example_as_the_one_of_serde_saphyr_does() {
        for path in examples() {
            let text = std::fs::read_to_string(&path).expect("an example");
            let mut other: TrialFile = serde_saphyr::from_str(&text).expect("an example is YAML");
            other.fill_in(&path.file_stem().expect("it has a name").to_string_lossy());
            other.read_beside(&path, &mut Problems::default());
            assert_eq!(TrialFile::open(&path, &Overrides::default()), Ok(other), "{}", path.display());
        }
    }

    #[test]
    fn the_faults_that_the_documentation_shows_make_sense() {
        let pages = [include_str!("../../../../docs/faults.md"), include_str!("../../../../docs/models.md")];
        let blocks: Vec<&str> = pages
            .iter()
            .flat_map(|page| page.split("```yaml\n").skip(1))
            .map(|rest| rest.split("```").next().expect("its end"))
            .collect();
        assert!(blocks.len() >= 3);
        for block in blocks {
            // Only a machine has memory that faults can act on.
            let subject = if block.contains("on: memory") {
                "subject: { machine: { file_system: ext4 } }\n"
            } else {
                ""
            };
            let yaml = format!("stack: [memory: {{ size: 64MiB }}]\n{subject}{block}");
            let trial = TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
                .unwrap_or_else(|error| panic!("{error}\n{block}"));
            let plan = trial.plan().expect("it can be drawn");
            assert!(!plan.rules.is_empty() || !plan.on_memory.is_empty());
        }
    }

    #[test]
    fn the_trial_files_that_the_documentation_shows_make_sense() {
        let pages = [include_str!("../../../../docs/trial-file.md"), include_str!("../../../../README.md")];
        let blocks = pages.iter().flat_map(|page| page.split("```yaml\n").skip(1));
        let blocks = blocks.map(|rest| rest.split("```").next().expect("its end"));
        let whole: Vec<&str> = blocks.filter(|block| block.contains("stack:")).collect();
        assert!(!whole.is_empty());
        for block in whole {
            let trial = TrialFile::parse("t.yaml", block.as_bytes(), &Overrides::default())
                .unwrap_or_else(|error| panic!("{error}\n{block}"));
            let has_faults = block.contains("faults:");
            assert_eq!(!trial.plan().expect("it can be drawn").rules.is_empty(), has_faults, "{block}");
        }
    }

    const SMALL: &str = "stack: [memory: { size: 1MiB }]\nfaults:\n  - 'write, once: zeros'\n  - { match: { operation: flush }, effect: error }\n";

    #[test]
    fn names_come_from_the_file_and_the_place_in_the_plan() {
        let trial = TrialFile::parse("dir/nightly.yaml", SMALL.as_bytes(), &Overrides::default())
            .expect("it makes sense");
        assert_eq!(trial.name, "nightly");
        let names: Vec<_> =
            trial.plan().expect("no models").rules.into_iter().map(|rule| rule.name).collect();
        assert_eq!(names, [Some("fault-1".into()), Some("fault-2".into())]);
    }

    #[test]
    fn the_command_line_changes_what_the_file_says() {
        let overrides = Overrides {
            seed: Some(u64::MAX),
            faults: vec![
                "discard: error".into(),
                "{ name: last, match: { operation: read }, effect: zeros, schedule: once }".into(),
            ],
            values: vec![
                "load.block_size=64KiB".into(),
                "stack[0].memory.size=2MiB".into(),
                "expect={ failures: '>= 0', silent: 3 }".into(),
                "faults.0='write, nth=2: lost_write'".into(),
            ],
        };
        let changed = TrialFile::parse("t.yaml", SMALL.as_bytes(), &overrides);
        let same = "seed: 18446744073709551615\nstack: [memory: { size: 2MiB }]\nload: { block_size: 64KiB }\n\
                    faults: ['write, nth=2: lost_write', 'flush: error', 'discard: error', 'read, name=last, once: zeros']\n\
                    expect: { failures: '>= 0', silent: 3 }\n";
        let same = TrialFile::parse("t.yaml", same.as_bytes(), &Overrides::default());
        assert!(same.is_ok(), "{same:?}");
        assert_eq!(changed, same);
    }

    #[test]
    fn a_mistake_on_the_command_line_is_shown_there() {
        for (overrides, wanted) in [
            (
                Overrides { values: vec!["load.blocksize=4KiB".into()], ..Overrides::default() },
                "--set:1:6: unknown key `blocksize`; did you mean `block_size`?",
            ),
            (
                Overrides { values: vec!["load.block_size=6KiB".into()], ..Overrides::default() },
                "--set:1:17: a request of 6KiB is not possible; give a power of two from 4KiB to 4MiB",
            ),
            (
                Overrides { values: vec!["load.block_size=".into()], ..Overrides::default() },
                "--set:1:1: no value stands here; write a path and a value: --set load.workers=4",
            ),
            (
                Overrides { values: vec!["=3".into()], ..Overrides::default() },
                "--set:1:1: this sets nothing; write a path and a value: --set load.block_size=64KiB",
            ),
            (
                Overrides { values: vec!["stack.size=3".into()], ..Overrides::default() },
                "t.yaml:1:1: an option of the command line cannot be set inside this; set the whole value, or change the file",
            ),
            (
                Overrides { faults: vec!["read, offset=1GiB: error".into()], ..Overrides::default() },
                "--fault:1:14: 1GiB is beyond the device, which has 1MiB",
            ),
        ] {
            let error = TrialFile::parse("t.yaml", SMALL.as_bytes(), &overrides).expect_err(wanted);
            assert_eq!(error.to_string(), wanted);
        }
    }

    #[test]
    fn a_mistake_in_the_file_is_told_once_and_in_the_order_of_the_file() {
        let yaml = "load: { block_size: 3 }\nstack: []\nexpect: { injections: 2 }\n";
        let error = TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default()).expect_err("mistakes");
        let places: Vec<_> = error.list.iter().map(|d| d.place.as_ref().map(Location::line)).collect();
        assert_eq!(places, [Some(1), Some(2), Some(3)]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes: Vec<u8>) {
            let _ = TrialFile::parse("t.yaml", &bytes, &Overrides::default());
        }

        #[test]
        fn no_change_to_a_sensible_file_makes_the_parser_panic(
            at in 0usize..2000, length in 0usize..20, instead in "[ -~\n]{0,8}",
        ) {
            let mut text = include_str!("../../../../examples/first-trial.yaml").to_owned();
            let start = at.min(text.len());
            let end = (start + length).min(text.len());
            if text.is_char_boundary(start) && text.is_char_boundary(end) {
                text.replace_range(start..end, &instead);
            }
            let _ = TrialFile::parse("t.yaml", text.as_bytes(), &Overrides::default());
        }
    }
}
