//! A scene as SVG.

use std::fmt::Write;

use crate::Color;
use crate::scene::{Anchor, Item, Scene};

const FONT: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

/// How colours are written.
#[derive(Clone, Copy)]
enum Ink {
    /// As they are.
    Fixed,
    /// As properties that the page may give other values, such as in the dark: `--222222` for `#222222`.
    OfPage,
}

impl Ink {
    fn of(self, color: Color) -> String {
        let hex = color.hex();
        match self {
            Self::Fixed => hex,
            Self::OfPage => format!("var(--{}, {hex})", &hex[1..]),
        }
    }
}

/// The SVG document.
pub fn svg(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"{FONT}\">\n"
    );
    draw_all(&mut out, &scene.items, Ink::Fixed);
    out.push_str("</svg>\n");
    out
}

/// The scene as an element of an HTML page that is as wide as its place there. `label` says in words what is to be seen,
/// for who does not see it. A page may give each colour another value, by a property of its name (`--222222`).
pub fn svg_element(scene: &Scene, label: &str) -> String {
    let mut out = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
        scene.width,
        scene.height,
        escape(label)
    );
    draw_all(&mut out, &scene.items, Ink::OfPage);
    out.push_str("</svg>\n");
    out
}

fn draw_all(out: &mut String, items: &[Item], ink: Ink) {
    for item in items {
        // Writing to a string cannot fail.
        let _ = draw(out, item, ink);
    }
}

fn draw(out: &mut String, item: &Item, ink: Ink) -> std::fmt::Result {
    match item {
        Item::Line { points, color, width, dashed } => {
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let dash = if *dashed { " stroke-dasharray=\"7 4\"" } else { "" };
            writeln!(
                out,
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dash} points=\"{}\"/>",
                ink.of(*color),
                path.join(" ")
            )
        }
        Item::Area { place: [x, y, width, height], color } => writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\" shape-rendering=\"crispEdges\"/>",
            ink.of(*color)
        ),
        Item::Group { kind, title, items } => {
            match title.is_empty() {
                true => writeln!(out, "<g class=\"{kind}\">")?,
                false => writeln!(out, "<g class=\"{kind}\"><title>{}</title>", escape(title))?,
            }
            draw_all(out, items, ink);
            writeln!(out, "</g>")
        }
        Item::Text { at: (x, y), text, size, color, anchor, is_upright, is_bold } => {
            if text.is_empty() {
                return Ok(());
            }
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let turned =
                if *is_upright { format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"") } else { String::new() };
            let weight = if *is_bold { " font-weight=\"bold\"" } else { "" };
            // Within the size of the letters that PNG has, which the layout has reckoned with.
            let size = size * 0.92;
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" fill=\"{}\" text-anchor=\"{anchor}\"{weight}{turned}>{}</text>",
                ink.of(*color),
                escape(text)
            )
        }
    }
}

/// Text that XML and HTML take for text.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_stays_a_text() {
        let text = Item::Text {
            at: (1.0, 2.0),
            text: "<script>\"&\0".into(),
            size: 13.0,
            color: Color::INK,
            anchor: Anchor::End,
            is_upright: true,
            is_bold: true,
        };
        let drawn = svg(&Scene { width: 10.0, height: 10.0, items: vec![text] });
        assert!(drawn.contains(">&lt;script&gt;&quot;&amp; </text>"), "{drawn}");
        assert!(drawn.contains("rotate(-90 1.0 2.0)") && drawn.contains("text-anchor=\"end\""));
    }

    #[test]
    fn in_a_page_colours_are_the_pages_and_a_group_has_its_text() {
        let area = Item::Area { place: [0.0, 0.0, 1.0, 1.0], color: Color::INK };
        let group = Item::Group { kind: "hit", title: "a < b".into(), items: vec![area] };
        let scene = Scene { width: 10.0, height: 10.0, items: vec![group] };
        let drawn = svg_element(&scene, "two \"hits\"");
        assert!(drawn.contains("aria-label=\"two &quot;hits&quot;\""), "{drawn}");
        assert!(drawn.contains("<g class=\"hit\"><title>a &lt; b</title>"), "{drawn}");
        assert!(drawn.contains("fill=\"var(--222222, #222222)\""), "{drawn}");
        assert!(svg(&scene).contains("fill=\"#222222\""));
    }
}
