//! A scene as SVG.

use std::fmt::Write;

use crate::scene::{Anchor, Item, Scene};

const FONT: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

/// The SVG document.
pub fn svg(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"{FONT}\">\n"
    );
    for item in &scene.items {
        // Writing to a string cannot fail.
        let _ = draw(&mut out, item);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, item: &Item) -> std::fmt::Result {
    match item {
        Item::Line { points, color, width, dashed } => {
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let dash = if *dashed { " stroke-dasharray=\"7 4\"" } else { "" };
            writeln!(
                out,
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dash} points=\"{}\"/>",
                color.hex(),
                path.join(" ")
            )
        }
        Item::Area { place: [x, y, width, height], color } => writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\" shape-rendering=\"crispEdges\"/>",
            color.hex()
        ),
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
                color.hex(),
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
    use crate::Color;

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
}
