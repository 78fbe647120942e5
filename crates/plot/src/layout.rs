//! From a figure to a scene: places for panels, axes, curves, labels and the legend.

use crate::Color;
use crate::axis::Axis;
use crate::figure::{Curve, Figure, Legend, Panel};
use crate::glyphs::width_of;
use crate::scene::{Anchor, Item, Scene};

const TEXT: f64 = 13.0;
const HEADING: f64 = 17.0;
const MARGIN: f64 = 18.0;
/// Room of a panel for the names of its axes.
const LEFT: f64 = 70.0;
const BELOW: f64 = 50.0;
const ABOVE: f64 = 30.0;
const RIGHT: f64 = 16.0;
const LEGEND_LINE: f64 = 20.0;
const LEGEND_SAMPLE: f64 = 26.0;

/// A rectangle in pixels: left, top, right, bottom.
type Rectangle = [f64; 4];

impl Figure {
    /// Everything in its place.
    pub fn scene(&self) -> Scene {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns).max(1);
        let (inner_width, inner_height) = if columns == 1 { (640.0, 400.0) } else { (270.0, 230.0) };
        let (cell_width, cell_height) = (LEFT + inner_width + RIGHT, ABOVE + inner_height + BELOW);
        let top = MARGIN + 2.0 * HEADING + 14.0;
        // A free place in the last row is where the legend goes; otherwise it stands on the right.
        let is_free = self.panels.len() < columns * rows && rows > 1;
        let legend_width = self.legend_width();
        let right = if is_free { 0.0 } else { legend_width + 10.0 };
        let width = (2.0 * MARGIN + columns as f64 * cell_width + right)
            .max(2.0 * MARGIN + width_of(&self.title) * HEADING)
            .max(2.0 * MARGIN + width_of(&self.subtitle) * TEXT);
        let height = top + rows as f64 * cell_height + MARGIN;
        let mut scene = Scene { width: width.ceil(), height: height.ceil(), items: Vec::new() };
        scene.items.push(Item::Area { place: [0.0, 0.0, scene.width, scene.height], color: Color::PAPER });
        let mut page = Page { items: &mut scene.items };
        page.text((MARGIN, MARGIN + HEADING), &self.title, HEADING, Anchor::Start, true);
        page.text((MARGIN, MARGIN + 2.0 * HEADING + 6.0), &self.subtitle, TEXT, Anchor::Start, false);
        let corner = |number: usize| {
            let (row, column) = ((number / columns) as f64, (number % columns) as f64);
            (MARGIN + column * cell_width, top + row * cell_height)
        };
        for (number, panel) in self.panels.iter().enumerate() {
            let (x, y) = corner(number);
            page.panel(panel, [x + LEFT, y + ABOVE, x + LEFT + inner_width, y + ABOVE + inner_height]);
        }
        let (x, y) = if is_free {
            let (x, y) = corner(self.panels.len());
            (x + LEFT, y)
        } else {
            (MARGIN + columns as f64 * cell_width + 10.0, top)
        };
        page.legend(&self.legend, x, y + ABOVE, inner_height);
        scene
    }

    fn legend_width(&self) -> f64 {
        let of_lines = |lines: &[(Color, bool, String)]| {
            lines.iter().map(|(.., name)| LEGEND_SAMPLE + 10.0 + width_of(name) * TEXT).fold(0.0, f64::max)
        };
        match &self.legend {
            Legend::Lines(lines) => of_lines(lines),
            Legend::Scale { title, lines, .. } => of_lines(lines).max(width_of(title) * TEXT).max(70.0),
        }
    }
}

struct Page<'a> {
    items: &'a mut Vec<Item>,
}

