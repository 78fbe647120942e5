//! Many files of a guest looked at in one message: the program inside reads them, and sends sums of their blocks.

use std::collections::BTreeSet;
use std::io;

use rotproof_block::{Error, ErrorKind, Result};

use crate::guest::Guest;

/// A question about a path below the root of the guest's file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// The names in a folder.
    Names(String),
    /// Whether it is a folder.
    Folder(String),
    /// Where a symbolic link points.
    Link(String),
    /// The length of a file and the sum of each block of 4096 bytes.
    Content(String),
    /// The length and sum of the attribute that was named.
    Attribute(String),
}

/// What the guest says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All names.
    Names(BTreeSet<String>),
    /// Whether it is one.
    Folder(bool),
    /// Its target.
    Link(String),
    /// Bytes, and the sum of each block, or the number of the error with which it could not be read; 0 if there was none, and fewer bytes
    /// came than the length says. After ten of those no more follow.
    Content(u64, Vec<std::result::Result<u64, i32>>),
    /// Bytes and their sum.
    Attribute(u64, u64),
}

impl Question {
    /// As it is sent.
    fn words(&self) -> String {
        match self {
            Self::Names(path) => format!("names:{path}"),
            Self::Folder(path) => format!("folder:{path}"),
            Self::Link(path) => format!("link:{path}"),
            Self::Content(path) => format!("content:{path}"),
            Self::Attribute(path) => format!("attribute:{path}"),
        }
    }
}

/// The sum that the program in the guest makes of bytes: other bytes in one word of eight always give another.
pub fn sum_of(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |sum, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        let mixed = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 32
    })
}

impl Guest {
    /// Asks about paths of its file system; an answer for each question, in their order, or the error that the guest's kernel gives.
    /// `attribute` is the name of the attribute that is meant.
    ///
    /// Fails as a guest that is gone, or hangs.
    pub fn look(&self, attribute: &str, questions: &[Question]) -> Result<Vec<io::Result<Answer>>> {
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let words: Vec<String> = questions.iter().map(Question::words).collect();
        let said = self.command(&format!("look\t{attribute}\t{}", words.join("\t")))?;
        let answers: Vec<&str> = said.split('\0').collect();
        if answers.len() != questions.len() {
            return Err(strange(&format!("{} answers to {} questions", answers.len(), questions.len())));
        }
        questions.iter().zip(answers).map(|(question, said)| taken(question, said)).collect()
    }
}

/// The answer in what was said.
fn taken(question: &Question, said: &str) -> Result<io::Result<Answer>> {
    if let Some(errno) = said.strip_prefix('!') {
        let errno = errno.parse().map_err(|_| strange(said))?;
        return Ok(Err(io::Error::from_raw_os_error(errno)));
    }
    let (word, rest) = match said.split_once('/') {
        Some((word, rest)) => (word, Some(rest)),
        None => (said, None),
    };
    let rest_or_none = rest.unwrap_or_default();
    let number = |text: &str| text.parse::<u64>().map_err(|_| strange(said));
    let sum = |text: &str| u64::from_str_radix(text, 16).map_err(|_| strange(said));
    Ok(Ok(match (question, word) {
        (Question::Names(_), "names") => {
            Answer::Names(rest.into_iter().flat_map(|names| names.split('/')).map(str::to_owned).collect())
        }
        (Question::Folder(_), "folder") => Answer::Folder(rest_or_none == "1"),
        (Question::Link(_), "link") => Answer::Link(rest_or_none.to_owned()),
        (Question::Content(_), "content") => {
            let mut fields = rest_or_none.split('/');
            let length = number(fields.next().unwrap_or_default())?;
            let block = |field: &str| match field.strip_prefix('!') {
                Some(errno) => errno.parse().map(Err).map_err(|_| strange(said)),
                None => sum(field).map(Ok),
            };
            Answer::Content(length, fields.map(block).collect::<Result<_>>()?)
        }
        (Question::Attribute(_), "attribute") => {
            let (length, of) = rest_or_none.split_once('/').ok_or_else(|| strange(said))?;
            Answer::Attribute(number(length)?, sum(of)?)
        }
        _ => return Err(strange(said)),
    }))
}

fn strange(said: &str) -> Error {
    let said: String = said.chars().take(80).collect();
    Error::new(ErrorKind::Internal, format!("the agent in the guest, asked about files, says `{said}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_as_they_are_said() {
        let path = || "folder/file".to_owned();
        let ok =
            |question: Question, said: &str| taken(&question, said).expect("understood").expect("no error");
        let names = BTreeSet::from(["a".to_owned(), "b c".to_owned()]);
        assert_eq!(ok(Question::Names(path()), "names/a/b c"), Answer::Names(names));
        assert_eq!(ok(Question::Names(path()), "names"), Answer::Names(BTreeSet::new()));
        assert_eq!(ok(Question::Folder(path()), "folder/1"), Answer::Folder(true));
        assert_eq!(ok(Question::Link(path()), "link/to/there"), Answer::Link("to/there".into()));
        assert_eq!(
            ok(Question::Content(path()), "content/8193/ff/!5/1"),
            Answer::Content(8193, vec![Ok(255), Err(5), Ok(1)])
        );
        assert_eq!(ok(Question::Content(path()), "content/0"), Answer::Content(0, vec![]));
        assert_eq!(ok(Question::Attribute(path()), "attribute/3/a"), Answer::Attribute(3, 10));
        let error = taken(&Question::Link(path()), "!117").expect("understood").expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(117));
        for nonsense in ["", "names/a", "content/x", "content/1/zz", "attribute/1", "!x"] {
            taken(&Question::Content(path()), nonsense).expect_err(nonsense);
        }
    }

    #[test]
    fn one_bit_gives_another_sum() {
        let mut bytes = vec![7; 4096];
        let before = sum_of(&bytes);
        for bit in [0, 8 * 4095 + 7, 12345] {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum_of(&bytes), before);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(sum_of(&bytes), before);
        assert_ne!(sum_of(&bytes[..4095]), before);
    }
}
