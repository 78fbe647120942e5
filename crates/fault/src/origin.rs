//! Whose requests a rule concerns.

use std::fmt;
use std::str::FromStr;

use rotproof_block::Origin;
use rotproof_spec::nearest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who made a request, as a condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OriginMatch {
    /// The user of the stack.
    Host,
    /// A mirror or a volume that fills a replacement.
    Rebuild,
    /// A check of everything in the background.
    Scrub,
}

impl OriginMatch {
    /// The words they are written with, in the order of the variants.
    pub(crate) const WORDS: [(&'static str, OriginMatch); 3] =
        [("host", Self::Host), ("rebuild", Self::Rebuild), ("scrub", Self::Scrub)];

    /// The word it is written with.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }

    /// Whether a request of that origin is meant.
    pub(crate) fn is(self, origin: Origin) -> bool {
        match self {
            Self::Host => origin == Origin::Host,
            Self::Rebuild => origin == Origin::Rebuild,
            Self::Scrub => origin == Origin::Scrub,
        }
    }
}

impl fmt::Display for OriginMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for OriginMatch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = Self::WORDS.map(|(word, _)| word);
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|&(_, origin)| origin).ok_or_else(|| {
            match nearest(text, words) {
                Some(meant) => format!("unknown origin `{text}`; did you mean `{meant}`?"),
                None => format!("unknown origin `{text}`; known are {}", words.join(", ")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rotproof_block::{Context, Operation, Phase};

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::{BLOCK_BYTES, Header, Rule};

    #[test]
    fn a_rule_with_an_origin_hits_what_that_has_made_and_counts_nothing_else() {
        let rule: Rule = "read, origin=scrub|rebuild, every=2: error".parse().expect("a rule");
        assert_eq!(rule.to_string(), "read, origin=scrub|rebuild, every=2: error");
        let engine = Engine::new(vec![rule.into()], EngineOptions { seed: 1, device_size: 1 << 20 });
        let gate = Arc::clone(&engine).gate();
        let is_hit = |origin| {
            let context = Context { phase: Phase::Run, origin, ..Context::default() };
            let header = Header { operation: Operation::Read, offset: 0, length: BLOCK_BYTES, context };
            gate.begin(&header, &[]).is_some_and(|passage| !passage.is_quiet())
        };
        let origins = [Origin::Host, Origin::Scrub, Origin::Host, Origin::Rebuild, Origin::Sync];
        assert_eq!(origins.map(is_hit), [false, false, false, true, false]);
        assert_eq!(engine.report()[0].matches, 2);
    }

    #[test]
    fn an_origin_that_nobody_has_is_explained() {
        let complaint = |text: &str| text.parse::<Rule>().expect_err(text);
        assert!(complaint("origin=scrob: error").contains("did you mean `scrub`"));
        assert!(complaint("origin=7: error").contains("known are host, rebuild, scrub"));
    }
}
