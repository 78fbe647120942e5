//! The published JSON Schema takes what the parser takes, and refuses what it can see to be wrong, so that an editor
//! and `rotproof check` agree.
//!
//! The validator here knows exactly the keywords that the schema uses, and fails on any other: a small one, because
//! those to be had bring forty crates.

use std::path::{Path, PathBuf};

use regex_lite::Regex;
use rotproof_design::path_file::Coverage;
use rotproof_design::{fleet_file, path_file};
use rotproof_model::systems::Configuration;
use rotproof_trial::file::{Overrides, TrialFile};
use serde_json::Value;

/// Why `value` does not satisfy `schema`; references are looked up in `root`.
fn refuse(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let schema = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Object(schema) => schema,
        other => return Err(format!("no schema: {other}")),
    };
    for (keyword, rule) in schema {
        let holds = match (keyword.as_str(), value) {
            ("$schema" | "$defs" | "title" | "description" | "default" | "format", _) => true,
            ("$ref", _) => {
                let pointer = rule.as_str().expect("a reference").trim_start_matches('#');
                refuse(root, root.pointer(pointer).expect("a definition"), value)?;
                true
            }
            ("type", _) => match rule {
                Value::Array(types) => types.iter().any(|name| has_type(name, value)),
                name => has_type(name, value),
            },
            ("enum", _) => rule.as_array().expect("a list").contains(value),
            ("const", _) => rule == value,
            ("anyOf", _) => any(root, rule, value) > 0,
            ("oneOf", _) => any(root, rule, value) == 1,
            ("not", _) => refuse(root, rule, value).is_err(),
            ("minimum", Value::Number(number)) => number.as_f64() >= rule.as_f64(),
            ("maximum", Value::Number(number)) => number.as_f64() <= rule.as_f64(),
            ("pattern", Value::String(text)) => {
                Regex::new(rule.as_str().expect("a pattern")).expect("a good pattern").is_match(text)
            }
            ("items", Value::Array(items)) => {
                items.iter().try_for_each(|item| refuse(root, rule, item))?;
                true
            }
            ("prefixItems", Value::Array(items)) => {
                let schemas = rule.as_array().expect("a list");
                schemas.iter().zip(items).try_for_each(|(schema, item)| refuse(root, schema, item))?;
                true
            }
            ("maxItems", Value::Array(items)) => items.len() as u64 <= rule.as_u64().expect("a number"),
            ("minItems", Value::Array(items)) => items.len() as u64 >= rule.as_u64().expect("a number"),
            ("minProperties", Value::Object(object)) => {
                object.len() as u64 >= rule.as_u64().expect("a number")
            }
            ("maxProperties", Value::Object(object)) => {
                object.len() as u64 <= rule.as_u64().expect("a number")
            }
            ("required", Value::Object(object)) => rule
                .as_array()
                .expect("a list")
                .iter()
                .all(|key| object.contains_key(key.as_str().expect("a key"))),
            ("properties", Value::Object(object)) => {
                for (key, value) in object {
                    if let Some(schema) = rule.get(key) {
                        refuse(root, schema, value).map_err(|why| format!("{key}: {why}"))?;
                    }
                }
                true
            }
            ("additionalProperties", Value::Object(object)) => {
                let known = schema.get("properties").and_then(Value::as_object);
                let patterns = schema.get("patternProperties").and_then(Value::as_object);
                let matches = |key: &str| {
                    patterns.is_some_and(|patterns| patterns.keys().any(|pattern| is_match(pattern, key)))
                };
                let is_known = |key: &str| known.is_some_and(|known| known.contains_key(key)) || matches(key);
                let mut others = object.iter().filter(|(key, _)| !is_known(key));
                match rule {
                    Value::Bool(is_open) => *is_open || others.next().is_none(),
                    schema => others.try_for_each(|(_, value)| refuse(root, schema, value)).is_ok(),
                }
            }
            ("patternProperties", Value::Object(object)) => {
                for (pattern, schema) in rule.as_object().expect("schemas by pattern") {
                    for (_, value) in object.iter().filter(|(key, _)| is_match(pattern, key)) {
                        refuse(root, schema, value)?;
                    }
                }
                true
            }
            ("minLength", Value::String(text)) => {
                text.chars().count() as u64 >= rule.as_u64().expect("a number")
            }
            (
                "minLength"
                | "minimum"
                | "maximum"
                | "pattern"
                | "items"
                | "prefixItems"
                | "maxItems"
                | "minItems"
                | "minProperties"
                | "maxProperties"
                | "required"
                | "properties"
                | "patternProperties"
                | "additionalProperties",
                _,
            ) => true,
            (other, _) => panic!("the keyword `{other}` is not known here"),
        };
        if !holds {
            return Err(format!("{keyword} {rule} does not hold for {value}"));
        }
    }
    Ok(())
}

