//! The texts a trial comes from, and places in them.
//!
//! A trial is read from its file, and changed by options of the command line; each of these is a [`Source`], so
//! that a mistake is shown where it was written.

use std::ops::Range;
use std::sync::Arc;

/// A text and what to call it.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The path of the file, or the option of the command line.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Which source.
    pub source: Arc<Source>,
    /// First byte and first byte after; on character boundaries, within the text.
    pub bytes: Range<usize>,
}

impl Location {
    /// The place of `bytes`, moved onto character boundaries and into the text where they are not.
    pub fn new(source: &Arc<Source>, bytes: Range<usize>) -> Self {
        let text = &source.text;
        let boundary = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let start = boundary(bytes.start);
        Self { source: source.clone(), bytes: start..boundary(bytes.end).max(start) }
    }

    /// The line of the first character, counted from one.
    pub fn line(&self) -> usize {
        1 + self.before().bytes().filter(|&byte| byte == b'\n').count()
    }

    /// The column of the first character in characters, counted from one.
    pub fn column(&self) -> usize {
        let before = self.before();
        1 + before[before.rfind('\n').map_or(0, |at| at + 1)..].chars().count()
    }

    /// How many characters of the first line are concerned.
    pub fn width(&self) -> usize {
        self.text().lines().next().unwrap_or("").chars().count()
    }

    /// The text at this place.
    pub fn text(&self) -> &str {
        &self.source.text[self.bytes.clone()]
    }

    /// The first word in backticks of a message about this place, if it stands here once: the mistake itself in a text of
    /// many words. Otherwise all of it.
    #[must_use]
    pub fn narrowed_to(self, message: &str) -> Self {
        let Some(word) = message.split('`').nth(1).filter(|word| !word.is_empty()) else { return self };
        let places: Vec<usize> = places_of(self.text(), word).take(2).collect();
        match places[..] {
            [at] => {
                let start = self.bytes.start + at;
                Self { bytes: start..start + word.len(), ..self }
            }
            _ => self,
        }
    }

    /// Where a text of many words, such as the short form of a rule, says what `steps` of a path below it name: the value
    /// behind the last of them that stands here once as a word (of several values the one whose index follows), or the word
    /// itself if no value follows. Otherwise all of it.
    #[must_use]
    pub fn narrowed_to_steps(self, steps: &[&str]) -> Self {
        let text = self.text();
        let named = |at: usize| {
            let step = steps[at];
            let places: Vec<usize> = places_of(text, step).collect();
            let is_given = |place: &usize| text[place + step.len()..].trim_start().starts_with('=');
            let given: Vec<usize> = places.iter().copied().filter(is_given).collect();
            let (([place], _) | (_, [place])) = (&places[..], &given[..]) else { return None };
            let value = value_behind(text, place + step.len());
            let index = steps.get(at + 1).and_then(|next| next.parse().ok());
            let value = value.map(|value| index.map_or(value.clone(), |index| element(text, value, index)));
            Some(value.unwrap_or(*place..place + step.len()))
        };
        let names = |at: &usize| steps[*at].parse::<usize>().is_err();
        let found = (0..steps.len()).rev().filter(names).find_map(named);
        match found {
            Some(part) => {
                let start = self.bytes.start;
                Self { bytes: start + part.start..start + part.end, ..self }
            }
            None => self,
        }
    }

    fn before(&self) -> &str {
        &self.source.text[..self.bytes.start]
    }
}

/// Where `word` begins in the text and is not a part of a longer one.
fn places_of<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let bounded = move |inner: Option<char>, outer: Option<char>| !(is_part(inner) && is_part(outer));
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let (before, after) = (text[..*at].chars().next_back(), text[at + word.len()..].chars().next());
        bounded(word.chars().next(), before) && bounded(word.chars().next_back(), after)
    })
}

/// Of values between bars the one at `index`, or all of them if there are not as many.
fn element(text: &str, values: Range<usize>, index: usize) -> Range<usize> {
    let mut start = values.start;
    for (at, part) in text[values.clone()].split('|').enumerate() {
        if at == index {
            let trimmed = part.trim();
            let start = start + (part.len() - part.trim_start().len());
            return start..start + trimmed.len();
        }
        start += part.len() + 1;
    }
    values
}

/// Of `key=value, ...` the value, where the key ends at `end`.
fn value_behind(text: &str, end: usize) -> Option<Range<usize>> {
    let given = text[end..].trim_start().strip_prefix('=')?.trim_start();
    let start = text.len() - given.len();
    let length = match given.strip_prefix('"') {
        Some(inner) => inner.find('"')? + 2,
        None => given.find([',', ':', '(', ')', '\'', '"']).unwrap_or(given.len()),
    };
    let length = given[..length].trim_end().len();
    (length > 0).then_some(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, bytes: Range<usize>) -> Location {
        Location::new(&Arc::new(Source { name: "t.yaml".into(), text: text.into() }), bytes)
    }

    #[test]
    fn a_long_text_is_pointed_into_where_its_message_names_a_word_that_stands_there_once() {
        let of = |message: &str| {
            let text = "read, at=5s, for=2s, before: delay(1ms)";
            place(text, 0..text.len()).narrowed_to(message).text().to_owned()
        };
        assert_eq!(of("no condition is called `for`"), "for");
        assert_eq!(of("`delay(1ms)` is wrong"), "delay(1ms)");
        for message in ["no word", "`fore` is not here", "`s` is twice", "``", "`"] {
            assert_eq!(of(message).len(), 39, "{message}");
        }
    }

    #[test]
    fn a_long_text_is_pointed_into_where_it_says_what_a_path_names() {
        let of = |text: &str, steps: &[&str]| {
            place(text, 0..text.len()).narrowed_to_steps(steps).text().to_owned()
        };
        let text = "'name=on, write, on = left, once: bit_flip(byte=1, bit=9)'";
        assert_eq!(of(text, &["on"]), "left", "the word stands twice, and once as a key");
        assert_eq!(of(text, &["effect", "bit_flip", "bit"]), "9");
        assert_eq!(of(text, &["effect", "bit_flip"]), "bit_flip");
        assert_eq!(of(text, &["schedule", "every"]), text);
        assert_eq!(of("on=\"a, b\": zeros", &["on"]), "\"a, b\"");
        assert_eq!(of("on=: zeros", &["on"]), "on");
        assert_eq!(of("on=\"a", &["on"]), "on");
        assert_eq!(of("bit=1, bit=2", &["bit"]), "bit=1, bit=2");
        assert_eq!(of("µ=é", &["µ"]), "é");
        let ranges = "offset=1..2 | 3..4|0, nth=1: zeros";
        assert_eq!(of(ranges, &["match", "offset", "1"]), "3..4");
        assert_eq!(of(ranges, &["match", "offset", "7"]), "1..2 | 3..4|0");
    }

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let place = place("a: 1\nµé: wrong\n", 11..16);
        assert_eq!((place.line(), place.column(), place.width(), place.text()), (2, 5, 5, "wrong"));
    }

    #[test]
    fn a_place_outside_the_text_or_inside_a_character_is_moved_to_one_that_exists() {
        assert_eq!(place("é", 1..2).bytes, 0..2);
        assert_eq!(place("ab", 7..9).bytes, 2..2);
        let nowhere = place("", 3..3);
        assert_eq!((nowhere.line(), nowhere.column(), nowhere.width()), (1, 1, 0));
    }
}
