//! A path file: any bytes are a path of the reliability model, whose scores are numbers from 0 on, or a list of mistakes.

use rotproof_design::path_file::{Coverage, parse_bytes};
use rotproof_model::systems::Configuration;

/// What was understood can be reckoned with, at any residency.
pub fn check(bytes: &[u8]) {
    let machine = Configuration::from_word("consumer").expect("a known machine");
    let results = |_: &std::path::Path| Ok(Coverage { noticed: 9, silent: 1 });
    match parse_bytes("fuzz.yaml", bytes, machine, &results) {
        Ok(path) => {
            for residency in [0.0, 1.0, 1e9] {
                let outcome = path.outcome(residency);
                for fate in [outcome.low, outcome.value, outcome.high] {
                    assert!(fate.undetected.score() >= 0.0 && fate.lost.score() >= 0.0);
                }
            }
        }
        Err(mistakes) => assert!(!mistakes.list.is_empty()),
    }
}

/// Examples with all of the language in them.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        include_str!("../../../examples/paths/mirror-archive.yaml"),
        include_str!("../../../examples/paths/z2-dynamic.yaml"),
        include_str!("../../../examples/paths/e2e-fletcher.yaml"),
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
