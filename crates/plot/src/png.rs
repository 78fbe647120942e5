//! A scene as PNG.

use tiny_skia::{
    FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform,
};

use crate::Color;
use crate::glyphs::{self, width_of};
use crate::scene::{Anchor, Item, Scene};

/// The PNG file, `scale` pixels for each of the scene. The error says why there is none.
pub fn png(scene: &Scene, scale: f64) -> Result<Vec<u8>, String> {
    let side = |length: f64| (length * scale).ceil().clamp(1.0, 20_000.0) as u32;
    let mut canvas = Pixmap::new(side(scene.width), side(scene.height))
        .ok_or_else(|| "the picture is too large for memory".to_owned())?;
    let scaled = Transform::from_scale(scale as f32, scale as f32);
    for item in &scene.items {
        draw(&mut canvas, scaled, item);
    }
    canvas.encode_png().map_err(|error| error.to_string())
}

fn paint(color: Color) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(color.0, color.1, color.2, 255);
    paint.anti_alias = true;
    paint
}

fn draw(canvas: &mut Pixmap, scaled: Transform, item: &Item) {
    match item {
        Item::Line { points, color, width, dashed } => {
            let mut builder = PathBuilder::new();
            for (number, &(x, y)) in points.iter().enumerate() {
                if number == 0 {
                    builder.move_to(x as f32, y as f32);
                } else {
                    builder.line_to(x as f32, y as f32);
                }
            }
            let dash = dashed.then(|| StrokeDash::new(vec![7.0, 4.0], 0.0)).flatten();
            stroke(canvas, scaled, builder.finish(), *color, *width as f32, dash);
        }
        Item::Area { place: [x, y, width, height], color } => {
            // Whole pixels, so that neighbours leave no seam.
            let [left, top, right, bottom] =
                [*x, *y, x + width, y + height].map(|number| (number * f64::from(scaled.sx)).round() as f32);
            if let Some(rect) = Rect::from_ltrb(left, top, right, bottom) {
                let mut paint = paint(*color);
                paint.anti_alias = false;
                let path = PathBuilder::from_rect(rect);
                canvas.fill_path(&path, &paint, FillRule::Winding, Transform::identity(), None);
            }
        }
        Item::Group { items, .. } => {
            for item in items {
                draw(canvas, scaled, item);
            }
        }
        Item::Text { at: (x, y), text, size, color, anchor, is_upright, is_bold } => {
            let unit = size * glyphs::UNIT;
            let width = width_of(text) * size;
            let shift = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => -width / 2.0,
                Anchor::End => -width,
            };
            // Letters are drawn along a base line that begins at the origin, then turned and moved.
            let (rise_x, rise_y) = if *is_upright { (0.0, -1.0) } else { (1.0, 0.0) };
            let place = |along: f64, up: f64| {
                let (along, up) = (along * unit + shift, up * unit);
                ((x + along * rise_x + up * rise_y) as f32, (y + along * rise_y - up * rise_x) as f32)
            };
            let weight = if *is_bold { size * 0.13 } else { size * 0.085 };
            let mut builder = PathBuilder::new();
            glyphs::draw(text, &mut builder, place);
            stroke(canvas, scaled, builder.finish(), *color, weight as f32, None);
        }
    }
}

fn stroke(
    canvas: &mut Pixmap,
    scaled: Transform,
    path: Option<Path>,
    color: Color,
    width: f32,
    dash: Option<StrokeDash>,
) {
    // A path without extent is none.
    let Some(path) = path else { return };
    let cap = if dash.is_some() { LineCap::Butt } else { LineCap::Round };
    let stroke = Stroke { width, line_cap: cap, line_join: LineJoin::Round, dash, ..Stroke::default() };
    canvas.stroke_path(&path, &paint(color), &stroke, scaled, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_becomes_a_png_of_its_size() {
        let items = vec![
            Item::Area { place: [0.0, 0.0, 40.0, 20.0], color: Color::PAPER },
            Item::Line {
                points: vec![(0.0, 0.0), (40.0, 20.0)],
                color: Color::GOAL,
                width: 2.0,
                dashed: true,
            },
        ];
        let file = png(&Scene { width: 40.0, height: 20.0, items }, 2.0).expect("a picture");
        let picture = Pixmap::decode_png(&file).expect("a PNG");
        assert_eq!((picture.width(), picture.height()), (80, 40));
        let corner = picture.pixel(79, 0).expect("a pixel");
        assert_eq!((corner.red(), corner.green(), corner.blue()), (255, 255, 255));
        let start = picture.pixel(2, 1).expect("a pixel");
        assert!(start.green() < 200, "the line is there: {start:?}");
    }

    #[test]
    fn a_text_puts_ink_on_the_paper_where_its_anchor_says() {
        for (anchor, columns) in [(Anchor::Start, 50u32..100), (Anchor::End, 0..50)] {
            let items = vec![Item::Text {
                at: (50.0, 15.0),
                text: "W8".into(),
                size: 13.0,
                color: Color::INK,
                anchor,
                is_upright: false,
                is_bold: false,
            }];
            let file = png(&Scene { width: 100.0, height: 20.0, items }, 1.0).expect("a picture");
            let picture = Pixmap::decode_png(&file).expect("a PNG");
            let inked = |x: u32| (0..20).any(|y| picture.pixel(x, y).is_some_and(|pixel| pixel.alpha() > 60));
            assert!(
                (0..100)
                    .filter(|&x| inked(x))
                    .all(|x| (columns.start.saturating_sub(1)..columns.end + 1).contains(&x))
            );
            assert!((0..100).any(inked));
        }
    }
}
