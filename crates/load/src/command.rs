//! A program of somebody else's as the load of a trial, in the words of a trial file.
//!
//! Only the words: what it runs on and how it is run and ended is known to whoever has a subject.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_spec::{Path, Problems, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A program as the load. It has no oracle: what it wrote is not known, nor what it saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// What `ROTPROOF_TRIAL_DIR` and `{trial_dir}` stand for, and where relative paths of programs begin; default the folder
    /// of the trial file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_dir: Option<PathBuf>,
    /// What is run, with the faults enabled; or give `fio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<CommandLine>,
    /// A job file of fio's to be run, beside the trial file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fio: Option<PathBuf>,
    /// What comes first, with the faults disabled; default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<CommandLine>,
    /// What looks at the data once caches are gone; default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CommandLine>,
    /// How long each of them may take; default 10min.
    #[serde(default = "timeout_default")]
    pub timeout: Span,
    /// What it prints; default `text`.
    #[serde(default)]
    pub output: CommandOutput,
}

/// What a command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutput {
    /// Something for people.
    #[default]
    Text,
    /// What fio prints with `--output-format=json`: its figures become those of the run.
    FioJson,
}

/// A line for the shell, or a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// For `sh -c`.
    Shell(String),
    /// As it is.
    Program(Vec<String>),
}

/// What stands for the device or folder that a command works on.
const TARGET: &str = "{target}";
/// What stands for the folder of the trial file.
const TRIAL_DIR: &str = "{trial_dir}";

const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

fn timeout_default() -> Span {
    Span(Duration::from_secs(600))
}

impl Command {
    /// What is run as the load, and what it prints.
    pub fn main(&self) -> (CommandLine, CommandOutput) {
        match (&self.fio, &self.run) {
            (Some(job), _) => {
                let words = ["fio", "--output-format=json"].map(str::to_owned);
                let job = job.to_string_lossy().into_owned();
                (CommandLine::Program(words.into_iter().chain([job]).collect()), CommandOutput::FioJson)
            }
            (None, Some(run)) => (run.clone(), self.output),
            (None, None) => (CommandLine::Program(Vec::new()), self.output),
        }
    }

    /// Makes the paths of a job file and of programs absolute, as seen from `folder`. Fails where there is no such job file.
    pub fn locate(&mut self, folder: &FilePath) -> Result<()> {
        let folder = folder.join(self.trial_dir.as_deref().unwrap_or(FilePath::new("")));
        // The path of a file that is named without a folder has an empty one.
        let folder = FilePath::new(".").join(folder);
        let folder = folder
            .canonicalize()
            .doing(|| format!("looking for the folder {} of the trial", folder.display()))?;
        for line in [&mut self.run, &mut self.prepare, &mut self.check].into_iter().flatten() {
            line.locate(&folder);
        }
        self.trial_dir = Some(folder.clone());
        let Some(job) = &mut self.fio else { return Ok(()) };
        *job = folder.join(&*job);
        let doing = || format!("looking for the job file {}", job.display());
        if !std::fs::metadata(&*job).doing(doing)?.is_file() {
            return Err(Error::new(ErrorKind::Invalid, format!("{} is no file", job.display())));
        }
        *job = std::path::absolute(&*job).doing(|| format!("looking for the job file {}", job.display()))?;
        Ok(())
    }

    /// Reports everything that makes no sense whatever it is run on.
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        match (&self.run, &self.fio) {
            (Some(_), Some(_)) => problems.add_with_help(
                &path.key("fio"),
                "`fio` says what is run, and so does `run`",
                "keep one of them",
            ),
            (None, None) => problems.add_with_help(
                path,
                "there is nothing to run",
                "give `run: [program, argument]`, `run: a line for the shell`, or `fio: jobs.fio`",
            ),
            _ => {}
        }
        let lines = [("run", &self.run), ("prepare", &self.prepare), ("check", &self.check)];
        for (key, line) in lines.into_iter().filter_map(|(key, line)| Some((key, line.as_ref()?))) {
            if line.is_empty() {
                problems.add_with_help(
                    &path.key(key),
                    "there is no program in it",
                    "leave it out, or name one",
                );
            }
        }
        if self.timeout.0.is_zero() || self.timeout.0 > TIMEOUT_MAX {
            problems.add_with_help(
                &path.key("timeout"),
                format!("a timeout of {} is not possible", self.timeout),
                "give one above 0 and of a week at the most",
            );
        }
        if self.fio.is_some() && self.output != CommandOutput::default() {
            problems.add(&path.key("output"), "what fio prints is known; leave this out");
        }
    }
}

