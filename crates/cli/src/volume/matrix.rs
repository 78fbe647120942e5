//! `rotproof volume matrix`.

use rotproof_machine::registry::{Registry, Run};
use rotproof_matrix::{Cell, all_cells, table, table_of_several, volume_cell};
use rotproof_matrix_fs::{Peer, peer_cell};
use serde_json::json;

use super::args::MatrixArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::signals::cancel_on_signals;
use crate::units::counted;

/// Does all cells and prints the table. Exit 1 if one of the volume is not as it should be.
pub fn matrix(args: &MatrixArgs, output: Output) -> Result<Exit, CommandError> {
    let cells: Vec<Cell> = all_cells()
        .into_iter()
        .map(|(fault, place, when)| volume_cell(fault, place, when, args.seed))
        .collect::<Result<_, _>>()?;
    let broken: Vec<&Cell> = cells.iter().filter(|cell| !cell.is_as_promised()).collect();
    let beside = beside(args, output)?;
    if args.json {
        let beside: Vec<_> =
            beside.iter().map(|(peer, cells)| json!({ "name": peer.word(), "cells": cells })).collect();
        output.json(&json!({ "seed": args.seed, "cells": cells, "broken": broken, "beside": beside }));
    } else if beside.is_empty() {
        output.result(table(&cells));
    } else {
        let mut systems = vec![("volume", &cells[..])];
        systems.extend(beside.iter().map(|(peer, cells)| (peer.name(), &cells[..])));
        output.result(table_of_several(&systems));
    }
    if !args.json {
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

/// The cells of what stands beside the volume, system by system.
fn beside(args: &MatrixArgs, output: Output) -> Result<Vec<(Peer, Vec<Cell>)>, CommandError> {
    if args.beside.is_empty() {
        return Ok(Vec::new());
    }
    let run = Registry::of_user()?.begin()?;
    let done = args.beside.iter().map(|peer| Ok((*peer, cells_of(*peer, &run, args, output)?)));
    let done: Result<Vec<_>, CommandError> = done.collect();
    let left = run.finish();
    let done = done?;
    match left.into_iter().next() {
        Some(error) => Err(error.while_doing("removing what the cells had created").into()),
        None => Ok(done),
    }
}

fn cells_of(peer: Peer, run: &Run, args: &MatrixArgs, output: Output) -> Result<Vec<Cell>, CommandError> {
    let cancel = cancel_on_signals()?;
    let wanted: Vec<_> = all_cells().into_iter().filter(|(_, place, _)| peer.has(*place)).collect();
    let mut cells = Vec::new();
    for (number, cell) in wanted.iter().enumerate() {
        cancel.check()?;
        if number % 10 == 0 {
            output.note(format_args!("  {}: {number} of {} cells", peer.name(), wanted.len()));
        }
        let name = format!("{}-{number}", peer.word());
        cells.push(peer_cell(run, &name, peer, *cell, args.seed)?);
    }
    Ok(cells)
}
