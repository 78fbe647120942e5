//! What is drawn where: the common ground of all formats. Pixels from the upper left corner.

use crate::Color;

/// A picture made of items, drawn in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// Pixels.
    pub width: f64,
    /// Pixels.
    pub height: f64,
    /// From the back to the front.
    pub items: Vec<Item>,
}

/// One thing to draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A chain of points.
    Line {
        /// Its points.
        points: Vec<(f64, f64)>,
        /// Its colour.
        color: Color,
        /// Pixels.
        width: f64,
        /// Whether it is dashed.
        dashed: bool,
    },
    /// A filled rectangle.
    Area {
        /// Left, top, width, height.
        place: [f64; 4],
        /// Its colour.
        color: Color,
    },
    /// Items that are one thing: a mark with a text that comes up where it is pointed at.
    Group {
        /// Which kind of thing, for the style of a page.
        kind: &'static str,
        /// The text, or none; formats that cannot show it leave it out.
        title: String,
        /// What it is made of.
        items: Vec<Item>,
    },
    /// A line of text.
    Text {
        /// Where its anchor is; the second number is its base line.
        at: (f64, f64),
        /// The text.
        text: String,
        /// Pixels from base line to base line.
        size: f64,
        /// Its colour.
        color: Color,
        /// Which part of it is at the place.
        anchor: Anchor,
        /// Whether it reads upwards.
        is_upright: bool,
        /// Whether it is a heading.
        is_bold: bool,
    },
}

/// Which part of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its middle.
    Middle,
    /// Its right end.
    End,
}