impl From<CommandLine> for Command {
    /// What is run, and everything else as by default.
    fn from(run: CommandLine) -> Self {
        Self {
            trial_dir: None,
            run: Some(run),
            fio: None,
            prepare: None,
            check: None,
            timeout: timeout_default(),
            output: CommandOutput::default(),
        }
    }
}

/// A command with its keys, or in short what is run.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Command>, D::Error> {
    struct Form;
    impl<'de> Visitor<'de> for Form {
        type Value = Option<Command>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a line for the shell, a list of a program and its arguments, or keys such as `run` and `check`")
        }

        fn visit_unit<E: serde::de::Error>(self) -> std::result::Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
            Ok(Some(CommandLine::Shell(text.to_owned()).into()))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> std::result::Result<Self::Value, A::Error> {
            CommandLine::deserialize(SeqAccessDeserializer::new(list)).map(|line| Some(line.into()))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Self::Value, A::Error> {
            Command::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }
    deserializer.deserialize_any(Form)
}

/// The schema of what [`deserialize`] reads.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let (keys, line) = (generator.subschema_for::<Command>(), generator.subschema_for::<CommandLine>());
    json_schema!({ "anyOf": [line, keys, { "type": "null" }] })
}

impl CommandLine {
    fn is_empty(&self) -> bool {
        match self {
            Self::Shell(line) => line.trim().is_empty(),
            Self::Program(words) => words.first().is_none_or(String::is_empty),
        }
    }

    /// The words to execute, with `{target}` and `{trial_dir}` in place.
    pub fn words(&self, target: &str, trial_dir: &str) -> Vec<String> {
        let in_place = |text: &String| text.replace(TRIAL_DIR, trial_dir).replace(TARGET, target);
        match self {
            Self::Shell(line) => vec!["sh".into(), "-c".into(), in_place(line)],
            Self::Program(words) => words.iter().map(in_place).collect(),
        }
    }

    /// Makes a relative path of the program begin at `folder`: of a line for the shell only if there is such a file, as the
    /// shell may mean anything else by it.
    pub fn locate(&mut self, folder: &FilePath) {
        let is_relative = |word: &str| word.contains('/') && !word.starts_with(['/', '{']);
        match self {
            Self::Program(words) => {
                if let Some(program) = words.first_mut().filter(|program| is_relative(program)) {
                    *program = folder.join(&*program).to_string_lossy().into_owned();
                }
            }
            Self::Shell(line) => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+/".contains(c);
                let text = line.trim_start();
                let end = text.find(|c| !is_plain(c)).unwrap_or(text.len());
                let (word, rest) = text.split_at(end);
                let is_word =
                    rest.is_empty() || rest.starts_with(|c: char| c.is_whitespace() || ";&|<>)".contains(c));
                if is_word && is_relative(word) && folder.join(word).is_file() {
                    *line = format!("\"$ROTPROOF_TRIAL_DIR\"/{word}{rest}");
                }
            }
        }
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shell(line) => f.write_str(line.trim()),
            Self::Program(words) => f.write_str(&words.join(" ")),
        }
    }
}

