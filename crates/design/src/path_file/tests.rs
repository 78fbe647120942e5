use rotproof_model::{
    Arrival, Bound, Device, Goal, Protection, Redundancy, Repair, Switch, Weakness, systems,
};

use super::*;

fn machine() -> systems::Configuration {
    systems::Configuration::from_word("consumer").expect("a machine")
}

fn parse_text(text: &str) -> Result<model::Path, Diagnostics> {
    parse_bytes("t.yaml", text.as_bytes(), machine(), &|folder| {
        if folder.ends_with("good") {
            return Ok(Coverage { noticed: 99, silent: 1 });
        }
        Err(format!("there is no run in {}", folder.display()))
    })
}

fn example(name: &str) -> model::Path {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/paths").join(name);
    open(&path, machine()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn each_named_system_is_its_path_file() {
    for word in systems::WORDS {
        let from_file = example(&format!("{word}.yaml"));
        let named = systems::from_word(word, Goal::zettabyte())
            .expect("a system")
            .on(machine().memory, machine().disk);
        assert_eq!(from_file.stages.len(), named.stages.len());
        for residency in [0.0, 1.0, 92.0, 93.0, 1e6] {
            let [a, b] = [&from_file, &named].map(|path| path.outcome(residency));
            assert_eq!(a, b, "{word} after {residency} s");
        }
        assert_eq!(from_file.name, named.name);
        for (a, b) in from_file.stages.iter().zip(&named.stages) {
            assert_eq!((&a.name, a.repair, &a.protection), (&b.name, b.repair, &b.protection));
            assert!(a.follows_configuration);
        }
    }
}

#[test]
fn every_extension_can_be_written_and_is_understood() {
    let path = example("mirror-archive.yaml");
    let Device::Memory(memory) = path.stages[0].device else { panic!("memory") };
    assert_eq!(memory.arrival, Arrival::Bursts { continuation: 0.1 });
    assert!(memory.rate.at(Bound::High) > 2.7 * memory.rate.at(Bound::Low));
    assert!(!path.stages[0].follows_configuration && path.stages[2].follows_configuration);
    let Device::Disk(disk) = path.stages[1].device else { panic!("a disk") };
    let rot = disk.rot.expect("it rots");
    assert_eq!((rot.scrub_interval, rot.arrival), (Some(14.0 * 86_400.0), Arrival::Clustered { shape: 0.5 }));
    assert_eq!(path.stages[1].repair, Repair::Redundancy(Redundancy { data: 1, parity: 1 }));
    let Protection::Fixed(list) = &path.stages[2].protection else { panic!("fixed") };
    assert!(matches!(list[0].weakness, Weakness::Any { fraction } if fraction.at(Bound::High) > 3e-5));
    assert_eq!(list[0].name, "measured-guard");
}

#[test]
fn coverage_comes_from_results() {
    let path = parse_text("stages: [{ device: memory, time: 1s, protection: { results: runs/good } }]")
        .expect("a path");
    let Protection::Fixed(list) = &path.stages[0].protection else { panic!("fixed") };
    assert!(
        matches!(list[0].weakness, Weakness::Any { fraction } if (fraction.value() - 0.01).abs() < 1e-12)
    );
}

#[test]
fn the_name_and_the_names_of_stages_have_defaults() {
    let path = parse_text("switch: 92s\nstages: [{ device: disk }, { device: memory, time: residency, protection: { before: none, after: blake3 } }]")
        .expect("a path");
    assert_eq!(path.name, "t");
    assert_eq!(path.switch, Some(Switch::After(92.0)));
    let names: Vec<_> = path.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["disk-1", "memory-2"]);
}

#[test]
fn what_makes_no_sense_is_told_with_its_place_and_what_to_do() {
    for (text, wanted) in [
        ("", "t.yaml: there is nothing in t.yaml; describe at least one stage; see examples/paths/zfs.yaml"),
        ("stages: []", "there are no stages"),
        ("name: x", "there are no stages"),
        ("stages: [{ device: tape }]", "t.yaml:1:20: unknown value `tape`; one of memory or disk"),
        ("stages: [{ device: memory }]", "a stage whose errors come with time has none; add `time: 30s`"),
        (
            "stages: [{ device: memory, time: -1s }]",
            "`-1s` is no time; give residency, or a span from 0s on such as 30s",
        ),
        ("stages: [{ device: memory, time: 5 }]", "`5` is no time"),
        (
            "stages: [{ device: { memory: { rate: -1 FIT/Mbit } }, time: 1s }]",
            "is out of range; the rate of a memory is from 0 to",
        ),
        (
            "stages: [{ device: { memory: { rate: 14 } }, time: 1s }]",
            "`14` needs a unit; give the rate of a memory in FIT/Mbit",
        ),
        (
            "stages: [{ device: { disk: { rate: 1e-12 bits } } }]",
            "`bits` is no unit of the bit error rate of a disk",
        ),
        ("stages: [{ device: { disk: { rate: 2 errors/bit } } }]", "from 0 to 1.0000 errors/bit"),
        ("stages: [{ device: { disk: { scrub: 14d } } }]", "`scrub` without `rot`"),
        ("stages: [{ device: { disk: { rot: index 20, scrub: 0 } }, time: 1d }]", "a scrub interval of zero"),
        ("stages: [{ device: { disk: { rot: index 20 } } }]", "a stage whose errors come with time has none"),
        ("stages: [{ device: { memory: { bursts: 1 } }, time: 1s }]", "it must be from 0 to below 1"),
        ("stages: [{ device: { memory: { clustering: 0 } }, time: 1s }]", "it must be from 1e-6 to 1e6"),
        ("stages: [{ device: { memory: { bursts: 0.1, clustering: 1 } }, time: 1s }]", "give one of them"),
        ("stages: [{ device: disk, protection: crc32 }]", "unknown value `crc32`; did you mean `crc32c`?"),
        (
            "stages: [{ device: disk, protection: { distance: 3 } }]",
            "this describes no checksum; give distance and fraction",
        ),
        ("stages: [{ device: disk, protection: { distance: 0, fraction: 0.1 } }]", "it must be from 1 to 64"),
        ("stages: [{ device: disk, protection: { fraction: 1.5 } }]", "a fraction is from 0 to 1"),
        ("stages: [{ device: disk, protection: { missed: 3, of: 2 } }]", "3 missed of 2"),
        ("stages: [{ device: disk, protection: { missed: 0, of: 0 } }]", "at least one error"),
        ("stages: [{ device: disk, protection: { results: nowhere } }]", "there is no run in nowhere"),
        ("stages: [{ device: disk, protection: { before: none } }]", "`after` is missing"),
        (
            "stages: [{ device: disk, protection: { before: none, after: none, distance: 2 } }]",
            "put the figures of a checksum inside them",
        ),
        (
            "stages: [{ device: disk, protection: { before: none, after: xor-64 } }]",
            "the path has no switch; add `switch: zettabyte`",
        ),
        ("switch: 1s\nstages: [{ device: disk }]", "no stage has other protection after it"),
        ("switch: soon\nstages: [{ device: disk }]", "`soon` is no goal"),
        ("stages: [{ device: disk, checked: disk-1 }]", "checked, but there is no checksum to check"),
        (
            "stages: [{ device: disk, protection: crc32c, checked: nowhere }]",
            "there is no stage `nowhere`; one of disk-1",
        ),
        (
            "stages: [{ device: disk }, { device: disk, protection: crc32c, checked: disk-1 }]",
            "is before this stage",
        ),
        (
            "stages: [{ device: disk, protection: crc32c, redundancy: { mirror: 0 } }]",
            "no redundancy of 1 to 1000 devices; write { mirror: 2 }",
        ),
        (
            "stages: [{ device: disk, protection: crc32c, redundancy: { parity: 8 } }]",
            "no redundancy of 1 to 1000 devices",
        ),
        (
            "stages: [{ device: disk, protection: crc32c, checked: disk-2, redundancy: { mirror: 2 } }, { device: disk }]",
            "repairs nothing that is found wrong in `disk-2` only",
        ),
        (
            "stages: [{ device: memory, time: 1s, protection: crc32c, redundancy: { mirror: 2 } }]",
            "memory has no redundancy here",
        ),
        ("stages: [{ device: disk, colour: red }]", "unknown key `colour`"),
    ] {
        let error = parse_text(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text}\n  {error}\n  {wanted}");
    }
}

proptest::proptest! {
    #[test]
    fn no_change_to_a_sensible_file_makes_the_parser_or_the_model_panic(
        at in 0usize..1000, length in 0usize..20, instead in "[ -~\n]{0,8}",
    ) {
        let mut text = include_str!("../../../../examples/paths/mirror-archive.yaml").to_owned();
        let start = at.min(text.len());
        let end = (start + length).min(text.len());
        if text.is_char_boundary(start) && text.is_char_boundary(end) {
            text.replace_range(start..end, &instead);
        }
        if let Ok(path) = parse_text(&text) {
            let score = path.undetected(1.0).score();
            proptest::prop_assert!(score >= 0.0, "{score}");
        }
    }
}
