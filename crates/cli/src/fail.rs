//! How a command says that it could not do what was asked.

use rotproof_block::Error;
use rotproof_document::Diagnostics;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::memory;
use crate::output::Output;
use crate::snippet;

/// Why a command ends early.
#[derive(Debug)]
pub enum CommandError {
    /// Trial files with mistakes.
    Mistakes(Vec<Diagnostics>),
    /// Anything else.
    Error(Error),
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        CommandError::Error(error)
    }
}

impl CommandError {
    /// The exit code that says the same.
    pub fn exit(&self) -> Exit {
        match self {
            CommandError::Mistakes(_) => Exit::Usage,
            CommandError::Error(error) => Exit::of_error(error.kind()),
        }
    }

    /// Tells people, and with `json` programs too.
    pub fn report(&self, output: Output, json: bool) {
        let paint = output.stderr_paint();
        match self {
            CommandError::Mistakes(files) => {
                let all: Vec<String> =
                    files.iter().map(|mistakes| snippet::render(mistakes, paint)).collect();
                output.note(all.join("\n\n"));
            }
            CommandError::Error(error) => output.note(format_args!("{} {error}", paint.bad("error:"))),
        }
        if self.exit() == Exit::Internal {
            output.note(advice());
        }
        if json {
            output.json(&self.to_json());
        }
    }

    /// `{"error": {"kind", "message", "exit_code"}}`, with `mistakes` if trial files are to blame.
    pub fn to_json(&self) -> Value {
        match self {
            CommandError::Mistakes(files) => {
                let mistakes: Vec<_> = files.iter().flat_map(|file| &file.list).collect();
                let message = files.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
                let mut object = error_json("trial_file", &message, self.exit());
                object["error"]["mistakes"] = json!(mistakes);
                object
            }
            CommandError::Error(error) => error_json(error.kind().word(), &error.to_string(), self.exit()),
        }
    }
}

/// What to do about a defect.
pub const DEFECT: &str =
    "This is a defect of Rotproof. Please report it, with the trial file and this message.";

/// The same, or what to do where memory is short.
pub fn advice() -> &'static str {
    if memory::is_short() { memory::ADVICE } else { DEFECT }
}

/// The object that ends a failed command under `--json`.
pub fn error_json(kind: &str, message: &str, exit: Exit) -> Value {
    json!({ "error": { "kind": kind, "message": message, "exit_code": exit.code() } })
}
