//! Which tags a rule concerns: names, in which `*` stands for any characters and `?` for one.

use std::borrow::Cow;
use std::fmt;
use std::str::{Chars, FromStr};
use std::sync::OnceLock;

use rotproof_block::Tag;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::short_text::{Quoted, is_plain, quoted};

/// A tag, or a pattern of tags.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TagPattern(pub String);

impl TagPattern {
    /// Whether it fits a tag of that name. Linear in the name but for `*`, which is tried at each place once.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // What follows the last star, and the name from where that was last tried.
        let mut star: Option<(Chars<'_>, Chars<'_>)> = None;
        loop {
            let before = rest.clone();
            let Some(character) = rest.next() else { return pattern.all(|wanted| wanted == '*') };
            let mut ahead = pattern.clone();
            match ahead.next() {
                Some('*') => {
                    rest = before;
                    pattern = ahead;
                    star = Some((pattern.clone(), rest.clone()));
                }
                Some(wanted) if wanted == '?' || wanted == character => pattern = ahead,
                _ => {
                    let Some((behind, tried)) = &mut star else { return false };
                    tried.next();
                    (pattern, rest) = (behind.clone(), tried.clone());
                }
            }
        }
    }
}

fn is_wild(character: char) -> bool {
    matches!(character, '*' | '?')
}

impl FromStr for TagPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        // Wildcards need no quotes.
        let is_bare =
            !text.is_empty() && text.chars().all(|character| is_plain(character) || is_wild(character));
        if is_bare { Ok(Self(text.to_owned())) } else { quoted(text).map(Self) }
    }
}

impl fmt::Display for TagPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_bare = self.0.chars().all(|character| is_plain(character) || is_wild(character));
        if is_bare && !self.0.is_empty() { f.write_str(&self.0) } else { Quoted(&self.0).fmt(f) }
    }
}

impl JsonSchema for TagPattern {
    fn schema_name() -> Cow<'static, str> {
        "TagPattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A tag such as focal.img, or a pattern with * and ?: *.img.",
            "type": "string",
            "minLength": 1
        })
    }
}

/// From a tag to the rules that concern it. What a tag finds is kept, so that the patterns are tried once for each tag
/// of a run, not for each request; a request takes two loads, and no lock.
#[derive(Debug)]
pub(crate) struct TagIndex {
    rules: Vec<(u32, Vec<TagPattern>)>,
    /// By the number of the tag, and one more: chunk `k` has those from `2^k` on, so that what there is never moves.
    found: [OnceLock<Chunk>; u32::BITS as usize + 1],
}

/// The rules that each of some tags has found.
type Chunk = Box<[OnceLock<Box<[u32]>>]>;

impl TagIndex {
    pub(crate) fn new(rules: Vec<(u32, Vec<TagPattern>)>) -> Self {
        Self { rules, found: [const { OnceLock::new() }; u32::BITS as usize + 1] }
    }

    /// The rules that concern `tag`, in their order.
    #[inline]
    pub(crate) fn find(&self, tag: Tag) -> &[u32] {
        let number = u64::from(tag.number()) + 1;
        let size = 1u64 << number.ilog2();
        let chunk = &self.found[number.ilog2() as usize];
        let chunk = chunk.get_or_init(|| (0..size).map(|_| OnceLock::new()).collect());
        chunk[(number - size) as usize].get_or_init(|| self.search(tag))
    }

    #[cold]
    fn search(&self, tag: Tag) -> Box<[u32]> {
        let name = tag.name();
        let fits = |patterns: &[TagPattern]| patterns.iter().any(|pattern| pattern.matches(name));
        self.rules.iter().filter(|(_, patterns)| fits(patterns)).map(|(rule, _)| *rule).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_what_they_look_like() {
        for (pattern, name, fits) in [
            ("focal.img", "focal.img", true),
            ("focal.img", "focal.im", false),
            ("*.img", "focal.img", true),
            ("*.img", ".img", true),
            ("*.img", "focal.img.bak", false),
            ("f*l*", "focal.img", true),
            ("????l.img", "focal.img", true),
            ("???l.img", "focal.img", false),
            ("*", "", true),
            ("?", "", false),
            ("a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(TagPattern(pattern.into()).matches(name), fits, "{pattern} on {name}");
        }
    }

    #[test]
    fn a_tag_finds_its_rules_again_and_again() {
        let pattern = |text: &str| vec![TagPattern(text.into())];
        let index = TagIndex::new(vec![(3, pattern("*.img")), (5, pattern("b*")), (9, pattern("x"))]);
        for _ in 0..2 {
            assert_eq!(*index.find(Tag::intern("bionic.img")), [3, 5]);
            assert_eq!(*index.find(Tag::intern("focal.img")), [3]);
            assert!(index.find(Tag::NONE).is_empty());
        }
        // Over the borders of several chunks.
        for number in 0..300 {
            let tag = Tag::intern(&format!("{}{number}", if number % 3 == 0 { "b" } else { "c" }));
            assert_eq!(index.find(tag), if number % 3 == 0 { &[5][..] } else { &[] });
        }
    }

    proptest::proptest! {
        #[test]
        fn a_pattern_without_wildcards_is_equality_and_nothing_panics(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let fits = TagPattern(pattern.clone()).matches(&name);
            if !pattern.contains(['*', '?']) {
                proptest::prop_assert_eq!(fits, pattern == name);
            }
            let stars = TagPattern(format!("*{pattern}*")).matches(&name);
            proptest::prop_assert!(!fits || stars);
        }
    }
}
