//! How often contents repeat: so many contents with so many duplicates each, as counted of real data or built in.
//!
//! The text form is that of DEDISbench: lines `<duplicates> <contents>`, where a content with `d` duplicates fills
//! `d + 1` blocks. What follows a `#` is a comment.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Contents by how many duplicates each of them has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution(BTreeMap<u64, u64>);

/// Different numbers of duplicates that a distribution may have.
pub const LINES_MAX: usize = 100_000;

/// Duplicates that a content may have, and contents that a line may have.
const NUMBER_MAX: u64 = 1 << 40;

impl Distribution {
    /// From pairs of duplicates and contents.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut distribution = Self::default();
        for (duplicates, contents) in pairs {
            distribution.add(duplicates, contents);
        }
        distribution
    }

    /// Adds contents with so many duplicates each.
    pub fn add(&mut self, duplicates: u64, contents: u64) {
        if contents > 0 {
            let count = self.0.entry(duplicates).or_default();
            *count = count.saturating_add(contents);
        }
    }

    /// Adds all contents of another one, as if none of them were the same.
    pub fn merge(&mut self, other: &Self) {
        for (duplicates, contents) in other.lines() {
            self.add(duplicates, contents);
        }
    }

    /// Duplicates and contents, in the order of duplicates.
    pub fn lines(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&duplicates, &contents)| (duplicates, contents))
    }

    /// Whether there are no contents.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Different contents.
    pub fn contents(&self) -> u128 {
        self.lines().map(|(_, contents)| u128::from(contents)).sum()
    }

    /// Blocks that they fill.
    pub fn blocks(&self) -> u128 {
        self.lines().map(|(duplicates, contents)| blocks(duplicates, contents)).sum()
    }

    /// Share of the blocks that need not be stored, as they repeat another one.
    pub fn savable(&self) -> f64 {
        if self.is_empty() { 0.0 } else { 1.0 - self.contents() as f64 / self.blocks() as f64 }
    }

    /// Share of the blocks without any duplicate.
    pub fn unique(&self) -> f64 {
        let unique = self.0.get(&0).copied().unwrap_or_default();
        if self.is_empty() { 0.0 } else { unique as f64 / self.blocks() as f64 }
    }

    /// The most duplicates that a content has.
    pub fn most(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(&duplicates, _)| duplicates)
    }
}

/// Blocks of so many contents with so many duplicates each.
pub fn blocks(duplicates: u64, contents: u64) -> u128 {
    (u128::from(duplicates) + 1) * u128::from(contents)
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut distribution = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let content = line.split('#').next().unwrap_or_default();
            let fields: Vec<&str> = content.split_whitespace().collect();
            if fields.is_empty() {
                continue;
            }
            let wrong = || {
                let shown: String = line.trim().chars().take(40).collect();
                format!(
                    "line {number}: `{shown}` is no `<duplicates> <contents>`, two whole numbers up to 2^40"
                )
            };
            let [duplicates, contents] = fields[..] else { return Err(wrong()) };
            let read = |text: &str| text.parse::<u64>().ok().filter(|number| *number <= NUMBER_MAX);
            let (Some(duplicates), Some(contents)) = (read(duplicates), read(contents)) else {
                return Err(wrong());
            };
            distribution.add(duplicates, contents);
            if distribution.0.len() > LINES_MAX {
                return Err(format!("line {number}: more than {LINES_MAX} different numbers of duplicates"));
            }
        }
        if distribution.is_empty() {
            return Err("there are no contents; write lines such as `0 1000` and `1 250`".to_owned());
        }
        Ok(distribution)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|(duplicates, contents)| writeln!(f, "{duplicates} {contents}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_reads_as_it_is_written_and_lines_add_up() {
        let text = "# a comment\n0 100\n1 20 # pairs\n\n1 5\n9 1\n";
        let distribution: Distribution = text.parse().expect("a distribution");
        assert_eq!(distribution.to_string(), "0 100\n1 25\n9 1\n");
        assert_eq!(distribution.to_string().parse(), Ok(distribution.clone()));
        assert_eq!((distribution.contents(), distribution.blocks(), distribution.most()), (126, 160, 9));
        assert!((distribution.savable() - 34.0 / 160.0).abs() < 1e-12);
        assert!((distribution.unique() - 100.0 / 160.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_distribution_is_refused_with_its_line() {
        for (text, part) in [
            ("", "no contents"),
            ("0 0", "no contents"),
            ("0 1\nx", "line 2"),
            ("1", "line 1"),
            ("1 2 3", "line 1"),
            ("-1 2", "two whole numbers"),
            ("1 99999999999999999999", "up to 2^40"),
            ("1.5 2", "line 1"),
        ] {
            let error = text.parse::<Distribution>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn merging_adds_contents_that_have_as_many_duplicates() {
        let mut one = Distribution::from_pairs([(0, 10), (2, 5)]);
        one.merge(&Distribution::from_pairs([(2, 1), (7, 2)]));
        assert_eq!(one, Distribution::from_pairs([(0, 10), (2, 6), (7, 2)]));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text: String, lines in "([0-9]{1,3} [0-9]{1,3}\n){0,5}") {
            let _ = text.parse::<Distribution>();
            let _ = lines.parse::<Distribution>();
        }
    }
}
