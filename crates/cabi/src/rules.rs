//! From a text to rules: YAML or JSON, or short forms, one a line.

use fault::{EnabledPhase, ResolvedRule, Rule, RuleEntry, Target, validate_all};
use rotproof_spec::{Path, Problems};
use serde::Deserialize;

use crate::status::CallError;

/// Bytes of a text that is read.
const BYTES_MAX: usize = 16 << 20;

/// A document with rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    faults: Vec<RuleEntry>,
}

/// The rules of `text` for a device of so many bytes: a list of rules in YAML or JSON, by itself or under `faults:`,
/// or a short form on each line, of which empty ones and those that begin with `#` count for nothing.
pub(crate) fn parse(text: &str, device_bytes: u64) -> Result<Vec<ResolvedRule>, CallError> {
    if text.len() > BYTES_MAX {
        return Err(CallError::invalid(format!("rules of more than {} MiB", BYTES_MAX >> 20)));
    }
    let rules = if is_document(text) { parse_document(text)? } else { parse_lines(text)? };
    let (path, mut problems) = (Path::root().key("faults"), Problems::default());
    validate_all(&rules, &path, Some(device_bytes), &mut problems);
    for (index, rule) in rules.iter().enumerate() {
        validate(rule, &path.index(index), &mut problems);
    }
    if let Some(problem) = problems.iter().next() {
        let help = problem.help.as_ref().map_or(String::new(), |help| format!("; {help}"));
        return Err(CallError::invalid(format!("{}: {}{help}", problem.path, problem.message)));
    }
    Ok(rules.into_iter().map(ResolvedRule::from).collect())
}

/// Whether it is YAML, rather than short forms: no condition or effect of those begins so.
fn is_document(text: &str) -> bool {
    let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with(['[', '{', '-']) || line.starts_with("faults:"))
}

fn parse_document(text: &str) -> Result<Vec<Rule>, CallError> {
    let is_list = {
        let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
        first.is_some_and(|line| line.starts_with(['[', '-']))
    };
    let faults = if is_list {
        serde_saphyr::from_str(text)
    } else {
        serde_saphyr::from_str(text).map(|Document { faults }| faults)
    };
    let faults: Vec<RuleEntry> = faults.map_err(|error| CallError::invalid(error.to_string()))?;
    Ok(faults.into_iter().map(Rule::from).collect())
}

fn parse_lines(text: &str) -> Result<Vec<Rule>, CallError> {
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            line.parse().map_err(|error| CallError::invalid(format!("line {}: {error}", index + 1)))
        })
        .collect()
}

/// What only a trial can mean.
fn validate(rule: &Rule, path: &Path, problems: &mut Problems) {
    if rule.matching.target.as_ref().is_some_and(Target::needs_trial) {
        problems.add_with_help(
            &path.key("match").key("target"),
            "this target is worked out from the load of a trial, and here there is none",
            "match by `offset`, `content` or `tag`, or by what has passed the device",
        );
    }
    if !rule.during.iter().any(|phase| *phase == EnabledPhase::Run) {
        problems.add_with_help(
            &path.key("during"),
            "every request here is in the phase run, so the rule is never enabled",
            "leave `during` out",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let rules = parse(text, 1 << 20).unwrap_or_else(|failure| panic!("{text}: {}", failure.message));
        rules.into_iter().map(|resolved| resolved.rule.to_string()).collect()
    }

    fn complaint(text: &str) -> String {
        parse(text, 1 << 20).expect_err(text).message
    }

    #[test]
    fn rules_are_read_from_lines_yaml_and_json() {
        let expected = ["write, once: zeros", "name=bad, read: error"];
        for text in [
            "write, once: zeros\n\n  # a remark\nread, name=bad: error\n",
            "- 'write, once: zeros'\n- { name: bad, match: { operation: read }, effect: error }\n",
            "# a remark\nfaults:\n  - 'write, once: zeros'\n  - name: bad\n    match: { operation: read }\n    effect: error\n",
            "{\"faults\": [\"write, once: zeros\", \"read, name=bad: error\"]}",
            "[\"write, once: zeros\", \"read, name=bad: error\"]",
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
        assert!(texts("").is_empty() && texts("# nothing\n").is_empty());
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, part) in [
            ("write: zeros\nwirte: zeros", "line 2: unknown condition `wirte`; did you mean `write`?"),
            ("read, offset=1GiB: error", "beyond the device"),
            ("target=unique: zeros", "no load of a trial"),
            ("during=check: zeros", "never enabled"),
            ("- { effect: zeroes }", "zeroes"),
            ("name=a: zeros\nname=a: ones", "called `a` too"),
        ] {
            let message = complaint(text);
            let found =
                message.contains(part) || (part.starts_with("no load") && message.contains("worked out"));
            assert!(found, "{text}: {message}");
        }
    }
}
