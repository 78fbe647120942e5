//! What is to be seen, before it has places.

use crate::{Axis, Color};

/// A picture: panels in rows, under a title, beside a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// Under which conditions.
    pub subtitle: String,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
    /// What colours mean.
    pub legend: Legend,
}

/// One pair of axes and what is drawn between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What it shows; empty if the figure says it.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Filled rectangles, behind everything.
    pub tiles: Vec<Tile>,
    /// Lines.
    pub curves: Vec<Curve>,
}

/// A filled rectangle, in numbers of the axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tile {
    /// From and to, along x.
    pub x: (f64, f64),
    /// From and to, along y.
    pub y: (f64, f64),
    /// Its colour.
    pub color: Color,
}

/// A line, in numbers of the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its points; where one is not finite the line is broken.
    pub points: Vec<(f64, f64)>,
    /// Its colour.
    pub color: Color,
    /// Pixels.
    pub width: f64,
    /// Whether it is dashed.
    pub dashed: bool,
    /// A text on the line itself, where there is room.
    pub label: Option<String>,
}

/// What colours mean.
#[derive(Clone, Debug, PartialEq)]
pub enum Legend {
    /// Lines by name: colour, dashed, name.
    Lines(Vec<(Color, bool, String)>),
    /// A scale in steps: its title, the colour of each step from the least on, and the numbers between and around them.
    Scale {
        /// What it measures.
        title: String,
        /// Colours of the steps, least first.
        colors: Vec<Color>,
        /// One number more than colours.
        edges: Vec<f64>,
        /// Lines by name beside it.
        lines: Vec<(Color, bool, String)>,
    },
}
