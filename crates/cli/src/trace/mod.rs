//! `rotproof trace`: what is in a block trace, and the same trace in another format. Neither holds it in memory.

mod args;
mod convert;
mod info;

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Stdin, stdin};
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind};
use rotproof_load::TraceReport;
use rotproof_trace::{Format, Limits, Malformed, Plain, Reader, Reading, Stop};

use args::{InputArgs, Verb};
pub use args::{TraceArgs, TraceFormat};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint, visible};
use crate::table::clip;
use crate::units;

/// How much of a trace is looked at to tell its format.
const BEGINNING_BYTES: usize = 16 << 10;

/// Does what was asked.
pub fn trace(args: &TraceArgs, output: Output) -> Result<Exit, CommandError> {
    match &args.verb {
        Verb::Info(args) => info::info(args, output),
        Verb::Convert(args) => convert::convert(args, output),
    }
}

/// A trace that is being read, whatever from.
type Open = Reader<Box<dyn BufRead>>;

/// Opens a trace; `-` is standard input.
fn open(args: &InputArgs) -> Result<(Open, Format), CommandError> {
    let input: Box<dyn Read> = if args.file == Path::new("-") {
        let input: Stdin = stdin();
        Box::new(input)
    } else {
        Box::new(File::open(&args.file).doing(|| format!("opening {}", args.file.display()))?)
    };
    let plain = Plain::of(BufReader::new(input)).doing(|| "reading the trace".into())?;
    let mut input: Box<dyn Read> = Box::new(plain);
    let mut beginning = Vec::new();
    let limit = BEGINNING_BYTES as u64;
    input.by_ref().take(limit).read_to_end(&mut beginning).doing(|| "reading the trace".into())?;
    let format = match args.format {
        Some(format) => format.into(),
        // Who names columns has values.
        None if args.columns.is_some() => Format::Csv,
        None => Format::detect(&beginning).ok_or_else(|| {
            let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
            let message = format!(
                "cannot tell which format {} is in; say it with --format: {}",
                args.file.display(),
                names.join(", ")
            );
            Error::new(ErrorKind::Invalid, message)
        })?,
    };
    let reading = Reading { format, columns: args.columns.clone(), time_unit: args.time_unit };
    reading.check(&beginning).map_err(|why| {
        Error::new(
            ErrorKind::Invalid,
            format!("{} cannot be read as {}: {why}", args.file.display(), format.name()),
        )
    })?;
    let input: Box<dyn BufRead> =
        Box::new(BufReader::with_capacity(1 << 20, Cursor::new(beginning).chain(input)));
    Ok((Reader::of(input, &reading, Limits { malformed: args.malformed_max }), format))
}

/// Why a trace could not be read to its end.
fn stopped(stop: Stop) -> CommandError {
    let error = match stop {
        Stop::Io(error) => Error::from_io(error, "reading the trace"),
        stop @ Stop::Malformed(_) => {
            let message = format!("{stop}; allow more with --malformed-max, or say the format with --format");
            Error::new(ErrorKind::Invalid, message)
        }
    };
    CommandError::Error(error)
}

/// What a verdict says of the trace that its load replayed: `1,234 accesses of the trace replayed`, and of lines that were
/// passed over how many there are, and the first of them.
pub fn told_of_trace(trace: &TraceReport, paint: Paint) -> Vec<String> {
    let plural = if trace.accesses == 1 { "access" } else { "accesses" };
    let left_out = match trace.skipped {
        0 => String::new(),
        skipped => format!(", {} left out", units::count(skipped)),
    };
    let mut lines =
        vec![format!("  {} {plural} of the trace replayed{left_out}", units::count(trace.accesses))];
    if trace.malformed == 0 {
        return lines;
    }
    let plural = if trace.malformed == 1 { "line was" } else { "lines were" };
    let text = format!("  {} {plural} malformed and passed over:", units::count(trace.malformed));
    lines.push(paint.notable(text).to_string());
    for Malformed { number, why, text } in trace.malformed_lines.iter().take(LISTED_MAX) {
        let text: String = text.chars().map(visible).collect();
        let text = if text.is_empty() { text } else { format!(": {text}") };
        lines.push(clip(&format!("    line {number}: {why}{text}"), 80));
    }
    let rest = trace.malformed.saturating_sub(LISTED_MAX as u64);
    if rest > 0 {
        lines.push(format!("    and {} more (run.json has ten)", units::count(rest)));
    }
    lines
}

/// Malformed lines that a verdict shows.
const LISTED_MAX: usize = 3;

/// Tells of lines that were passed over.
pub fn tell_malformed(count: u64, shown: &[Malformed], output: Output) {
    if count == 0 {
        return;
    }
    let paint = output.stderr_paint();
    let plural = if count == 1 { "line or record was" } else { "lines or records were" };
    output.note(format_args!("{} {count} {plural} malformed and passed over", paint.bad("note:")));
    for Malformed { number, why, text } in shown {
        let text = if text.is_empty() { String::new() } else { format!(": {text}") };
        let line: String = format!("  {number}: {why}{text}").chars().take(80).collect();
        output.note(line);
    }
    if count > shown.len() as u64 {
        output.note(format_args!("  and {} more", count - shown.len() as u64));
    }
}
