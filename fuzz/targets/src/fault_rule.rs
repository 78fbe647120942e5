//! The short form of a rule or a model, as it comes from a command line.

use rotproof_fault::{FaultEntry, Rule, validate_all};
use rotproof_spec::{Path, Problems};

/// A text is a rule or a model, which prints as one that is the same, or it is a mistake; a rule can be checked.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(entry) = text.parse::<FaultEntry>() {
        let printed = entry.to_string();
        assert_eq!(printed.parse::<FaultEntry>().as_ref(), Ok(&entry), "{printed}");
    }
    let Ok(rule) = text.parse::<Rule>() else { return };
    let printed = rule.to_string();
    assert_eq!(printed.parse::<Rule>().as_ref(), Ok(&rule), "{printed}");
    validate_all(&[rule.clone(), rule], &Path::root(), Some(1 << 30), &mut Problems::default());
}

/// Every line of the documentation.
pub fn seeds() -> Vec<Vec<u8>> {
    let pages = [include_str!("../../../docs/faults.md"), include_str!("../../../docs/models.md")];
    let blocks = pages.into_iter().flat_map(|page| page.split("```text\n").skip(1));
    let lines = blocks.filter_map(|rest| rest.split("```").next()).flat_map(str::lines);
    lines.map(|line| line.as_bytes().to_vec()).collect()
}
