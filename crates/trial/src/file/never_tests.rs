//! Warnings of rules that can never hit, and their absence where they may.

use super::{Overrides, TrialFile};

/// The warnings of a trial on a device of 1 MiB, as `line:path: message`.
fn warnings(rest: &str) -> Vec<String> {
    let yaml = format!("stack: [memory: {{ size: 1MiB }}]\n{rest}");
    let (_, warnings) = TrialFile::parse_and_warn("t.yaml", yaml.as_bytes(), &Overrides::default())
        .unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    let told = warnings.list.into_iter().map(|warning| {
        assert!(warning.help.is_some(), "each says what to do: {}", warning.message);
        let line = warning.place.map_or(0, |place| place.line());
        format!("{line}:{}: {}", warning.path, warning.message)
    });
    told.collect()
}

#[test]
fn a_rule_that_can_never_hit_is_told_with_its_line_and_the_reason() {
    for (rest, wanted) in [
        (
            "faults: ['write, tag=foo.db: zeros']\n",
            "2:faults[0].match.tag: this rule can never hit: no request here has such a tag",
        ),
        (
            "load: { total: 1MiB }\nfaults:\n  - 'discard: error'\n",
            "4:faults[0].match: this rule can never hit: no discards come in the phases in which it is enabled (run and check)",
        ),
        ("load: { total: 1MiB }\nfaults: ['read, during=run: zeros']\n", "no reads come in"),
        (
            "load: { reads: 100%, prefill: false, total: 1MiB }\nfaults: ['write: zeros']\n",
            "no writes come in",
        ),
        ("load: { reads: 100%, total: 1MiB }\nfaults: ['write: zeros']\n", "no writes come in"),
        (
            "load: { reads: 100%, prefill: false, total: 1MiB }\nfaults: ['read, during=check: zeros']\n",
            "no reads come in",
        ),
        ("load: { duration: 5s }\nfaults: ['read, during=run: zeros']\n", "no reads come in"),
        (
            "load: { total: 512KiB }\nfaults: ['write, offset=768KiB: zeros']\n",
            "no writes come by its offset in run",
        ),
        (
            "load: { duration: 1s, jobs: [{ space: 50%, workers: 1 }] }\nfaults: ['write, offset=768KiB..: zeros']\n",
            "by its offset",
        ),
        (
            "load: { total: 1MiB }\nfaults: ['write, nth=257: zeros']\n",
            "faults[0].schedule: this rule can never hit: its schedule begins with match 257, and at most 256 blocks",
        ),
        (
            "load: { total: 1MiB }\nfaults: ['write, mark=3: zeros']\n",
            "waits for a mark, and this load sets none",
        ),
        (
            "load: { total: 1MiB, block_size: 64KiB }\nfaults: ['write, byte=1048577: error']\n",
            "waits for byte 1048577, and at most 1048576 bytes",
        ),
        (
            "load: { total: 1MiB, block_size: 64KiB }\nfaults: ['write, after=16: error']\n",
            "match 17, and at most 16 requests",
        ),
        ("load: { total: 1MiB }\nfaults: ['write, every=300: zeros']\n", "begins with match 300"),
        (
            "load: { total: 1MiB }\nfaults: ['write, during=prefill: zeros']\n",
            "enabled in the phase prefill alone",
        ),
        (
            "subject: device\nload: { command: 'true' }\nfaults: ['read, during=check: zeros']\n",
            "enabled in the phase check alone",
        ),
        (
            "load: { duration: 2s, reads: 50% }\nfaults: ['read, at=60s+5s, during=run: zeros']\n",
            "this rule may never hit: it waits for 1min after the load began, which ends after 2s",
        ),
        (
            "load: { duration: 2s, reads: 50% }\nfaults: ['read, at=60s+5s: zeros']\n",
            "this rule may never hit: ",
        ),
        ("load: { total: 1MiB }\nfaults: ['write, at=60s+5s: delay(1ms)']\n", "this rule may never hit: "),
        ("load: { total: 64MiB }\nfaults: ['write, at=60s+5s: zeros']\n", "this rule may never hit: "),
        (
            "load: { requests: 100, rate: 100 }\nfaults: ['write, at=2s: delay(1ms)']\n",
            "may never hit: it waits for 2s after the load began, and at its rate the load of 100 requests is over after 1.0 s",
        ),
        ("subject: device\nload: { total: 1MiB }\nfaults: ['discard: error']\n", "no discards come"),
        ("subject: device\nload: { reads: 100%, total: 1MiB }\nfaults: ['write: zeros']\n", "no writes come"),
        (
            "subject: device\nload: { total: 1MiB }\nfaults: ['write, tag=a: zeros']\n",
            "no tag comes through the kernel",
        ),
    ] {
        let told = warnings(rest);
        assert!(matches!(&told[..], [told] if told.contains(wanted)), "{rest}: {told:?}");
    }
}

