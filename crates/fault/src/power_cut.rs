//! What a power cut takes with it: which devices, and how much of what they held in volatile memory.

use std::fmt;
use std::str::FromStr;

use rotproof_block::Kept;

use crate::effect::Draw;

/// A power cut, as a rule has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PowerCut {
    /// What becomes of writes that were acknowledged and not yet flushed.
    pub keeps: Keeps,
    /// Not only what is below this place loses its power, but the whole stack.
    pub everywhere: bool,
    /// What chance decided of `keeps`.
    pub draw: Draw,
}

/// How much of what was volatile a power cut leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keeps {
    /// A part that chance decides: of each write each atomic unit, or not.
    #[default]
    Part,
    /// Nothing.
    None,
    /// All of it, as with a capacitor.
    All,
}

impl Keeps {
    const WORDS: [(&'static str, Self); 3] = [("part", Self::Part), ("none", Self::None), ("all", Self::All)];
}

impl fmt::Display for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, keeps)| keeps == self);
        f.write_str(word.map_or("part", |(word, _)| word))
    }
}

impl FromStr for Keeps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let word = Self::WORDS.into_iter().find(|(word, _)| *word == text.trim());
        word.map(|(_, keeps)| keeps).ok_or_else(|| {
            format!("a power cut keeps `part`, `none` or `all` of what was volatile, not `{text}`")
        })
    }
}

impl PowerCut {
    /// What the `number`th device that loses its power keeps.
    pub(crate) fn kept(self, number: u64) -> Kept {
        match self.keeps {
            Keeps::All => Kept::All,
            Keeps::None => Kept::None,
            Keeps::Part => Kept::Part { seed: rotproof_block::hash::mix(self.draw.number(), number, 0) },
        }
    }
}
