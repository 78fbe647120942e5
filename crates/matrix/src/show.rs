//! Cells as a table in Markdown.

use std::fmt::Write;

use crate::cell::{Cell, Fault, Place, When};

/// A row for each fault, a column for each place; in each cell the letter at rest and under load.
pub fn table(cells: &[Cell]) -> String {
    let places: Vec<Place> =
        Place::ALL.into_iter().filter(|place| cells.iter().any(|cell| cell.place == *place)).collect();
    let mut text = String::from("| |");
    for place in &places {
        let _ = write!(text, " {} |", place.word());
    }
    let _ = write!(text, "\n|---|{}", "---|".repeat(places.len()));
    for fault in Fault::ALL {
        if cells.iter().all(|cell| cell.fault != fault) {
            continue;
        }
        let _ = write!(text, "\n| {} |", fault.word());
        for place in &places {
            let letter = |when: When| {
                let found =
                    cells.iter().find(|cell| (cell.fault, cell.place, cell.when) == (fault, *place, when));
                found.map_or(' ', |cell| cell.fate.letter())
            };
            let letters = format!("{} {}", letter(When::Rest), letter(When::Load));
            let _ = write!(text, " {} |", letters.trim());
        }
    }
    text.push('\n');
    text
}

/// The same of several systems: for each fault a row for each of them.
pub fn table_of_several(systems: &[(&str, &[Cell])]) -> String {
    let mut text = String::from("| | |");
    for place in Place::ALL {
        let _ = write!(text, " {} |", place.word());
    }
    let _ = write!(text, "\n|---|---|{}", "---|".repeat(Place::ALL.len()));
    for fault in Fault::ALL {
        for (number, (name, cells)) in systems.iter().enumerate() {
            let word = if number == 0 { fault.word() } else { "" };
            let _ = write!(text, "\n| {word} | {name} |");
            for place in Place::ALL {
                let letter = |when: When| {
                    let is_it = |cell: &&Cell| (cell.fault, cell.place, cell.when) == (fault, place, when);
                    cells.iter().find(is_it).map_or(' ', |cell| cell.fate.letter())
                };
                let letters = format!("{} {}", letter(When::Rest), letter(When::Load));
                let _ = write!(text, " {} |", letters.trim());
            }
        }
    }
    text.push('\n');
    text
}
