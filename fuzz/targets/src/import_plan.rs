//! Fault plans of other injectors, and job files of fio.

use rotproof_import::{Brought, Format, parse_bytes};
use rotproof_trial::file::{Overrides, TrialFile};

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
        Ok(Brought::Plan(imported)) => imported,
        Ok(Brought::Load(load)) => panic!("a plan became a load: {load}"),
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

/// A job file is carried as a load that a trial file can have, or it has mistakes.
pub fn check_fio(bytes: &[u8]) {
    let imported = match parse_bytes("fuzz", bytes, Some(Format::Fio)) {
        Ok(Brought::Load(imported)) => imported,
        Ok(Brought::Plan(plan)) => panic!("a load became a plan: {plan}"),
        Err(mistakes) => return assert!(!mistakes.list.is_empty()),
    };
    let text = imported.to_string();
    let documents: Vec<&str> = text.split("\n---\n").collect();
    assert_eq!(documents.len(), imported.loads.len(), "{text}");
    for (document, load) in documents.into_iter().zip(&imported.loads) {
        let trial = format!("stack: [memory: {{ size: 64TiB }}]\n{document}\n");
        match TrialFile::parse("trial.yaml", trial.as_bytes(), &Overrides::default()) {
            Ok(trial) => assert_eq!(trial.load, *load),
            // How large the target must be is not known to a job file, nor what is on trial, and its log may not be here.
            Err(mistakes) => {
                let of_surroundings = ["load.jobs[", "load.trace.file", "load.buffered", "load.ioengine"];
                assert!(
                    mistakes
                        .list
                        .iter()
                        .all(|mistake| of_surroundings.iter().any(|path| mistake.path.starts_with(path))),
                    "{mistakes} in {document}"
                );
            }
        }
    }
}

/// Job files as people write them.
pub fn fio_seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../../../examples/import/jobs.fio").to_vec(),
        b"[a]\nrw=randwrite\nbssplit=4k/60:64k/40\nrandom_distribution=zoned:60/10:40/90\nsize=768m\nrate_iops=9\n\
          [b]\nrw=write\nsize=256m\nthinktime=500us\nthinktime_blocks=8\nba=8k\npercentage_random=5\n\
          [c]\nrw=write\nsize=256m\nthinktime=5s\nthinktime_iotime=10\n"
            .to_vec(),
    ]
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
