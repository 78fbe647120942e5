//! The pictures of the model.

use std::path::Path as FilePath;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind};
use rotproof_model::contour::{Grid, even_steps};
use rotproof_model::systems::Configuration;
use rotproof_model::{Bound, Goal, Path, Uncertain, index_of, rate_of_index, switch_time};
use rotproof_plot::{Axis, Color, Curve, Figure, LINE_COLORS, Legend, Panel, Tile, html, png, shade, svg};

use crate::fail::CommandError;
use crate::output::Output;

use super::designs::Machine;
use super::text;

/// Pixels of a PNG for each of the layout.
const PNG_SCALE: f64 = 2.0;

/// Writes a figure in the format that the name of the file ends with, and says so.
pub fn write(file: &FilePath, figure: &Figure, numbers: &str, output: Output) -> Result<(), CommandError> {
    let scene = figure.scene();
    let extension = file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    let content = match extension.as_deref() {
        Some("png") => png(&scene, PNG_SCALE)
            .map_err(|why| Error::new(ErrorKind::Internal, format!("drawing {}: {why}", file.display())))?,
        Some("html") => html(&figure.title, &scene, numbers).into_bytes(),
        _ => svg(&scene).into_bytes(),
    };
    std::fs::write(file, content).doing(|| format!("writing {}", file.display()))?;
    output.note(format_args!("Wrote {}.", file.display()));
    Ok(())
}

/// Residencies that are drawn, in seconds.
const RESIDENCIES: (f64, f64) = (0.1, 1e7);

/// Points of a drawn curve.
const POINTS: usize = 400;

fn powers(from: f64, to: f64) -> impl Iterator<Item = f64> {
    even_steps(from.log10(), to.log10(), POINTS).into_iter().map(|power| 10f64.powf(power))
}

/// A colour and a dash for each of many lines.
fn line_style(number: usize) -> (Color, bool) {
    (LINE_COLORS[number % LINE_COLORS.len()], number / LINE_COLORS.len() % 2 == 1)
}

fn clipped(name: &str) -> String {
    crate::table::clip(name, 24)
}

/// Score against residency, a panel for each machine, with the goal line.
pub fn residency(designs: &[Path], machines: &[Machine], goal: Goal) -> Figure {
    let all: Vec<Vec<Curve>> = machines
        .iter()
        .map(|machine| {
            let curve = |(number, design): (usize, &Path)| {
                let design = design.clone().on(machine.rates.memory, machine.rates.disk);
                let (color, dashed) = line_style(number);
                // Lines may lie on each other; the later ones are thinner, so that both are seen.
                let width = (3.4 - 0.4 * number as f64).max(1.4);
                let points = powers(RESIDENCIES.0, RESIDENCIES.1)
                    .map(|seconds| (seconds, design.undetected(seconds).score()))
                    .collect();
                Curve { points, color, width, dashed, label: None }
            };
            designs.iter().enumerate().map(curve).collect()
        })
        .collect();
    let scores = all.iter().flatten().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let scores: Vec<f64> = scores.filter(|score| score.is_finite()).chain([goal.score()]).collect();
    let from = scores.iter().copied().fold(f64::INFINITY, f64::min).floor() - 1.0;
    let to = scores.iter().copied().fold(0.0, f64::max).ceil() + 2.0;
    let panel = |(machine, mut curves): (&Machine, Vec<Curve>)| {
        curves.push(Curve {
            points: vec![(RESIDENCIES.0, goal.score()), (RESIDENCIES.1, goal.score())],
            color: Color::GOAL,
            width: 1.5,
            dashed: true,
            label: None,
        });
        Panel {
            title: machine.name.clone(),
            x: Axis::logarithmic("residency (s)", RESIDENCIES.0, RESIDENCIES.1),
            y: Axis::linear("reliability score (-log10 P)", from.max(0.0), to),
            tiles: Vec::new(),
            curves,
        }
    };
    let names = designs.iter().enumerate().map(|(number, design)| {
        let (color, dashed) = line_style(number);
        (color, dashed, clipped(&design.name))
    });
    let legend = names.chain([(Color::GOAL, true, format!("goal {:.1}", goal.score()))]);
    Figure {
        title: "Reliability against residency in memory".into(),
        subtitle: format!("goal: {}; block of 4 KiB", text::goal(goal)),
        panels: machines.iter().zip(all).map(panel).collect(),
        columns: if machines.len() > 1 { 2 } else { 1 },
        legend: Legend::Lines(legend.collect()),
    }
}