fn is_match(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).expect("a good pattern").is_match(text)
}

fn any(root: &Value, alternatives: &Value, value: &Value) -> usize {
    let alternatives = alternatives.as_array().expect("a list");
    alternatives.iter().filter(|schema| refuse(root, schema, value).is_ok()).count()
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str().expect("the name of a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("the type `{other}` is not known here"),
    }
}

fn check(yaml: &str) -> Result<(), String> {
    check_against(&TrialFile::schema(), yaml)
}

fn check_against(schema: &Value, yaml: &str) -> Result<(), String> {
    let value: Value = serde_saphyr::from_str(yaml).expect("well-formed YAML");
    refuse(schema, schema, &value)
}

/// What the parser of path files says.
fn parse_path(yaml: &str) -> Result<(), String> {
    let machine = Configuration::from_word("consumer").expect("a machine");
    let lookup = |_: &Path| Ok(Coverage { noticed: 9, silent: 1 });
    let parsed = path_file::parse_bytes("t.yaml", yaml.as_bytes(), machine, &lookup);
    parsed.map(|_| ()).map_err(|error| error.to_string())
}

/// What the parser of fleet files says.
fn parse_fleet(yaml: &str) -> Result<(), String> {
    let parsed = fleet_file::parse_bytes("t.yaml", yaml.as_bytes(), 0.0);
    parsed.map(|_| ()).map_err(|error| error.to_string())
}

