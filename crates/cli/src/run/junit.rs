//! The verdicts of a command as JUnit XML, which CI servers show as tests.
//!
//! One `testsuite` for the command, one `testcase` for each trial. A verdict that fails is a `failure`, a trial that could
//! not be run an `error`, one that was interrupted or not begun `skipped`. The form is that of the Ant task, as CI servers
//! read it: <https://github.com/testmoapp/junitxml>.

use std::fmt::Write as _;
use std::path::Path;

use rotproof_block::{Error, ErrorKind, Result};

use super::outcome::{Outcome, Word};

/// Whether the file can be written where it shall be, asked before trials run for hours.
pub fn check(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() && !path.is_dir() {
        return Ok(());
    }
    let what = if path.is_dir() { "it is a folder" } else { "its folder is not there; make it first" };
    Err(Error::new(ErrorKind::Invalid, format!("{} cannot be written: {what}", path.display())))
}

/// Writes the file; what was there is replaced.
pub fn write(path: &Path, outcomes: &[Outcome]) -> Result<()> {
    std::fs::write(path, document(outcomes))
        .map_err(|error| Error::from_io(error, format!("writing {}", path.display())))
}

fn document(outcomes: &[Outcome]) -> String {
    let count = |words: &[Word]| outcomes.iter().filter(|outcome| words.contains(&outcome.word)).count();
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{seconds:.3}\"",
        outcomes.len(),
        count(&[Word::Fail]),
        count(&[Word::Error]),
        count(&[Word::Interrupted, Word::NotRun]),
    );
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // A text takes whatever is written to it.
    let _ = writeln!(text, "<testsuites name=\"rotproof\" {counts}>");
    let _ = writeln!(text, "  <testsuite name=\"rotproof run\" {counts}>");
    for outcome in outcomes {
        let _ = writeln!(
            text,
            "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">",
            escaped(&outcome.file),
            escaped(&outcome.label),
            outcome.seconds
        );
        let why = escaped(&outcome.why);
        let body = escaped(outcome.text.as_deref().unwrap_or_default());
        let _ = match outcome.word {
            Word::Pass => Ok(()),
            Word::Fail => writeln!(text, "      <failure message=\"{why}\">{body}</failure>"),
            Word::Error => writeln!(text, "      <error message=\"{why}\">{body}</error>"),
            Word::Interrupted | Word::NotRun => writeln!(text, "      <skipped message=\"{why}\"/>"),
        };
        if let Some(folder) = &outcome.folder {
            let place = escaped(&folder.display().to_string());
            let _ = writeln!(text, "      <system-out>Results: {place}</system-out>");
        }
        text.push_str("    </testcase>\n");
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// As text or the value of an attribute. What XML 1.0 cannot hold in any form becomes U+FFFD (section 2.2 there).
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_is_a_test_and_hostile_names_stay_text() {
        let one = |word, label: &str, why: &str| Outcome {
            file: "a&b.yaml".into(),
            label: label.into(),
            why: why.into(),
            text: Some("<table>\u{1b}[31m".into()),
            seconds: 1.25,
            ..Outcome::of_word(word)
        };
        let text = document(&[
            one(Word::Pass, "good", ""),
            one(Word::Fail, "\"><script>", "silent: 0, found 1"),
            one(Word::Error, "lacking", "no mkfs.xfs"),
            one(Word::NotRun, "later", "interrupted"),
        ]);
        assert!(
            text.contains("tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"5.000\""),
            "{text}"
        );
        assert!(text.contains("name=\"&quot;&gt;&lt;script&gt;\""), "{text}");
        assert!(
            text.contains("<failure message=\"silent: 0, found 1\">&lt;table&gt;\u{fffd}[31m</failure>"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}') && text.contains("classname=\"a&amp;b.yaml\""), "{text}");
    }
}
