//! Mutations of inputs that are the same every time: what libFuzzer does, without its feedback, where a test must end
//! and must not depend on chance.

/// A stream of mutations of `seeds`.
#[derive(Debug)]
pub struct Mutations<'a> {
    seeds: &'a [Vec<u8>],
    /// Pieces of the seeds that mean something: words, numbers and signs.
    words: Vec<&'a [u8]>,
    state: u64,
}

/// Numbers at which arithmetic goes wrong.
const NUMBERS: [&str; 10] = [
    "0",
    "1",
    "-1",
    "255",
    "4096",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
];

/// Mutated inputs stay below this many bytes.
const BYTES_MAX: usize = 1 << 16;

impl<'a> Mutations<'a> {
    /// Of `seeds`; a number chooses the stream.
    pub fn new(seeds: &'a [Vec<u8>], stream: u64) -> Self {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let words = seeds.iter().flat_map(|seed| seed.chunk_by(move |a, b| is_word(a) && is_word(b)));
        let mut words: Vec<&[u8]> = words.chain(NUMBERS.map(str::as_bytes)).collect();
        words.sort_unstable();
        words.dedup();
        Self { seeds, words, state: stream }
    }

    /// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        (self.draw() % (end.max(1) as u64)) as usize
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let length_max = if self.draw().is_multiple_of(4) { 200 } else { 8 };
        let length = 1 + self.below(length_max);
        let end = (at + length).min(input.len());
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.below(256) as u8,
            2 => drop(input.drain(at..end)),
            3 => {
                let piece = input[at..end].to_vec();
                let to = self.below(input.len() + 1);
                input.splice(to..to, piece);
            }
            4 => {
                let other = self.below(self.seeds.len());
                let other = self.seeds.get(other).map_or(&[][..], Vec::as_slice);
                let from = self.below(other.len() + 1);
                let to = (from + 4 * length).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
            // The most fruitful where words have a meaning: one for another.
            _ => {
                let word = self.below(self.words.len());
                let word = self.words.get(word).copied().unwrap_or_default();
                let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let start =
                    input[..at].iter().rposition(|byte| !is_word(byte)).map_or(0, |before| before + 1);
                let end =
                    input[at..].iter().position(|byte| !is_word(byte)).map_or(input.len(), |more| at + more);
                input.splice(start..end, word.iter().copied());
            }
        }
        input.truncate(BYTES_MAX);
    }
}

impl Iterator for Mutations<'_> {
    type Item = Vec<u8>;

    /// There is always another.
    fn next(&mut self) -> Option<Vec<u8>> {
        let seed = self.below(self.seeds.len());
        let mut input = self.seeds.get(seed).cloned().unwrap_or_default();
        for _ in 0..=self.below(4) {
            self.mutate(&mut input);
        }
        Some(input)
    }
}
