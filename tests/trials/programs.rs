//! Trials whose load is a program.

use rotproof_record::{Interval, MarkKind, RunFolder};

use crate::rig::{Rig, Run, Trial};

#[test]
fn a_command_is_the_load_of_a_device_and_its_exit_code_and_output_are_kept() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(
        "stack: [memory: { size: 16MiB }, faults]\nsubject: device\nload:\n  command:\n    prepare: [dd, if=/dev/zero, \
         'of={target}', bs=64k, count=16, oflag=direct, status=none]\n    run: 'echo $ROTPROOF_KIND $ROTPROOF_SEED; dd \
         if=/dev/zero of=$ROTPROOF_TARGET bs=4k count=64 oflag=direct status=none'\nfaults: ['write, offset=64KiB: \
         error', 'read, offset=15MiB: zeros']\nexpect: { exit: 1, injections: '>= 1', unknown: 1, untriggered: 1 }\n",
    ));
    run.assert_passed();
    let said = std::fs::read_to_string(run.file("run.stderr")).expect("kept");
    assert!(said.contains("Input/output error"), "{said}");
    assert_eq!(std::fs::read_to_string(run.file("run.stdout")).expect("kept"), "device 1\n");
    assert_eq!(run.json["external"]["commands"][1]["exit"], 1);
    assert!(
        run.text.contains("exit code 1 after") && run.text.contains("Input/output error"),
        "{}",
        run.text
    );
    assert!(run.json["content"].is_null(), "nobody knows what a command wrote");

    // What it did to its device over time.
    let kept = RunFolder::open(&run.file("")).expect("recorded");
    let device = kept.device_intervals().expect("of the device");
    let sum = |phase: &str, figure: fn(&Interval) -> u64| -> u64 {
        let writes = device.iter().filter(|row| &*row.phase == phase && &*row.operation == "write");
        writes.map(figure).sum()
    };
    assert_eq!(sum("prepare", |row| row.bytes), 1 << 20);
    assert!(sum("run", |row| row.bytes) >= 64 << 10 && sum("run", |row| row.errors) >= 1, "{device:?}");
    assert_eq!(kept.intervals().expect("of nothing"), []);
    let marks = kept.marks().expect("marks");
    let names = |kind| -> Vec<&str> {
        marks.iter().filter(|mark| mark.kind == kind).map(|mark| &*mark.name).collect()
    };
    assert_eq!(names(MarkKind::Phase), ["prepare", "run"]);
    assert_eq!(names(MarkKind::Injections).len(), 1);
    assert!(!names(MarkKind::Window).is_empty());
    let page = std::fs::read_to_string(run.file("report.html")).expect("the page");
    assert!(page.contains("Throughput of the device"));
}

#[test]
fn what_a_command_wrote_on_a_file_system_its_check_reads_from_the_device() {
    let rig = Rig::new();
    // A checksum over blocks that are all the same, one of which reads as zeros after the remount.
    let trial = |faults: &str, expect: &str| {
        Trial::new(format!(
            "stack: [memory: {{ size: 128MiB }}, faults]\nsubject: ext4\nload:\n  command:\n    run: yes 0123456 | head -c \
             4M > f && sha256sum f > sums\n    check: sha256sum -c sums\n{faults}{expect}"
        ))
    };
    rig.run(&trial("", "")).assert_passed();
    let faults = "faults: [{ name: rot, during: run, match: { operation: write, target: { seen: most_duplicated, after: 4 } }, \
                  effect: zeros }]\n";
    let run = rig.run(&trial(faults, "expect: { exit: 0, check_exit: 1, unknown: '>= 1' }\n"));
    run.assert_passed();
    let said = std::fs::read_to_string(run.file("check.stdout")).expect("kept");
    assert!(said.contains("f: FAILED"), "{said}");
    assert!(run.text.contains("so nobody can say"), "{}", run.text);
}

#[test]
fn fios_figures_are_those_of_the_run() {
    let rig = Rig::new();
    std::fs::write(
        rig.path("jobs.fio"),
        "[global]\nfilename=${ROTPROOF_TARGET}\nsize=4m\ndirect=1\nbs=4k\n[fill]\nrw=write\n[read]\nstonewall\nrw=randread\n\
         number_ios=100\n",
    )
    .expect("a job file");
    let jobs = rig.path("jobs.fio").display().to_string();
    let run = rig.run(&Trial::new(format!(
        "stack: [memory: {{ size: 16MiB }}]\nsubject: device\nload: {{ command: {{ fio: {jobs} }} }}\n"
    )));
    run.assert_passed();
    let lines = run.json["performance"].as_array().expect("a list");
    let short: Vec<_> = lines
        .iter()
        .map(|line| (line["job"].as_str(), line["operation"].as_str(), line["requests"].as_u64()))
        .collect();
    assert_eq!(
        short,
        [(Some("fill"), Some("write"), Some(1024)), (Some("read"), Some("read"), Some(100))],
        "{}",
        run.text
    );
    assert!(run.json["external"]["fio_failed_jobs"] == 0 && run.file("run.stdout").exists());
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_it_has_started() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(
        "stack: [memory: { size: 64MiB }]\nsubject: ext4\nload:\n  command:\n    run: touch x; setsid sleep 613 < x & sleep \
         613\n    timeout: 1s\n",
    ));
    assert_eq!((run.code, run.count("exit")), (1, 124), "{}", run.text);
    assert!(run.text.contains("its time was over"), "{}", run.text);
    assert_eq!(rig.shell("ps -eo args | grep -c '[s]leep 613' || true").trim(), "0");
}

