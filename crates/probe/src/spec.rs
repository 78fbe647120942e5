//! What a trial file or a command line says of probes: `off`, an interval, or a map.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rotproof_machine::Machine;
use rotproof_spec::{Path, Problems, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::machine::LOCAL;

/// Whether the state of the machine is sampled, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probes {
    /// Not at all.
    Off,
    /// So.
    On(ProbesSpec),
}

/// What is sampled, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(description = "What of the machine is sampled, and how often.")]
pub struct ProbesSpec {
    /// From one sample to the next, 100ms to 1h. Default 1s.
    pub interval: Span,
    /// Utilisation, interrupts and context switches. Default true.
    pub cpu: bool,
    /// Free, cached and dirty memory, and swapping. Default true.
    pub memory: bool,
    /// Packets and bytes of each interface, and retransmits. Default true.
    pub network: bool,
    /// Requests, bytes and utilisation of block devices. Default true.
    pub disks: bool,
    /// The time in which somebody waited for CPU, memory or I/O. Default true.
    pub pressure: bool,
    /// Names of processes to look at beside Rotproof itself; one that ends in * stands for all that begin so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// Other machines to look at, such as that of the subject: a name, and the beginning of a command that runs rotproof
    /// there, such as ssh target rotproof; a word alone is a host to log in to by ssh.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, String>,
}

/// The shortest and the longest time between two samples. Below, the kernel's ticks of 10 ms would be all there is to see.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// The kernel keeps so many characters of a process's name (`TASK_COMM_LEN`).
const NAME_LENGTH_MAX: usize = 15;
/// Names of processes that can be given.
const NAMES_MAX: usize = 32;
/// Other machines that can be given, and how long their names can be.
const MACHINES_MAX: usize = 16;
const MACHINE_NAME_MAX: usize = 32;

const HELP: &str = "give a time from 100ms to 1h, such as 1s";

impl Default for ProbesSpec {
    fn default() -> Self {
        Self {
            interval: Span(Duration::from_secs(1)),
            cpu: true,
            memory: true,
            network: true,
            disks: true,
            pressure: true,
            processes: Vec::new(),
            machines: BTreeMap::new(),
        }
    }
}

impl ProbesSpec {
    fn every(interval: Span) -> Self {
        Self { interval, ..Self::default() }
    }

