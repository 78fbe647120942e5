//! `rotproof model contour`: scores over all memory and disk indices.

use rotproof_model::contour::{Grid, even_steps};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};

use super::args::ContourArgs;
use super::{designs, figures, text};

/// Memory indices, disk indices that a table on a terminal shows.
const TABLE_POINTS: (usize, usize) = (8, 6);

/// Prints a coarse table for each design, and draws all of it.
pub fn contour(args: &ContourArgs, output: Output) -> Result<Exit, CommandError> {
    let goal = args.conditions.goal.0;
    let designs =
        designs::open(&args.designs, &["nc", "zfs", "e2e-xor", "e2e-fletcher", "z2-dynamic"], goal)?;
    let residency = args.conditions.residency;
    let grids = |columns: usize, rows: usize| -> Vec<(String, Grid)> {
        let memory = even_steps(args.memory_index.0, args.memory_index.1, columns);
        let disk = even_steps(args.disk_index.0, args.disk_index.1, rows);
        let grid = |design| Grid::new(design, &memory, &disk, residency);
        designs.iter().map(|design| (design.name.clone(), grid(design))).collect()
    };
    let coarse = grids(TABLE_POINTS.0, TABLE_POINTS.1);
    if args.plot.plot.is_some() || args.write.json {
        let points = usize::from(args.points);
        let fine = grids(points, points);
        if let Some(file) = &args.plot.plot {
            let figure = figures::contours(&fine, residency, goal);
            figures::write(file, &figure, &render(&coarse, args, Paint::OFF), output)?;
        }
        if args.write.json {
            output.json(&to_json(&fine, args));
            return Ok(Exit::Pass);
        }
    }
    output.result(render(&coarse, args, output.stdout_paint()));
    Ok(Exit::Pass)
}

fn render(grids: &[(String, Grid)], args: &ContourArgs, paint: Paint) -> String {
    let residency = text::seconds(args.conditions.residency);
    let mut parts = vec![
        paint
            .bold(format!("Scores; residency {residency}, goal {}", text::goal(args.conditions.goal.0)))
            .to_string(),
    ];
    for (name, grid) in grids {
        let memory: Vec<String> = grid.memory.iter().map(|index| format!("{index:.1}")).collect();
        let mut columns = vec![("disk \\ memory index", Align::Right)];
        columns.extend(memory.iter().map(|index| (index.as_str(), Align::Right)));
        let mut table = Table::new(&columns);
        // As in the picture, the best disk on top.
        for row in (0..grid.disk.len()).rev() {
            let scores =
                (0..grid.memory.len()).map(|column| format!("{:.1}", floor(grid.score(row, column))));
            table.row(std::iter::once(format!("{:.1}", grid.disk[row])).chain(scores));
        }
        parts.push(format!("{}\n{}", paint.bold(clip(name, 80)), table.render(paint)));
    }
    parts.join("\n\n")
}

/// Down to one decimal.
fn floor(score: f64) -> f64 {
    (score * 10.0 + 1e-6).floor() / 10.0
}

fn to_json(grids: &[(String, Grid)], args: &ContourArgs) -> Value {
    let designs: Vec<Value> = grids
        .iter()
        .map(|(name, grid)| {
            let rows: Vec<&[f64]> = grid.scores.chunks(grid.memory.len()).collect();
            json!({ "design": name, "scores": rows })
        })
        .collect();
    let axes =
        grids.first().map(|(_, grid)| (grid.memory.as_slice(), grid.disk.as_slice())).unwrap_or_default();
    json!({
        "residency_seconds": args.conditions.residency,
        "goal": { "score": args.conditions.goal.0.score() },
        "memory_index": axes.0,
        "disk_index": axes.1,
        "designs": designs,
    })
}
