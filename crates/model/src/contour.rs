//! Scores over a plane of memory and disk indices, and lines of equal score through it.

use crate::switching::is_switched;
use crate::{Bound, Device, Path, Probability, Switch, Uncertain, rate_of_index};

/// The scores of one path over a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Memory indices, the columns.
    pub memory: Vec<f64>,
    /// Disk indices, the rows.
    pub disk: Vec<f64>,
    /// Scores, row by row.
    pub scores: Vec<f64>,
}

/// `count` numbers from `from` to `to`, both included, evenly spaced.
pub fn even_steps(from: f64, to: f64, count: usize) -> Vec<f64> {
    let last = count.saturating_sub(1).max(1) as f64;
    (0..count).map(|number| from + (to - from) * number as f64 / last).collect()
}

impl Grid {
    /// Judges `path` at every pair of indices.
    ///
    /// A path's probability is a sum over its stages, and each depends on one of the indices only: so the stages are
    /// reckoned once for each row and each column.
    pub fn new(path: &Path, memory: &[f64], disk: &[f64], residency: f64) -> Self {
        let is_memory = |device: &Device| matches!(device, Device::Memory(_));
        let sums = |indices: &[f64], wants_memory: bool, is_switched: bool| -> Vec<Probability> {
            let mut part = path.clone();
            part.stages.retain(|stage| is_memory(&stage.device) == wants_memory);
            let at = |&index: &f64| {
                let rate = Uncertain::exact(rate_of_index(index));
                part.clone().on(rate, rate).undetected_as(residency, is_switched, Bound::Value)
            };
            indices.iter().map(at).collect()
        };
        let of_mode = |is_switched| (sums(memory, true, is_switched), sums(disk, false, is_switched));
        let (before, after) = (of_mode(false), of_mode(true));
        let is_switched = |in_before: Probability| match path.switch {
            Some(Switch::AtGoal(goal)) => !goal.is_met_by(in_before),
            _ => is_switched(path, residency),
        };
        let score = |row: usize, column: usize| {
            let in_before = before.0[column].plus(before.1[row]);
            let probability =
                if is_switched(in_before) { after.0[column].plus(after.1[row]) } else { in_before };
            probability.score()
        };
        let points = (0..disk.len()).flat_map(|row| (0..memory.len()).map(move |column| (row, column)));
        Self {
            scores: points.map(|(row, column)| score(row, column)).collect(),
            memory: memory.to_vec(),
            disk: disk.to_vec(),
        }
    }

    /// The score at a row and a column.
    pub fn score(&self, row: usize, column: usize) -> f64 {
        self.scores[row * self.memory.len() + column]
    }

    /// The smallest and the largest score.
    pub fn range(&self) -> (f64, f64) {
        let fold = |start, pick: fn(f64, f64) -> f64| self.scores.iter().copied().fold(start, pick);
        (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
    }

    /// The lines where the score is `level`, as chains of points (memory index, disk index): marching squares, crossings
    /// by linear interpolation.
    pub fn lines(&self, level: f64) -> Vec<Vec<(f64, f64)>> {
        let mut pieces = Vec::new();
        for row in 1..self.disk.len() {
            for column in 1..self.memory.len() {
                self.cross(level, row, column, &mut pieces);
            }
        }
        chain(pieces)
    }

    /// The pieces of a line in the cell whose upper right corner this is.
    fn cross(&self, level: f64, row: usize, column: usize, pieces: &mut Vec<[(f64, f64); 2]>) {
        let corners = [(row - 1, column - 1), (row - 1, column), (row, column), (row, column - 1)];
        let mut points = Vec::with_capacity(4);
        for edge in 0..4 {
            let (from, to) = (corners[edge], corners[(edge + 1) % 4]);
            let (a, b) = (self.score(from.0, from.1), self.score(to.0, to.1));
            if (a < level) != (b < level) {
                let share = if a.is_finite() && b.is_finite() { (level - a) / (b - a) } else { 0.5 };
                let between = |a: f64, b: f64| a + (b - a) * share;
                points.push((
                    between(self.memory[from.1], self.memory[to.1]),
                    between(self.disk[from.0], self.disk[to.0]),
                ));
            }
        }
        // Four crossings are a saddle; either pairing is a guess, and scores that rise along both axes have none.
        for pair in points.chunks_exact(2) {
            pieces.push([pair[0], pair[1]]);
        }
    }
}

/// Joins pieces that share an end.
fn chain(mut pieces: Vec<[(f64, f64); 2]>) -> Vec<Vec<(f64, f64)>> {
    use std::collections::{HashMap, VecDeque};
    // Neighbouring cells reckon a shared crossing from its two ends; a grain far below a cell makes them one.
    let key = |point: (f64, f64)| ((point.0 * 1e7).round() as i64, (point.1 * 1e7).round() as i64);
    pieces.retain(|[a, b]| key(*a) != key(*b));
    let mut at: HashMap<(i64, i64), Vec<usize>> = HashMap::new();
    for (number, piece) in pieces.iter().enumerate() {
        for point in piece {
            at.entry(key(*point)).or_default().push(number);
        }
    }
    let mut is_used = vec![false; pieces.len()];
    let mut lines = Vec::new();
    for start in 0..pieces.len() {
        if std::mem::replace(&mut is_used[start], true) {
            continue;
        }
        let mut line = VecDeque::from(pieces[start]);
        for is_front in [false, true] {
            while let Some(&end) = if is_front { line.front() } else { line.back() } {
                let here = at.get(&key(end)).map_or(&[][..], Vec::as_slice);
                let Some(&next) = here.iter().find(|&&number| !is_used[number]) else { break };
                is_used[next] = true;
                let [a, b] = pieces[next];
                let other = if key(a) == key(end) { b } else { a };
                if is_front { line.push_front(other) } else { line.push_back(other) }
            }
        }
        lines.push(line.into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Goal, systems};

    #[test]
    fn the_grid_is_the_path_at_each_point() {
        let (memory, disk) = (even_steps(13.0, 20.0, 9), even_steps(10.0, 20.0, 7));
        for word in systems::WORDS {
            let path = systems::from_word(word, Goal::zettabyte()).expect("a system");
            let grid = Grid::new(&path, &memory, &disk, 60.0);
            for (row, &disk_index) in disk.iter().enumerate() {
                for (column, &memory_index) in memory.iter().enumerate() {
                    let rates =
                        [memory_index, disk_index].map(|index| Uncertain::exact(rate_of_index(index)));
                    let wanted = path.clone().on(rates[0], rates[1]).undetected(60.0).score();
                    let found = grid.score(row, column);
                    assert!(
                        (found - wanted).abs() < 1e-9,
                        "{word} {memory_index} {disk_index}: {found} {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_line_is_one_chain_along_which_the_score_is_the_level() {
        let (memory, disk) = (even_steps(0.0, 10.0, 21), even_steps(0.0, 10.0, 21));
        let scores = disk.iter().flat_map(|d| memory.iter().map(move |m| m + 2.0 * d)).collect();
        let lines = Grid { memory, disk, scores }.lines(15.3);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].len() > 20);
        assert!(lines[0].iter().all(|(m, d)| (m + 2.0 * d - 15.3).abs() < 1e-9));
        assert!(Grid { memory: vec![], disk: vec![], scores: vec![] }.lines(1.0).is_empty());
    }
}