fn examples(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of examples") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            // Path files and fleet files are of the reliability model, and have schemas of their own.
            if !path.ends_with("paths") && !path.ends_with("fleets") {
                files.extend(examples(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files
}

#[test]
fn the_schema_takes_every_example_and_every_resolved_trial() {
    let examples = examples(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"));
    assert!(examples.len() > 10, "the examples are there");
    for path in examples {
        let text = std::fs::read_to_string(&path).expect("an example");
        check(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let trial = TrialFile::open(&path, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"));
        check(&trial.to_yaml().expect("it can be written")).unwrap_or_else(|why| panic!("resolved: {why}"));
    }
}

#[test]
fn the_schema_and_the_parser_take_every_form_of_every_value() {
    for yaml in [
        "stack: [memory: { size: 1048576, block_size: 4096 }, stats, stats: { name: low }, faults]",
        "stack: [memory: { size: 1MiB }, faults, dedup]",
        "stack: [memory: { size: 1MiB }, dedup: { size: 4MiB, verify: true }]",
        "stack: [file: { path: disk.img, size: 1.5 GiB, direct: false }]",
        "stack: [disk: { profile: hdd, size: 512MB }]\nruntime: simulated",
        "stack: [memory: { size: 1GiB }]\nsubject: { ext4: { mkfs: ['-O', '^has_journal'], mount: [noatime] } }",
        "stack: [disk: { profile: nvme, size: 64MiB }]\nsubject: fat\nruntime: simulated\nload: { files: { count: 3, size: 4MiB } }",
        "stack: [memory: { size: 1GiB }]\nsubject: { xfs: {} }\nload: { files: { count: 2, size: 8MiB } }",
        "stack: [memory: { size: 1GiB }]\nload: { reads: 0.3, duplicates: 12.5%, duration: 1.5s, prefill: false, flush_every: 3 }",
        "stack: [memory: { size: 1GiB }]\nload: { duplicates: kernels, compressible: 40% }",
        "stack: [memory: { size: 1GiB }]\nrecord: { interval: 10ms, samples: true }\nrepeat: 3",
        "stack: [memory: { size: 1GiB }]\nrecord: { interval: 500ms, steady: { window: 5s, slope: 5%, of: iops } }",
        "stack: [memory: { size: 1GiB }]\nload: { duration: 5min, until_steady: { window: 5s, range: 5%, slope: 0.1, of: latency, after: 10s } }",
        "stack: [memory: { size: 1GiB }]\nload: { until_steady: {} }",
        "stack: [memory: { size: 1GiB }]\nload: { requests: 10, cool_down: 5 }\nrecord: { interval: end }",
        "stack: [memory: { size: 1GiB }]\nload: { duration: 1s, cool_down: 5s }",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ effect: error, schedule: { at: 1s, for: 2s, probability: 50% } }]",
        "stack: [memory: { size: 1GiB }]\nload: { duplicates: { distribution: ['0 900', '1 50'] } }",
        "stack: [memory: { size: 1GiB }]\nload: { pattern: sequential, requests: 10, queue_depth: 2, workers: 3 }",
        "stack: [memory: { size: 1GiB }]\nload: { pattern: { strided: { by: 1MiB } } }",
        "stack: [memory: { size: 1GiB }]\nload: { pattern: nurand }",
        "stack: [memory: { size: 1GiB }]\nload: { pattern: { nurand: { a: 8191 } } }",
        "stack: [memory: { size: 1GiB }]\nload: { pattern: { zipf: { theta: 0.99 } } }",
        "stack: [memory: { size: 1GiB }]\nload: { pattern: { pareto: { hot: 20% } } }",
        "stack: [memory: { size: 1GiB }]\nload: { pattern: { normal: { deviation: 10% } } }",
        "stack: [memory: { size: 1GiB }]\nload: { pattern: { zoned: [{ requests: 90%, space: 10% }, { requests: 0.1, space: 0.9 }] } }",
        "stack: [memory: { size: 1GiB }]\nload: { block_size: { 4KiB: 60%, 64KiB: 0.4 }, align: 4KiB, pattern: random, sequential: 20% }",
        "stack: [memory: { size: 1GiB }]\nload: { block_size: { reads: 65536, writes: { 4KiB: 50%, 8KiB: 50% } }, reads: 50%, fua: 10% }",
        "stack: [memory: { size: 1GiB }]\nload: { rate: 500, retry: 3, ramp_up: 1000 }",
        "stack: [memory: { size: 1GiB }]\nload: { total: 1GiB, requests: 50, duration: 5s, ramp_up: 64MiB }",
        "stack: [memory: { size: 1GiB }]\nload: { rate: { requests: 0.5, arrivals: poisson }, retry: { count: 3, delay: 10ms, on: [medium, timed_out] } }",
        "stack: [memory: { size: 1GiB }]\nload: { burst: { requests: 8, every: 10ms }, duration: 5s, ramp_up: 1s }",
        "stack: [memory: { size: 1GiB }]\nload: { think_time: 1ms, jobs: [] }",
        "stack: [memory: { size: 1GiB }]\nload: { think_time: { pause: 5s, after: 10s } }",
        "stack: [memory: { size: 1GiB }]\nload: { mix: darc_oltp, queue_depth: 16 }",
        "stack: [memory: { size: 1GiB }]\nsubject: device\nload: { command: { run: dd if=/dev/zero } }",
        "stack: [memory: { size: 1GiB }]\nsubject: device\nload: { command: 'dd if=/dev/zero of={target}' }",
        "stack: [memory: { size: 1GiB }]\nsubject: device\nload: { command: [dd, if=/dev/zero] }",
        "stack: [memory: { size: 1GiB }]\nsubject: ext4\nload: { command: { run: [fio, x.fio], prepare: 'mkdir x', check: [\"true\"], timeout: 5s, output: fio_json } }\nexpect: { exit: '< 2', check_exit: 0, unknown: '>= 0' }",
        "stack: [memory: { size: 1GiB }]\nload: { trace: { file: ../../examples/traces/mail.spc } }",
        "stack: [memory: { size: 1GiB }]\nload: { workers: 2, trace: { file: ../../examples/traces/mail.spc, format: spc, pace: asap, depth: 8, skip: [read, flush], malformed_max: 0 } }",
        "stack: [memory: { size: 1GiB }]\nload: { mix: { spc1: { units: 10 } }, duration: 1s }",
        "stack: [memory: { size: 1GiB }]\nsubject: ext4\nload: { personality: varmail, duration: 5s }",
        "stack: [memory: { size: 1GiB }]\nsubject: xfs\nload: { personality: { webserver: { files: 200, threads: 4, directory_width: 10, file_size: 8KiB, append: 4KiB, log_size: 8MiB, loops: 3 } } }",
        "stack: [memory: { size: 1GiB }]\nload: { jobs: [{ name: log, space: 10%, block_size: 64KiB, flush_every: 1 }, { pattern: random, reads: 70%, workers: 2, think_time: { pause: 1ms, after: 8 } }] }",
        "stack: [memory: { size: 1GiB }]\nprobes: off",
        "stack: [memory: { size: 1GiB }]\nprobes: on",
        "stack: [memory: { size: 1GiB }]\nprobes: false",
        "stack: [memory: { size: 1GiB }]\nprobes: 100ms",
        "stack: [memory: { size: 1GiB }]\nprobes: { interval: 0.5s, cpu: false, memory: true, network: false, disks: false, pressure: false, processes: [nbdkit, jbd2*] }",
        "stack: [memory: { size: 1GiB }]\nprobes: { machines: { target: ssh target rotproof, other: other } }",
        "stack: [nbd: { uri: 'nbd+unix:///disk?socket=/run/disk.sock' }]",
        "stack: [memory: { size: 1GiB }]\nfaults: ['read, offset=1MiB..2MiB, every=3: error']",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ match: { operation: any, offset: [4096, 1MiB..2MiB, 8MiB..] }, effect: { delay: 10ms } }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ match: { content: [00000000000000000000000000000abc] }, effect: zeros, schedule: { nth: 3 }, during: run }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ match: { target: { last_block_of_every: 64MiB } }, effect: bit_flip, persistence: sticky, during: [prefill, check] }]",
        "stack: [memory: { size: 1GiB }]\nload: { duplicates: 30% }\nfaults: [{ match: { target: { most_duplicated: 3 } }, effect: { bit_flip: { byte: 4095, bit: 7 } } }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ match: { target: { file: device, block: 7 } }, effect: lost_write, schedule: { after: 2 } }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ model: latent_sector_errors }, { model: bit_rot, name: rot, during: run }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ model: { latent_sector_errors: { rate: 0.5, acceleration: 1e3, life: 730d, over: 10s, front: 20%, further: 1.5, distance: 50KiB, spread: 12h, single: 0.9, run: 8KiB } } }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ model: { undetected_disk_errors: { dropped: 1e-6, near_off_track: 1e-6, far_off_track: 1e-6, read: 1e-6, acceleration: 10 } } }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ model: { bit_rot: { rate: 2, life: 1h, bits: 3 } } }, 'during=check, name=x: model(bit_rot, rate=2)']",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ model: { fail_slow: { form: stops, share: 1%, spell: 1h, over: 10s } } }, { model: { fail_slow: { slowness: bandwidth=1MiB } } }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ model: { dying_disk: { errors: 10, growth: 2, spares: 3, delay_from: 0, delay_to: 1s, over: 5s } } }]",
        "stack: [memory: { size: 1GiB }]\nfaults: [{ model: { whole_disk_failure: { afr: 2%, shape: 1.2, age: 1460d, acceleration: 50 } } }]",
        "stack: [memory: { size: 1GiB }]\nfaults: ['write: zeros']\nexpect: { silent: '>= 1', injections: 3, masked: '0..5', errors: '< 9', repaired: '== 0' }",
    ] {
        TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
            .unwrap_or_else(|why| panic!("{yaml}: {why}"));
        check(yaml).unwrap_or_else(|why| panic!("{yaml}: {why}"));
    }
}

