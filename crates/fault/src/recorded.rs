//! What one rule did in another run: which meetings of which blocks it hit, and with what.

use std::collections::HashMap;

use crate::effect::Effect;
use crate::record::Visit;

/// The decisions of one rule, to be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded(HashMap<Visit, Effect>);

impl Recorded {
    /// What that meeting was hit with, if it was, with what chance decided filled in.
    pub(crate) fn effect_at(&self, visit: Visit) -> Option<Effect> {
        self.0.get(&visit).copied()
    }
}

impl FromIterator<(Visit, Effect)> for Recorded {
    fn from_iter<I: IntoIterator<Item = (Visit, Effect)>>(hits: I) -> Self {
        Self(hits.into_iter().collect())
    }
}