#[test]
fn a_rule_that_may_hit_is_not_accused() {
    for rest in [
        "faults: ['write, tag=dev*: zeros', 'write, tag=*: zeros', 'read: zeros', 'flush: error', 'any: delay(1ms)']\n",
        "load: { total: 1MiB }\nfaults: ['read: zeros', 'write, nth=256: zeros', 'read, nth=256: zeros']\n",
        "load: { total: 1MiB, retry: 3 }\nfaults: ['write, nth=1000: zeros', 'write, nth=1000: error']\n",
        "load: { total: 1MiB, prefill: true }\nfaults: ['write, during=prefill: zeros', 'write, offset=1020KiB: zeros']\n",
        "load: { total: 64KiB, prefill: true }\nfaults: ['read, offset=1020KiB: zeros']\n",
        "load: { total: 64KiB, pattern: random }\nfaults: ['read, probability=1%: error']\n",
        "load: { reads: 100%, total: 1MiB }\nfaults: ['write, during=prefill: lost_write', 'read, once: error']\n",
        "load: { duration: 5s }\nfaults: ['write, nth=100000000: zeros', 'write, at=4s: error', 'read: zeros']\n",
        "load: { duration: 5s, ramp_up: 64MiB }\nfaults: ['write, at=60s: error']\n",
        "load: { duration: 5s, ramp_up: 5s }\nfaults: ['write, at=9s: error']\n",
        "load: { total: 1MiB, cool_down: 100 }\nfaults: ['write, nth=5: error']\n",
        "load: { total: 64MiB }\nfaults: ['write, at=60s: error', 'write: delay(1ms)']\n",
        "load: { total: 1MiB, think_time: 1s }\nfaults: ['write, at=60s: error']\n",
        "load: { requests: 1000, rate: 10 }\nfaults: ['write, at=60s: error']\n",
        "load: { total: 1MiB }\nfaults: ['write, at=10ms+20ms: delay(1ms)']\n",
        "subject: device\nload: { total: 1MiB }\nfaults: ['read, during=run: zeros', 'flush: error', 'write, nth=999: zeros']\n",
        "subject: fat\nload: { total: 1MiB }\nfaults: ['write, tag=b: zeros', 'discard: error']\n",
        "subject: device\nload: { command: blkdiscard }\nfaults: ['discard: error', 'write, at=60s: zeros']\n",
        "faults: ['name=media: model(latent_sector_errors, acceleration=1e6, over=10s)']\n",
    ] {
        // FAT needs more than a megabyte.
        let rest = rest.replace("subject: fat\n", "subject: fat\nname: x\n");
        if rest.contains("fat") {
            let yaml = format!("stack: [memory: {{ size: 64MiB }}]\n{rest}");
            let found = TrialFile::parse_and_warn("t.yaml", yaml.as_bytes(), &Overrides::default());
            assert_eq!(found.map(|(_, warnings)| warnings.list), Ok(Vec::new()), "{rest}");
            continue;
        }
        assert_eq!(warnings(&rest), Vec::<String>::new(), "{rest}");
    }
    let below = "stack: [memory: { size: 1MiB }, faults, { dedup: { size: 4MiB } }]\nload: { total: 1MiB }\n\
                 faults: ['read, during=run: zeros', 'discard: error', 'write, nth=5000: zeros']\n";
    let found = TrialFile::parse_and_warn("t.yaml", below.as_bytes(), &Overrides::default());
    assert_eq!(found.map(|(_, warnings)| warnings.list), Ok(Vec::new()), "a layer makes requests of its own");
    let file_system = "stack: [memory: { size: 512MiB }]\nsubject: ext4\nload: { total: 1MiB }\n\
                       faults: ['read, during=run: zeros', 'discard: error', 'write, offset=500MiB: zeros', 'flush: error']\n";
    let found = TrialFile::parse_and_warn("t.yaml", file_system.as_bytes(), &Overrides::default());
    assert_eq!(found.map(|(_, warnings)| warnings.list), Ok(Vec::new()), "a file system has its own will");
}

#[test]
fn what_is_told_of_a_rule_holds_in_a_run_of_it() {
    // Each rule is either told of or hits: on a load that the engine goes through in the same way.
    let load = "{ pattern: random, reads: 30%, requests: 200, prefill: false }";
    for rule in [
        "write, nth=1",
        "write, nth=120",
        "write, nth=160",
        "write, nth=400",
        "read, nth=40",
        "read, nth=100000",
        "write, offset=0..64KiB",
        "write, offset=1020KiB",
        "discard",
        "flush, nth=3",
        "write, during=check",
        "read, during=check, nth=60",
        "any, nth=150",
    ] {
        let effect = if rule.contains("flush") || rule.contains("discard") || rule.contains("any") {
            "error"
        } else {
            "zeros"
        };
        let yaml = format!(
            "runtime: simulated\nstack: [memory: {{ size: 1MiB }}]\nload: {load}\nfaults: ['{rule}: {effect}']\n\
             expect: {{ failures: '>= 0', silent: '>= 0', unexplained: '>= 0' }}\n"
        );
        let (trial, warnings) = TrialFile::parse_and_warn("t.yaml", yaml.as_bytes(), &Overrides::default())
            .unwrap_or_else(|error| panic!("{error}"));
        let folder = tempfile::tempdir().expect("a folder");
        let options = crate::runner::RunOptions {
            results: folder.path().to_owned(),
            overwrite: false,
            replay: None,
            cancel: rotproof_machine::Cancel::default(),
            monitor: std::sync::Arc::default(),
        };
        let run = crate::runner::run(&trial, &options).unwrap_or_else(|error| panic!("{error}"));
        let hits = run.report.counts.injections;
        assert!(hits == 0 || warnings.list.is_empty(), "{rule} hit {hits} times: {:?}", warnings.list);
    }
}