#[test]
fn the_schema_refuses_what_it_can_see_to_be_wrong_as_the_parser_does() {
    for yaml in [
        "stack: [memory: { size: 64 apples }]",
        "load: { workers: 2 }",
        "stack: []",
        "stack: [memory: { sise: 1MiB }]",
        "stack: [memory: { size: 1MiB }]\nload: { blocksize: 4KiB }",
        "stack: [memory: { size: 1MiB }]\nrecord: { interval: often }",
        "stack: [memory: { size: 1MiB }]\nrecord: { sample: true }",
        "stack: [memory: { size: 1MiB }]\nrecord: { steady: { of: bandwidth } }",
        "stack: [memory: { size: 1MiB }]\nload: { until_steady: 10s }",
        "stack: [memory: { size: 1MiB }]\nrepeat: -1",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ effect: error, schedule: { every: 2, at: 1s } }]",
        "stack: [memory: { size: 1MiB }]\nload: { workers: many }",
        "stack: [memory: { size: 1MiB }]\nload: { workers: -1 }",
        "stack: [memory: { size: 1MiB }]\nload: { duration: -10ms }",
        "stack: [memory: { size: 1MiB }]\nload: { duration: 10 }",
        "stack: [memory: { size: 1MiB }]\nload: { duplicates: kernel }",
        "stack: [memory: { size: 1MiB }]\nload: { duplicates: { fiel: x } }",
        "stack: [memory: { size: 1MiB }]\nload: { duplicates: { distribution: [] } }",
        "stack: [memory: { size: 1MiB }]\nload: { pattern: zipf }",
        "stack: [memory: { size: 1MiB }]\nload: { pattern: { zipf: { theta: 11 } } }",
        "stack: [memory: { size: 1MiB }]\nload: { pattern: { zoned: [{ requests: 90% }] } }",
        "stack: [memory: { size: 1MiB }]\nload: { pattern: { random: {} } }",
        "stack: [memory: { size: 1MiB }]\nload: { block_size: { small: 60%, 64KiB: 40% } }",
        "stack: [memory: { size: 1MiB }]\nload: { block_size: { reads: 4KiB } }",
        "stack: [memory: { size: 1MiB }]\nload: { block_size: {} }",
        "stack: [memory: { size: 1MiB }]\nload: { trace: web.spc }",
        "stack: [memory: { size: 1MiB }]\nload: { trace: { file: ../../examples/traces/mail.spc, format: pcap } }",
        "stack: [memory: { size: 1MiB }]\nload: { trace: { file: ../../examples/traces/mail.spc, pace: slow } }",
        "stack: [memory: { size: 1MiB }]\nload: { trace: { file: ../../examples/traces/mail.spc, skip: [trim] } }",
        "stack: [memory: { size: 1MiB }]\nsubject: device\nload: { command: 5 }",
        "stack: [memory: { size: 1MiB }]\nsubject: device\nload: { command: { run: 5 } }",
        "stack: [memory: { size: 1MiB }]\nsubject: device\nload: { command: { run: x, output: xml } }",
        "stack: [memory: { size: 1MiB }]\nload: { rate: fast }",
        "stack: [memory: { size: 1MiB }]\nload: { mix: tpcc }",
        "stack: [memory: { size: 1MiB }]\nload: { personality: mailserver }",
        "stack: [memory: { size: 1MiB }]\nload: { personality: { varmail: { nfiles: 3 } } }",
        "stack: [memory: { size: 1MiB }]\nload: { personality: { varmail: {}, oltp: {} } }",
        "stack: [memory: { size: 1MiB }]\nload: { mix: { darc_ws: {} } }",
        "stack: [memory: { size: 1MiB }]\nload: { rate: { arrivals: poisson } }",
        "stack: [memory: { size: 1MiB }]\nload: { burst: { requests: 8 } }",
        "stack: [memory: { size: 1MiB }]\nload: { think_time: 5 }",
        "stack: [memory: { size: 1MiB }]\nload: { think_time: { pause: 5s, after: [10] } }",
        "stack: [memory: { size: 1MiB }]\nload: { retry: { count: 0 } }",
        "stack: [memory: { size: 1MiB }]\nload: { retry: { count: 1, on: [eio] } }",
        "stack: [memory: { size: 1MiB }]\nload: { jobs: [{ total: 1MiB }] }",
        "stack: [nbd: { url: 'nbd://localhost' }]",
        "stack: [memory: { size: 1MiB }]\nsubject: zfz",
        "stack: [memory: { size: 1MiB }]\nsubject: { raw: {} }",
        "stack: [memory: { size: 1MiB }]\nsubject: { fat: {} }",
        "stack: [memory: { size: 1MiB }]\nruntime: tokio",
        "stack: [floppy: { size: 1MiB }]",
        "stack: [disk: { profile: tape, size: 1MiB }]",
        "stack: [memory: { size: 1MiB }, dedup: { verify: 3 }]",
        "stack: [memory: { size: 1MiB }, dedup: { ratio: 3 }]",
        "stack: [memory: { size: 1MiB }]\ncolour: red",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ match: { operation: read } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ effect: melt }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ effect: error, match: { target: { seen: rarest } } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ effect: error, match: { target: { seen: unique, after: 1, at: 1s } } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ effect: error, match: { target: { seen: unique, by: place } } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ effect: error, match: { target: { seen: last_written, apart: true } } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ effect: error, schedule: { evry: 3 } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ effect: error, during: setup }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ model: bitrot }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ model: { bit_rot: { raet: 1 } } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ model: { bit_rot: { rate: lots } } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ model: { bit_rot: { rate: -1 } } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ model: { fail_slow: { form: odd } } }]",
        "stack: [memory: { size: 1MiB }]\nfaults: [{ model: bit_rot, schedule: once }]",
        "stack: [memory: { size: 1MiB }]\nprobes: never",
        "stack: [memory: { size: 1MiB }]\nprobes: 5",
        "stack: [memory: { size: 1MiB }]\nprobes: { gpu: true }",
        "stack: [memory: { size: 1MiB }]\nprobes: { processes: nbdkit }",
        "stack: [memory: { size: 1MiB }]\nprobes: { machines: [target] }",
        "stack: [memory: { size: 1MiB }]\nexpect: { silent: lots }",
        "stack: [memory: { size: 1MiB }]\nexpect: { silence: 0 }",
    ] {
        assert!(
            TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default()).is_err(),
            "the parser: {yaml}"
        );
        assert!(check(yaml).is_err(), "the schema: {yaml}");
    }
}

