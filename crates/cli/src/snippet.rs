//! Mistakes of a trial file on a terminal: message, the line with the mistake underlined, and what to do.

use std::fmt::{self, Write as _};

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, Severity,
    SourceCode, SourceSpan, SpanContents, ThemeCharacters, ThemeStyles,
};
use rotproof_document::{Diagnostic, Diagnostics, Location};

use crate::output::{Paint, visible};
use crate::units::counted;

/// Characters of a line that are shown; a longer one is cut around the mistake.
const LINE_MAX: usize = 68;

/// Every mistake, one below the other, and how many there are.
pub fn render(diagnostics: &Diagnostics, paint: Paint) -> String {
    let text = render_all(diagnostics, Severity::Error, paint);
    if let [Diagnostic { place: None, .. }] = diagnostics.list.as_slice() {
        // It is about the file as a whole, and says so.
        return text.trim_end().to_owned();
    }
    let all = counted(diagnostics.list.len() as u64, "mistake");
    format!("{text}{} in {}", paint.bad(all), diagnostics.file)
}

/// Every warning, one below the other, and how many there are.
pub fn render_warnings(diagnostics: &Diagnostics, paint: Paint) -> String {
    let text = render_all(diagnostics, Severity::Warning, paint);
    let all = counted(diagnostics.list.len() as u64, "warning");
    format!("{text}{} in {}", paint.notable(all), diagnostics.file)
}

fn render_all(diagnostics: &Diagnostics, severity: Severity, paint: Paint) -> String {
    let styles = if paint.is_on() { ThemeStyles::ansi() } else { ThemeStyles::none() };
    let theme = GraphicalTheme { characters: ThemeCharacters::unicode(), styles };
    let handler =
        GraphicalReportHandler::new_themed(theme).with_width(80).with_links(false).with_context_lines(1);
    let mut text = String::new();
    for diagnostic in &diagnostics.list {
        let report = Report { diagnostic, severity, snippet: diagnostic.place.as_ref().map(Snippet::new) };
        // A formatter that writes to a string fails only if a `Display` of ours does.
        if handler.render_report(&mut text, &report).is_err() {
            text.push_str(&diagnostic.message);
        }
        text.push('\n');
    }
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A mistake as miette wants it.
#[derive(Debug)]
struct Report<'a> {
    diagnostic: &'a Diagnostic,
    severity: Severity,
    snippet: Option<Snippet>,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic.message.chars().map(visible).try_for_each(|c| f.write_char(c))
    }
}

impl std::error::Error for Report<'_> {}

impl miette::Diagnostic for Report<'_> {
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        let help: String = self.diagnostic.help.as_ref()?.chars().map(visible).collect();
        Some(Box::new(help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.snippet.as_ref().map(|snippet| snippet as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let snippet = self.snippet.as_ref()?;
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(None, snippet.marked))))
    }
}

/// The line of a mistake and its neighbours, fit to be shown: without control characters, and not too long.
#[derive(Debug)]
struct Snippet {
    name: String,
    text: String,
    /// The mistake within `text`.
    marked: SourceSpan,
    /// Number of the first line in the file, from zero.
    first: usize,
    /// Line and column of the mistake in the file, from zero.
    line: usize,
    column: usize,
}

impl Snippet {
    fn new(place: &Location) -> Self {
        let line = place.line() - 1;
        let column = place.column() - 1;
        // In a long line the window is moved to the mistake; its neighbours say nothing then.
        let skipped = column.saturating_sub(LINE_MAX / 2);
        let (first, last) = if skipped > 0 { (line, line) } else { (line.saturating_sub(1), line + 1) };
        let mut text = String::new();
        let mut marked = 0..0;
        for (index, content) in place.source.text.lines().enumerate().skip(first).take(last + 1 - first) {
            let is_long = content.chars().count() > skipped + LINE_MAX;
            let shown = content.chars().skip(skipped).take(LINE_MAX).map(visible);
            let start = text.len();
            text.extend(shown);
            if index == line {
                let at = |column: usize| {
                    let shown = text[start..].char_indices().nth(column - skipped).map(|(at, _)| at);
                    start + shown.unwrap_or(text.len() - start)
                };
                marked = at(column)..at(column + place.width().max(1));
            }
            if is_long {
                text.push('…');
            }
            text.push('\n');
        }
        let marked = (marked.start, marked.len()).into();
        Self { name: place.source.name.clone(), text, marked, first, line, column }
    }
}

impl SourceCode for Snippet {
    /// The window, whatever is asked for. Asked without context, miette only wants the line and column for its
    /// heading.
    fn read_span<'a>(
        &'a self,
        _: &SourceSpan,
        lines_before: usize,
        _: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let all: SourceSpan = (0, self.text.len()).into();
        let (line, column) = if lines_before == 0 { (self.line, self.column) } else { (self.first, 0) };
        let (name, text) = (self.name.clone(), self.text.as_bytes());
        Ok(Box::new(MietteSpanContents::new_named(name, text, all, line, column, self.text.lines().count())))
    }
}
