//! Words in quotes, and splitting text where a separator stands outside of quotes and parentheses.

use std::fmt;

/// The parts of `text` between separators that stand outside of double quotes and parentheses. At least one part.
pub(crate) fn split_outside(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let mut parts = Vec::new();
    let (mut start, mut depth, mut in_quotes, mut escaped) = (0, 0u32, false, false);
    for (at, character) in text.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match character {
            '\\' if in_quotes => escaped = true,
            '"' => in_quotes = !in_quotes,
            _ if in_quotes => {}
            '(' => depth += 1,
            ')' => {
                depth = depth
                    .checked_sub(1)
                    .ok_or_else(|| format!("`{text}` has a closing parenthesis without its opening one"))?;
            }
            _ if depth == 0 && character == separator => {
                parts.push(&text[start..at]);
                start = at + character.len_utf8();
            }
            _ => {}
        }
    }
    if in_quotes {
        return Err(format!("`{text}` has a quote that is not closed"));
    }
    if depth > 0 {
        return Err(format!("`{text}` has a parenthesis that is not closed"));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

pub(crate) fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '.' | '_' | '-' | '/')
}

/// The meaning of plain text, or of text in double quotes.
pub(crate) fn quoted(text: &str) -> Result<String, String> {
    let text = text.trim();
    let Some(inner) = text.strip_prefix('"') else {
        return match text.chars().find(|&character| !is_plain(character)) {
            None if !text.is_empty() => Ok(text.to_owned()),
            None => Err("a name is empty".to_owned()),
            Some(character) => Err(format!("`{text}` contains `{character}`; put it in double quotes")),
        };
    };
    let mut meaning = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' if characters.as_str().is_empty() => return Ok(meaning),
            '"' => return Err(format!("`{text}` goes on after its closing quote")),
            '\\' => meaning.extend(characters.next()),
            other => meaning.push(other),
        }
    }
    Err(format!("`{text}` has a quote that is not closed"))
}

/// Prints text so that [`quoted`] gives it back.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match !self.0.is_empty() && self.0.chars().all(is_plain) {
            true => f.write_str(self.0),
            false => f.write_str(&in_quotes(self.0)),
        }
    }
}

/// The text in double quotes, so that [`quoted`] gives it back.
pub(crate) fn in_quotes(text: &str) -> String {
    let mut quotes = String::from('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            quotes.push('\\');
        }
        quotes.push(character);
    }
    quotes + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_in_quotes_and_parentheses_do_not_split() {
        assert_eq!(
            split_outside("a, f(b, c), \"d, \\\", e\"", ','),
            Ok(vec!["a", " f(b, c)", " \"d, \\\", e\""])
        );
        assert_eq!(split_outside("", ','), Ok(vec![""]));
        assert!(split_outside("a)", ',').is_err());
        assert!(split_outside("(a", ',').is_err());
        assert!(split_outside("\"a", ',').is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_survives_its_quotes(text: String) {
            proptest::prop_assert_eq!(quoted(&Quoted(&text).to_string()), Ok(text));
        }

        #[test]
        fn no_text_makes_the_splitter_panic(text: String) {
            let _ = split_outside(&text, ',');
            let _ = quoted(&text);
        }
    }
}
