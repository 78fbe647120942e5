//! Trials that make no sense as a whole, and what is said of them.

use crate::file::{Overrides, TrialFile};

/// The mistakes of a trial on a stack of `size`, as `path: message`.
#[test]
fn a_subject_that_is_to_die_with_the_power_needs_a_rule_that_takes_it() {
    let subject = "stack: [memory: { size: 64MiB }, faults, record]\nsubject: ext4\n";
    let cut = "faults: ['write, nth=9: power_cut']\n";
    let accepted = |more: &str| {
        TrialFile::parse("t.yaml", format!("{subject}{more}").as_bytes(), &Overrides::default())
            .map(drop)
            .map_err(|mistakes| mistakes.to_string())
    };
    assert_eq!(accepted(&format!("stop: kill_with_power\n{cut}crash: {{ at: kill }}")), Ok(()));
    let told = |more: &str| accepted(more).expect_err("a mistake");
    assert!(told("stop: kill_with_power").contains("no rule takes the power"));
    assert!(told(&format!("stop: kill\n{cut}crash: {{ at: kill }}")).contains("stop: kill_with_power"));
    let guarded = format!("stop: kill_with_power\n{cut}").replace("ext4", "");
    let guard = format!(
        "stack: [memory: {{ size: 64MiB }}, faults]\nsubject: {{ guard: {{ over: ext4 }} }}\n{guarded}"
    );
    let found = TrialFile::parse("t.yaml", guard.as_bytes(), &Overrides::default()).expect_err("a mistake");
    assert!(found.to_string().contains("process of a guard"), "{found}");
}

#[test]
fn states_without_a_file_system_need_somebody_who_knows_their_bytes() {
    let accepted = |yaml: &str| {
        TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
            .map(drop)
            .map_err(|mistakes| mistakes.to_string())
    };
    let stack = "stack: [memory: { size: 1MiB }, record]\n";
    assert_eq!(accepted(&format!("{stack}runtime: simulated\ncrash: {{}}\n")), Ok(()));
    let command = format!("{stack}subject: device\nload: {{ command: {{ run: 'true' }} }}\n");
    assert_eq!(accepted(&format!("{command}crash: {{ check: 'true' }}\n")), Ok(()));
    let below = "stack: [memory: { size: 1MiB }, write_cache: { ignores: flush }, record]\ncrash: {}\n";
    for (yaml, wanted) in [
        (format!("{command}crash: {{}}\n"), "nobody knows what the states of device must hold"),
        (format!("{stack}crash: {{ fsck: true }}\n"), "there is no file system"),
        (format!("{stack}crash: {{ second_cuts: 1 }}\n"), "there is no file system"),
        (format!("{stack}subject: fat\ncrash: {{}}\n"), "is no file system of a kernel"),
        (below.to_owned(), "put `record` below the `write_cache`"),
    ] {
        let found = accepted(&yaml).expect_err(&yaml);
        assert!(found.contains(wanted), "{yaml}: {found}");
    }
}

#[test]
fn a_layer_that_would_not_notice_is_not_left_without_power() {
    for layer in ["checksum", "versions"] {
        let yaml = format!(
            "stack: [memory: {{ size: 64MiB }}, write_cache, faults, {layer}]\nfaults: ['write, nth=9: power_cut']\n"
        );
        let wanted = format!(
            "faults[0].effect: `{layer}` would not notice that the power goes below it: it keeps in memory what that takes"
        );
        assert_eq!(mistakes_of(&yaml), [wanted]);
    }
}

#[test]
fn of_what_exists_nothing_is_chosen() {
    let on_file = |subject: &str| {
        mistakes_of(&format!("stack: [file: {{ path: disk.img, size: 64MiB }}]\nsubject: {subject}\n"))
    };
    assert_eq!(
        on_file("{ ext4: { existing: true, mkfs: ['-q'] } }"),
        ["subject.ext4.mkfs: what exists is not made, so nothing is chosen of how"]
    );
    assert_eq!(on_file("{ guard: { over: { ext4: { existing: true } } } }"), Vec::<String>::new());
    assert_eq!(
        on_file("{ volume: { copies: 1, under: { ext4: { existing: true } } } }"),
        ["subject.volume.under: this volume is made for the trial, so nothing exists on it"]
    );
    assert_eq!(on_file("{ xfs: { existing: true } }"), Vec::<String>::new(), "whoever made it had room");
}

