use rotproof_model::fleet::FRONT;

use super::*;

fn parse_text(text: &str) -> Result<DeviceFaults, Diagnostics> {
    parse_bytes("t.yaml", text.as_bytes(), 0.25)
}

fn good(text: &str) -> DeviceFaults {
    parse_text(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A year of the fleet in years of the models.
const LONGER: f64 = 365.25 / 365.0;

#[test]
fn every_parameter_of_a_model_becomes_a_number_of_the_fleet() {
    let faults = good(
        "capacity: 16TiB\nwritten_per_year: 4TiB\nread_per_year: 8TiB\nfaults:\n  - name: media\n    model: { latent_sector_errors: { rate: 0.5, acceleration: 3, further: 1.5, spread: 12h, single: 90%, run: 40KiB, front: 20% } }\n  - 'name=rot: model(bit_rot, rate=2)'\n  - model: { undetected_disk_errors: { dropped: 1e-9, far_off_track: 2e-9, read: 1e-10, acceleration: 10 } }\n  - model: { whole_disk_failure: { afr: 4%, shape: 2, age: 1461d } }\n  - model: { dying_disk: { over: 30d, errors: 7, growth: 5, spares: 3, delay_from: 0, delay_to: 0 } }\n",
    );
    let [media, rot, dropped, far, read] = &faults.sources[..] else { panic!("{faults:?}") };
    let near =
        |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-12, "{found}, not {wanted}");
    near(media.per_year, 0.5 * 3.0 * 16.0 * LONGER);
    near(media.spread_years, 0.5 / 365.25);
    assert_eq!((media.further, media.run, media.front, media.undetected), (1.5, 10.0, 0.2, 0.0));
    near(media.single, 0.9);
    near(rot.per_year, 2.0 * 16.0 * LONGER);
    assert_eq!((rot.name.as_str(), rot.undetected, rot.single, rot.front), ("rot", 0.25, 1.0, FRONT));
    let blocks = (4u64 << 40) as f64 / 4096.0;
    near(dropped.per_year, 1e-8 * blocks);
    near(far.per_year, 2e-8 * blocks);
    assert_eq!((far.sectors(), far.undetected), (2.0, 0.25));
    near(read.per_year, 1e-9 * 2.0 * blocks);
    assert!(read.is_transient && !dropped.is_transient && read.name == "fault-3.read");
    let (hazard, age) = faults.failures.expect("failures");
    near(age, 4.0);
    // Of new ones 4% fail in the first 365 days.
    near(hazard.between(0.0, 1.0 / LONGER), -(0.96f64.ln()));
    let death = faults.death.expect("a death");
    near(death.years, 30.0 / 365.25);
    assert_eq!((death.errors, death.growth, death.spares), (7.0, 5.0, 3));
    near(faults.sectors, 16.0 * (1u64 << 28) as f64);
    assert!(faults.unused.is_empty(), "{:?}", faults.unused);
}

#[test]
fn what_a_fleet_does_not_know_is_said() {
    let faults = good(
        "capacity: 1TiB\nfaults:\n  - model: { bit_rot: { over: 10s } }\n  - { model: latent_sector_errors, during: run }\n  - model: fail_slow\n  - model: whole_disk_failure\n  - model: { dying_disk: { over: 1d } }\n",
    );
    let parts =
        ["fault-1: `life` and `over`", "fault-2: `during`", "fault-3: fail_slow", "fault-5: its delays"];
    assert_eq!(faults.unused.len(), parts.len(), "{:?}", faults.unused);
    for (said, part) in faults.unused.iter().zip(parts) {
        assert!(said.starts_with(part), "{said}");
    }
}

#[test]
fn mistakes_are_refused_with_what_to_do() {
    for (text, wanted) in [
        ("", "examples/fleets"),
        ("faults: [model: bit_rot]", "capacity"),
        ("capacity: 1TiB\nfaults: []", "there are no models"),
        ("capacity: 1KiB\nfaults: [model: bit_rot]", "from 1MiB to 1048576TiB"),
        ("capacity: 1TiB\nstack: []\nfaults: [model: bit_rot]", "unknown"),
        ("capacity: 1TiB\nfaults: ['write: zeros']", "a fleet knows models only"),
        ("capacity: 1TiB\nfaults: [model: bitrot]", "did you mean"),
        ("capacity: 1TiB\nfaults: [model: { bit_rot: { rate: 1e13 } }]", "out of range"),
        (
            "capacity: 1TiB\nfaults: [model: { undetected_disk_errors: { near_off_track: 1e-9 } }]",
            "not of time",
        ),
        (
            "capacity: 1TiB\nfaults: [model: { undetected_disk_errors: { dropped: 1e-9 } }]",
            "written_per_year: 100TiB",
        ),
        (
            "capacity: 1TiB\nfaults: [model: { undetected_disk_errors: { read: 1e-9 } }]",
            "read_per_year: 100TiB",
        ),
        ("capacity: 1TiB\nfaults: [model: { dying_disk: { over: 1d } }]", "not how many do"),
        ("capacity: 1TiB\nfaults: [{ model: dying_disk }, { model: whole_disk_failure }]", "over: 30d"),
        (
            "capacity: 1TiB\nfaults: [{ model: whole_disk_failure }, { model: whole_disk_failure }]",
            "one time to failure",
        ),
    ] {
        let error = parse_text(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}
