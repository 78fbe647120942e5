//! Fault plans of other injectors.

use rotproof_trial::file::{Overrides, TrialFile};
use rotproof_trial::import::{Format, parse_bytes};

/// The JSON of FISPDK.
pub fn check_fispdk(bytes: &[u8]) {
    check(bytes, Format::Fispdk);
}

/// The YAML of AchillesBench.
pub fn check_achilles(bytes: &[u8]) {
    check(bytes, Format::Achilles);
}

/// A plan is carried as rules that a trial file can have, or it has mistakes.
fn check(bytes: &[u8], format: Format) {
    let imported = match parse_bytes("fuzz", bytes, Some(format)) {
        Ok(imported) => imported,
        Err(mistakes) => return assert!(!mistakes.list.is_empty()),
    };
    let trial = format!("stack: [memory: {{ size: 1GiB }}]\n{imported}\n");
    let trial = TrialFile::parse("trial.yaml", trial.as_bytes(), &Overrides::default())
        .unwrap_or_else(|mistakes| panic!("{mistakes} in {imported}"));
    let mut rules = trial.plan().expect("rules alone need no size").rules;
    for (rule, imported) in rules.iter_mut().zip(&imported.rules) {
        // Numbered where it has none.
        rule.name.clone_from(&imported.rule.name);
        assert_eq!(*rule, imported.rule);
    }
    assert_eq!(rules.len(), imported.rules.len());
}

/// Both, as one may be taken for the other.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        include_str!("../../../examples/import/fispdk.json"),
        include_str!("../../../examples/import/achilles.yml"),
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
