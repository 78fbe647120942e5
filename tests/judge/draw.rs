//! Draws a trial from a seed: subject, load and faults as a user could write them, and for every third seed another hand.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rotproof_trial::file::{Overrides, RuntimeKind, TrialFile};

use crate::dice::Dice;
use crate::hand;

/// A trial, and what else is to happen in it.
pub struct Case {
    pub yaml: String,
    pub trial: TrialFile,
    pub hand: Option<hand::Plan>,
}

/// What a trial is of; the names are those of the trial file.
const SUBJECTS: [(&str, u64); 6] =
    [("raw", 44), ("fat", 28), ("device", 10), ("ext4", 8), ("btrfs", 6), ("xfs", 4)];

impl Case {
    /// The trial of a seed; `is_root` says whether it may have subjects that need root. What belongs to it lies in `folder`.
    pub fn draw(seed: u64, is_root: bool, folder: &Path) -> Self {
        let mut dice = Dice::new(seed, 1);
        let mut at = dice.below(if is_root { 100 } else { 72 });
        let subject = SUBJECTS.iter().find(|(_, share)| {
            let is_it = at < *share;
            at = at.wrapping_sub(*share);
            is_it
        });
        let subject = subject.expect("shares make a hundred").0;
        let hand = seed.is_multiple_of(3).then(|| {
            let has_metadata = !matches!(subject, "raw" | "device");
            hand::Plan::draw(&mut dice, has_metadata)
        });
        // What makes no sense together is refused by the trial file; then others are drawn.
        for attempt in 2..500 {
            let mut dice = Dice::new(seed, attempt);
            let yaml = trial(&mut dice, seed, subject, hand.is_some(), folder);
            if let Ok(trial) = TrialFile::parse("judged.yaml", yaml.as_bytes(), &Overrides::default()) {
                return Self { yaml, trial, hand };
            }
        }
        panic!("seed {seed} draws nothing that makes sense")
    }
}

impl Case {
    pub fn subject(&self) -> String {
        self.trial.subject.name().to_owned()
    }

    /// Every run of it is the same.
    pub fn is_repeatable(&self) -> bool {
        self.hand.is_none() && self.trial.runtime == RuntimeKind::Simulated
    }
}

struct Sizes {
    device: u64,
    /// Blocks of the device, or of each file.
    blocks: u64,
    files: u64,
}

fn trial(dice: &mut Dice, seed: u64, subject: &str, has_hand: bool, folder: &Path) -> String {
    let has_kernel = !matches!(subject, "raw" | "fat");
    let sizes = match subject {
        "raw" => {
            let blocks = 64 << dice.below(5);
            Sizes { device: blocks * 4096, blocks, files: 0 }
        }
        "device" => Sizes { device: 2 << 20, blocks: 512, files: 0 },
        "fat" => Sizes { device: 8 << 20, blocks: 32 << dice.below(4), files: dice.within(1, 4) },
        "ext4" => Sizes { device: 24 << 20, blocks: 64 << dice.below(3), files: dice.within(1, 4) },
        "btrfs" => Sizes { device: 128 << 20, blocks: 64 << dice.below(3), files: dice.within(1, 4) },
        _ => Sizes { device: 300 << 20, blocks: 64 << dice.below(3), files: dice.within(1, 4) },
    };
    let runtime = if has_kernel || dice.chance(35) { "io_uring" } else { "simulated" };
    let mut yaml = format!("name: judged\nseed: {seed}\nruntime: {runtime}\nprobes: false\n");
    let layers = match (subject, dice.below(12)) {
        // With room to overwrite.
        ("raw", 0) => ", faults, dedup: { size: HALF }",
        (_, 1) => ", faults, stats",
        (_, 2) => ", stats, faults",
        _ => "",
    };
    let layers = layers.replace("HALF", &(sizes.device / 2).to_string());
    let leaf = match (runtime, dice.below(4)) {
        ("simulated", 0..3) => "disk: { profile: nvme, ",
        _ => "memory: { ",
    };
    let load = load(dice, subject, &sizes, has_kernel, folder);
    let count = [1, 1, 1, 2, 2, 3][dice.below(6) as usize];
    let mut faults = String::new();
    // Now and then nothing happens at all.
    if !dice.chance(4) {
        faults += "faults:\n";
        for number in 0..count {
            // The first one in turn, so that none is left out for long.
            let turn = if number == 0 { seed } else { dice.next() };
            let _ = writeln!(faults, "  - \"{}\"", fault(dice, turn, subject, &sizes));
        }
    }
    // The other hand writes to what the trial describes first; in a cache its writes would be lost with the power, too.
    let cache = if faults.contains("power_cut") && !has_hand && dice.chance(75) {
        dice.pick(&[
            ", write_cache",
            ", write_cache: { size: 64KiB }",
            ", write_cache: { size: 256KiB, atomic: 512, write_back: random }",
        ])
    } else {
        ""
    };
    let _ = writeln!(yaml, "stack: [ {leaf}size: {} }}{cache}{layers} ]\nsubject: {subject}", sizes.device);
    yaml + &load + &faults
}

