//! Problems of a description: what is wrong, where, and what to do about it.

use std::fmt;

/// The place of a value in a YAML document: `faults[2].match.offset`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path(String);

impl Path {
    /// The document itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// The value under `key`.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        if self.0.is_empty() { Self(key.to_owned()) } else { Self(format!("{}.{key}", self.0)) }
    }

    /// The value at position `index` of a list, counted from zero.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// As text; empty for the document itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "the document" } else { &self.0 })
    }
}

/// One thing that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub path: Path,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do instead, if there is something to say.
    pub help: Option<String>,
}

/// All problems of a description, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Adds a problem.
    pub fn add(&mut self, path: &Path, message: impl Into<String>) {
        self.0.push(Problem { path: path.clone(), message: message.into(), help: None });
    }

    /// Adds a problem and what to do instead.
    pub fn add_with_help(&mut self, path: &Path, message: impl Into<String>, help: impl Into<String>) {
        self.0.push(Problem { path: path.clone(), message: message.into(), help: Some(help.into()) });
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The word among `known` that was most likely meant by `word`, if one is close enough to be worth naming.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let fold = |word: &str| word.to_lowercase().replace(['-', ' '], "_");
    let folded = fold(word);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&folded, &fold(candidate)), candidate))
        .filter(|&(distance, candidate)| distance <= 1 + candidate.len().min(word.len()) / 3)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_like_the_document() {
        assert_eq!(Path::root().key("faults").index(2).key("match").to_string(), "faults[2].match");
    }

    #[test]
    fn the_nearest_word_is_found_and_a_distant_one_is_not_named() {
        let known = ["block_size", "queue_depth", "workers"];
        assert_eq!(nearest("blocksize", known), Some("block_size"));
        assert_eq!(nearest("block-size", known), Some("block_size"));
        assert_eq!(nearest("wrokers", known), Some("workers"));
        assert_eq!(nearest("colour", known), None);
    }
}
