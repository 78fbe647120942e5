//! The two streams of the command: results on standard output, everything else on standard error.
//!
//! Nothing else in this crate prints. A reader that goes away (`| head`) changes nothing: what a command does, it does
//! to its end.

use std::fmt::{self, Display, Write as _};
use std::io::{self, IsTerminal, Write};

use rotproof_block::Error;
use serde::Serialize;

use crate::args::ColorChoice;
use crate::exit::Exit;
use crate::progress::undisturbed;

/// What each stream can show.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    stdout_colored: bool,
    stderr_colored: bool,
    stderr_is_terminal: bool,
}

impl Output {
    /// Looks at the streams and the environment (`NO_COLOR`, see no-color.org, and `TERM`).
    pub fn new(choice: ColorChoice) -> Self {
        let wanted = match choice {
            ColorChoice::Always => Some(true),
            ColorChoice::Never => Some(false),
            ColorChoice::Auto => {
                let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
                let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                (is_set("NO_COLOR") || is_dumb).then_some(false)
            }
        };
        let stderr_is_terminal = io::stderr().is_terminal();
        Self {
            stdout_colored: wanted.unwrap_or_else(|| io::stdout().is_terminal()),
            stderr_colored: wanted.unwrap_or(stderr_is_terminal),
            stderr_is_terminal,
        }
    }

    /// Whether lines of standard error can be redrawn: on a terminal, unless somebody wants plain text, as with `NO_COLOR`.
    pub fn stderr_is_redrawn(self) -> bool {
        self.stderr_is_terminal && self.stderr_colored
    }

    /// How to colour standard output.
    pub fn stdout_paint(self) -> Paint {
        Paint(self.stdout_colored)
    }

    /// How to colour standard error.
    pub fn stderr_paint(self) -> Paint {
        Paint(self.stderr_colored)
    }

    /// Prints a result.
    pub fn result(self, text: impl Display) {
        if let Err(error) = write_all(io::stdout().lock(), &format!("{text}\n")) {
            // Results are printed when everything that a run had created is gone, so the process may end here. To go
            // on would let a script believe that it has them.
            self.note(format_args!(
                "{} writing to standard output: {error}",
                self.stderr_paint().bad("error:")
            ));
            std::process::exit(Exit::Machine.code().into());
        }
    }

    /// Prints a result for programs.
    pub fn json(self, value: &impl Serialize) {
        let value = serde_json::to_value(value).expect("plain data in memory is always JSON");
        self.result(format_args!("{value:#}"));
    }

    /// Prints a line of a result that goes on. Says whether somebody still reads. Fails if it cannot be written.
    pub fn line(self, text: impl Display) -> Result<bool, Error> {
        let mut stream = io::stdout().lock();
        match stream.write_all(format!("{text}\n").as_bytes()).and_then(|()| stream.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Error::from_io(error, "writing to standard output")),
        }
    }

    /// Prints something that is no result: progress, a mistake, an error.
    pub fn note(self, text: impl Display) {
        // Where it cannot be written, there is nowhere left to complain.
        let _ = undisturbed(|| write_all(io::stderr().lock(), &format!("{text}\n")));
    }
}

/// Writes; a reader that has gone is none of our business.
fn write_all(mut stream: impl Write, text: &str) -> io::Result<()> {
    match stream.write_all(text.as_bytes()).and_then(|()| stream.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// A character of somebody else's text that moves no cursor and turns no line around: itself, or a stand-in.
pub fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Colours text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub struct Paint(bool);

impl Paint {
    /// No colours: for files.
    pub const OFF: Self = Self(false);

    /// Whether there are colours.
    pub fn is_on(self) -> bool {
        self.0
    }

    /// Headings.
    pub fn bold<T: Display>(self, text: T) -> Painted<T> {
        self.with("1", text)
    }

    /// What only explains.
    pub fn dim<T: Display>(self, text: T) -> Painted<T> {
        self.with("2", text)
    }

    /// What went well.
    pub fn good<T: Display>(self, text: T) -> Painted<T> {
        self.with("32", text)
    }

    /// What did not.
    pub fn bad<T: Display>(self, text: T) -> Painted<T> {
        self.with("1;31", text)
    }

    /// What deserves a look.
    pub fn notable<T: Display>(self, text: T) -> Painted<T> {
        self.with("33", text)
    }

    fn with<T: Display>(self, code: &'static str, text: T) -> Painted<T> {
        Painted { code: self.0.then_some(code), text }
    }
}

/// A text with its colour. Padding (`{:>8}`) counts the text only.
#[derive(Clone, Copy, Debug)]
pub struct Painted<T> {
    code: Option<&'static str>,
    text: T,
}

impl<T: Display> Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            None => self.text.fmt(f),
            Some(code) => {
                f.write_str("\x1b[")?;
                f.write_str(code)?;
                f.write_char('m')?;
                self.text.fmt(f)?;
                f.write_str("\x1b[0m")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_painted_text_is_padded_by_its_visible_width() {
        assert_eq!(format!("{:>6}|", Paint(false).bold("abc")), "   abc|");
        assert_eq!(format!("{:>6}|", Paint(true).bold("abc")), "\x1b[1m   abc\x1b[0m|");
    }
}