fn mistakes(size: &str, rest: &str) -> Vec<String> {
    mistakes_of(&format!("stack: [memory: {{ size: {size} }}]\n{rest}\n"))
}

fn mistakes_of(yaml: &str) -> Vec<String> {
    match TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default()) {
        Ok(_) => Vec::new(),
        Err(found) => found.list.into_iter().map(|d| format!("{}: {}", d.path, d.message)).collect(),
    }
}

#[test]
fn what_takes_two_parts_to_be_wrong_is_refused() {
    for (size, rest, wanted) in [
        (
            "64MiB",
            "runtime: simulated\nsubject: ext4",
            "runtime: a kernel knows no virtual time, so ext4 cannot run in it",
        ),
        (
            "64MiB",
            "runtime: simulated\nprobes: on",
            "probes: probes look at the machine by its clock, and this trial runs in virtual time",
        ),
        ("64MiB", "probes: { interval: 10ms }", "probes.interval: probes every 10ms are not possible"),
        (
            "64MiB",
            "probes: { machines: { local: x } }",
            "probes.machines.local: `local` is the machine that the run is on, which is looked at anyway",
        ),
        ("64MiB", "stop: kill", "stop: nothing of raw stands above the stack that could be killed"),
        (
            "64MiB",
            "subject: ext4\nload: { personality: varmail }\nstop: kill",
            "stop: of the files of a personality not all are flushed when it ends, so nobody could say what a kill may lose",
        ),
        (
            "64MiB",
            "subject: { ext4: { existing: true } }",
            "subject: nothing exists on a leaf in memory, which is new in every run",
        ),
        ("512KiB", "subject: fat", "subject: fat needs a device of at least 1MiB, and this stack has 512KiB"),
        (
            "16GiB",
            "subject: fat\nload: { files: { count: 1, size: 4GiB } }",
            "load.files.size: a file of 4GiB is too large for FAT",
        ),
        (
            "64MiB",
            "subject: fat\nload: { files: { count: 4, size: 16MiB } }",
            "load.files: 4 files of 16MiB do not fit a device of 64MiB",
        ),
        (
            "64MiB",
            "load: { files: { count: 1, size: 1MiB } }",
            "load.files: there are no files on the subject raw",
        ),
        (
            "64MiB",
            "load: { command: { run: true-ish } }",
            "subject: raw is nothing that a program could open",
        ),
        (
            "64MiB",
            "subject: device\nload: { command: { run: x }, reads: 20% }",
            "load.command: a command is the whole load; what stands beside it says nothing",
        ),
        (
            "64MiB",
            "subject: device\nload: { command: { run: x } }\nexpect: { silent: 0 }",
            "expect.silent: nobody can count `silent` for a command: what it wrote and saw is not known",
        ),
        (
            "64MiB",
            "subject: device\nload: { command: { run: x } }\nexpect: { check_exit: 1 }",
            "expect.check_exit: this command has no `check`",
        ),
        ("64MiB", "expect: { exit: 0 }", "expect.exit: `exit` is told of a command, and this load is none"),
        (
            "64MiB",
            "subject: device\nload: { command: { run: x } }\nfaults: ['target=unique: zeros']",
            "faults[0].match.target: what a command writes is not known, so nothing can aim at it",
        ),
        (
            "64MiB",
            "load: { trace: { file: ../../examples/traces/mail.spc }, reads: 20% }",
            "load.reads: beside `trace`, `reads` says nothing: the trace says what is done",
        ),
        (
            "64MiB",
            "load: { trace: { file: ../../examples/trace-replay.yaml } }",
            "load.trace.file: ../../examples/trace-replay.yaml is in no format that tells itself; say which with \
             `format` (--trace-format)",
        ),
        (
            "299MiB",
            "subject: xfs",
            "subject: xfs needs a device of at least 300MiB, and this stack has 299MiB",
        ),
        (
            "108MiB",
            "subject: btrfs",
            "subject: btrfs needs a device of at least 109MiB, and this stack has 108MiB",
        ),
        (
            "64MiB",
            "subject: ext4\nload: { files: { count: 4, size: 16MiB } }",
            "load.files: 4 files of 16MiB do not fit a device of 64MiB",
        ),
        (
            "64MiB",
            "subject: ext4\nload: { files: { count: 2, size: 8388608TiB } }",
            "load.files: 2 files of 8388608TiB do not fit a device of 64MiB",
        ),
        ("64KiB", "load: { workers: 20 }", "load.workers: 20 workers cannot share 16 requests of 4KiB"),
        (
            "64MiB",
            "faults: ['read, offset=64MiB: error']",
            "faults[0].match.offset: 64MiB is beyond the device, which has 64MiB",
        ),
        (
            "64MiB",
            "name: a/b",
            "name: the results go into a folder with the trial's name, and no folder can be called so",
        ),
        (
            "64MiB",
            "expect: { injections: 1 }",
            "expect.injections: `injections` counts faults, and this trial has none",
        ),
        (
            "64MiB",
            "faults: ['target=file(b, block=1): zeros']",
            "faults[0].match.target.file: the load has no file `b`",
        ),
        (
            "64MiB",
            "faults: ['target=file(device, block=16384): zeros']",
            "faults[0].match.target.block: `device` has 16384 blocks of 4KiB, counted from 0",
        ),
        (
            "64MiB",
            "subject: ext4\nload: { files: { count: 1, size: 3 } }\nfaults: ['target=file(a, block=7): zeros']",
            "load.files.size: the size of a file is 3; it must be a multiple of 4KiB, and not 0",
        ),
        (
            "64MiB",
            "faults: ['read, target=file(device, block=7, by=extent): zeros']",
            "faults[0].match.target: there are no files on the subject raw, so none has extents",
        ),
        (
            "64MiB",
            "subject: fat\nfaults: ['read, target=file(a, block=7, by=extent): zeros']",
            "faults[0].match.target: fat does not say where a block of a file lies",
        ),
        (
            "300MiB",
            "subject: btrfs\nfaults: ['read, target=file(a, block=7, by=extent): zeros']",
            "faults[0].match.target: btrfs tells where a block lies in its own address space, not on the device",
        ),
        (
            "64MiB",
            "subject: ext4\nfaults: ['read, target=file(a, block=7, by=extent): zeros']",
            "faults[0].match.target: a block has no place before it is written, and this load begins with empty \
             files",
        ),
        (
            "64MiB",
            "subject: ext4\nload: { prefill: true }\nfaults: ['during=prefill|run, target=file(a, block=7, \
             by=extent): zeros']",
            "faults[0].match.target: a block has no place before the files are filled, and this rule is enabled \
             while they are",
        ),
        (
            "64MiB",
            "subject: ext4\nfaults: ['during=check, target=file(q, block=7, by=extent): zeros']",
            "faults[0].match.target.file: the load has no file `q`",
        ),
        (
            "64MiB",
            "load: { personality: { varmail: { files: 40, threads: 2 } } }",
            "load.personality: a load of files needs a file system, and raw is none of the kernel's",
        ),
        (
            "64MiB",
            "subject: ext4\nload: { personality: fileserver }",
            "load.personality: its files take 1343MiB, which do not fit a device of 64MiB",
        ),
        (
            "64MiB",
            "subject: ext4\nload: { personality: { varmail: { threads: 0 } } }",
            "load.personality.varmail.threads: 0 threads are not possible; give 1 to 1000",
        ),
        (
            "64MiB",
            "subject: ext4\nload: { personality: { varmail: { files: 40, threads: 2 } }, reads: 30% }",
            "load.reads: beside `personality`, `reads` says nothing",
        ),
        (
            "64MiB",
            "subject: ext4\nload: { personality: { varmail: { files: 40, threads: 2 } } }\nfaults: \
             ['target=file(a, block=1): zeros']",
            "faults[0].match.target: a load of files makes and deletes its files as it goes, so none of its \
             blocks can be named beforehand",
        ),
        (
            "64MiB",
            "faults: ['target=most_duplicated: zeros']",
            "faults[0].match.target: this load writes no duplicates",
        ),
        (
            "64MiB",
            "subject: device\nload: { polled: true }",
            "load.polled: the devices of a trial are Rotproof's own, and none of them can be polled",
        ),
        (
            "64MiB",
            "load: { fixed_buffers: true }",
            "load.fixed_buffers: nothing here goes to a file or block device by io_uring, so there is no memory to register",
        ),
        (
            "64MiB",
            "load: { duration: 1s }\nfaults: ['target=unique: zeros']",
            "faults[0].match.target: what a load writes until its time is up or it is steady is not known \
             beforehand",
        ),
        (
            "64MiB",
            "load: { until_steady: {} }\nfaults: ['target=unique: zeros']",
            "faults[0].match.target: what a load writes until its time is up or it is steady is not known \
             beforehand",
        ),
        (
            "64MiB",
            "load: { until_steady: { window: 4s } }",
            "load.until_steady.window: 4s are too few intervals to tell whether anything is steady",
        ),
        (
            "64MiB",
            "load: { until_steady: { window: 10min } }\nrecord: { interval: 10ms }",
            "load.until_steady.window: 10min are more than 10000 intervals",
        ),
        (
            "64MiB",
            "load: { until_steady: { window: 20s }, duration: 10s }",
            "load.until_steady.window: a load that runs for 10s cannot be found steady, which takes 20s",
        ),
        (
            "64MiB",
            "load: { reads: 100%, prefill: false }\nfaults: ['target=unique: zeros']",
            "faults[0].match.target: a load that only reads writes no content that a target could name",
        ),
    ] {
        assert_eq!(mistakes(size, rest), [wanted], "{rest}");
    }
}

