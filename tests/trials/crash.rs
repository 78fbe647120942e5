//! Power loss under real file systems, by the command.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rotproof_block::Tag;
use rotproof_crash::recording::{Header, Recorder, RecorderOptions};
use serde_json::Value;

use super::rig::{Rig, Trial};

fn crash(rig: &Rig, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .arg("crash")
        .args(arguments)
        .current_dir(rig.path(""))
        .output()
        .expect("rotproof starts");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code().unwrap_or(-1), text.concat())
}

#[test]
fn file_systems_keep_what_they_promise() {
    let rig = Rig::new();
    for subject in ["ext4", "xfs", "btrfs"] {
        let arguments = [subject, "--sample", "3", "--seed", "7", "--states", "12", "--json"];
        let (code, text) = crash(&rig, &arguments);
        assert_eq!(code, 0, "{subject}: {text}");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let tally = &value["campaign"]["tally"];
        assert_eq!(tally["sequences"], 3, "{tally}");
        assert!(tally["checked"].as_u64().is_some_and(|checked| checked >= 9), "{tally}");
    }
    assert!(!rig.path("rotproof-results").exists(), "nothing failed, so nothing is kept");
}

#[test]
fn sequences_go_on_after_a_signal_and_after_kill_9_and_come_to_what_an_uninterrupted_run_does() {
    // Others must not meet the mounts of a run that was killed.
    let rig = Rig::alone();
    // Without flushes an fsync keeps nothing, so something fails.
    let arguments = ["crash", "ext4", "--mount", "nobarrier", "--sample", "6", "--states", "10", "--results"];
    let with = |more: &[&'static str]| [&arguments[..], more].concat();
    let json = |text: &str| -> Value {
        let start = text.find('{').unwrap_or_else(|| panic!("{text}"));
        serde_json::from_str(text[start..].trim()).unwrap_or_else(|_| panic!("{text}"))
    };
    let whole = rig.rotproof(&with(&["whole", "--json", "-q"]));
    assert_eq!(whole.code, 1, "{}", whole.text);
    let whole = json(&whole.text);
    assert_eq!(whole["campaign"]["tally"]["sequences"], 6, "{whole}");

    let progress = rig.path("parts/progress.jsonl");
    let done = || std::fs::read_to_string(&progress).unwrap_or_default().lines().count().saturating_sub(1);
    for (signal, at_least) in [(libc::SIGINT, 1), (libc::SIGKILL, 3)] {
        let is_ready = |_: &_| done() >= at_least;
        let (code, text) = rig.disturbed(&with(&["parts"]), is_ready, |child| {
            // SAFETY: the process is our child and has not been waited for.
            assert_eq!(unsafe { libc::kill(child.cast_signed(), signal) }, 0);
            if signal == libc::SIGKILL {
                // Where it was mounting a state, its kernel waits for a device that it no longer serves, and it ends with this.
                std::thread::sleep(Duration::from_millis(500));
                assert_eq!(rig.rotproof(&["clean"]).code, 0);
            }
        });
        assert!((at_least..6).contains(&done()), "{}: {text}", done());
        if signal == libc::SIGINT {
            assert_eq!(code, Some(130), "{text}");
            assert!(text.contains("The same command goes on from there"), "{text}");
            rig.assert_nothing_left();
        } else {
            assert_eq!(code, None, "killed by the signal");
            assert!(text.contains("goes on in parts: "), "{text}");
            assert_eq!(rig.rotproof(&["clean"]).code, 0);
            rig.assert_nothing_left();
        }
    }
    let before = std::fs::read_to_string(&progress).expect("it is there");
    let parts = rig.rotproof(&with(&["parts", "--json", "-q"]));
    assert_eq!(parts.code, 1, "{}", parts.text);
    let parts = json(&parts.text);
    assert_eq!(parts["campaign"]["earlier"]["sequences"], before.lines().count() - 1, "{parts}");
    assert!(std::fs::read_to_string(&progress).expect("it is there").starts_with(&before));
    assert_eq!(parts["campaign"]["tally"], whole["campaign"]["tally"]);
    let fails = |found: &Value| -> Vec<Value> {
        let suspects = found["campaign"]["suspects"].as_array().expect("a list");
        suspects.iter().map(|suspect| suspect["sequence"].clone()).collect()
    };
    assert!(!fails(&parts).is_empty() && fails(&parts) == fails(&whole), "{parts}");

    let again = rig.rotproof(&with(&["parts"]));
    assert_eq!(again.code, 1, "{}", again.text);
    assert!(again.text.contains("Nothing was looked at again"), "{}", again.text);
    let other = rig.rotproof(&with(&["parts", "--seed", "2"]));
    assert_eq!(other.code, 2, "{}", other.text);
    assert!(other.text.contains("its seed is 1, and here it is 2"), "{}", other.text);
    rig.assert_nothing_left();
}

#[test]
fn what_makes_no_sense_is_told() {
    let rig = Rig::new();
    for (arguments, part) in [
        (&[][..], "name the file system"),
        (&["zfs"], "possible values: ext4, xfs, btrfs"),
        (&["ext4", "--length", "3"], "1..=2"),
        (&["ext4", "--check", "true"], "--recording <FILE>"),
        (&["ext4", "--recording", "/dev/null"], "no recording"),
        (&["ext4", "--recording", "absent", "--ways", "luck"], "prefix_at_barrier"),
        (&["--state", "absent.json"], "--image FILE"),
        (&["--state", "absent.json", "--image", "x.img"], "what was kept with it"),
    ] {
        let (code, text) = crash(&rig, arguments);
        assert!(matches!(code, 2 | 3) && text.contains(part), "{arguments:?}: {code}, {text}");
    }
}

/// A trial on ext4 whose load sets three marks, each behind a file that was made durable.
fn marked(states: u32, check: &str) -> Trial {
    let head = r#"
stack: [memory: { size: 48MiB }, record]
subject: ext4
load:
  command:
    run: |
      for n in 1 2 3; do
        dd if=/dev/zero bs=4096 count=1 conv=fsync 2>/dev/null | tr '\0' $n > file$n
        sync file$n
        "$ROTPROOF" mark "file $n is durable"
      done
crash:
  workers: 1
  ways: [persistence_points, prefix_at_barrier, single_writes]
"#;
    Trial::new(format!("{head}  states: {states}\n{check}"))
}

#[test]
fn what_a_command_has_marked_as_durable_is_there_in_every_state() {
    let rig = Rig::new();
    let check = r#"  check: |
    grep -q '^file ' "$ROTPROOF_MARKS" || exit 0
    for n in $(sed -n 's/^file \([0-9]\).*/\1/p' "$ROTPROOF_MARKS"); do
      test "$(head -c 4096 {target}/file$n | tr -d $n | wc -c)" = 0 || { echo "file $n is not whole"; exit 1; }
    done
"#;
    let run = rig.run(&marked(25, check));
    run.assert_passed();
    assert_eq!(run.json["crash"]["recording"]["marks"], 4, "{}", run.text);
    assert!(run.count("states") >= 10, "{}", run.text);
    let page = std::fs::read_to_string(run.file("report.html")).expect("a page");
    assert!(page.contains("Power loss") && page.contains("epochs"), "the page shows the recording");
}

#[test]
fn a_check_that_fails_fails_the_state_and_its_output_is_kept() {
    let rig = Rig::new();
    let check = r#"  check: "echo nothing is right here; exit 7"
  failures_max: 3
  second_cuts: 1
expect: { failing_states: "3" }
"#;
    let run = rig.run(&marked(25, check));
    run.assert_passed();
    let failure = &run.json["crash"]["failures"][0];
    assert_eq!(failure["findings"][0]["words"], "exit code 7: nothing is right here", "{failure}");
    assert!(run.text.contains("nothing is right here"), "{}", run.text);
    let state = run.file(&format!("state-{}.json", failure["index"]));
    let image = rig.path("crashed.img");
    let arguments = ["--state", state.to_str().expect("UTF-8"), "--image", image.to_str().expect("UTF-8")];
    let (code, text) = crash(&rig, &arguments);
    assert_eq!(code, 0, "{text}");
    assert_eq!(std::fs::metadata(&image).expect("it is there").len(), 48 << 20);
}

#[test]
fn a_recording_that_is_there_is_explored_and_goes_on_where_it_was_stopped() {
    let rig = Rig::new();
    let check = r#"grep -q '^file ' "$ROTPROOF_MARKS" || exit 0
for n in $(sed -n 's/^file \([0-9]\).*/\1/p' "$ROTPROOF_MARKS"); do
  test "$(head -c 4096 {target}/file$n | tr -d $n | wc -c)" = 0 || { echo "file $n is not whole"; exit 1; }
done"#;
    let run = rig.run(&marked(1, "  check: 'true'\n"));
    run.assert_passed();
    let recording = run.file("recording");
    let recording = recording.to_str().expect("UTF-8");
    let explored = |more: &[&str]| {
        let arguments = [
            "ext4",
            "--recording",
            recording,
            "--workers",
            "1",
            "--states",
            "14",
            "--json",
            "-q",
            "--results",
        ];
        crash(&rig, &[&arguments[..], more].concat())
    };
    let json = |text: &str| -> Value { serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}")) };
    let ways = "persistence_points,single_writes";
    let good = ["kept", "--check", check, "--ways", ways];
    let (_, text) = explored(&[&good[..], &["--duration", "1ms"]].concat());
    assert_eq!(json(&text)["crash"]["ended"], "time", "{text}");
    let (code, text) = explored(&good);
    assert_eq!(code, 0, "{text}");
    let checked = json(&text)["crash"]["checked"].as_u64().expect("a number");
    assert!(checked >= 5, "{text}");
    let (code, text) = explored(&good);
    assert_eq!(code, 0, "{text}");
    let again = json(&text);
    assert_eq!(again["crash"]["checked"], checked);
    assert_eq!(again["crash"]["pace"]["states_per_s"], 0.0, "all of it had been done before: {text}");
    assert!(again["crash"]["begin"].as_u64().is_some_and(|begin| begin > 0), "behind the mark of the load");
    let page = std::fs::read_to_string(rig.path("kept/report.html")).expect("a page");
    assert!(page.contains("Power loss") && page.contains("epochs"), "the page shows the recording");
    let (code, text) = explored(&["kept", "--check", "exit 7", "--ways", ways]);
    assert!(code != 0 && text.contains("progress of another exploration"), "{code}: {text}");
    let (code, text) = explored(&["bad", "--check", "exit 7", "--ways", ways, "--failures-max", "1"]);
    assert_eq!(code, 1, "{text}");
    let failure = json(&text)["crash"]["failures"][0]["index"].clone();
    let (state, image) = (rig.path(&format!("bad/state-{failure}.json")), rig.path("crashed.img"));
    let state = ["--state", state.to_str().expect("UTF-8"), "--image", image.to_str().expect("UTF-8")];
    let (code, text) = crash(&rig, &state);
    assert_eq!(code, 0, "{text}");
    assert_eq!(std::fs::metadata(&image).expect("it is there").len(), 48 << 20);
    let (code, text) = explored(&["lost", "--begin", "never said"]);
    assert!(code != 0 && text.contains("`the load begins`"), "{code}: {text}");

    // The same as the kernel's dm-log-writes has it.
    let log = rig.path("log");
    rotproof_crash::recording::log_writes::export(Path::new(recording), &log).expect("it can be exported");
    let log = log.to_str().expect("UTF-8");
    let arguments =
        ["ext4", "--recording", log, "--size", "48MiB", "--check", check, "--ways", ways, "--json"];
    let (code, text) = crash(&rig, &arguments);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn states_without_a_file_system_are_files_that_the_check_reads() {
    let rig = Rig::new();
    let recording = rig.path("log.recording");
    let header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 4096, id: 7 };
    let recorder = Recorder::create(&recording, header, RecorderOptions::default()).expect("a recording");
    for number in 0..4u8 {
        let name = recorder.write(0, u64::from(number) * 4096, false, Tag::NONE, &[b'a' + number; 4096]);
        recorder.done(0, name, true);
        // The third is acknowledged before it is durable.
        let flush = || recorder.done(0, recorder.flush(0), true);
        if number != 2 {
            flush();
        }
        recorder.mark(0, &format!("{}", char::from(b'a' + number)));
        flush();
    }
    recorder.finish().expect("there is room");
    let check = "test $ROTPROOF_KIND = file || exit 9; echo scribbled | dd of={target} bs=512 seek=99 conv=notrunc status=none
n=0; for c in $(cat $ROTPROOF_MARKS); do
  test \"$(dd if={target} bs=4096 skip=$n count=1 status=none | tr -d -c $c | wc -c)\" = 4096 || { echo lost $c; exit 1; }
  n=$((n + 1))
done";
    let recording = recording.to_str().expect("UTF-8");
    let explored = |more: &[&str]| {
        let arguments = ["raw", "--recording", recording, "--workers", "1", "--json", "-q", "--check", check];
        let (code, text) = crash(&rig, &[&arguments[..], more].concat());
        let found: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{code}: {text}"));
        (code, found["crash"].clone())
    };
    let (code, found) = explored(&["--memory", "16MiB", "--results", "all"]);
    assert_eq!((code, &found["unknown"]), (1, &serde_json::json!([])), "{found}");
    let failures = found["failures"].as_array().expect("a list");
    assert!(!failures.is_empty(), "{found}");
    assert!(failures.iter().all(|failure| failure.to_string().contains("lost c")), "{found}");
    // What was made durable before it was acknowledged is there.
    let (code, found) = explored(&["--begin", "d", "--results", "rest"]);
    assert_eq!(code, 0, "{found}");
    for (arguments, part) in [
        (&["raw"][..], "--recording FILE"),
        (&["raw", "--recording", recording], "--check COMMAND"),
        (&["raw", "--recording", recording, "--check", "true", "--fsck"], "for file systems"),
        (&["raw", "--recording", recording, "--check", "true", "--memory", "1MiB"], "give at least"),
    ] {
        let (code, text) = crash(&rig, arguments);
        assert!(code == 2 && text.contains(part), "{arguments:?}: {code}, {text}");
    }
    rig.assert_nothing_left();
}

#[test]
fn a_check_that_cannot_be_run_shows_nothing_and_the_trial_fails() {
    let rig = Rig::new();
    let check = "  check: /nowhere/verify.sh\n  failures_max: 3\n";
    let run = rig.run(&marked(6, check));
    assert_eq!(run.code, 1, "{}", run.text);
    assert!(run.count("states") >= 1, "{}", run.text);
    assert_eq!(run.count("unknown_states"), run.count("states"), "{}", run.text);
    assert_eq!(run.count("failing_states"), 0, "{}", run.text);
}

#[test]
fn redb_keeps_what_it_has_acknowledged_and_loses_it_where_it_promises_nothing() {
    let bank = Path::new(env!("CARGO_BIN_EXE_rotproof")).with_file_name("examples").join("redb_bank");
    assert!(bank.exists(), "build it first: cargo build --workspace --example redb_bank");
    let rig = Rig::new();
    let trial = |durability: &str, expect: &str| {
        let bank = bank.display();
        Trial::new(format!(
            "stack: [memory: {{ size: 64MiB }}, record]\nsubject: ext4\n\
             load: {{ command: {{ run: '{bank} load 60{durability}', check: '{bank} check' }} }}\n\
             crash: {{ states: 40, workers: 2 }}\n{expect}"
        ))
    };
    let kept = rig.run(&trial("", ""));
    kept.assert_passed();
    assert!(kept.count("states") >= 30, "{}", kept.text);
    let lost = rig.run(&trial(" none", "expect: { failing_states: '>= 1' }"));
    lost.assert_passed();
    let words = lost.json["crash"]["failures"][0]["findings"][0]["words"].as_str().expect("words");
    assert!(words.contains("was acknowledged"), "{words}");
}

#[test]
fn a_machine_keeps_what_it_has_acknowledged_when_kernel_and_power_go_at_once() {
    let rig = Rig::new();
    let trial = |sync: &str, expect: &str| {
        Trial::new(format!(
            r#"
stack: [memory: {{ size: 48MiB }}, record]
subject: {{ machine: {{ file_system: ext4, holds_dirty: true }} }}
load:
  command:
    run: |
      for n in 1 2 3; do
        head -c 8192 /dev/zero | tr '\0' $n > {{target}}/file$n
        {sync}
        "$ROTPROOF" mark "file $n is durable"
      done
crash:
  states: 40
  workers: 1
  ways: [persistence_points, prefix_at_write, torn]
  check: |
    for n in $(sed -n 's/^file \([0-9]\) is durable$/\1/p' "$ROTPROOF_MARKS"); do
      test "$(cat {{target}}/file$n | tr -d -c $n | wc -c)" = 8192 || {{ echo "file $n is not whole"; exit 1; }}
    done
{expect}"#
        ))
    };
    let run = rig.run(&trial("sync {target}/file$n {target}", ""));
    run.assert_passed();
    assert!(run.count("states") >= 10, "{}", run.text);
    assert_eq!(run.json["crash"]["looked"][0], "mount by the kernel of this machine");
    let guest = "expect: { states: '>= 10' }";
    let by_guest = |sync: &str, expect: &str| {
        let Trial(text) = trial(sync, expect);
        rig.run(&Trial(text.replace("crash:\n", "crash:\n  mounted_by: guest\n")))
    };
    let own = by_guest("sync {target}/file$n {target}", guest);
    own.assert_passed();
    assert_eq!(own.json["crash"]["looked"][0], "mount by the kernel of a guest");
    by_guest("true", "expect: { failing_states: '>= 1' }").assert_passed();
    // What was never synced is in the memory of a kernel that is gone.
    let found = rig.run(&trial("true", "expect: { failing_states: '>= 1' }"));
    found.assert_passed();
    let story = found.json["crash"]["failures"][0]["findings"][0]["words"].as_str().expect("words");
    assert!(story.contains("file"), "{story}");
}

#[test]
fn a_cache_that_lies_about_flush_is_found_out_by_the_oracle_of_a_load() {
    let rig = Rig::new();
    let trial = |layers: &str, expect: &str| {
        Trial::new(format!(
            "stack: [memory: {{ size: 48MiB }}, record{layers}]\nsubject: ext4\n\
             load: {{ pattern: random, requests: 120, flush_every: 8, files: {{ count: 2, size: 512KiB }} }}\n\
             crash: {{ states: 30, workers: 1, second_cuts: 1, ways: [prefix_at_write, persistence_points, subsets] }}\n\
             {expect}"
        ))
    };
    let honest = rig.run(&trial("", ""));
    honest.assert_passed();
    let lying = ", { write_cache: { size: 64KiB, ignores: both } }";
    let found = rig.run(&trial(lying, "expect: { failing_states: '>= 1' }"));
    found.assert_passed();
    let kinds: Vec<&str> = found.json["crash"]["failures"]
        .as_array()
        .expect("failures")
        .iter()
        .filter_map(|failure| failure["findings"][0]["kind"].as_str())
        .collect();
    assert!(kinds.iter().any(|kind| ["lost", "stale"].contains(kind)), "{kinds:?}");
}

#[test]
fn an_fsync_fails_once_and_the_next_one_succeeds_though_the_data_are_lost() {
    let rig = Rig::new();
    let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(["fsync", "ext4", "btrfs", "--json"])
        .current_dir(rig.path(""))
        .output()
        .expect("rotproof starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cells: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(cells.len(), 36 + 8);
    let of = |wanted: &[(&str, &str)]| -> Vec<&Value> {
        cells.iter().filter(|cell| wanted.iter().all(|(key, value)| cell[*key] == *value)).collect()
    };
    // The published findings: an error is told once, and the page is clean from then on.
    for mode in ["data=ordered", "data=writeback"] {
        for cell in of(&[("mode", mode), ("block", "data")]) {
            assert_eq!((&cell["fsync"], &cell["second_fsync"]), (&"EIO".into(), &"ok".into()), "{cell}");
            assert_ne!(cell["on_disk"], "new", "{cell}");
            assert_eq!(cell["in_memory"], "new", "{cell}");
        }
    }
    // What failed was met, or the cell claims nothing.
    for cell in &cells {
        let is_lost = cell["fsync"] == "ok" && cell["on_disk"] != "new";
        assert!(cell["failed_at"].is_string() || !is_lost, "nothing failed, and it is lost: {cell}");
    }
}

/// A load of blocks on the bare device, and all that a power loss may leave of it.
fn on_a_device(stack: &str, more: &str) -> Trial {
    Trial::new(format!(
        "seed: 3\nstack: {stack}\nload: {{ pattern: random, block_size: 16KiB, queue_depth: 4, requests: 300, flush_every: 8 }}\n{more}"
    ))
}

#[test]
fn an_honest_device_keeps_what_was_flushed_in_every_state_and_the_same_seed_gives_the_same_states() {
    let rig = Rig::new();
    let trial = |cache: &str, atomic: &str| {
        on_a_device(
            &format!("[ disk: {{ profile: ssd, size: 8MiB, write_cache: 1MiB }}, record{cache} ]"),
            &format!("runtime: simulated\ncrash: {{ states: 300, atomic: {atomic} }}\n"),
        )
    };
    for (cache, atomic) in
        [("", "512"), ("", "4KiB"), ("", "16KiB"), (", write_cache: { size: 128KiB }", "4KiB")]
    {
        let run = rig.run(&trial(cache, atomic));
        run.assert_passed();
        assert_eq!(run.count("states"), 300, "{}", run.text);
        assert!(run.text.contains("the load's oracle, over the bytes of the device"), "{}", run.text);
        let crash = run.json["crash"].as_object().expect("what was explored");
        assert!(
            !crash.contains_key("pace") && run.json["wall_clock"]["crash"]["seconds"].is_f64(),
            "{crash:?}"
        );
        assert_eq!(run.repeatable(), rig.run(&trial(cache, atomic)).repeatable());
    }
}

#[test]
fn a_cache_that_ignores_flushes_is_caught_in_the_states_of_its_device() {
    let rig = Rig::new();
    for (subject, runtime) in [("raw", "simulated"), ("device", "io_uring")] {
        let stack = "[ memory: { size: 8MiB }, record, write_cache: { size: 128KiB, ignores: flush } ]";
        let run = rig.run(&on_a_device(
            stack,
            &format!(
                "subject: {subject}\nruntime: {runtime}\ncrash: {{ states: 100 }}\nexpect: {{ failing_states: \">= 1\" }}\n"
            ),
        ));
        run.assert_passed();
        let failure = &run.json["crash"]["failures"][0];
        let kind = failure["findings"][0]["kind"].as_str().expect("a kind");
        assert!(["lost", "stale"].contains(&kind), "{failure}");
        let story = run.json["crash"]["witnesses"][0]["story"].as_str().expect("a witness");
        assert!(story.contains("flush"), "{story}");
        let state = run.file(&format!("state-{}.json", failure["index"]));
        let image = rig.path(&format!("{subject}.img"));
        let arguments =
            ["--state", state.to_str().expect("UTF-8"), "--image", image.to_str().expect("UTF-8")];
        assert_eq!(crash(&rig, &arguments).0, 0);
        assert_eq!(std::fs::metadata(&image).expect("it is there").len(), 8 << 20);
    }
    let honest = "[ memory: { size: 8MiB }, record, write_cache: { size: 128KiB } ]";
    rig.run(&on_a_device(honest, "subject: device\ncrash: { states: 100 }\n")).assert_passed();
    rig.assert_nothing_left();
}

#[test]
fn a_device_that_held_something_before_keeps_it_where_nothing_was_made_durable() {
    let rig = Rig::new();
    let image = rig.path("disk.img");
    std::fs::write(&image, vec![0x5a; 8 << 20]).expect("a file");
    let stack = format!("[ file: {{ path: {}, snapshot: true }}, record ]", image.display());
    let run = rig.run(&on_a_device(&stack, "crash: { states: 100 }\n"));
    run.assert_passed();
    assert_eq!(run.count("states"), 100, "{}", run.text);
}

#[test]
fn a_check_of_the_users_looks_at_the_file_of_a_state_beside_the_oracle_of_the_load() {
    let rig = Rig::new();
    let stack = "[ memory: { size: 8MiB }, record ]";
    let check = "crash:\n  states: 12\n  check: |\n    test $ROTPROOF_KIND = file && test $(stat -c %s {target}) = 8388608 && \
                 dd if=/dev/zero of={target} bs=4096 count=16 conv=notrunc 2>/dev/null\n";
    let run = rig.run(&on_a_device(stack, check));
    run.assert_passed();
    assert_eq!(run.json["crash"]["looked"].as_array().map(Vec::len), Some(2), "{}", run.text);
    let fails = "crash: { states: 12, check: 'false' }\nexpect: { failing_states: \">= 3\" }\n";
    rig.run(&on_a_device(stack, fails)).assert_passed();
    rig.assert_nothing_left();
}

#[test]
fn corruption_that_the_states_do_not_show_is_told() {
    let rig = Rig::new();
    let told = |fault: &str| {
        let run = rig.run(&on_a_device(
            "[ memory: { size: 8MiB }, record, faults ]",
            &format!(
                "runtime: simulated\nfaults: [ \"name=rot, {fault}\" ]\ncrash: {{ states: 20 }}\n\
                 expect: {{ failures: any, silent: any, states: 20 }}\n"
            ),
        ));
        run.assert_passed();
        let not_shown = run.json["crash"]["not_shown"].as_array().cloned().unwrap_or_default();
        assert_eq!(run.text.contains("Not shown"), !not_shown.is_empty(), "{}", run.text);
        not_shown
    };
    let words = told("write, nth=20: lost_write");
    assert!(words[0].as_str().is_some_and(|words| words.contains("`rot`")), "{words:?}");
    assert!(told("write, nth=20: delay(1ms)").is_empty());
}
