//! The trial files of a command, read before anything else happens.

use std::path::PathBuf;

use rotproof_document::Diagnostics;
use rotproof_trial::file::{Overrides, TrialFile};

use crate::args::TrialArgs;
use crate::fail::CommandError;
use crate::output::Output;
use crate::run::matrix::Setting;
use crate::snippet;

/// A trial and the file it came from.
#[derive(Clone, Debug)]
pub struct Trial {
    /// As it was given on the command line.
    pub path: PathBuf,
    /// Its name, without the values that a matrix sets.
    pub base_name: String,
    /// What it says, with what the command line changes of it.
    pub file: TrialFile,
    /// What it permits, but will hardly have been meant.
    pub warnings: Diagnostics,
    /// The options that change it, but for the seed, as a shell takes them.
    pub changes: Vec<String>,
}

impl Trial {
    /// Shows its warnings, if it has any.
    pub fn tell_warnings(&self, output: Output) {
        if !self.warnings.list.is_empty() {
            output.note(snippet::render_warnings(&self.warnings, output.stderr_paint()));
            output.note("");
        }
    }

    /// The command that runs it, with what the command line changes of it, but for the seed.
    pub fn command(&self) -> String {
        let path = shell_word(&self.path.display().to_string());
        let words = ["rotproof", "run", &path].into_iter().chain(self.changes.iter().map(String::as_str));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A word as it must stand on the command line of a shell.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Reads all files. If any has a mistake, all mistakes of all files are the failure, so that no trial runs before
/// it is known that each could.
pub fn open(args: &TrialArgs) -> Result<Vec<Trial>, CommandError> {
    let [(_, trials)] = <[_; 1]>::try_from(open_each(args, vec![Setting::new()])?).unwrap_or_default();
    Ok(trials)
}

/// The same for each of these settings, which change every file.
pub fn open_each(
    args: &TrialArgs,
    settings: Vec<Setting>,
) -> Result<Vec<(Setting, Vec<Trial>)>, CommandError> {
    let mut all = Vec::with_capacity(settings.len());
    let mut mistakes: Vec<Diagnostics> = Vec::new();
    for setting in settings {
        let values = args.values.iter().cloned();
        let values: Vec<String> =
            values.chain(setting.iter().map(|(path, value)| format!("{path}={value}"))).collect();
        let overrides = Overrides { seed: args.seed, faults: args.faults.clone(), values };
        let changes: Vec<String> = [("--fault", &overrides.faults), ("--set", &overrides.values)]
            .into_iter()
            .flat_map(|(option, texts)| {
                texts.iter().map(move |text| format!("{option} {}", shell_word(text)))
            })
            .collect();
        let mut trials = Vec::with_capacity(args.files.len());
        for path in &args.files {
            match TrialFile::open_and_warn(path, &overrides) {
                Ok((mut file, warnings)) => {
                    let base_name = file.name.clone();
                    file.name = name_with(&file.name, &setting);
                    let changes = changes.clone();
                    trials.push(Trial { path: path.clone(), base_name, file, warnings, changes });
                }
                // A mistake that no setting changes is one.
                Err(found) if mistakes.iter().any(|known| known.to_string() == found.to_string()) => {}
                Err(found) => mistakes.push(found),
            }
        }
        all.push((setting, trials));
    }
    if mistakes.is_empty() { Ok(all) } else { Err(CommandError::Mistakes(mistakes)) }
}

/// Characters of a name, and of a value in it.
const NAME_MAX: usize = 100;
const VALUE_MAX: usize = 24;

/// The name of a trial with the values that a matrix sets, but for the seed, which is in the name of every folder.
fn name_with(name: &str, setting: &Setting) -> String {
    let mut text = name.to_owned();
    for (_, value) in setting.iter().filter(|(path, _)| !matches!(path.as_str(), "seed" | "name")) {
        let value: String = value
            .chars()
            .map(|c| if c.is_alphanumeric() || "-_.%".contains(c) { c } else { '_' })
            .take(VALUE_MAX)
            .collect();
        if text.chars().count() + 1 + value.chars().count() <= NAME_MAX {
            text = format!("{text}-{value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_word_for_what_it_is() {
        assert_eq!(shell_word("stack[0].memory.size=1GiB"), "'stack[0].memory.size=1GiB'");
        assert_eq!(shell_word("subject=btrfs"), "subject=btrfs");
        for text in ["", "a b", "it's", "$HOME", "`id`", "a\nb", "*", "\\", "~", "ä"] {
            let said = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", shell_word(text))])
                .output()
                .expect("sh starts");
            assert_eq!(String::from_utf8_lossy(&said.stdout), text);
        }
    }
}
