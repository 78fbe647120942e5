//! The reliability model: a whole contour, and the simulation of a fleet. The peer is what was asked for.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_model::contour::{Grid, even_steps};
use rotproof_model::fleet::{Fleet, Hazard, Options, Sampling, simulate};
use rotproof_model::{Goal, Path, Redundancy, systems};

use crate::Effort;
use crate::figure::{Bar, Figure};

/// Points along each axis of the contour, and its systems.
const POINTS: usize = 200;
const SYSTEMS: [&str; 5] = ["nc", "zfs", "e2e-xor", "e2e-fletcher", "z2-dynamic"];

/// Seconds that a contour may take.
const CONTOUR_SECONDS_MAX: f64 = 1.0;

/// Millions of device-years in a second on one core.
const DEVICE_YEARS_MIN: f64 = 10.0;

/// Runs all of it.
pub fn run(effort: Effort, report: &mut dyn FnMut(Figure)) -> Result<()> {
    let designs: Vec<Path> =
        SYSTEMS.iter().filter_map(|word| systems::from_word(word, Goal::zettabyte())).collect();
    let (memory, disk) = (even_steps(13.0, 20.0, POINTS), even_steps(10.0, 20.0, POINTS));
    let rounds: Vec<(f64, f64)> = (0..effort.rounds)
        .map(|_| {
            let start = Instant::now();
            for design in &designs {
                std::hint::black_box(Grid::new(design, &memory, &disk, 60.0));
            }
            (start.elapsed().as_secs_f64(), CONTOUR_SECONDS_MAX)
        })
        .collect();
    let bar = Some(Bar::AtMost(1.0));
    report(Figure::from_rounds("contour 200x200, 5 systems; asked: 1 s", "s", &rounds, bar));

    let lone = Fleet { years: 1.0, hazard: Hazard::constant(0.0), ..Fleet::default() };
    let mirrors = Fleet { years: 1.0, redundancy: Redundancy { data: 1, parity: 1 }, ..Fleet::default() };
    let clustered = Fleet { clustering: Some(0.1), ..lone.clone() };
    for (name, fleet, sampling, bar) in [
        ("independent errors; asked: 10 M a second", lone.clone(), Sampling::Plain, Some(Bar::AtLeast(1.0))),
        ("the same, importance sampling", lone, Sampling::Importance, None),
        ("the same, clustered errors", clustered, Sampling::Plain, None),
        ("mirrors with failures, plain", mirrors.clone(), Sampling::Plain, None),
        ("mirrors with failures, importance sampling", mirrors, Sampling::Importance, None),
    ] {
        let rounds = (0..effort.rounds)
            .map(|round| Ok((rate(&fleet, sampling, effort.seconds, round as u64)?, DEVICE_YEARS_MIN)))
            .collect::<Result<Vec<_>>>()?;
        report(Figure::from_rounds(name, "M/s", &rounds, bar));
    }
    Ok(())
}

/// Millions of device-years in a second on one core, over about `seconds`.
fn rate(fleet: &Fleet, sampling: Sampling, seconds: f64, seed: u64) -> Result<f64> {
    let mut groups = 1 << 17;
    loop {
        let fleet = Fleet { groups, ..fleet.clone() };
        let done = AtomicU64::new(0);
        let options = Options { seed, threads: 1, sampling, done: &done, is_cancelled: &|| false };
        let start = Instant::now();
        let outcome = simulate(&fleet, &options);
        let elapsed = start.elapsed().as_secs_f64();
        std::hint::black_box(
            outcome.ok_or_else(|| Error::new(ErrorKind::Internal, "a simulation has no result"))?,
        );
        if elapsed >= seconds {
            return Ok(fleet.device_years() / elapsed / 1e6);
        }
        groups = (groups as f64 * (1.2 * seconds / elapsed.max(1e-4)).clamp(2.0, 1000.0)) as u64;
    }
}