#[test]
fn the_schemas_of_paths_and_fleets_take_every_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (folder, schema) in [("paths", path_file::schema()), ("fleets", fleet_file::schema())] {
        let files = examples(&root.join(folder));
        assert!(!files.is_empty(), "{folder} has examples");
        for path in files {
            let text = std::fs::read_to_string(&path).expect("an example");
            check_against(&schema, &text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        }
    }
    for path in examples(&root.join("fleets")) {
        fleet_file::open(&path, 0.0).unwrap_or_else(|error| panic!("{error}"));
    }
}

type Parse = fn(&str) -> Result<(), String>;

#[test]
fn the_schemas_of_paths_and_fleets_take_and_refuse_what_their_parsers_do() {
    let good: [(Value, Parse, &[&str]); 2] = [
        (
            path_file::schema(),
            parse_path,
            &[
                "stages: [{ device: disk }]",
                "name: x\nswitch: zettabyte\nstages: [{ name: m, device: memory, time: residency, protection: { before: xor-64, after: [crc32c, blake3] } }]",
                "switch: 92s\nstages: [{ device: memory, time: 30s, protection: { before: none, after: { fraction: 1e-9 } } }]",
                "stages: [{ device: { memory: { rate: '25000 [20000..70000] FIT/Mbit', bursts: 0.1 } }, time: 30s }]",
                "stages: [{ device: { disk: { rate: index 12, rot: 1e-21 errors/s/bit, clustering: 0.5, scrub: 14d } }, time: 10d, protection: crc32c, redundancy: { mirror: 2 } }]",
                "stages: [{ device: disk, protection: { distance: 4, fraction: 4e-10 }, redundancy: { parity: 8+2 } }]",
                "stages: [{ device: disk, protection: { name: own, missed: 0, of: 100 }, checked: b }, { name: b, device: disk }]",
                "stages: [{ device: disk, protection: [xor-64, { results: runs }] }]",
                "stages: [{ device: disk, protection: { fraction: 3% } }]",
            ],
        ),
        (
            fleet_file::schema(),
            parse_fleet,
            &[
                "capacity: 16TiB\nfaults: [{ model: bit_rot }]",
                "capacity: 16TiB\nfaults: ['name=rot: model(bit_rot, rate=2)', { name: x, model: { latent_sector_errors: { rate: 2 } }, during: run }]",
                "capacity: 16TiB\nwritten_per_year: 1TiB\nread_per_year: 1TB\nfaults: [{ model: { undetected_disk_errors: { read: 1e-9, dropped: 1e-9 } } }]",
            ],
        ),
    ];
    let bad: [&[&str]; 2] = [
        &[
            "name: x",
            "stages: []",
            "stages: [{ time: 30s }]",
            "stages: [{ device: tape }]",
            "stages: [{ device: { memory: { rate: 14.2 } }, time: 1s }]",
            "stages: [{ device: { memory: { rot: index 14 } }, time: 1s }]",
            "stages: [{ device: disk, protection: crc32 }]",
            "stages: [{ device: disk, protection: { before: xor-64 } }]",
            "stages: [{ device: disk, protection: { distance: 4, fracton: 1 } }]",
            "stages: [{ device: disk, redundancy: { mirrors: 2 } }]",
            "stages: [{ device: disk, redundancy: 2 }]",
            "stages: [{ device: disk, time: -1s }]",
            "stages: [{ device: disk }]\nstack: []",
        ],
        &[
            "faults: [{ model: bit_rot }]",
            "capacity: 16TiB",
            "capacity: 16 apples\nfaults: [{ model: bit_rot }]",
            "capacity: 16TiB\nfaults: [{ model: bitrot }]",
            "capacity: 16TiB\nfaults: [{ effect: error }]",
            "capacity: 16TiB\nfaults: [{ model: { bit_rot: { rate: -1 } } }]",
            "capacity: 16TiB\nwritten: 1TiB\nfaults: [{ model: bit_rot }]",
        ],
    ];
    for ((schema, parse, good), bad) in good.into_iter().zip(bad) {
        for yaml in good {
            parse(yaml).unwrap_or_else(|why| panic!("{yaml}: {why}"));
            check_against(&schema, yaml).unwrap_or_else(|why| panic!("{yaml}: {why}"));
        }
        for yaml in bad {
            assert!(parse(yaml).is_err(), "the parser: {yaml}");
            assert!(check_against(&schema, yaml).is_err(), "the schema: {yaml}");
        }
    }
}