#[test]
fn offsets_of_faults_and_places_of_the_load_are_held_against_the_device_that_each_is_on() {
    let stack = |layers: &str, rest: &str| {
        let yaml = format!("stack: [memory: {{ size: 1MiB }}, {layers}]\n{rest}\n");
        TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
            .map_err(|found| found.list.into_iter().map(|d| d.path).collect::<Vec<_>>().join(" "))
            .map(|_| ())
    };
    let beyond = "faults: ['write, offset=3MiB: zeros']";
    assert_eq!(stack("dedup: { size: 4MiB }, faults", beyond), Ok(()));
    for below in ["faults, dedup: { size: 4MiB }", "dedup: { size: 4MiB }"] {
        assert_eq!(stack(below, beyond), Err("faults[0].match.offset".into()), "{below}");
    }
    let extent = "subject: ext4\nfaults: ['during=check, target=file(a, block=7, by=extent): zeros']";
    assert_eq!(stack("dedup: { size: 4MiB }, faults", extent), Ok(()));
    assert_eq!(stack("faults, dedup: { size: 4MiB }", extent), Err("faults[0].match.target".into()));
    let workers = "load: { workers: 20, block_size: 64KiB }";
    assert_eq!(stack("dedup", workers), Err("load.workers".into()));
    assert_eq!(stack("dedup: { size: 4MiB }", workers), Ok(()));
}

