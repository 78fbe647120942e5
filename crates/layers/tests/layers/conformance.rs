//! The contract of every device, held against layers and whole stacks, asleep and awake.

use std::sync::Arc;

use rotproof_block::conformance::{On, check, check_layer};
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{ContentHash, Device, Result};
use rotproof_layers::{DedupDevice, DedupOptions, StackEnvironment, StackSpec, StatsDevice, open};

use rotproof_volume::checksum::{ChecksumDevice, ChecksumOptions};
use rotproof_volume::concat::ConcatDevice;
use rotproof_volume::mirror::{MirrorDevice, MirrorOptions};
use rotproof_volume::stripe::StripeDevice;
use rotproof_volume::versions::{VersionsDevice, VersionsOptions};

use crate::devices::{Awake, with_faults};

const DEVICE_BYTES: u64 = 4 << 20;

fn memory(block_size: u32) -> Result<Arc<dyn Device>> {
    Ok(MemoryDevice::new(DEVICE_BYTES, block_size)?)
}

fn holds(make: &dyn Fn() -> Result<Arc<dyn Device>>) {
    for on in [On::Simulated, On::Uring] {
        if let Err(breach) = check(on, make) {
            panic!("{on:?}: {breach}");
        }
    }
}

fn holds_with(rules: &[String]) {
    for block_size in [512, 4096] {
        holds(&|| Ok(Arc::new(Awake(with_faults(memory(block_size)?, rules).0))));
    }
}

#[test]
fn the_fault_layer_without_rules_keeps_the_contract() {
    holds_with(&[]);
    holds(&|| Ok(with_faults(memory(512)?, &[]).0));
}

#[test]
fn the_fault_layer_with_a_thousand_rules_that_do_not_match_keeps_the_contract() {
    let mut rules: Vec<String> =
        (0..500u64).map(|n| format!("content={}: error", ContentHash::of(&n.to_le_bytes()))).collect();
    rules.extend((0..500u64).map(|n| format!("any, offset={}, nth={}: error", n * 8192, 1u64 << 40)));
    holds_with(&rules);
}

#[test]
fn the_fault_layer_keeps_the_contract_while_it_delays_every_request() {
    holds_with(&["any: delay(1us)".to_owned()]);
}

#[test]
fn places_that_are_bad_in_other_phases_only_do_not_disturb_the_contract() {
    let rules = ["during=prefill, sticky: error", "any, sticky, during=run: delay(1us)"].map(str::to_owned);
    holds_with(&rules);
}

#[test]
fn the_stats_layer_keeps_the_contract() {
    holds(&|| Ok(StatsDevice::new(memory(512)?, "below")));
}

type Layer<'a> = &'a dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>;