#[test]
fn every_key_of_every_schema_is_described() {
    fn undescribed(name: &str, schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(object) => {
                for (key, value) in object {
                    if key == "properties" {
                        for (property, schema) in value.as_object().expect("properties by name") {
                            // A key alone in its mapping may be described with it.
                            let own = schema.get("description").or(schema.get("$ref"));
                            if own.or(schema.get("anyOf")).or(object.get("description")).is_none() {
                                found.push(format!("{name}.{property}"));
                            }
                            // A property may be called `properties`, which is then no map of such.
                            undescribed(&format!("{name}.{key}.{property}"), schema, found);
                        }
                        continue;
                    }
                    undescribed(&format!("{name}.{key}"), value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| undescribed(name, item, found)),
            _ => {}
        }
    }
    for (schema, title) in [
        (TrialFile::schema(), "Rotproof trial file"),
        (path_file::schema(), "Rotproof path file"),
        (fleet_file::schema(), "Rotproof fleet file"),
    ] {
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["title"], title);
        let mut found = Vec::new();
        undescribed("", &schema, &mut found);
        assert_eq!(found, [""; 0]);
    }
}

/// What runs of these trials say.
const RUNS: [&str; 4] = [
    "runtime: simulated\nstack: [memory: { size: 1MiB }, faults, stats]\nload: { reads: 50%, requests: 4000, duplicates: 20% }\n\
     faults: ['name=rot, read, probability=2%: bit_flip', 'write, nth=300: lost_write', 'read, nth=99: medium_error']\n\
     record: { interval: 10ms }\nexpect: { gates: [{ iops: '>= 1' }, { fault: rot, p99: '<= 900% of before' }] }\n",
    "runtime: simulated\nstack:\n  - mirror: { of: { a: [disk: { profile: ssd, size: 1MiB }, faults], b: [memory: { size: 1MiB }, faults] } }\n  - checksum\n\
     load: { requests: 500, until_steady: { window: 1s, range: 50%, slope: 50% } }\n\
     record: { interval: 10ms }\n\
     faults: ['on=a, read, nth=9: zeros', { name: media, on: b, model: { latent_sector_errors: { acceleration: 1e6 } } }]\n",
    "runtime: simulated\nstack: [memory: { size: 1MiB }, dedup]\nload: { requests: 100 }\n",
    "stack: [memory: { size: 1MiB }, faults]\nprobes: 1s\nload: { requests: 100 }\n",
];