#[test]
fn a_command_ends_when_its_trial_is_interrupted() {
    let rig = Rig::new();
    let trial = Trial::new(
        "stack: [memory: { size: 16MiB }]\nsubject: device\nload: { command: { run: 'sleep 617 & while :; do dd if=/dev/zero \
         of={target} bs=64k count=99 oflag=direct status=none; done' } }\n",
    );
    let (code, text) = rig.interrupt(&trial, 2);
    assert_eq!(code, Some(130), "{text}");
    assert_eq!(rig.shell("ps -eo args | grep -c '[s]leep 617' || true").trim(), "0");
    rig.assert_nothing_left();
}

#[test]
fn a_command_and_all_that_it_has_started_die_with_a_run_that_is_killed() {
    let rig = Rig::alone();
    let trial = Trial::new(
        "stack: [memory: { size: 16MiB }]\nsubject: device\nload: { command: 'setsid sleep 619 & while :; do dd \
         if=/dev/zero of={target} bs=64k count=99 oflag=direct status=none; done' }\n",
    );
    let (code, _) = rig.interrupt(&trial, libc::SIGKILL);
    assert_eq!(code, None, "killed by the signal");
    // One that waits for the device, whose server is dead, can die only once that is cleaned.
    let cleaned = rig.rotproof(&["clean"]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.text);
    let alive = || rig.shell("ps -eo args | grep -c '[s]leep 619' || true");
    let began = std::time::Instant::now();
    while alive().trim() != "0" {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "the program lives on");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    rig.assert_nothing_left();
}

/// What a database notices depends on the file system below: `examples/sqlite.yaml`, as it stands and with checksums.
#[test]
fn sqlite_finds_a_flipped_bit_in_order_unless_the_file_system_does_not() {
    let rig = Rig::new();
    let example = include_str!("../../examples/sqlite.yaml");
    let run = rig.run(&Trial::new(example));
    run.assert_passed();
    let ended = |run: &Run| run.json["external"]["commands"][1]["exit"].as_u64();
    assert_eq!(ended(&run), Some(1), "its own check passes, the sum is wrong");

    let run = rig.run(&Trial::new(example.replace("subject: ext4", "subject: btrfs")));
    assert_eq!((run.code, ended(&run)), (1, Some(2)), "{}", run.text);
    let said = std::fs::read_to_string(run.file("check.stderr")).expect("kept");
    assert!(!said.is_empty(), "the error of the query");
}

/// On a device they run in a folder of the run.
#[test]
fn what_programs_leave_where_they_run_costs_neither_results_nor_the_clean_up() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(
        "stack: [memory: { size: 16MiB }]\nsubject: device\nload:\n  command:\n    prepare: 'mkdir -p deep/er; echo x > \
         deep/er/left; ln -s / root'\n    run: cat deep/er/left\n    check: 'test -e deep/er/left && touch core'\n",
    ));
    run.assert_passed();
    assert_eq!(std::fs::read_to_string(run.file("run.stdout")).expect("kept"), "x\n");
}

#[test]
fn programs_find_what_lies_beside_the_trial_file() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    std::fs::create_dir(rig.path("bin")).expect("made");
    let script = rig.path("bin/bench.sh");
    std::fs::write(
        &script,
        "#!/bin/sh\necho \"$ROTPROOF_TRIAL_DIR\" \"$@\"; cat \"$ROTPROOF_TRIAL_DIR\"/data\n",
    )
    .expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("changed");
    std::fs::write(rig.path("data"), "beside\n").expect("written");
    let run = rig.run(&Trial::new(
        "stack: [memory: { size: 16MiB }]\nsubject: device\nload:\n  command:\n    prepare: [bin/bench.sh, \
         '{trial_dir}/data']\n    run: ./bin/bench.sh shell\n    check: cat \"$ROTPROOF_TRIAL_DIR\"/data\n",
    ));
    run.assert_passed();
    let here = rig.path("").canonicalize().expect("it is there").display().to_string();
    let said = |name: &str| std::fs::read_to_string(run.file(name)).expect("kept");
    assert_eq!(said("prepare.stdout"), format!("{here} {here}/data\nbeside\n"));
    assert_eq!(said("run.stdout"), format!("{here} shell\nbeside\n"));
    assert_eq!(said("check.stdout"), "beside\n");
    // The trial among the results is run again as it is, though it lies elsewhere.
    let again = rig.rotproof(&["run", &run.file("trial.yaml").to_string_lossy(), "--results", "again"]);
    assert_eq!(again.code, 0, "{}", again.text);
}
