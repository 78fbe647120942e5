//! A rule whose target has been worked out: what the engine takes.

use rotproof_block::ContentHash;

use crate::recorded::Recorded;
use crate::rule::Rule;

/// A rule with the contents that its target stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedRule {
    /// The rule as it was written.
    pub rule: Rule,
    /// The contents of `rule.matching.target`; empty without one.
    pub contents: Vec<TargetContent>,
    /// What the rule did in another run and is to do again, whatever its schedule says.
    pub recorded: Option<Recorded>,
}

impl From<Rule> for ResolvedRule {
    /// A rule without a target is resolved as it is. With one, this rule hits nothing.
    fn from(rule: Rule) -> Self {
        Self { rule, contents: Vec::new(), recorded: None }
    }
}

/// One content that a target stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetContent {
    /// XXH3-128 of the 4096 bytes.
    pub content: ContentHash,
    /// What it is to people: "last block of 64 MiB #3", "block 7 of file a".
    pub label: String,
    /// Its first eight bytes (little-endian), if they are known: blocks that begin otherwise need not be hashed.
    pub beginning: Option<u64>,
}