#[test]
fn the_smallest_device_that_will_do_is_taken() {
    for (size, rest) in [
        ("300MiB", "subject: xfs"),
        ("109MiB", "subject: btrfs"),
        ("64KiB", "load: { workers: 16 }"),
        ("1MiB", "subject: fat\nruntime: simulated"),
        ("16GiB", "subject: fat\nload: { files: { count: 2, size: 4194300KiB } }"),
        ("64MiB", "faults: ['target=file(device, block=16383): zeros']"),
        ("64MiB", "subject: ext4\nfaults: ['target=file(d, block=3): zeros']"),
        ("64MiB", "load: { duration: 1s }\nfaults: ['target=file(device, block=3): zeros']"),
    ] {
        assert_eq!(mistakes(size, rest), [""; 0], "{rest}");
    }
}

#[test]
fn a_backing_file_must_be_there_or_have_a_size() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("disk.img");
    let check = |options: &str| {
        let yaml = format!("stack: [file: {{ path: {}{options} }}]\nload: {{ workers: 5 }}", image.display());
        TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
            .map_err(|found| found.list.into_iter().map(|d| d.path).collect::<Vec<_>>().join(" "))
            .map(|_| ())
    };
    assert_eq!(check(""), Err("stack[0].file.path".into()));
    assert_eq!(check(", size: 1MiB"), Ok(()));
    std::fs::write(&image, [0; 4 * 4096]).expect("the image is written");
    assert_eq!(check(""), Err("load.workers".into()), "its size is taken from the file");
    std::fs::write(&image, [0; 5 * 4096]).expect("the image is written");
    assert_eq!(check(""), Ok(()));
}