/// Memory indices of the switching times.
const SWITCH_INDICES: (f64, f64) = (13.0, 20.0);

/// Switching times that are drawn, in seconds.
const SWITCH_SECONDS: (f64, f64) = (0.1, 1e10);

/// Switching time against the memory index, for each design and each goal.
pub fn switch_times(designs: &[Path], disk: Uncertain, asked: Goal) -> Figure {
    let mut goals: Vec<Goal> = Goal::WORDS.iter().filter_map(|(word, _)| Goal::from_word(word)).collect();
    if !goals.iter().any(|goal| (goal.score() - asked.score()).abs() < 1e-9) {
        goals.insert(0, asked);
    }
    let panel = |design: &Path| {
        let mut curves: Vec<Curve> = goals
            .iter()
            .enumerate()
            .map(|(number, &goal)| {
                let at = |index: f64| {
                    let design = design.clone().on(Uncertain::exact(rate_of_index(index)), disk);
                    match switch_time(&design, goal, Bound::Value) {
                        seconds if seconds > 0.0 && seconds.is_finite() => (index, seconds),
                        _ => (index, f64::NAN),
                    }
                };
                let points =
                    even_steps(SWITCH_INDICES.0, SWITCH_INDICES.1, POINTS).into_iter().map(at).collect();
                Curve { points, color: line_style(number).0, width: 2.2, dashed: false, label: None }
            })
            .collect();
        // Where known machines are; enterprise and server have the same memory.
        for (word, shown) in
            [("low-end", "low-end"), ("consumer", "consumer"), ("enterprise", "enterprise, server")]
        {
            let Some(machine) = Configuration::from_word(word) else { continue };
            let index = index_of(machine.memory.value());
            // The label stands on the lower part, where there are no other lines.
            let [low, middle, high] = [SWITCH_SECONDS.0, 3.0, SWITCH_SECONDS.1];
            for (points, label) in [
                (powers(low, middle).map(|seconds| (index, seconds)).collect(), Some(shown.to_owned())),
                (vec![(index, middle), (index, high)], None),
            ] {
                curves.push(Curve {
                    points,
                    color: Color(0x66, 0x66, 0x66),
                    width: 1.0,
                    dashed: true,
                    label,
                });
            }
        }
        Panel {
            title: if designs.len() > 1 { clipped(&design.name) } else { String::new() },
            x: Axis::linear("memory index (-log10 errors/s/bit)", SWITCH_INDICES.0, SWITCH_INDICES.1),
            y: Axis::logarithmic("switching time (s)", SWITCH_SECONDS.0, SWITCH_SECONDS.1),
            tiles: Vec::new(),
            curves,
        }
    };
    let name = |goal: &Goal| {
        let is_it = |(word, _): &(&str, u32)| {
            Goal::from_word(word).is_some_and(|known| (known.score() - goal.score()).abs() < 1e-9)
        };
        let word = Goal::WORDS.iter().find(|entry| is_it(entry)).map_or("goal", |(word, _)| word);
        format!("{word} ({:.1})", goal.score())
    };
    let legend =
        goals.iter().enumerate().map(|(number, goal)| (line_style(number).0, false, name(goal))).collect();
    let of_one = match designs {
        [one] => format!("{}: ", clipped(&one.name)),
        _ => String::new(),
    };
    Figure {
        title: "Switching time: how long the protection before the switch is enough".into(),
        subtitle: format!(
            "{of_one}disk index {:.1}; one undetected corruption in as much read",
            index_of(disk.value())
        ),
        panels: designs.iter().map(panel).collect(),
        columns: if designs.len() > 1 { 2 } else { 1 },
        legend: Legend::Lines(legend),
    }
}

/// Steps of a scale of scores.
const STEPS_MAX: f64 = 14.0;

