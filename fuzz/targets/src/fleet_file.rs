//! A fleet file: any bytes are the devices of a fleet, which makes sense to the simulation but for its size, or a list of
//! mistakes.

use rotproof_design::fleet_file::parse_bytes;
use rotproof_model::fleet::{Fleet, Hazard};

/// What was understood is a fleet.
pub fn check(bytes: &[u8]) {
    match parse_bytes("fuzz.yaml", bytes, 0.5) {
        Ok(faults) => {
            let (hazard, age_years) = faults.failures.unwrap_or((Hazard::constant(0.0), 0.0));
            let fleet = Fleet {
                hazard,
                age_years,
                death: faults.death,
                sources: faults.sources,
                sectors: Some(faults.sectors),
                ..Fleet::default()
            };
            // A command line can ask for too much at once; the file alone for nothing that is no number.
            if let Some((field, message)) = fleet.mistake() {
                let is_too_much = matches!(field, "years" | "errors" | "failures" | "death");
                assert!(is_too_much, "{field} {message}");
            }
        }
        Err(mistakes) => assert!(!mistakes.list.is_empty()),
    }
}

/// An example with every model of it.
pub fn seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../../../examples/fleets/nearline.yaml").to_vec()]
}
