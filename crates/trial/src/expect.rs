//! `expect:`: what the counts of a verdict must be for the trial to pass.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rotproof_load::LoadSpec;
use rotproof_spec::{Path, Problems};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use rotproof_results::run::WantedCount;
pub use rotproof_results::run::{Counts, Expectation};

use crate::gate::Gate;

/// What a count must be: a number, or a comparison such as `">= 1"`, `"< 5"` or `"0..5"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Exactly this: `64`.
    Equal(u64),
    /// `">= 64"`.
    AtLeast(u64),
    /// `"> 64"`.
    Above(u64),
    /// `"<= 64"`.
    AtMost(u64),
    /// `"< 64"`; never of zero.
    Below(u64),
    /// `"0..5"`: from the first to the second, both included.
    Within(u64, u64),
    /// `any`: whatever it is.
    Any,
}

impl Comparison {
    /// As results have it.
    fn as_result(self) -> WantedCount {
        match self {
            Self::Equal(number) => WantedCount::Exactly(number),
            other => WantedCount::Said(other.to_string()),
        }
    }

    /// Whether `count` is as wanted.
    pub fn holds(self, count: u64) -> bool {
        match self {
            Comparison::Equal(number) => count == number,
            Comparison::AtLeast(number) => count >= number,
            Comparison::Above(number) => count > number,
            Comparison::AtMost(number) => count <= number,
            Comparison::Below(number) => count < number,
            Comparison::Within(first, last) => (first..=last).contains(&count),
            Comparison::Any => true,
        }
    }
}

/// What a sign makes of the number behind it.
type Sign = fn(u64) -> Comparison;

impl FromStr for Comparison {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no count; write for example 64, \">= 1\", \"< 5\", \"0..5\" or any");
        let number = |digits: &str| {
            let digits = digits.trim();
            if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
                .ok_or_else(wrong)
        };
        let trimmed = text.trim();
        if trimmed == "any" {
            return Ok(Comparison::Any);
        }
        if let Some((first, last)) = trimmed.split_once("..") {
            let (first, last) = (number(first)?, number(last)?);
            return if first <= last {
                Ok(Comparison::Within(first, last))
            } else {
                Err(format!("`{text}` is empty; the smaller number comes first"))
            };
        }
        // The longer signs first, as they begin with the shorter.
        let signs: [(&str, Sign); 6] = [
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            ("==", Comparison::Equal),
            (">", Comparison::Above),
            ("<", Comparison::Below),
            ("=", Comparison::Equal),
        ];
        let comparison = match signs.iter().find_map(|(sign, make)| Some((trimmed.strip_prefix(sign)?, make)))
        {
            Some((digits, make)) => make(number(digits)?),
            None => Comparison::Equal(number(trimmed)?),
        };
        match comparison {
            Comparison::Below(0) => Err("no count is below 0; write 0 for none".into()),
            other => Ok(other),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Comparison::Equal(number) => number.to_string(),
            Comparison::AtLeast(number) => format!(">= {number}"),
            Comparison::Above(number) => format!("> {number}"),
            Comparison::AtMost(number) => format!("<= {number}"),
            Comparison::Below(number) => format!("< {number}"),
            Comparison::Within(first, last) => format!("{first}..{last}"),
            Comparison::Any => "any".to_owned(),
        };
        f.pad(&text)
    }
}

impl Serialize for Comparison {
    /// A plain number where one is wanted exactly, otherwise text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Comparison::Equal(number) => serializer.serialize_u64(*number),
            other => serializer.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for Comparison {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl Visitor<'_> for Count {
            type Value = Comparison;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count such as 64, \">= 1\", \"0..5\" or any")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Comparison, E> {
                Ok(Comparison::Equal(number))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Comparison, E> {
                match u64::try_from(number) {
                    Ok(number) => Ok(Comparison::Equal(number)),
                    Err(_) => Err(E::custom(format!("a count is never {number}; write 0 for none"))),
                }
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Comparison, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Count)
    }
}

impl JsonSchema for Comparison {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, or a comparison: 64, \">= 1\", \"< 5\", \"0..5\" (both included), or any.",
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": r"^\s*((>=?|<=?|==?)?\s*[0-9]+|[0-9]+\s*\.\.\s*[0-9]+|any)\s*$" }
            ]
        })
    }
}

