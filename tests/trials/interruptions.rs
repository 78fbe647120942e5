//! Trials that somebody ends in the middle of a load of files or of a program, or whose calls do not return: what was done
//! up to there is kept.

use serde_json::Value;

use crate::rig::{Process, Rig, Run, Trial};

/// What every run that was interrupted leaves.
fn assert_interrupted(run: &Run) {
    assert_eq!((run.code, run.json["verdict"].as_str()), (130, Some("interrupted")), "{}", run.text);
    assert_eq!(run.json["expectations"].as_array().map(Vec::len), Some(0), "{}", run.text);
    assert!(run.text.contains("INTERRUPTED  no verdict"), "{}", run.text);
    for name in ["trial.yaml", "intervals.parquet", "device.parquet", "marks.parquet", "ledger.parquet"] {
        assert!(run.file(name).is_file(), "{name}");
    }
    let page = std::fs::read_to_string(run.file("report.html")).expect("the page");
    assert!(page.contains("The run was interrupted") && !page.contains("badge pass"));
}

#[test]
fn a_load_of_files_that_is_interrupted_leaves_its_results_and_no_verdict() {
    let rig = Rig::new();
    let run = rig.interrupt_once(
        &Trial::new(
            "stack: [ memory: { size: 320MiB }, faults ]\nsubject: ext4\nload: { personality: { varmail: { files: 60, \
             threads: 2 } }, duration: 1h }\nfaults: [ \"write, every=50: bit_flip\" ]\nexpect: { silent: 0 }\n",
        ),
        Process::has_used_time,
    );
    rig.assert_nothing_left();
    assert_interrupted(&run);
    let performance = run.json["performance"].as_array().expect("lines");
    let of_run = |line: &&Value| line["phase"] == "run" && line["operation"] == "fsync";
    let fsync = performance.iter().find(of_run).expect("it was at work");
    assert!(fsync["requests"].as_u64() > Some(0), "{}", run.text);
    assert!(run.count("injections") > 0, "{}", run.text);
    assert_eq!((run.count("masked"), run.count("silent")), (0, 0), "nobody has looked: {}", run.text);
    let note = run.json["faults"][0]["note"].as_str().expect("why nobody knows");
    assert!(note.contains("interrupted before everything was read back"), "{note}");
}

/// Tells the test that the program is at work, and ends in order when it is asked to.
fn program(rig: &Rig, on_end: &str) -> Trial {
    let ready = rig.path("ready").display().to_string();
    Trial::new(format!(
        "stack: [ memory: {{ size: 16MiB }}, faults ]\nsubject: device\nload:\n  command:\n    prepare: 'true'\n    run: \
         \"trap '{on_end}' TERM; echo begun; sleep 61.375 & touch {ready}; wait; wait\"\n\
         faults: [ \"write: error\" ]\nexpect: {{ exit: 0 }}\n"
    ))
}

#[test]
fn a_program_that_is_interrupted_ends_in_order_without_faults_and_its_output_is_kept() {
    let rig = Rig::new();
    let last =
        "dd if=/dev/zero of=$ROTPROOF_TARGET bs=4k count=16 oflag=direct status=none && echo stored; exit 3";
    let run = rig.interrupt_once(&program(&rig, last), |_| rig.path("ready").exists());
    rig.assert_nothing_left();
    assert_interrupted(&run);
    let said = std::fs::read_to_string(run.file("run.stdout")).expect("kept");
    assert_eq!(said, "begun\nstored\n", "{}", run.text);
    assert_eq!(run.count("injections"), 0, "faults sleep once it is to end: {}", run.text);
    let commands = run.json["external"]["commands"].as_array().expect("a list");
    let told: Vec<_> = commands.iter().map(|one| (&one["name"], &one["exit"], &one["interrupted"])).collect();
    let wanted = serde_json::json!([["prepare", 0, false], ["run", 3, true]]);
    assert_eq!(serde_json::json!(told), wanted, "{}", run.text);
    assert!(run.text.contains("with exit code 3: interrupted"), "{}", run.text);
    let device = rotproof_record::RunFolder::open(&run.file("")).and_then(|kept| kept.device_intervals());
    assert!(device.expect("a table").iter().any(|row| &*row.phase == "run" && row.bytes == 64 << 10));
}

