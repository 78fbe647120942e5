//! Colours that people with any kind of sight can tell apart.

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color(pub u8, pub u8, pub u8);

impl Color {
    /// Text and frames.
    pub const INK: Self = Self(0x22, 0x22, 0x22);
    /// What only helps.
    pub const FAINT: Self = Self(0xdd, 0xdd, 0xdd);
    /// Behind everything.
    pub const PAPER: Self = Self(0xff, 0xff, 0xff);
    /// What must be seen first.
    pub const GOAL: Self = Self(0xc0, 0x1c, 0x28);

    /// `#rrggbb`.
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// For lines that are told apart: the palette of Okabe and Ito (2008), without its yellow, which is pale on white.
pub const LINE_COLORS: [Color; 7] = [
    Color(0x00, 0x72, 0xb2),
    Color(0xd5, 0x5e, 0x00),
    Color(0x00, 0x9e, 0x73),
    Color(0xcc, 0x79, 0xa7),
    Color(0x56, 0xb4, 0xe9),
    Color(0xe6, 0x9f, 0x00),
    Color(0x55, 0x55, 0x55),
];

/// Anchors of a scale that grows evenly lighter (after viridis; van der Walt, Smith 2015).
const SCALE: [Color; 6] = [
    Color(0x44, 0x3a, 0x83),
    Color(0x3b, 0x62, 0x9b),
    Color(0x2c, 0x8e, 0x9a),
    Color(0x3f, 0xb7, 0x80),
    Color(0x9a, 0xd6, 0x5a),
    Color(0xf6, 0xea, 0x6f),
];

/// The colour of a share from 0 to 1 of a scale: dark is little.
pub fn shade(share: f64) -> Color {
    let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    let at = share * (SCALE.len() - 1) as f64;
    let first = (at as usize).min(SCALE.len() - 2);
    let (a, b, part) = (SCALE[first], SCALE[first + 1], at - first as f64);
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as u8;
    Color(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_begins_and_ends_with_its_anchors_and_takes_any_number() {
        assert_eq!(shade(0.0), SCALE[0]);
        assert_eq!(shade(1.0), SCALE[5]);
        assert_eq!(shade(-3.0), SCALE[0]);
        assert_eq!(shade(f64::NAN), SCALE[0]);
        assert_eq!(shade(0.0).hex(), "#443a83");
    }
}