/// What the counts of a verdict must be. Absent altogether: nothing silently wrong, nothing failed. Unless they are said, also
/// beside others: nothing unknown, assumed or unexplained, and no rule that never did anything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "counts, such as `silent: 0`")]
pub struct Expect {
    /// Blocks that the load or the check found wrong or unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<Comparison>,
    /// Files with such blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_files: Option<Comparison>,
    /// Requests of the load and the check that ended with an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Comparison>,
    /// Injections; `hits` is the older word for it.
    #[serde(default, alias = "hits", skip_serializing_if = "Option::is_none")]
    pub injections: Option<Comparison>,
    /// Faults that were seen to harm nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masked: Option<Comparison>,
    /// Faults that came back as an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Comparison>,
    /// Faults over which the right data was put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<Comparison>,
    /// Faults that were handed out as if they were right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<Comparison>,
    /// Faults that never met a request; unless given, no rule may be without a hit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untriggered: Option<Comparison>,
    /// Faults that happened, and nothing shows what became of them; 0 unless given otherwise.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Comparison>,
    /// The exit code of the command that is the load; 0 unless given otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Comparison>,
    /// The exit code of its `check`; 0 unless given otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_exit: Option<Comparison>,
    /// Failures that may come of an injected fault, which nothing shows; 0 unless given otherwise, or a command is the load.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub assumed: Option<Comparison>,
    /// Failures that no injected fault accounts for; 0 unless given otherwise, or a command is the load.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub unexplained: Option<Comparison>,
    /// States of `crash` that fail; 0 unless given otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_states: Option<Comparison>,
    /// States at which nobody could look; 0 unless given otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_states: Option<Comparison>,
    /// States in which nothing wrong was found, but of which only a part was judged; 0 unless given otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partly_judged_states: Option<Comparison>,
    /// States that were looked at; at least 1 unless given otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Comparison>,
    /// Limits on throughput and latencies, of a phase or while a fault is at work. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
}

#[expect(clippy::unnecessary_wraps, reason = "the type of the fields it is the default of")]
fn none() -> Option<Comparison> {
    Some(Comparison::Equal(0))
}

impl Default for Expect {
    fn default() -> Self {
        let zero = Some(Comparison::Equal(0));
        Self {
            failures: zero,
            failing_files: None,
            errors: None,
            injections: None,
            masked: None,
            reported: None,
            repaired: None,
            silent: zero,
            untriggered: None,
            unknown: zero,
            exit: None,
            check_exit: None,
            assumed: zero,
            unexplained: zero,
            failing_states: None,
            unknown_states: None,
            partly_judged_states: None,
            states: None,
            gates: Vec::new(),
        }
    }
}

impl Expect {
    /// Every count something is expected of, in the order of the documentation.
    pub fn wanted(&self) -> Vec<(&'static str, Comparison)> {
        self.against(&Counts::default()).map(|(name, wanted, _)| (name, wanted)).collect()
    }

    /// Holds `counts` against everything expected. The verdict passes if every one holds.
    pub fn evaluate(&self, counts: &Counts) -> Vec<Expectation> {
        self.against(counts)
            .map(|(name, wanted, found)| Expectation {
                name: name.into(),
                wanted: wanted.as_result(),
                found,
                holds: wanted.holds(found),
            })
            .collect()
    }

    fn against(&self, counts: &Counts) -> impl Iterator<Item = (&'static str, Comparison, u64)> {
        // Who says how many faults may be left over has thought of them.
        let idle_rules = if self.untriggered.is_none() { Some(Comparison::Equal(0)) } else { None };
        [
            ("failures", self.failures, counts.failures),
            ("failing_files", self.failing_files, counts.failing_files),
            ("errors", self.errors, counts.errors),
            ("injections", self.injections, counts.injections),
            ("masked", self.masked, counts.masked),
            ("reported", self.reported, counts.reported),
            ("repaired", self.repaired, counts.repaired),
            ("silent", self.silent, counts.silent),
            ("untriggered", self.untriggered, counts.untriggered),
            ("unknown", self.unknown, counts.unknown),
            ("exit", self.exit, counts.exit.unwrap_or_default()),
            ("check_exit", self.check_exit, counts.check_exit.unwrap_or_default()),
            ("assumed", self.assumed, counts.assumed),
            ("unexplained", self.unexplained, counts.unexplained),
            ("states", self.states, counts.states.unwrap_or_default()),
            ("failing_states", self.failing_states, counts.failing_states.unwrap_or_default()),
            ("unknown_states", self.unknown_states, counts.unknown_states.unwrap_or_default()),
            (
                "partly_judged_states",
                self.partly_judged_states,
                counts.partly_judged_states.unwrap_or_default(),
            ),
            ("idle_rules", idle_rules, counts.idle_rules),
        ]
        .into_iter()
        .filter_map(|(name, wanted, found)| Some((name, wanted?, found)))
    }

