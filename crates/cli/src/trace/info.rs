//! `rotproof trace info`.

use std::time::Duration;

use rotproof_trace::{Figures, Format, Summary};
use serde_json::json;

use super::args::InfoArgs;
use super::{open, stopped, tell_malformed};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::table::{Align, Table};
use crate::units;

/// Reads the whole trace and prints its figures.
pub fn info(args: &InfoArgs, output: Output) -> Result<Exit, CommandError> {
    let (mut reader, format) = open(&args.input)?;
    let mut summary = Summary::default();
    for access in reader.by_ref() {
        summary.add(&access.map_err(stopped)?);
    }
    let figures = summary.figures();
    tell_malformed(reader.malformed(), reader.shown(), output);
    if args.json {
        let mut object = json!(figures);
        object["format"] = json!(format.name());
        object["malformed"] = json!(reader.malformed());
        output.json(&object);
    } else {
        output.result(render(&figures, format, output.stdout_paint()));
    }
    Ok(Exit::Pass)
}

fn render(figures: &Figures, format: Format, paint: Paint) -> String {
    let plural = if figures.accesses == 1 { "access" } else { "accesses" };
    let accesses = format!("{} {plural}", units::count(figures.accesses));
    let devices = units::counted(figures.devices, "device");
    let mut text =
        format!("{}\n\n", paint.bold(format!("{accesses} to {devices}, {} format", format.name())));
    let mut table = Table::new(&[
        ("", Align::Left),
        ("accesses", Align::Right),
        ("share", Align::Right),
        ("bytes", Align::Right),
    ]);
    for (word, share) in &figures.by_operation {
        let percent = 100.0 * share.count as f64 / figures.accesses.max(1) as f64;
        let cells = [
            (*word).to_owned(),
            units::count(share.count),
            format!("{percent:.1}%"),
            units::bytes(share.bytes),
        ];
        table.row(cells);
    }
    text.push_str(&table.render(paint));
    text.push('\n');
    let mut line = |name: &str, value: String| text.push_str(&format!("\n  {name:<12}{value}"));
    line("duration", units::duration(Duration::from_secs_f64(figures.duration_s)));
    if let Some(rate) = figures.mean_rate {
        line("rate", format!("{rate:.1} a second, at most {}", units::count(figures.peak_rate)));
    }
    if let Some(took) = figures.mean_took_s {
        line("took", format!("{} on average", units::duration(Duration::from_secs_f64(took))));
    }
    line("sequential", format!("{:.1}%", 100.0 * figures.sequential));
    let (footprint, end) = (units::bytes(figures.footprint_bytes), units::bytes(figures.end_bytes));
    line("footprint", format!("{footprint}, up to {end} from the beginning"));
    let sizes: Vec<String> = figures
        .sizes
        .iter()
        .take(4)
        .map(|(size, share)| format!("{} {:.1}%", units::bytes(*size), 100.0 * share))
        .collect();
    if !sizes.is_empty() {
        line("sizes", sizes.join(", "));
    }
    if figures.disordered > 0 {
        line(
            "disordered",
            format!("{} come before one that stands before them", units::count(figures.disordered)),
        );
    }
    text
}