impl Page<'_> {
    fn text(&mut self, at: (f64, f64), text: &str, size: f64, anchor: Anchor, is_bold: bool) {
        self.items.push(Item::Text {
            at,
            text: text.to_owned(),
            size,
            color: Color::INK,
            anchor,
            is_upright: false,
            is_bold,
        });
    }

    fn line(&mut self, points: Vec<(f64, f64)>, color: Color, width: f64, dashed: bool) {
        self.items.push(Item::Line { points, color, width, dashed });
    }

    fn panel(&mut self, panel: &Panel, place: Rectangle) {
        let [left, top, right, bottom] = place;
        let at = |x: f64, y: f64| {
            (left + panel.x.share(x) * (right - left), bottom - panel.y.share(y) * (bottom - top))
        };
        for tile in &panel.tiles {
            let (a, b) = (at(tile.x.0, tile.y.0), at(tile.x.1, tile.y.1));
            let [x0, x1] = [a.0.clamp(left, right), b.0.clamp(left, right)];
            let [y0, y1] = [b.1.clamp(top, bottom), a.1.clamp(top, bottom)];
            self.items.push(Item::Area { place: [x0, y0, x1 - x0, y1 - y0], color: tile.color });
        }
        self.axes(panel, place);
        let mut taken: Vec<Rectangle> = Vec::new();
        let mut labels = Vec::new();
        for curve in &panel.curves {
            let points: Vec<(f64, f64)> = curve.points.iter().map(|&(x, y)| at(x, y)).collect();
            let pieces = clip(&points, place);
            if let Some(found) =
                curve.label.as_deref().and_then(|text| label_place(text, &pieces, place, &taken))
            {
                taken.push(found);
                labels.push((found, curve));
            }
            for piece in pieces {
                self.line(piece, curve.color, curve.width, curve.dashed);
            }
        }
        for (spot, curve) in labels {
            self.label(spot, curve);
        }
        self.line(
            vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)],
            Color::INK,
            1.0,
            false,
        );
    }

    /// Grid, names of numbers, and titles.
    fn axes(&mut self, panel: &Panel, [left, top, right, bottom]: Rectangle) {
        let is_plain = panel.tiles.is_empty();
        let fits = |axis: &Axis, room: f64, each: f64| axis.ticks(((room / each) as usize).clamp(2, 10));
        for (number, name) in fits(&panel.x, right - left, 55.0) {
            let x = left + panel.x.share(number) * (right - left);
            if is_plain {
                self.line(vec![(x, top), (x, bottom)], Color::FAINT, 1.0, false);
            }
            self.line(vec![(x, bottom), (x, bottom + 5.0)], Color::INK, 1.0, false);
            self.text((x, bottom + 7.0 + TEXT), &name, TEXT, Anchor::Middle, false);
        }
        for (number, name) in fits(&panel.y, bottom - top, 42.0) {
            let y = bottom - panel.y.share(number) * (bottom - top);
            if is_plain {
                self.line(vec![(left, y), (right, y)], Color::FAINT, 1.0, false);
            }
            self.line(vec![(left - 5.0, y), (left, y)], Color::INK, 1.0, false);
            self.text((left - 8.0, y + 0.35 * TEXT), &name, TEXT, Anchor::End, false);
        }
        self.text((f64::midpoint(left, right), bottom + 40.0), &panel.x.title, TEXT, Anchor::Middle, false);
        self.items.push(Item::Text {
            at: (left - 54.0, f64::midpoint(top, bottom)),
            text: panel.y.title.clone(),
            size: TEXT,
            color: Color::INK,
            anchor: Anchor::Middle,
            is_upright: true,
            is_bold: false,
        });
        self.text((left, top - 9.0), &panel.title, TEXT + 1.0, Anchor::Start, true);
    }

    /// A text on its own line, on a bit of paper.
    fn label(&mut self, spot: Rectangle, curve: &Curve) {
        let [left, top, right, bottom] = spot;
        let place = [left, top, right - left, bottom - top];
        self.items.push(Item::Area { place, color: Color::PAPER });
        self.items.push(Item::Text {
            at: (f64::midpoint(left, right), bottom - 3.0),
            text: curve.label.clone().unwrap_or_default(),
            size: LABEL,
            color: curve.color,
            anchor: Anchor::Middle,
            is_upright: false,
            is_bold: false,
        });
    }

    fn legend(&mut self, legend: &Legend, x: f64, y: f64, height: f64) {
        let (mut y, lines) = match legend {
            Legend::Lines(lines) => (y, lines),
            Legend::Scale { title, colors, edges, lines } => {
                self.text((x, y - 9.0), title, TEXT, Anchor::Start, true);
                let room = height - LEGEND_LINE * lines.len() as f64 - 12.0;
                let step = room / colors.len().max(1) as f64;
                for (number, &color) in colors.iter().rev().enumerate() {
                    let place = [x, y + number as f64 * step, LEGEND_SAMPLE, step + 0.5];
                    self.items.push(Item::Area { place, color });
                }
                let every = (16.0 / step).ceil().max(1.0) as usize;
                for (number, edge) in edges.iter().rev().enumerate().filter(|(number, _)| number % every == 0)
                {
                    let at = y + number as f64 * step;
                    self.line(
                        vec![(x + LEGEND_SAMPLE, at), (x + LEGEND_SAMPLE + 5.0, at)],
                        Color::INK,
                        1.0,
                        false,
                    );
                    let place = (x + LEGEND_SAMPLE + 9.0, at + 0.35 * TEXT);
                    self.text(place, &edge.to_string(), TEXT, Anchor::Start, false);
                }
                (y + room + LEGEND_LINE, lines)
            }
        };
        for (color, dashed, name) in lines {
            self.line(vec![(x, y), (x + LEGEND_SAMPLE, y)], *color, 2.5, *dashed);
            self.text((x + LEGEND_SAMPLE + 8.0, y + 0.35 * TEXT), name, TEXT, Anchor::Start, false);
            y += LEGEND_LINE;
        }
    }
}