#[test]
fn who_asks_twice_gets_no_results_but_nothing_is_left() {
    let rig = Rig::new();
    let run = rig.interrupt_twice(&program(&rig, ""), |_| rig.path("ready").exists());
    assert_eq!((run.code, &run.json), (130, &Value::Null), "{}", run.text);
    assert!(run.text.contains("interrupted; everything it had created is removed"), "{}", run.text);
    rig.assert_nothing_left();
    let left = rig.shell("ps -eo args | grep '^sleep 61[.]375$' || true");
    assert_eq!(left, "", "the program has ended with all that it had started");
}

#[test]
fn the_figures_of_fio_are_kept_though_it_was_interrupted() {
    let rig = Rig::new();
    std::fs::write(
        rig.path("jobs.fio"),
        "[global]\nfilename=${ROTPROOF_TARGET}\nsize=4m\ndirect=1\nbs=4k\ntime_based\nruntime=1h\n[one]\nrw=randwrite\n\
         [two]\nrw=randread\n",
    )
    .expect("a job file");
    let jobs = rig.path("jobs.fio").display().to_string();
    let trial = Trial::new(format!(
        "stack: [memory: {{ size: 16MiB }}]\nsubject: device\nload: {{ command: {{ fio: {jobs}, timeout: 2h }} }}\n"
    ));
    let run = rig.interrupt_once(&trial, Process::has_used_time);
    rig.assert_nothing_left();
    assert_interrupted(&run);
    let performance = run.json["performance"].as_array().expect("lines");
    assert!(performance.iter().any(|line| line["job"] == "one" && line["requests"].as_u64() > Some(0)));
}

#[test]
fn a_call_that_hangs_in_the_kernel_is_given_up_and_what_holds_it_lets_go() {
    let rig = Rig::new();
    for engine in ["psync", "io_uring"] {
        let run = rig.run(&Trial::new(format!(
            "stack: [ memory: {{ size: 64MiB }}, faults ]\nsubject: ext4\nload: {{ ioengine: {engine}, total: 4MiB, \
             hung_after: 400ms, files: {{ count: 1, size: 4MiB }} }}\n\
             faults: [ \"name=stuck, write, target=file(a, block=100), once: hang(1h)\" ]\n\
             expect: {{ errors: 1, failures: 1, reported: 1, silent: 0, unexplained: 0 }}\n"
        )));
        run.assert_passed();
        let hung = &run.json["hung"];
        assert_eq!(hung.as_array().map(Vec::len), Some(1), "{engine}: {}", run.text);
        let place =
            (hung[0]["operation"].as_str(), hung[0]["object"].as_str(), hung[0]["offset_bytes"].as_u64());
        assert_eq!(place, (Some("write"), Some("a"), Some(100 * 4096)), "{engine}: {}", run.text);
        assert_eq!(hung[0]["end"], "given_up", "{engine}: {}", run.text);
        assert!(run.text.contains("1 request under way for too long"), "{}", run.text);
        assert_eq!(run.failures()[0]["block"], 100, "{engine}");
    }
}

#[test]
fn a_load_of_files_whose_calls_hang_in_the_kernel_ends_and_names_them() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(
        "stack: [ memory: { size: 320MiB }, faults ]\nsubject: ext4\nload: { personality: { varmail: { files: 60, threads: \
         2, loops: 200 } }, hung_after: 400ms }\nfaults: [ \"name=stuck, write, once: hang(1h)\" ]\n\
         expect: { injections: 1, errors: \">= 1\", silent: 0, reported: 1, unexplained: 0 }\n",
    ));
    run.assert_passed();
    let hung = run.json["hung"].as_array().expect("a list");
    let given_up = hung.iter().filter(|hung| hung["end"] == "given_up").count();
    assert!(given_up >= 1, "{}", run.text);
    assert!(
        hung.iter().all(|hung| hung["object"].as_str().is_some_and(|name| name.contains('f'))),
        "{hung:?}"
    );
    assert!(run.text.contains("given up after"), "{}", run.text);
    let kinds: Vec<_> =
        run.failures().iter().map(|failure| failure["ways"][0]["what"]["kind"].clone()).collect();
    assert!(kinds.iter().all(|kind| kind == "refused"), "only what was given up: {kinds:?}");
}
