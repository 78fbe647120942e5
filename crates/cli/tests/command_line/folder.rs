//! A folder in which the command runs, and how it ended.

use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with files, in which the command runs.
pub struct Folder(TempDir);

pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Folder {
    pub fn with(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, content) in files {
            fs::write(folder.path().join(name), content).expect("a file is written");
        }
        Self(folder)
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rotproof"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&mut self.command(arguments))
    }

    /// As [`Folder::run`], where nothing of this machine is served or left.
    pub fn run_alone(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).env("ROTPROOF_STATE_DIR", self.path("state")))
    }
}

impl Ended {
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the command starts");
        Self {
            code: output.status.code().expect("an exit code"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
        }
    }

    /// All three, as a snapshot.
    pub fn all(&self) -> String {
        let mut text = format!("exit code {}\n", self.code);
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !stream.is_empty() {
                // Writing to a string cannot fail.
                let _ = write!(text, "----- {name}\n{stream}");
            }
        }
        text
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {}", self.stdout))
    }
}