    /// Fills in what is expected of a command unless it is said: that it and its check succeed. What takes an oracle is
    /// not expected of it by default.
    pub(crate) fn of_command(&mut self, has_check: bool) {
        let zero = Some(Comparison::Equal(0));
        let without_states = Self {
            gates: Vec::new(),
            failing_states: None,
            unknown_states: None,
            partly_judged_states: None,
            states: None,
            ..self.clone()
        };
        if without_states == Self::default() {
            (self.failures, self.silent) = (None, None);
        }
        for of_oracle in [&mut self.unexplained, &mut self.assumed] {
            of_oracle.take_if(|wanted| *wanted == Comparison::Equal(0));
        }
        self.exit = self.exit.or(zero);
        if has_check {
            self.check_exit = self.check_exit.or(zero);
        }
    }

    /// Fills in what is expected of the states of a power loss unless it is said.
    pub(crate) fn of_crash(&mut self) {
        let zero = Some(Comparison::Equal(0));
        self.failing_states = self.failing_states.or(zero);
        self.unknown_states = self.unknown_states.or(zero);
        self.partly_judged_states = self.partly_judged_states.or(zero);
        // Of no state nobody knows anything.
        self.states = self.states.or(Some(Comparison::AtLeast(1)));
    }

    /// Reports expectations of states where none are explored.
    pub(crate) fn validate_crash(&self, has_crash: bool, path: &Path, problems: &mut Problems) {
        let of_states = [
            ("failing_states", self.failing_states),
            ("unknown_states", self.unknown_states),
            ("partly_judged_states", self.partly_judged_states),
            ("states", self.states),
        ];
        for (name, _) in of_states.into_iter().filter(|(_, wanted)| wanted.is_some() && !has_crash) {
            problems.add_with_help(
                &path.key(name),
                format!("`{name}` counts states of a power loss, and none are explored"),
                "leave it out, or give `crash: { states: 1000 }` and `record` at the end of the stack",
            );
        }
    }

    /// Reports expectations that the kind of load cannot answer: those of a command, and those that take an oracle.
    pub(crate) fn validate_for(&self, load: &LoadSpec, path: &Path, problems: &mut Problems) {
        let Some(command) = &load.command else {
            let of_commands = [("exit", self.exit), ("check_exit", self.check_exit)];
            for (name, _) in of_commands.into_iter().filter(|(_, wanted)| wanted.is_some()) {
                problems.add_with_help(
                    &path.key(name),
                    format!("`{name}` is told of a command, and this load is none"),
                    "leave it out, or give `load: { command: ... }`",
                );
            }
            return;
        };
        let of_oracles = [
            ("failures", self.failures),
            ("failing_files", self.failing_files),
            ("errors", self.errors),
            ("masked", self.masked),
            ("reported", self.reported),
            ("repaired", self.repaired),
            ("silent", self.silent),
            ("assumed", self.assumed),
            ("unexplained", self.unexplained),
        ];
        for (name, _) in of_oracles.into_iter().filter(|(_, wanted)| wanted.is_some()) {
            problems.add_with_help(
                &path.key(name),
                format!("nobody can count `{name}` for a command: what it wrote and saw is not known"),
                "expect `exit`, `check_exit`, `injections`, `untriggered` or `unknown`",
            );
        }
        if self.check_exit.is_some() && command.check.is_none() {
            problems.add_with_help(
                &path.key("check_exit"),
                "this command has no `check`",
                "give one, such as a program that looks through the data",
            );
        }
    }

