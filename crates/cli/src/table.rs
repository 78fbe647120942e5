//! Tables of plain text: columns as wide as their widest cell, numbers to the right, two spaces between, no lines.

use crate::output::{Paint, visible};

/// To which side a column's cells go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a heading.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// How wide a table may be; its last column is cut where it is wider.
const WIDTH_MAX: usize = 80;

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(heading, align)| ((*heading).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<I: IntoIterator<Item: ToString>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// The table, each line indented by two spaces, without a line break at its end.
    pub fn render(&self, paint: Paint) -> String {
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self.rows.iter().chain([&headings]).filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut lines = vec![paint.dim(self.line(&headings, &widths)).to_string()];
        lines.extend(self.rows.iter().map(|row| self.line(row, &widths)));
        lines.join("\n")
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, ((_, align), width)) in self.columns.iter().zip(widths).enumerate() {
            let cell = cells.get(column).map_or("", String::as_str);
            line.push_str("  ");
            match align {
                Align::Left => line.push_str(&format!("{cell:width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        clip(line.trim_end(), WIDTH_MAX)
    }
}

/// `text` within `width` characters, with an ellipsis where something was cut, and without characters that a
/// terminal would obey.
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.chars().map(visible).collect();
    }
    let mut clipped: String = text.chars().take(width.saturating_sub(1)).map(visible).collect();
    clipped.push('…');
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ColorChoice;
    use crate::output::Output;

    #[test]
    fn words_stand_left_numbers_right_and_no_line_is_wider_than_a_terminal() {
        let mut table = Table::new(&[("fault", Align::Left), ("hits", Align::Right), ("what", Align::Left)]);
        table.row(["rot", "64", "bit flip"]);
        table.row(["lost-write", "7", &"x".repeat(100)]);
        let text = table.render(Output::new(ColorChoice::Never).stdout_paint());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "  fault       hits  what");
        assert_eq!(lines[1], "  rot           64  bit flip");
        assert_eq!(lines[2].chars().count(), 80);
        assert!(lines[2].ends_with('…'));
    }
}