/// Every layer must be in here, or have such a test beside it (`record`, `write_cache`).
#[test]
fn every_layer_passes_the_context_on_to_what_is_below_it() {
    // So that the layer has requests of its own to make: old data, edges of blocks, places that stay bad.
    let busy = [
        "write, every=2: lost_write",
        "write, every=3+1: bit_flip",
        "write, every=5: misdirected_write(by=64KiB)",
        "read, every=4: zeros",
        "read, every=7: stale_read",
        "any, tag=focal.img, every=6: delay(1us)",
        "write, tag=jammy.*, every=4, sticky: medium_error",
    ]
    .map(str::to_owned);
    let layers: [(&str, Layer<'_>); 10] = [
        ("faults without rules", &|below| with_faults(below, &[]).0),
        ("faults", &|below| with_faults(below, &busy).0),
        ("stats", &|below| StatsDevice::new(below, "it")),
        ("dedup", &|below| DedupDevice::new(below, DedupOptions::default()).expect("sizes fit")),
        ("stripe", &|below| {
            StripeDevice::new(vec![below, memory(512).expect("memory")], 16_384).expect("sizes fit")
        }),
        ("concat", &|below| ConcatDevice::new(vec![below, memory(512).expect("memory")]).expect("sizes fit")),
        ("checksum", &|below| ChecksumDevice::open(below, ChecksumOptions::default()).expect("sizes fit")),
        ("versions", &|below| VersionsDevice::open(below, VersionsOptions::default()).expect("sizes fit")),
        ("mirror", &|below| {
            let members = vec![with_faults(below, &[]).0 as Arc<dyn Device>, memory(512).expect("memory")];
            MirrorDevice::new(members, MirrorOptions::default()).expect("sizes fit")
        }),
        ("dedup that verifies, on faults", &|below| {
            let options = DedupOptions { verify: true, ..DedupOptions::default() };
            DedupDevice::new(with_faults(below, &[]).0, options).expect("sizes fit")
        }),
    ];
    for (name, layer) in layers {
        for on in [On::Simulated, On::Uring] {
            if let Err(breach) = check_layer(on, &|below| Ok(layer(below))) {
                panic!("{name}, {on:?}: {breach}");
            }
        }
    }
}

#[test]
fn whole_stacks_keep_the_contract() {
    let folder = tempfile::tempdir().expect("a folder for the files");
    let mut count = 0;
    let stacks = [
        r#"[{"memory": {"size": "4MiB"}}, "faults", "stats"]"#.to_owned(),
        r#"[{"memory": {"size": "4MiB", "block_size": 4096}}, "stats", "faults", {"stats": {"name": "top"}}]"#.to_owned(),
        r#"[{"disk": {"profile": "nvme", "size": "4MiB"}}, "stats"]"#.to_owned(),
        r#"[{"file": {"path": "PATH", "size": "4MiB", "direct": false}}, "faults"]"#.to_owned(),
        r#"[{"disk": {"profile": "ssd", "size": "4MiB"}}, "faults", "stats", {"dedup": {"size": "8MiB"}}]"#
            .to_owned(),
        r#"[{"stripe": {"chunk": "16KiB", "of": [[{"memory": {"size": "1MiB"}}, "faults"], [{"disk": {"profile": "nvme", "size": "2MiB"}}]]}}, "stats"]"#.to_owned(),
        r#"[{"mirror": {"of": [[{"memory": {"size": "2MiB"}}, "faults"], [{"disk": {"profile": "nvme", "size": "2MiB"}}], [{"memory": {"size": "3MiB"}}]]}}, "stats"]"#.to_owned(),
        r#"[{"stripe": {"of": [[{"mirror": {"of": [[{"memory": {"size": "1MiB"}}, "faults"], [{"memory": {"size": "1MiB"}}, "faults"]]}}], [{"mirror": {"of": [[{"memory": {"size": "1MiB"}}, "faults"], [{"memory": {"size": "1MiB"}}, "faults"]]}}]]}}]"#.to_owned(),
        r#"[{"volume": {"of": [[{"memory": {"size": "4MiB"}}, "faults"], [{"memory": {"size": "4MiB"}}, "faults"]]}}]"#.to_owned(),
        r#"[{"volume": {"copies": 2, "checksum": "none", "of": [[{"memory": {"size": "4MiB"}}], [{"memory": {"size": "4MiB"}}], [{"memory": {"size": "4MiB"}}], [{"memory": {"size": "4MiB"}}]]}}, "stats"]"#.to_owned(),
        r#"[{"concat": {"of": [[{"memory": {"size": "1MiB"}}, "faults"], [{"memory": {"size": "512KiB"}}], [{"disk": {"profile": "nvme", "size": "2560KiB"}}]]}}, "stats"]"#.to_owned(),
    ];
    for text in stacks {
        let make = || -> Result<Arc<dyn Device>> {
            count += 1;
            let path = folder.path().join(format!("{count}.img"));
            let text = text.replace("PATH", &path.display().to_string());
            let spec: StackSpec = serde_json::from_str(&text).expect(&text);
            Ok(open(
                &spec,
                &StackEnvironment {
                    seed: 1,
                    needs_faults: true,
                    read_only: false,
                    epoch_ns: 0,
                    recordings: None,
                },
            )?
            .device()
            .clone())
        };
        let make = std::cell::RefCell::new(make);
        holds(&|| (make.borrow_mut())());
    }
}
