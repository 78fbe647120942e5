//! How an import is written: the `faults:` of a trial file, with what was assumed in comments.

use std::fmt;

use crate::rules::Imported;

/// Characters of a line of comment.
const WIDTH: usize = 80;

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {} faults, from {}.", self.format, one_line(&self.file))?;
        for note in &self.notes {
            comment(f, "", note)?;
        }
        if self.rules.is_empty() {
            return f.write_str("faults: []");
        }
        f.write_str("faults:")?;
        for imported in &self.rules {
            writeln!(f, "\n  # line {}", imported.line)?;
            for note in &imported.notes {
                comment(f, "  ", note)?;
            }
            // A text of JSON is one of YAML, whatever is in it.
            write!(f, "  - {}", serde_json::Value::from(imported.rule.to_string()))?;
        }
        Ok(())
    }
}

/// A note, broken between words.
pub(crate) fn comment(f: &mut fmt::Formatter<'_>, indent: &str, note: &str) -> fmt::Result {
    let mut line = format!("{indent}# -");
    for word in one_line(note).split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(f, "{line}")?;
            line = format!("{indent}#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(f, "{line}")
}

/// Without what could end the line, and with it the comment.
pub(crate) fn one_line(text: &str) -> String {
    let ends = |c: char| c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    text.chars().map(|c| if ends(c) { ' ' } else { c }).collect()
}
