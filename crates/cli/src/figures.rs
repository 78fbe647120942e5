//! Figures of runs with their units, for people.

use std::time::Duration;

use rotproof_results::compare::Unit;

use crate::units;

/// A number of this unit in at most ten characters. Below zero, where only an estimate can lie, as it is.
pub fn show(unit: Unit, value: f64) -> String {
    if value < 0.0 {
        return format!("-{}", show(unit, -value));
    }
    match unit {
        Unit::BytesPerSecond => units::short_rate(value),
        Unit::PerSecond => units::short_count(value),
        Unit::Nanoseconds => units::short_duration(Duration::from_nanos(value.round() as u64)),
        Unit::Count if value.fract() == 0.0 => units::count(value as u64),
        Unit::Count => format!("{value:.1}"),
        Unit::Share => format!("{:.1}%", value * 100.0),
    }
}