#[test]
fn what_runs_say_is_as_the_schema_has_it_and_is_read_back_whole() {
    let schema = rotproof_results::run::schema();
    for yaml in RUNS {
        let folder = tempfile::tempdir().expect("a folder");
        let trial = TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
            .unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        let options = rotproof_trial::runner::RunOptions {
            results: folder.path().join("results"),
            overwrite: false,
            replay: None,
            cancel: rotproof_machine::Cancel::default(),
            monitor: std::sync::Arc::default(),
        };
        let finished = rotproof_trial::runner::run(&trial, &options).expect("it runs");
        let text = std::fs::read(finished.folder.join("run.json")).expect("written");
        let said: Value = serde_json::from_slice(&text).expect("JSON");
        refuse(&schema, &schema, &said).unwrap_or_else(|why| panic!("{why}\n{yaml}"));
        let read = rotproof_results::parse_run(&text, "run.json").expect("read");
        assert_eq!(serde_json::to_value(&read).expect("plain data"), said, "{yaml}");
        for line in std::fs::read_to_string(finished.folder.join("failures.jsonl")).expect("written").lines()
        {
            let said: Value = serde_json::from_str(line).expect("JSON");
            let read: rotproof_results::run::FailureRecord = serde_json::from_str(line).expect("a failure");
            assert_eq!(serde_json::to_value(&read).expect("plain data"), said);
        }
        // And it can refuse.
        let mut wrong = said.clone();
        wrong["counts"]["failures"] = "many".into();
        assert!(refuse(&schema, &schema, &wrong).is_err());
    }
}