impl Serialize for CommandLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Shell(line) => line.serialize(serializer),
            Self::Program(words) => words.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = CommandLine;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a line for the shell, or a list of a program and its arguments")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<CommandLine, E> {
                Ok(CommandLine::Shell(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<CommandLine, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(CommandLine::Program(words))
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for CommandLine {
    fn schema_name() -> Cow<'static, str> {
        "CommandLine".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A line for the shell, or a program and its arguments; {target} is the device or folder, {trial_dir} \
                            that of the trial file.",
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_read_survive_their_text_and_know_their_target() {
        for (json, words) in [
            (r#""dd if=/dev/zero of={target}/x""#, &["sh", "-c", "dd if=/dev/zero of=/m/x"][..]),
            (r#"["fio", "--filename={target}", "a b"]"#, &["fio", "--filename=/m", "a b"]),
        ] {
            let line: CommandLine = serde_json::from_str(json).expect(json);
            assert_eq!(line.words("/m", "/t"), words);
            let text = serde_json::to_string(&line).expect("can be written");
            assert_eq!(serde_json::from_str::<CommandLine>(&text).expect("and read"), line);
        }
        for json in ["5", "{}", r#"[["a"]]"#] {
            serde_json::from_str::<CommandLine>(json).expect_err(json);
        }
    }

    #[test]
    fn what_makes_no_sense_is_reported_at_its_place() {
        for (json, places) in [
            (r#"{ "run": "true" }"#, &[][..]),
            (r#"{ "fio": "x.fio", "check": ["true"] }"#, &[]),
            (r#"{}"#, &["command"]),
            (r#"{ "run": "true", "fio": "x" }"#, &["command.fio"]),
            (r#"{ "run": " ", "check": [] }"#, &["command.run", "command.check"]),
            (r#"{ "run": "true", "timeout": "0s" }"#, &["command.timeout"]),
            (r#"{ "fio": "x", "output": "fio_json" }"#, &["command.output"]),
        ] {
            let command: Command = serde_json::from_str(json).expect(json);
            let mut problems = Problems::default();
            command.validate(&Path::root().key("command"), &mut problems);
            let found: Vec<_> = problems.iter().map(|problem| problem.path.to_string()).collect();
            assert_eq!(found, places, "{json}");
        }
    }

    #[test]
    fn a_job_file_is_run_by_fio_which_prints_json() {
        let command: Command = serde_json::from_str(r#"{ "fio": "/x/jobs.fio" }"#).expect("a command");
        let (line, output) = command.main();
        assert_eq!(line.to_string(), "fio --output-format=json /x/jobs.fio");
        assert_eq!(output, CommandOutput::FioJson);
    }

    #[test]
    fn a_program_beside_the_trial_file_is_found_there_and_others_are_left_to_themselves() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        std::fs::write(folder.join("bench.sh"), "true").expect("written");
        let here = folder.display().to_string();
        for (json, found) in [
            (r#"["./bench.sh", "./x"]"#, vec![format!("{here}/./bench.sh"), "./x".into()]),
            (r#"["bin/missing"]"#, vec![format!("{here}/bin/missing")]),
            (r#"["bench.sh"]"#, vec!["bench.sh".into()]),
            (r#"["{target}/x", "{trial_dir}/y"]"#, vec!["/m/x".into(), format!("{here}/y")]),
        ] {
            let mut command = Command::from(serde_json::from_str::<CommandLine>(json).expect(json));
            command.locate(&folder).expect("there is no job file to be missed");
            assert_eq!(command.main().0.words("/m", &here), found, "{json}");
            let again = command.clone();
            command.locate(FilePath::new("/")).expect("it is located");
            assert_eq!(command, again, "a resolved one stays what it is");
        }
        for (line, found) in [
            ("./bench.sh -x && y", "\"$ROTPROOF_TRIAL_DIR\"/./bench.sh -x && y"),
            ("./bench.sh;y", "\"$ROTPROOF_TRIAL_DIR\"/./bench.sh;y"),
            ("./bench.sh$x", "./bench.sh$x"),
            ("./of-the-subject", "./of-the-subject"),
            ("bench.sh", "bench.sh"),
            ("cat {trial_dir}/a > {target}/b", "cat {trial_dir}/a > {target}/b"),
        ] {
            let mut command = Command::from(CommandLine::Shell(line.into()));
            command.locate(&folder).expect("there is no job file to be missed");
            assert_eq!(command.run, Some(CommandLine::Shell(found.into())), "{line}");
        }
    }
}