const LABEL: f64 = 11.0;

/// Where on a line a label fits: inside the panel, and over no other label.
fn label_place(
    text: &str,
    pieces: &[Vec<(f64, f64)>],
    panel: Rectangle,
    taken: &[Rectangle],
) -> Option<Rectangle> {
    let (width, height) = (width_of(text) * LABEL + 6.0, LABEL + 3.0);
    let longest = pieces.iter().max_by_key(|piece| piece.len())?;
    for share in [0.5, 0.35, 0.65, 0.2, 0.8, 0.1, 0.9] {
        let (x, y) = longest[((longest.len() - 1) as f64 * share) as usize];
        let place = [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0];
        let is_inside = place[0] > panel[0] + 2.0
            && place[1] > panel[1] + 2.0
            && place[2] < panel[2] - 2.0
            && place[3] < panel[3] - 2.0;
        let meets = |other: &Rectangle| {
            place[0] < other[2] + 4.0
                && other[0] < place[2] + 4.0
                && place[1] < other[3] + 4.0
                && other[1] < place[3] + 4.0
        };
        if is_inside && !taken.iter().any(meets) {
            return Some(place);
        }
    }
    None
}

/// The parts of a chain that are inside a rectangle (Liang, Barsky 1984); it is broken at points without a place.
fn clip(points: &[(f64, f64)], [left, top, right, bottom]: Rectangle) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if ![x0, y0, x1, y1].iter().all(|number| number.is_finite()) {
            continue;
        }
        let (dx, dy) = (x1 - x0, y1 - y0);
        let (mut from, mut to) = (0.0f64, 1.0f64);
        let mut is_outside = false;
        for (speed, room) in [(-dx, x0 - left), (dx, right - x0), (-dy, y0 - top), (dy, bottom - y0)] {
            if speed == 0.0 {
                is_outside |= room < 0.0;
            } else if speed < 0.0 {
                from = from.max(room / speed);
            } else {
                to = to.min(room / speed);
            }
        }
        if is_outside || from > to {
            continue;
        }
        let at = |share: f64| (x0 + dx * share, y0 + dy * share);
        let (a, b) = (at(from), at(to));
        match pieces.last_mut() {
            Some(piece) if piece.last() == Some(&a) => piece.push(b),
            _ => pieces.push(vec![a, b]),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_the_frame_and_broken_where_it_has_no_place() {
        let frame = [0.0, 0.0, 10.0, 10.0];
        let line = [(-5.0, 5.0), (5.0, 5.0), (5.0, 15.0)];
        assert_eq!(clip(&line, frame), [vec![(0.0, 5.0), (5.0, 5.0), (5.0, 10.0)]]);
        let broken = [(1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 1.0)];
        assert_eq!(clip(&broken, frame), [vec![(3.0, 1.0), (4.0, 1.0)]]);
        assert!(clip(&[(20.0, 0.0), (20.0, 9.0)], frame).is_empty());
    }

    #[test]
    fn a_label_avoids_the_frame_and_other_labels() {
        let panel = [0.0, 0.0, 200.0, 100.0];
        let line = vec![(0..200).map(|x| (f64::from(x), 50.0)).collect::<Vec<_>>()];
        let first = label_place("17.5", &line, panel, &[]).expect("room");
        let second = label_place("17.5", &line, panel, &[first]).expect("room");
        assert!(second[2] < first[0] || second[0] > first[2], "{first:?} {second:?}");
        assert_eq!(label_place("17.5", &[vec![(0.0, 0.0), (1.0, 0.0)]], panel, &[]), None);
    }
}
