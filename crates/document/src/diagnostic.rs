//! Mistakes in a trial file, ready to be shown to people or programs. How they look on a terminal is not known here.

use std::fmt;

use rotproof_spec::Problem;
use serde::Serialize;
use serde::ser::SerializeStruct;

use crate::source::Location;
use crate::tree::Tree;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do about it, if there is something to say.
    pub help: Option<String>,
    /// Where it stands; `None` if it is about the file as a whole.
    pub place: Option<Location>,
    /// The value concerned, as `faults[2].match.offset`; empty for the file as a whole.
    pub path: String,
}

impl Diagnostic {
    /// A problem with the place in the document where it stands.
    pub fn at_its_place(tree: &Tree, problem: Problem) -> Self {
        let place = tree.locate(&problem.path).map(|(node, below)| {
            let all = tree.mark(node);
            let named = all.clone().narrowed_to_steps(&below);
            if named == all && !below.is_empty() { all.narrowed_to(&problem.message) } else { named }
        });
        let path = problem.path.as_str().to_owned();
        Self { message: problem.message, help: problem.help, place, path }
    }
}

impl Serialize for Diagnostic {
    /// A flat object: `message`, `help`, `path`, `file`, `line`, `column`, `width`.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Diagnostic", 7)?;
        object.serialize_field("message", &self.message)?;
        object.serialize_field("help", &self.help)?;
        object.serialize_field("path", &self.path)?;
        object.serialize_field("file", &self.place.as_ref().map(|place| &place.source.name))?;
        object.serialize_field("line", &self.place.as_ref().map(Location::line))?;
        object.serialize_field("column", &self.place.as_ref().map(Location::column))?;
        object.serialize_field("width", &self.place.as_ref().map(Location::width))?;
        object.end()
    }
}

/// Every mistake found in one trial file, or every warning, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// The path of the trial file.
    pub file: String,
    /// The mistakes, at least one; or the warnings, which may be none.
    pub list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// The mistakes of `file`, put into order: those of the file by their place, then those of the command line.
    pub fn new(file: &str, mut list: Vec<Diagnostic>) -> Self {
        list.sort_by_key(|diagnostic| {
            diagnostic.place.as_ref().map(|place| (place.source.name != file, place.bytes.start))
        });
        Self { file: file.to_owned(), list }
    }

    /// A single mistake.
    pub fn one(file: &str, message: impl Into<String>, help: Option<&str>, place: Option<Location>) -> Self {
        let help = help.map(str::to_owned);
        Self::new(file, vec![Diagnostic { message: message.into(), help, place, path: String::new() }])
    }
}

impl fmt::Display for Diagnostics {
    /// One line each: `trial.yaml:3:5: message; help`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match &diagnostic.place {
                Some(place) => write!(f, "{}:{}:{}: ", place.source.name, place.line(), place.column())?,
                None => write!(f, "{}: ", self.file)?,
            }
            f.write_str(&diagnostic.message)?;
            if let Some(help) = &diagnostic.help {
                write!(f, "; {help}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
