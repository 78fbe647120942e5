//! What one rule did in another run: which meetings of which blocks it hit, and with what.

use std::collections::HashMap;

use crate::BLOCK_BYTES;
use crate::effect::Effect;
use crate::record::Visit;
use crate::statistics::Choice;

/// The decisions of one rule, to be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded(HashMap<Visit, Effect>);

impl Recorded {
    /// What that meeting was hit with, if it was, with what chance decided filled in.
    pub(crate) fn effect_at(&self, visit: Visit) -> Option<Effect> {
        self.0.get(&visit).copied()
    }

    /// What a rule that chooses one block, or one content, or is told of one had; `None` if it hit nothing.
    pub(crate) fn choice(&self) -> Option<Choice> {
        let visit = self.0.keys().min()?;
        match (visit.content, visit.offset) {
            (Some(content), _) => Some(Choice::Content(content)),
            (None, offset) => Some(Choice::Place(offset? / BLOCK_BYTES)),
        }
    }
}

impl FromIterator<(Visit, Effect)> for Recorded {
    fn from_iter<I: IntoIterator<Item = (Visit, Effect)>>(hits: I) -> Self {
        Self(hits.into_iter().collect())
    }
}
