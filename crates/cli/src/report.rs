//! `rotproof report`: runs that were made, next to each other, and whether they differ; or the page of each once more, or
//! the charts of one as files.

use rotproof_block::{Error, ErrorKind};
use rotproof_record::RunFolder;
use rotproof_results::compare::{Compared, Finding, SetUp, Summarised, compare_set_ups, summarise_runs};
use rotproof_results::fio::write_fio_files;
use rotproof_results::page;
use serde_json::json;

use crate::args::ReportArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::figures::show;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};
use crate::units;

/// Compares the first folder with each other one; a single one is only shown.
pub fn report(args: &ReportArgs, output: Output) -> Result<Exit, CommandError> {
    if let Some(into) = &args.fio {
        let [folder] = args.folders.as_slice() else {
            return Err(Error::new(ErrorKind::Invalid, "--fio writes one run; give its folder alone").into());
        };
        let files = write_fio_files(&RunFolder::open(folder)?, args.fio_name.as_deref(), into)?;
        output.note(format_args!(
            "{} written to {}",
            units::counted(files.len() as u64, "file"),
            into.display()
        ));
        return Ok(Exit::Pass);
    }
    if args.page {
        for folder in &args.folders {
            output.result(page::write(folder)?.display());
        }
        return Ok(Exit::Pass);
    }
    if let Some(into) = &args.figures {
        let [folder] = &args.folders[..] else {
            return Err(Error::new(ErrorKind::Invalid, "--figures takes the folder of one run").into());
        };
        for path in page::write_figures(folder, into)? {
            output.result(path.display());
        }
        return Ok(Exit::Pass);
    }
    let set_ups: Vec<SetUp> =
        args.folders.iter().map(|folder| SetUp::open(folder)).collect::<Result<_, _>>()?;
    let Some((base, others)) = set_ups.split_first() else {
        return Err(Error::new(ErrorKind::Invalid, "give the folder of a run").into());
    };
    if args.json {
        let compared: Vec<_> = others
            .iter()
            .map(|other| json!({ "base": base.name, "other": other.name, "figures": compare_set_ups(base, other) }))
            .collect();
        output.json(&json!({
            "base": base.name,
            "runs": base.runs(),
            "figures": summarise_runs(base),
            "comparisons": compared,
        }));
        return Ok(Exit::Pass);
    }
    let paint = output.stdout_paint();
    if others.is_empty() {
        output.result(alone(base, paint));
    }
    for (index, other) in others.iter().enumerate() {
        if index > 0 {
            output.result("");
        }
        output.result(side_by_side(base, other, paint));
    }
    Ok(Exit::Pass)
}

fn runs(set_up: &SetUp) -> String {
    units::counted(set_up.runs() as u64, "run")
}

fn alone(set_up: &SetUp, paint: Paint) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[("figure", Left), ("mean", Right), ("+-", Right)]);
    for Summarised { figure, summary } in summarise_runs(set_up) {
        let deviation = if summary.count > 1 { show(figure.unit, summary.deviation) } else { String::new() };
        table.row([clip(&figure.name, 32), show(figure.unit, summary.mean), deviation]);
    }
    let heading = format!("{}  {}", paint.bold(clip(&set_up.name, 60)), paint.dim(runs(set_up)));
    format!("{heading}\n\n{}", table.render(paint))
}

fn side_by_side(base: &SetUp, other: &SetUp, paint: Paint) -> String {
    use Align::{Left, Right};
    let mut lines = vec![
        format!("A  {}  {}", paint.bold(clip(&base.name, 60)), paint.dim(runs(base))),
        format!("B  {}  {}", paint.bold(clip(&other.name, 60)), paint.dim(runs(other))),
        String::new(),
    ];
    let mut table = Table::new(&[
        ("figure", Left),
        ("A", Right),
        ("B", Right),
        ("B / A", Right),
        ("95%", Left),
        ("p", Right),
        ("", Left),
    ]);
    let compared = compare_set_ups(base, other);
    for row in &compared {
        let Compared { figure, comparison, finding } = row;
        table.row([
            clip(&figure.name, 20),
            show(figure.unit, comparison.base.mean),
            show(figure.unit, comparison.other.mean),
            comparison.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            comparison
                .ratio_confidence
                .filter(|range| range.low < range.high)
                .map_or_else(String::new, |range| format!("{:.2}-{:.2}", range.low, range.high)),
            comparison.welch.map_or_else(String::new, |welch| {
                if welch.p < 0.001 { "<0.001".into() } else { format!("{:.3}", welch.p) }
            }),
            match finding {
                Finding::Differ => "differs",
                Finding::Same => "same",
                Finding::NotShown => "noise",
                Finding::TooFewRuns => "",
            }
            .to_owned(),
        ]);
    }
    lines.push(table.render(paint));
    lines.extend(warnings(&compared, paint));
    lines.join("\n")
}

/// What a reader of the table must not believe.
fn warnings(compared: &[Compared], paint: Paint) -> Vec<String> {
    let count = |finding| compared.iter().filter(|row| row.finding == finding).count();
    let mut lines = Vec::new();
    let mut warn = |text: &str| lines.push(format!("  {} {text}", paint.notable("warning:")));
    if count(Finding::TooFewRuns) > 0 {
        warn("one run tells nothing of how much runs vary; repeat both (`repeat: 5`)");
    }
    let noise = count(Finding::NotShown);
    if noise > 0 {
        let figures = units::counted(noise as u64, "figure");
        warn(&format!("of {figures} the runs vary more than A and B differ; repeat more often"));
    }
    lines
}