fn load(dice: &mut Dice, subject: &str, sizes: &Sizes, has_kernel: bool, folder: &Path) -> String {
    if !matches!(subject, "raw" | "fat" | "device") && dice.chance(20) {
        let personality = dice.pick(&[
            "varmail: { files: 40, threads: 3, loops: 12 }",
            "fileserver: { files: 30, file_size: 24KiB, threads: 3, loops: 6 }",
            "webserver: { files: 40, threads: 2, loops: 6 }",
        ]);
        return format!("load: {{ personality: {{ {personality} }} }}\n");
    }
    if dice.chance(8) {
        let speed = dice.pick(&["pace: asap, depth: 4", "speed: 50"]);
        let prefill = dice.pick(&["true", "false"]);
        return format!(
            "load: {{ trace: {{ file: {}, {speed} }}, workers: {}, prefill: {prefill}{} }}\n",
            trace(dice, sizes, folder).display(),
            dice.within(1, 3),
            files(sizes),
        );
    }
    if dice.chance(6) {
        let (flush, reads) = (dice.within(1, 9), dice.within(1, 99));
        return format!(
            "load:\n  requests: 300\n  jobs:\n    - {{ name: log, space: 25%, block_size: 16KiB, flush_every: {flush} }}\n    \
             - {{ name: table, pattern: random, reads: {reads}%, queue_depth: 4, workers: 2 }}\n{}",
            if sizes.files == 0 {
                String::new()
            } else {
                format!("  {}\n", files(sizes).trim_start_matches(", "))
            },
        );
    }
    let mut load = String::from("load:\n");
    let mut key = |name: &str, value: &str| {
        let _ = writeln!(load, "  {name}: {value}");
    };
    key(
        "pattern",
        dice.pick(&[
            "sequential",
            "random",
            "random",
            "{ zipf: { theta: 0.9 } }",
            "{ strided: { by: 64KiB } }",
        ]),
    );
    let reads = dice.pick(&["0%", "0%", "30%", "50%", "80%", "100%"]);
    key("reads", reads);
    key("block_size", dice.pick(&["4KiB", "4KiB", "16KiB", "{ 4KiB: 60%, 32KiB: 40% }"]));
    key("queue_depth", dice.pick(&["1", "1", "4", "8"]));
    key("workers", dice.pick(&["1", "1", "2", "3"]));
    if dice.chance(60) {
        key("requests", &dice.within(20, if has_kernel { 400 } else { 900 }).to_string());
    }
    if dice.chance(60) {
        key("prefill", dice.pick(&["true", "false"]));
    }
    if dice.chance(30) {
        key("duplicates", dice.pick(&["30%", "90%"]));
    }
    if dice.chance(15) {
        key("compressible", "50%");
    }
    if reads != "100%" && dice.chance(50) {
        key("flush_every", dice.pick(&["1", "8", "32"]));
    }
    if reads != "100%" && dice.chance(15) {
        key("fua", "20%");
    }
    if sizes.files > 0 {
        key("files", &format!("{{ count: {}, size: {} }}", sizes.files, sizes.blocks * 4096));
    }
    if sizes.files > 0 && has_kernel {
        if dice.chance(40) {
            key("buffered", "true");
        }
        if dice.chance(20) {
            key("ioengine", "psync");
        }
    }
    load
}

fn files(sizes: &Sizes) -> String {
    match sizes.files {
        0 => String::new(),
        count => format!(", files: {{ count: {count}, size: {} }}", sizes.blocks * 4096),
    }
}

/// A trace of a few hundred accesses, discards among them, in `folder`.
fn trace(dice: &mut Dice, sizes: &Sizes, folder: &Path) -> PathBuf {
    let mut text = String::from("time_us,offset,length,op\n");
    let blocks = sizes.blocks * sizes.files.max(1);
    for access in 0..dice.within(50, 500) {
        let (first, length) = (dice.below(blocks), dice.within(1, 8));
        let operation = match dice.below(20) {
            0..9 => "write",
            9..17 => "read",
            17 | 18 => "discard",
            _ => "flush",
        };
        let length = length.min(blocks - first);
        let _ = writeln!(text, "{},{},{},{operation}", access * 100, first * 4096, length * 4096);
    }
    let path = folder.join("judged.csv");
    std::fs::write(&path, text).expect("the folder is ours");
    path
}

