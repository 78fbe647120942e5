//! `--matrix`: the trials of a command, once for each combination of values, and one table of what came of them.

use std::str::FromStr;

use crate::output::Paint;
use crate::table::{Align, Table, clip};

/// Values of one axis, and runs of one command: more are a mistake in typing.
const VALUES_MAX: usize = 1000;
/// Combinations of all axes.
pub const CELLS_MAX: usize = 10_000;
/// Columns of the table that one axis may take.
const COLUMNS_MAX: usize = 10;
/// Columns of a terminal.
const WIDTH: usize = 80;

/// A path into the trial file, and the values that it takes in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// As for `--set`.
    pub path: String,
    /// At least one.
    pub values: Vec<String>,
}

/// What one cell sets: a value of each axis.
pub type Setting = Vec<(String, String)>;

impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}` {why}; write for example subject=ext4,xfs or seed=1..10");
        let (path, values) = text.split_once('=').ok_or_else(|| wrong("says no values"))?;
        let (path, values) = (path.trim(), values.trim());
        if path.is_empty() || values.is_empty() {
            return Err(wrong("says no values"));
        }
        let values = match values.split_once("..").map(|(first, last)| (first.parse(), last.parse())) {
            Some((Ok(first), Ok(last))) => {
                let (first, last): (u64, u64) = (first, last);
                if first > last {
                    return Err(wrong("is an empty range"));
                }
                if last - first >= VALUES_MAX as u64 {
                    return Err(wrong("has too many values, 1000 are the most"));
                }
                (first..=last).map(|number| number.to_string()).collect()
            }
            _ => split(values),
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if let [one] = &values[..]
            && let Some((first, last)) = one.split_once('-').filter(|(a, b)| is_number(a) && is_number(b))
        {
            return Err(wrong(&format!(
                "looks like a range, which is {first}..{last} (a text goes in quotes)"
            )));
        }
        if values.iter().any(String::is_empty) {
            return Err(wrong("has an empty value"));
        }
        if values.len() > VALUES_MAX {
            return Err(wrong("has too many values, 1000 are the most"));
        }
        let is_twice = |(index, value): (usize, &String)| values[..index].contains(value);
        if let Some(twice) = values.iter().enumerate().find(|&pair| is_twice(pair)) {
            return Err(wrong(&format!("has `{}` twice", twice.1)));
        }
        Ok(Self { path: path.to_owned(), values })
    }
}

/// At commas that stand in no brackets and no quotes.
fn split(text: &str) -> Vec<String> {
    let (mut depth, mut quote) = (0usize, None);
    let mut parts = vec![String::new()];
    for c in text.chars() {
        match (quote, c) {
            (None, ',') if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            (None, '\'' | '"') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

/// All combinations, the last axis changing fastest; one that sets nothing without axes. `None` if they are too many.
pub fn settings(axes: &[Axis]) -> Option<Vec<Setting>> {
    let mut all: Vec<Setting> = vec![Vec::new()];
    for axis in axes {
        if all.len() * axis.values.len() > CELLS_MAX {
            return None;
        }
        let with = |setting: &Setting| {
            let setting = setting.clone();
            axis.values
                .iter()
                .map(move |value| [&setting[..], &[(axis.path.clone(), value.clone())]].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    Some(all)
}

/// What came of a cell, in a few letters.
#[derive(Clone, Debug)]
pub struct Told {
    /// Which trial file, where there are several.
    pub trial: String,
    /// What it set.
    pub setting: Setting,
    /// `pass`, `FAIL`, `error` and so on.
    pub word: &'static str,
}

/// One table of all cells: a row for each value of all axes but the last, a column for each value of that, where there is
/// room. With one axis each of its values has a row.
pub fn table(axes: &[Axis], cells: &[Told], paint: Paint) -> String {
    let Some((last, rows)) = axes.split_last().filter(|(last, rows)| fits(last, rows, cells)) else {
        return list(axes, cells, paint);
    };
    let several = cells.iter().any(|cell| cell.trial != cells[0].trial);
    let mut heads = Vec::new();
    heads.extend(several.then_some(("trial", Align::Left)));
    heads.extend(rows.iter().map(|axis| (short(&axis.path), Align::Left)));
    let columns: Vec<String> = last.values.iter().map(|value| clip(value, 10)).collect();
    heads.extend(columns.iter().map(|value| (value.as_str(), Align::Left)));
    let mut table = Table::new(&heads);
    for row in cells.chunks(last.values.len()) {
        let mut texts: Vec<String> = Vec::new();
        texts.extend(several.then(|| clip(&row[0].trial, 20)));
        texts.extend(row[0].setting.iter().take(rows.len()).map(|(_, value)| clip(value, 20)));
        texts.extend(row.iter().map(|cell| cell.word.to_owned()));
        table.row(texts);
    }
    format!("{}\n{}", paint.dim(format!("  columns: {}", last.path)), table.render(paint))
}

fn fits(last: &Axis, rows: &[Axis], cells: &[Told]) -> bool {
    let wide = |value: &String| value.chars().count().clamp(5, 10) + 2;
    let labels: usize = rows
        .iter()
        .map(|axis| {
            axis.values.iter().map(|value| value.chars().count().min(20)).max().unwrap_or(0).max(8) + 2
        })
        .sum();
    let trial = if cells.iter().any(|cell| cell.trial != cells[0].trial) { 22 } else { 0 };
    !rows.is_empty()
        && last.values.len() <= COLUMNS_MAX
        && trial + labels + last.values.iter().map(wide).sum::<usize>() + 2 <= WIDTH
}

fn list(axes: &[Axis], cells: &[Told], paint: Paint) -> String {
    let several = cells.iter().any(|cell| cell.trial != cells[0].trial);
    let mut heads = Vec::new();
    heads.extend(several.then_some(("trial", Align::Left)));
    heads.extend(axes.iter().map(|axis| (short(&axis.path), Align::Left)));
    heads.push(("verdict", Align::Left));
    let mut table = Table::new(&heads);
    for cell in cells {
        let mut texts: Vec<String> = Vec::new();
        texts.extend(several.then(|| clip(&cell.trial, 20)));
        texts.extend(cell.setting.iter().map(|(_, value)| clip(value, 24)));
        texts.push(cell.word.to_owned());
        table.row(texts);
    }
    table.render(paint)
}

/// The last key of a path.
pub fn short(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(text: &str) -> Axis {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn an_axis_has_values_or_a_range_of_numbers() {
        assert_eq!(axis("subject=ext4, xfs").values, ["ext4", "xfs"]);
        assert_eq!(axis("seed=1..4").values, ["1", "2", "3", "4"]);
        assert_eq!(
            axis("load.block_size={4KiB: 50%, 8KiB: 50%},64KiB").values,
            ["{4KiB: 50%, 8KiB: 50%}", "64KiB"]
        );
        assert_eq!(axis("name='1-3'").values, ["'1-3'"]);
        assert_eq!(axis("faults[0]='read, once: error',\"a,b\"").values, ["'read, once: error'", "\"a,b\""]);
        for wrong in ["subject", "=a", "a=", "a=1,", "a=b,b", "seed=5..1", "seed=1..100000", "seed=1-3"] {
            assert!(wrong.parse::<Axis>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cells_are_all_combinations_and_the_last_axis_changes_fastest() {
        let all = settings(&[axis("a=1,2"), axis("b=x,y,z")]).expect("few");
        let texts: Vec<String> =
            all.iter().map(|cell| cell.iter().map(|(_, value)| value.as_str()).collect()).collect();
        assert_eq!(texts, ["1x", "1y", "1z", "2x", "2y", "2z"]);
        assert_eq!(settings(&[]), Some(vec![Vec::new()]));
        assert_eq!(settings(&[axis("a=1..1000"), axis("b=1..1000")]), None);
    }

    #[test]
    fn the_table_has_a_column_for_each_value_of_the_last_axis_where_they_fit() {
        let axes = [axis("subject=ext4,xfs"), axis("seed=1..3")];
        let told: Vec<Told> = settings(&axes)
            .expect("few")
            .into_iter()
            .enumerate()
            .map(|(index, setting)| Told {
                trial: "t".into(),
                setting,
                word: if index == 4 { "FAIL" } else { "pass" },
            })
            .collect();
        let text = table(&axes, &told, Paint::OFF);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["subject", "1", "2", "3"], "{text}");
        assert_eq!(rows[3], ["xfs", "pass", "FAIL", "pass"], "{text}");
        let text = table(&axes[..1], &told[..2], Paint::OFF);
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