    /// Reports expectations that no run can fulfil together.
    pub fn validate(&self, faults: usize, path: &Path, problems: &mut Problems) {
        if faults > 0 {
            return;
        }
        let of_faults = [
            ("injections", self.injections),
            ("masked", self.masked),
            ("reported", self.reported),
            ("repaired", self.repaired),
            ("silent", self.silent),
            ("untriggered", self.untriggered),
            ("unknown", self.unknown),
        ];
        for (name, wanted) in of_faults {
            if wanted.is_some_and(|wanted| !wanted.holds(0)) {
                problems.add_with_help(
                    &path.key(name),
                    format!("`{name}` counts faults, and this trial has none"),
                    "describe them under `faults:`, or expect 0",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_reads_back_as_it_is_written() {
        for (text, wanted, written) in [
            ("64", Comparison::Equal(64), "64"),
            ("= 64", Comparison::Equal(64), "64"),
            ("==64", Comparison::Equal(64), "64"),
            (">= 1", Comparison::AtLeast(1), ">= 1"),
            (">0", Comparison::Above(0), "> 0"),
            ("<= 5", Comparison::AtMost(5), "<= 5"),
            ("< 5", Comparison::Below(5), "< 5"),
            ("0..5", Comparison::Within(0, 5), "0..5"),
            (" any ", Comparison::Any, "any"),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
            assert_eq!(wanted.to_string(), written);
            assert_eq!(written.parse(), Ok(wanted));
        }
        for text in [
            "",
            "=",
            "many",
            "-1",
            "+1",
            ">= -1",
            "5..2",
            "< 0",
            "1..",
            "1.5",
            "=> 3",
            "18446744073709551616",
        ] {
            assert!(text.parse::<Comparison>().is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_are_where_the_signs_say() {
        for (text, holding, failing) in [
            ("5", 5, 4),
            (">= 5", 5, 4),
            ("> 5", 6, 5),
            ("<= 5", 5, 6),
            ("< 5", 4, 5),
            ("2..5", 5, 6),
            ("2..5", 2, 1),
        ] {
            let comparison: Comparison = text.parse().expect(text);
            assert!(comparison.holds(holding), "{holding} {text}");
            assert!(!comparison.holds(failing), "{failing} {text}");
        }
    }

    #[test]
    fn nothing_expected_means_nothing_lost_and_something_expected_still_forbids_the_unexplained() {
        assert_eq!(
            Expect::default().wanted(),
            ["failures", "silent", "unknown", "assumed", "unexplained", "idle_rules"]
                .map(|name| (name, Comparison::Equal(0)))
        );
        let expect: Expect = serde_saphyr::from_str("silent: '>= 1'").expect("well-formed");
        assert_eq!(
            expect.wanted(),
            [
                ("silent", Comparison::AtLeast(1)),
                ("unknown", Comparison::Equal(0)),
                ("assumed", Comparison::Equal(0)),
                ("unexplained", Comparison::Equal(0)),
                ("idle_rules", Comparison::Equal(0)),
            ]
        );
        let expect: Expect =
            serde_saphyr::from_str("{ unknown: any, untriggered: '0..3' }").expect("well-formed");
        let wanted: Vec<_> =
            expect.wanted().into_iter().map(|(name, wanted)| (name, wanted.to_string())).collect();
        let [untriggered, unknown, ..] = &wanted[..] else { panic!("{wanted:?}") };
        assert_eq!((untriggered.1.as_str(), unknown.1.as_str(), wanted.len()), ("0..3", "any", 4));
        let found =
            expect.evaluate(&Counts { unknown: 99, untriggered: 2, idle_rules: 2, ..Counts::default() });
        assert!(found.iter().all(|expectation| expectation.holds), "{found:?}");
    }

    #[test]
    fn states_of_which_only_a_part_was_judged_fail_a_trial_that_does_not_say_that_it_takes_them() {
        let counts = Counts {
            states: Some(10),
            failing_states: Some(0),
            unknown_states: Some(0),
            partly_judged_states: Some(10),
            ..Counts::default()
        };
        for (text, failing) in [
            ("{}", vec!["partly_judged_states"]),
            ("{ unknown_states: any }", vec!["partly_judged_states"]),
            ("{ partly_judged_states: any }", vec![]),
            (
                "{ partly_judged_states: '>= 11', unknown_states: 1 }",
                vec!["unknown_states", "partly_judged_states"],
            ),
        ] {
            let mut expect: Expect = serde_saphyr::from_str(text).expect("well-formed");
            expect.of_crash();
            let found = expect.evaluate(&counts);
            let names: Vec<_> = found.iter().filter(|one| !one.holds).map(|one| &*one.name).collect();
            assert_eq!(names, failing, "{text}");
        }
    }

    #[test]
    fn an_expectation_tells_what_was_wanted_and_what_was_found() {
        let expect: Expect =
            serde_saphyr::from_str("{ failures: 64, injections: '>= 64' }").expect("well-formed");
        let found = expect.evaluate(&Counts { failures: 63, injections: 70, ..Counts::default() });
        let summary: Vec<_> = found.iter().map(|e| (&*e.name, e.found, e.holds)).collect();
        assert_eq!(
            summary,
            [
                ("failures", 63, false),
                ("injections", 70, true),
                ("unknown", 0, true),
                ("assumed", 0, true),
                ("unexplained", 0, true),
                ("idle_rules", 0, true)
            ]
        );
    }

    #[test]
    fn faults_cannot_be_expected_where_there_are_none() {
        let expect: Expect =
            serde_saphyr::from_str("{ hits: 1, silent: 0, failures: 3 }").expect("well-formed");
        let mut problems = Problems::default();
        expect.validate(0, &Path::root().key("expect"), &mut problems);
        let paths: Vec<_> = problems.iter().map(|problem| problem.path.to_string()).collect();
        assert_eq!(paths, ["expect.injections"]);
        let mut problems = Problems::default();
        expect.validate(1, &Path::root(), &mut problems);
        assert!(problems.is_empty());
    }
}