/// One fault in its short form.
fn fault(dice: &mut Dice, turn: u64, subject: &str, sizes: &Sizes) -> String {
    if dice.chance(10) {
        return model(dice);
    }
    let (operation, effect) = effect(dice, turn, sizes);
    let mut conditions = vec![operation.to_owned()];
    let carries_data = matches!(operation, "read" | "write");
    // Where something is likely to be.
    let blocks = (sizes.device / 4096).min(if sizes.files == 0 {
        u64::MAX
    } else {
        2 * sizes.files * sizes.blocks + 64
    });
    if operation != "flush" {
        match dice.below(if carries_data { 13 } else { 5 }) {
            0..2 => {
                let first = dice.below(blocks);
                let last = (first + dice.within(1, blocks / 4 + 1)).min(blocks);
                conditions.push(format!("offset={}..{}", first * 4096, last * 4096));
            }
            2 => conditions.push(format!("offset={}", dice.below(blocks) * 4096)),
            5 | 6 => {
                let file = char::from(b'a' + dice.below(sizes.files) as u8);
                let block = dice.below(sizes.blocks);
                conditions.push(match sizes.files {
                    0 => format!("target=last_block_of_every({})", 4096 << dice.within(2, 6)),
                    _ => format!("target=file({file}, block={block})"),
                });
            }
            7 => conditions.push(format!("target=most_duplicated({})", dice.within(1, 3))),
            8 => conditions.push(format!("target=unique({})", dice.within(1, 3))),
            9 => {
                let seen = dice.pick(&["last_written", "unique", "most_duplicated", "next_written"]);
                conditions.push(format!("target=seen({seen}, after={})", dice.below(200)));
            }
            10 if subject == "fat" => conditions.push("tag=a".into()),
            _ => {}
        }
    }
    match dice.below(9) {
        0 | 1 => conditions.push(format!("nth={}", dice.within(1, 25))),
        2 => conditions.push(format!("every={}", dice.within(2, 25))),
        3 => conditions.push(format!("after={}", dice.within(1, 60))),
        4 => conditions.push(format!("probability={}%", dice.within(1, 20))),
        5 => conditions.push("once".into()),
        6 => conditions.push(format!("burst={}/{}", dice.within(1, 4), dice.within(5, 60))),
        7 => conditions.push(format!("matches={}..{}", dice.within(1, 30), dice.within(30, 60))),
        _ => {}
    }
    match dice.below(5) {
        0 => conditions.push("sticky".into()),
        1 => conditions.push("until_rewritten".into()),
        _ => {}
    }
    match dice.below(9) {
        0 => conditions.push("during=prefill".into()),
        1 => conditions.push("during=run".into()),
        2 => conditions.push("during=check".into()),
        3 => conditions.push("during=prefill|run|check".into()),
        _ => {}
    }
    format!("{}: {effect}", conditions.join(", "))
}

fn effect(dice: &mut Dice, turn: u64, sizes: &Sizes) -> (&'static str, String) {
    let operation = dice.pick(&["read", "write"]);
    let both = |word: &str| (operation, word.to_owned());
    match turn % 26 {
        0 => both("bit_flip"),
        1 => both(&format!("bit_flip(byte={}, bit={})", dice.below(4096), dice.below(8))),
        2 => both(&format!("bit_flip(random={})", dice.within(1, 6))),
        3 => both("zeros"),
        4 => both("ones"),
        5 => both("noise"),
        6 | 7 => ("write", "lost_write".into()),
        8 => ("write", "misdirected_write".into()),
        9 => {
            let by = dice.within(1, sizes.device / 4096 / 2) * 4096;
            ("write", format!("misdirected_write(by={by})"))
        }
        10 => ("write", format!("torn_write(new={})", dice.pick(&["first", "last", "scattered"]))),
        11 => ("write", "shorn_write".into()),
        12 | 13 => ("read", "stale_read".into()),
        14 | 15 => both("medium_error"),
        16 => {
            let operation = dice.pick(&["read", "write", "any", "flush"]);
            (operation, format!("error({})", dice.pick(&["EIO", "ENOSPC", "EREMOTEIO", "ETIMEDOUT"])))
        }
        17 => (dice.pick(&["write", "flush"]), "error(EIO, after)".into()),
        18 => ("write", "no_space".into()),
        19 => ("write", "read_only".into()),
        20 => ("any", "gone".into()),
        21 => {
            let operation = dice.pick(&["read", "write", "any", "flush"]);
            (operation, format!("delay({}us)", dice.within(1, 900)))
        }
        22 => {
            let cut = dice.pick(&["power_cut", "power_cut", "power_cut(keeps=none)", "power_cut(keeps=all)"]);
            (dice.pick(&["write", "write", "any", "flush"]), cut.to_owned())
        }
        _ => (
            dice.pick(&["read", "write"]),
            dice.pick(&["hang(2ms)", "bandwidth(200MiB)", "noise"]).to_owned(),
        ),
    }
}

fn model(dice: &mut Dice) -> String {
    let model = match dice.below(5) {
        0 => "latent_sector_errors, acceleration=1e7".to_owned(),
        1 => {
            let share = dice.within(1, 5);
            format!(
                "undetected_disk_errors, dropped=0.0{share}, near_off_track=0.0{share}, far_off_track=0.01, read=0.01"
            )
        }
        2 => "bit_rot, acceleration=1e7".to_owned(),
        3 => "fail_slow, slowness=1ms".to_owned(),
        _ => "dying_disk, errors=10, delay_from=1us, delay_to=10us".to_owned(),
    };
    format!("model({model})")
}
