//! Charts: lines and filled planes in panels with axes and a legend, as SVG, PNG, or HTML in one file.
//!
//! A [`Figure`] says what is to be seen; [`layout`](Figure::scene) turns it into a [`Scene`] of lines, areas and texts; each
//! format draws the same scene. Nothing here knows what the numbers mean, and nothing is fetched from a network or read
//! from fonts of the machine: PNG has letters of its own.

mod axis;
mod color;
mod figure;
mod glyphs;
mod html;
mod layout;
mod png;
mod scene;
mod svg;

pub use axis::{Axis, Scaling};
pub use color::{Color, LINE_COLORS, shade};
pub use figure::{Curve, Figure, Legend, Panel, Tile};
pub use glyphs::width_of;
pub use html::html;
pub use png::png;
pub use scene::{Anchor, Item, Scene};
pub use svg::{escape, svg, svg_element};