    /// The groups of figures by their keys, and whether each is wanted.
    pub fn groups(&self) -> [(&'static str, bool); 5] {
        [
            ("cpu", self.cpu),
            ("memory", self.memory),
            ("network", self.network),
            ("disks", self.disks),
            ("pressure", self.pressure),
        ]
    }

    /// Leaves a group of figures out. Fails with what there is if there is none of that name.
    pub fn leave_out(&mut self, group: &str) -> Result<(), String> {
        let is_wanted = match group {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            "network" => &mut self.network,
            "disks" => &mut self.disks,
            "pressure" => &mut self.pressure,
            _ => {
                let all = self.groups().map(|(name, _)| name).join(", ");
                return Err(format!("there is no `{group}` to leave out; there are {all}"));
            }
        };
        *is_wanted = false;
        Ok(())
    }

    /// The same, if it makes sense; else the first thing that does not, and what to do: for command lines.
    pub fn checked(self) -> Result<Self, String> {
        let mut problems = Problems::default();
        let probes = Probes::On(self);
        probes.validate(&Path::root(), &mut problems);
        match (problems.into_iter().next(), probes) {
            (Some(problem), _) => {
                let help = problem.help.map_or(String::new(), |help| format!("; {help}"));
                Err(format!("{}{help}", problem.message))
            }
            (None, Probes::On(spec)) => Ok(spec),
            (None, Probes::Off) => Err("probes are off".to_owned()),
        }
    }
}

/// `target=ssh target rotproof`: the name of a machine and how it is reached, for command lines.
pub fn machine(text: &str) -> Result<(String, String), String> {
    let (name, command) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` does not say how the machine is called; {MACHINE_HELP}"))?;
    let machines = [(name.to_owned(), command.to_owned())].into();
    ProbesSpec { machines, ..ProbesSpec::default() }.checked()?;
    Ok((name.to_owned(), command.to_owned()))
}

const MACHINE_HELP: &str = "write for example target=\"ssh target rotproof\"";

/// Says what is wrong with a machine, and what to do.
fn wrong_machine(name: &str, command: &str) -> Option<(String, &'static str)> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name == LOCAL {
        let why = "`local` is the machine that the run is on, which is looked at anyway";
        return Some((why.to_owned(), "give the other one another name"));
    }
    if name.is_empty() || name.len() > MACHINE_NAME_MAX || !name.chars().all(is_fine) {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(MACHINE_NAME_MAX).collect();
        return Some((
            format!("a machine cannot be called `{shown}`"),
            "take up to 32 letters, digits, -, _ and ., such as target",
        ));
    }
    if command.trim().is_empty() || command.chars().any(char::is_control) {
        let why = format!("how `{name}` is reached is not said in a line of words");
        return Some((why, "give the beginning of a command, such as ssh target rotproof"));
    }
    if command.parse::<Machine>().is_err() {
        return Some((
            format!("`{command}` is an option and no host"),
            "give the name of a host, or a command",
        ));
    }
    None
}

impl Probes {
    /// What is sampled, if anything is.
    pub fn spec(&self) -> Option<&ProbesSpec> {
        match self {
            Probes::Off => None,
            Probes::On(spec) => Some(spec),
        }
    }

    /// Reports what makes no sense.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        let Probes::On(spec) = self else { return };
        if !(INTERVALS.0..=INTERVALS.1).contains(&spec.interval.0) {
            let message = format!("probes every {} are not possible", spec.interval);
            problems.add_with_help(&path.key("interval"), message, HELP);
        }
        if spec.processes.len() > NAMES_MAX {
            problems.add(
                &path.key("processes"),
                format!("{} processes are more than the {NAMES_MAX} that can be named", spec.processes.len()),
            );
        }
        if spec.machines.len() > MACHINES_MAX {
            problems.add(
                &path.key("machines"),
                format!(
                    "{} machines are more than the {MACHINES_MAX} that can be named",
                    spec.machines.len()
                ),
            );
        }
        for (name, command) in &spec.machines {
            if let Some((message, help)) = wrong_machine(name, command) {
                problems.add_with_help(&path.key("machines").key(name), message, help);
            }
        }
        for (index, name) in spec.processes.iter().enumerate() {
            let stem = name.strip_suffix('*').unwrap_or(name);
            let place = path.key("processes").index(index);
            if stem.is_empty()
                || stem.chars().any(|c| c.is_control() || c == '/' && !stem.starts_with("kworker"))
            {
                problems.add_with_help(
                    &place,
                    format!("`{name}` names no process"),
                    "give the name as `ps -e` shows it, such as nbdkit or jbd2*",
                );
            } else if stem.len() > NAME_LENGTH_MAX {
                problems.add_with_help(
                    &place,
                    format!("the kernel keeps {NAME_LENGTH_MAX} bytes of a name, and `{name}` has more"),
                    "cut it there, as `ps -e` does, or end it in *",
                );
            }
        }
    }
}

/// `off`, `on`, or the interval: for command lines.
impl FromStr for Probes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let probes = match text {
            "off" => Probes::Off,
            "on" => Probes::On(ProbesSpec::default()),
            interval => match interval.parse() {
                Ok(interval) => Probes::On(ProbesSpec::every(interval)),
                Err(_) => return Err(format!("`{interval}` is neither on nor off nor an interval; {HELP}")),
            },
        };
        match probes {
            Probes::Off => Ok(Probes::Off),
            Probes::On(spec) => spec.checked().map(Probes::On),
        }
    }
}

impl Serialize for Probes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Probes::Off => serializer.serialize_str("off"),
            Probes::On(spec) => spec.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Probes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Probes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("off, an interval such as 1s, or { interval: 1s, network: false }")
            }

            fn visit_bool<E: Error>(self, wanted: bool) -> Result<Probes, E> {
                Ok(if wanted { Probes::On(ProbesSpec::default()) } else { Probes::Off })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Probes, E> {
                match text {
                    "off" => Ok(Probes::Off),
                    "on" => Ok(Probes::On(ProbesSpec::default())),
                    // Whether it is too long or short is found with the rest that makes no sense.
                    interval => interval
                        .parse()
                        .map(|interval| Probes::On(ProbesSpec::every(interval)))
                        .map_err(|_| E::unknown_variant(text, &["off", "on", "1s"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Probes, A::Error> {
                let map = serde::de::value::MapAccessDeserializer::new(map);
                ProbesSpec::deserialize(map).map(Probes::On)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Probes {
    fn schema_name() -> Cow<'static, str> {
        "Probes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let spec = generator.subschema_for::<ProbesSpec>();
        let interval = generator.subschema_for::<Span>();
        json_schema!({
            "description": "Whether the state of the machine is sampled: off, an interval, or what of it.",
            "anyOf": [{ "enum": ["off", "on", true, false] }, interval, spec],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(probes: &Probes) -> Vec<String> {
        let mut problems = Problems::default();
        probes.validate(&Path::root().key("probes"), &mut problems);
        problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn every_form_is_read_and_the_short_ones_are_those_of_the_command_line() {
        let on = |interval: &str| Probes::On(ProbesSpec::every(interval.parse().expect(interval)));
        for (text, wanted) in
            [("off", Probes::Off), ("on", on("1s")), ("100ms", on("100ms")), ("1h", on("1h"))]
        {
            assert_eq!(text.parse(), Ok(wanted.clone()));
            assert_eq!(serde_json::from_value(text.into()).ok(), Some(wanted.clone()), "{text}");
            let written = serde_json::to_value(&wanted).expect("serialises");
            assert_eq!(serde_json::from_value(written).ok(), Some(wanted));
        }
        let part: Probes =
            serde_json::from_str(r#"{ "cpu": false, "processes": ["jbd2*"] }"#).expect("a map");
        let wanted = ProbesSpec { cpu: false, processes: vec!["jbd2*".into()], ..ProbesSpec::default() };
        assert_eq!(part, Probes::On(wanted));
        assert!(serde_json::from_str::<Probes>(r#"{ "gpu": true }"#).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for text in ["99ms", "61min", "never", ""] {
            assert!(text.parse::<Probes>().is_err_and(|why| why.contains("100ms to 1h")), "{text}");
        }
        let spec = |processes: &[&str]| {
            let processes = processes.iter().map(|name| (*name).to_owned()).collect();
            mistakes(&Probes::On(ProbesSpec { processes, ..ProbesSpec::default() }))
        };
        assert_eq!(spec(&["jbd2*", "nbdkit", "kworker/*"]), Vec::<String>::new());
        assert_eq!(spec(&["*", "/usr/bin/nbdkit"]).len(), 2);
        let machines = |machines: &[(&str, &str)]| {
            let machines =
                machines.iter().map(|(name, how)| ((*name).to_owned(), (*how).to_owned())).collect();
            mistakes(&Probes::On(ProbesSpec { machines, ..ProbesSpec::default() }))
        };
        assert_eq!(machines(&[("target", "target"), ("b.2", "ssh -p 7 b rotproof")]), Vec::<String>::new());
        for (name, how, why) in [
            ("local", "target", "probes.machines.local: `local` is the machine that the run is on"),
            ("", "target", "a machine cannot be called"),
            ("my target", "target", "a machine cannot be called `my target`"),
            ("target", " ", "probes.machines.target: how `target` is reached is not said"),
            ("target", "ssh\ntarget", "is not said in a line"),
            ("target", "-oProxyCommand=x", "`-oProxyCommand=x` is an option and no host"),
        ] {
            let found = machines(&[(name, how)]);
            assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
            assert!(machine(&format!("{name}={how}")).is_err());
        }
        assert_eq!(machine("target=a=b"), Ok(("target".into(), "a=b".into())));
        assert!(machine("target").is_err_and(|why| why.contains("target=\"ssh target rotproof\"")));
        let many: Vec<_> = (0..17).map(|number| (format!("m{number}"), "x".to_owned())).collect();
        let many = ProbesSpec { machines: many.into_iter().collect(), ..ProbesSpec::default() };
        assert!(many.checked().is_err_and(|why| why.contains("17 machines")));
        assert!(spec(&["a-name-of-sixteen"])[0].contains("processes[0]: the kernel keeps 15 bytes"));
    }
}
