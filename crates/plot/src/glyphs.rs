//! Letters for PNG, drawn with a pen: chains of points on a grid. So no font is read from the machine, and a picture
//! looks the same everywhere.

use tiny_skia::PathBuilder;

/// Part of the size of a text that one step of the grid takes: a capital is six steps high.
pub const UNIT: f64 = 0.118;

/// Steps between two letters.
const GAP: f64 = 1.55;

/// A letter: its width in steps, and its strokes. A point is two characters, the first for x, the second for y (`a` and
/// `b` are one and two steps below the base line); `|` begins a new stroke, `~` a stroke that is rounded off.
fn glyph(letter: char) -> (f64, &'static str) {
    match letter {
        '0' => (4.0, "~20 00 03 06 26 46 43 40 20"),
        '1' => (3.0, "05 26 20|00 40"),
        '2' => (4.0, "~04 06 26 46 43 22 00|00 40"),
        '3' => (4.0, "06 46 24|~24 44 42 40 20 00 01"),
        '4' => (4.0, "30 36 02 42"),
        '5' => (4.0, "46 06 04|~04 24 44 42 40 20 00 01"),
        '6' => (4.0, "~46 26 06 02 00 20 40 42 44 24 04 02"),
        '7' => (4.0, "06 46 10"),
        '8' => (4.0, "~23 03 06 26 46 43 23|~23 43 40 20 00 03 23"),
        '9' => (4.0, "~00 20 40 44 46 26 06 04 02 22 42 44"),
        'a' => (4.0, "~42 44 24 04 02 00 20 40 42|44 40"),
        'b' => (4.0, "06 00|~02 04 24 44 42 40 20 00 02"),
        'c' => (4.0, "~43 44 24 04 02 00 20 40 41"),
        'd' => (4.0, "46 40|~42 44 24 04 02 00 20 40 42"),
        'e' => (4.0, "02 42|~42 44 24 04 02 00 20 40 41"),
        'f' => (3.0, "~36 16 14|14 10|04 34"),
        'g' => (4.0, "~42 44 24 04 02 00 20 40 42|44 40|~40 4b 2b 0b 0a"),
        'h' => (4.0, "06 00|~02 04 24 44 42|42 40"),
        'i' => (0.0, "00 04|06 05"),
        'j' => (1.0, "14 1a|~1a 1b 0b|16 15"),
        'k' => (3.5, "06 00|34 01|12 30"),
        'l' => (0.0, "06 00"),
        'm' => (6.0, "04 00|~02 04 14 34 32|32 30|~32 34 44 64 62|62 60"),
        'n' => (4.0, "04 00|~02 04 24 44 42|42 40"),
        'o' => (4.0, "~20 00 02 04 24 44 42 40 20"),
        'p' => (4.0, "04 0b|~02 04 24 44 42 40 20 00 02"),
        'q' => (4.0, "44 4b|~42 44 24 04 02 00 20 40 42"),
        'r' => (2.5, "04 00|~02 04 24 34"),
        's' => (3.5, "~43 44 24 04 03 02 22 42 41 40 20 00 01"),
        't' => (3.0, "16 11|~11 10 30|04 34"),
        'u' => (4.0, "04 02|~02 00 20 40 42|44 40"),
        'v' => (4.0, "04 20 44"),
        'w' => (6.0, "04 10 33 50 64"),
        'x' => (4.0, "04 40|00 44"),
        'y' => (4.0, "04 20|44 0b"),
        'z' => (4.0, "04 44 00 40"),
        'A' => (4.0, "00 26 40|12 32"),
        'B' => (4.0, "00 06 26|~26 46 43 23|23 03|~23 43 40 20|20 00"),
        'C' => (4.0, "~45 46 26 06 03 00 20 40 41"),
        'D' => (4.0, "00 06 16|~16 46 43 40 10|10 00"),
        'E' => (4.0, "46 06 00 40|03 33"),
        'F' => (4.0, "46 06 00|03 33"),
        'G' => (4.0, "~45 46 26 06 03 00 20 40 42|42 22"),
        'H' => (4.0, "00 06|40 46|03 43"),
        'I' => (0.0, "00 06"),
        'J' => (3.0, "36 32|~32 30 10 00 01"),
        'K' => (4.0, "00 06|46 02|13 40"),
        'L' => (3.5, "06 00 40"),
        'M' => (6.0, "00 06 32 66 60"),
        'N' => (4.0, "00 06 40 46"),
        'O' => (4.0, "~20 00 03 06 26 46 43 40 20"),
        'P' => (4.0, "00 06 26|~26 46 43 23|23 03"),
        'Q' => (4.0, "~20 00 03 06 26 46 43 40 20|22 40"),
        'R' => (4.0, "00 06 26|~26 46 43 23|23 03|23 40"),
        'S' => (4.0, "~45 46 26 06 04 03 23 43 42 40 20 00 01"),
        'T' => (4.0, "06 46|26 20"),
        'U' => (4.0, "06 02|~02 00 20 40 42|42 46"),
        'V' => (4.0, "06 20 46"),
        'W' => (6.0, "06 10 34 50 66"),
        'X' => (4.0, "06 40|00 46"),
        'Y' => (4.0, "06 23 46|23 20"),
        'Z' => (4.0, "06 46 00 40"),
        ' ' => (1.5, ""),
        '.' => (0.0, "00 01"),
        ',' => (0.5, "11 0a"),
        ':' => (0.0, "00 01|03 04"),
        ';' => (0.5, "11 0a|13 14"),
        '\'' => (0.0, "06 05"),
        '-' => (3.0, "02 32"),
        '+' => (4.0, "03 43|21 25"),
        '=' => (4.0, "02 42|04 44"),
        '/' => (3.0, "0a 36"),
        '\\' => (3.0, "06 3a"),
        '(' => (1.5, "~26 05 01 2a"),
        ')' => (1.5, "~06 25 21 0a"),
        '[' => (1.5, "26 06 0a 2a"),
        ']' => (1.5, "06 26 2a 0a"),
        '<' => (4.0, "45 03 41"),
        '>' => (4.0, "05 43 01"),
        '%' => (5.0, "00 56|~16 06 05 04 14 24 25 26 16|~40 30 31 32 42 52 51 50 40"),
        '^' => (4.0, "04 26 44"),
        '_' => (4.0, "0a 4a"),
        '*' => (3.0, "13 16|04 25|05 24"),
        '|' => (0.0, "0a 06"),
        '#' => (4.0, "10 16|30 36|02 42|04 44"),
        '"' => (1.0, "06 05|16 15"),
        '?' => (4.0, "~04 06 26 46 44 23 22|20 21"),
        '!' => (0.0, "06 02|00 01"),
        // Whatever else there is, stands as an empty box.
        _ => (3.0, "00 06 36 30 00"),
    }
}

