//! The names of phases, as tables have them and as today's words are.

use std::sync::Arc;

use rotproof_block::{Result, current_phase_word};

use crate::table::Table;

/// The column `phase` of a table, in today's words.
pub(crate) fn phases_of(table: &Table) -> Result<Vec<Arc<str>>> {
    Ok(table.texts("phase")?.iter().map(current).collect())
}

/// Today's word for a phase.
pub(crate) fn current(name: &Arc<str>) -> Arc<str> {
    match current_phase_word(name) {
        word if *word == **name => Arc::clone(name),
        word => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_called_recovery_is_the_cool_down() {
        assert_eq!(&*current(&"recovery".into()), "cool_down");
        assert_eq!(&*current(&"run".into()), "run");
    }
}
