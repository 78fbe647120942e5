//! `rotproof volume matrix`.

use rotproof_matrix::{Cell, all_cells, table, volume_cell};
use serde_json::json;

use super::args::MatrixArgs;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::output::Output;
use crate::units::counted;

/// Does all cells and prints the table. Exit 1 if one is not as it should be.
pub fn matrix(args: &MatrixArgs, output: Output) -> Result<Exit, Failure> {
    let cells: Vec<Cell> = all_cells()
        .into_iter()
        .map(|(fault, place, when)| volume_cell(fault, place, when, args.seed))
        .collect::<Result<_, _>>()?;
    let broken: Vec<&Cell> = cells.iter().filter(|cell| !cell.is_as_promised()).collect();
    if args.json {
        output.json(&json!({ "seed": args.seed, "cells": cells, "broken": broken }));
    } else {
        output.result(table(&cells));
        for cell in &broken {
            let error = cell.error.as_deref().unwrap_or("wrong data were handed out");
            let (fault, place, when) = (cell.fault.word(), cell.place.word(), cell.when.word());
            output.note(format_args!("{fault}, {place}, {when}: {error}"));
        }
        output.result(match broken.len() {
            0 => format!("{}, none silent, all as they should be", counted(cells.len() as u64, "cell")),
            broken => format!("{} of {} cells are not as they should be", broken, cells.len()),
        });
    }
    Ok(if broken.is_empty() { Exit::Pass } else { Exit::VerdictFailed })
}