/// How wide a text is, in parts of its size.
pub fn width_of(text: &str) -> f64 {
    let steps: f64 = text.chars().map(|letter| glyph(letter).0 + GAP).sum();
    (steps - GAP).max(0.0) * UNIT
}

/// Adds the strokes of a text; `place` turns steps along and above the base line into pixels.
pub fn draw(text: &str, builder: &mut PathBuilder, place: impl Fn(f64, f64) -> (f32, f32)) {
    let mut along = 0.0;
    for letter in text.chars() {
        let (width, strokes) = glyph(letter);
        for stroke in strokes.split('|').filter(|stroke| !stroke.is_empty()) {
            let (is_round, stroke) = stroke.strip_prefix('~').map_or((false, stroke), |rest| (true, rest));
            let points: Vec<(f64, f64)> = stroke.split(' ').filter_map(point).collect();
            let at = |point: (f64, f64)| place(along + point.0, point.1);
            let Some(&first) = points.first() else { continue };
            let (x, y) = at(first);
            builder.move_to(x, y);
            if is_round {
                round(builder, &points, at);
            } else {
                for &next in &points[1..] {
                    let (x, y) = at(next);
                    builder.line_to(x, y);
                }
            }
        }
        along += width + GAP;
    }
}

/// Through the middles between points, which are the handles of the curves; the ends are met.
fn round(builder: &mut PathBuilder, points: &[(f64, f64)], at: impl Fn((f64, f64)) -> (f32, f32)) {
    for triple in points.windows(2).skip(1).enumerate() {
        let (number, pair) = triple;
        let is_last = number + 3 == points.len();
        let middle = (f64::midpoint(pair[0].0, pair[1].0), f64::midpoint(pair[0].1, pair[1].1));
        let (handle, end) = (at(pair[0]), at(if is_last { pair[1] } else { middle }));
        builder.quad_to(handle.0, handle.1, end.0, end.1);
    }
}

fn point(text: &str) -> Option<(f64, f64)> {
    let mut characters = text.chars();
    let step = |c: char| match c {
        'a' => Some(-1.0),
        'b' => Some(-2.0),
        c => c.to_digit(10).map(f64::from),
    };
    Some((step(characters.next()?)?, step(characters.next()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_of_ascii_is_drawn_and_is_no_box() {
        let (_, box_of_the_unknown) = glyph('\u{1f}');
        for letter in (33u8..127).map(char::from).filter(|letter| !"$&@`{}~".contains(*letter)) {
            let (_, strokes) = glyph(letter);
            assert_ne!(strokes, box_of_the_unknown, "{letter}");
            let points: Vec<_> = strokes.split(['|', ' ']).map(|text| text.trim_start_matches('~')).collect();
            assert!(
                points.len() >= 2 && points.iter().all(|text| text.len() == 2 && point(text).is_some()),
                "{letter}"
            );
        }
    }

    #[test]
    fn a_longer_text_is_wider() {
        assert!(width_of("score") > width_of("scor") && width_of("") == 0.0);
        assert!(width_of("W") > width_of("i"));
    }
}