/// Scores over both indices, a panel for each design, in one scale of colours.
pub fn contours(grids: &[(String, Grid)], residency: f64, goal: Goal) -> Figure {
    let ranges = grids.iter().map(|(_, grid)| grid.range()).filter(|range| range.0.is_finite());
    let (low, high) = ranges.fold((f64::INFINITY, f64::NEG_INFINITY), |all, range| {
        (all.0.min(range.0), all.1.max(if range.1.is_finite() { range.1 } else { range.0 }))
    });
    let (low, high) = if low < high { (low, high) } else { (low.min(0.0), low.max(0.0) + 1.0) };
    let step = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
        .into_iter()
        .find(|step| (high - low) / step <= STEPS_MAX)
        .unwrap_or(1000.0);
    let first = (low / step).floor();
    let count = ((high / step).ceil() - first).max(1.0);
    let edges: Vec<f64> = (0..=count as usize).map(|number| (first + number as f64) * step).collect();
    let colors: Vec<Color> =
        (0..count as usize).map(|number| shade(number as f64 / (count - 1.0).max(1.0))).collect();
    let band = |score: f64| ((score / step).floor() - first).clamp(0.0, count - 1.0) as usize;
    let panels = grids.iter().map(|(name, grid)| {
        let mut curves: Vec<Curve> = levels(grid)
            .into_iter()
            .flat_map(|level| level_curves(grid, level, Color::INK, 0.8, Some(&level.to_string())))
            .collect();
        curves.extend(level_curves(grid, goal.score(), Color::GOAL, 2.2, None));
        Panel {
            title: clipped(name),
            x: axis("memory index (-log10 errors/s/bit)", &grid.memory),
            y: axis("disk index (-log10 errors/bit)", &grid.disk),
            tiles: tiles(grid, &band, &colors),
            curves,
        }
    });
    Figure {
        title: "Reliability score over memory and disk error rates".into(),
        subtitle: format!(
            "residency {}; score = -log10 of the probability that a block of 4 KiB is read wrong unnoticed",
            text::seconds(residency)
        ),
        panels: panels.collect(),
        columns: grids.len().clamp(1, 3),
        legend: Legend::Scale {
            title: "score".into(),
            colors: colors.clone(),
            edges: edges.clone(),
            lines: vec![(Color::GOAL, false, format!("goal {:.1}", goal.score()))],
        },
    }
}

/// Lines of equal score that a panel has room for.
const LINES_MAX: f64 = 9.0;

/// Round scores within a grid.
fn levels(grid: &Grid) -> Vec<f64> {
    let (low, high) = grid.range();
    if !(low.is_finite() && high.is_finite()) {
        return Vec::new();
    }
    let step = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let step = step.into_iter().find(|step| (high - low) / step <= LINES_MAX).unwrap_or(1000.0);
    let (first, last) = ((low / step).floor() as i64 + 1, (high / step).ceil() as i64 - 1);
    (first..=last).map(|number| number as f64 * step).collect()
}

fn axis(title: &str, indices: &[f64]) -> Axis {
    Axis::linear(title, indices.first().copied().unwrap_or(0.0), indices.last().copied().unwrap_or(1.0))
}

fn level_curves(grid: &Grid, level: f64, color: Color, width: f64, label: Option<&str>) -> Vec<Curve> {
    let lines = grid.lines(level);
    let longest = lines.iter().map(Vec::len).max().unwrap_or(0);
    let curve = |points: Vec<(f64, f64)>| {
        // One label for each level is enough.
        let label = label.filter(|_| points.len() == longest).map(str::to_owned);
        Curve { points, color, width, dashed: false, label }
    };
    lines.into_iter().map(curve).collect()
}

/// Each point stands for the room around it; neighbours of one colour in a row are one tile.
fn tiles(grid: &Grid, band: &impl Fn(f64) -> usize, colors: &[Color]) -> Vec<Tile> {
    let room = |indices: &[f64], at: usize| {
        let edge = |a: usize, b: usize| f64::midpoint(indices[a], indices[b]);
        let last = indices.len() - 1;
        (edge(at.saturating_sub(1), at), edge(at, (at + 1).min(last)))
    };
    let mut tiles: Vec<Tile> = Vec::new();
    for row in 0..grid.disk.len() {
        let y = room(&grid.disk, row);
        let mut start = 0;
        for column in 0..grid.memory.len() {
            let this = band(grid.score(row, column));
            let is_end = column + 1 == grid.memory.len() || band(grid.score(row, column + 1)) != this;
            if is_end {
                let x = (room(&grid.memory, start).0, room(&grid.memory, column).1);
                tiles.push(Tile { x, y, color: colors[this.min(colors.len() - 1)] });
                start = column + 1;
            }
        }
    }
    tiles
}
