//! Several trials of one command: their lines, the table of a matrix, what CI servers read, and the page about that.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const TRIAL: &str = "\
runtime: simulated
stack: [memory: { size: 1MiB }, faults]
load: { total: 1MiB, block_size: 4KiB }
faults: [\"name=rot, write, nth=5: zeros\"]
expect: { silent: 1, failures: 1 }
";

fn rotproof(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .output()
        .expect("the command starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_matrix_is_one_table_and_goes_on_where_it_was_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("t.yaml"), TRIAL).expect("written");
    let matrix = ["run", "t.yaml", "--matrix", "load.block_size=4KiB,8KiB", "--matrix", "seed=1..3"];
    let run = rotproof(folder.path(), &matrix);
    let said = text(&run);
    assert_eq!(run.status.code(), Some(0), "{said}");
    assert!(said.contains("\n  4KiB        pass  pass  pass\n  8KiB        pass  pass  pass\n"), "{said}");
    assert!(said.ends_with("6 of 6 trials pass\n"), "{said}");
    assert!(folder.path().join("results/latest/run.json").is_file());
    // The fifth write is one of 256 blocks; of one write there is no fifth.
    let more = [&matrix[..], &["--matrix", "load.total=1MiB,8KiB", "--resume", "--junit", "j.xml"]].concat();
    let run = rotproof(folder.path(), &more);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(text(&run).contains("6 of 12 trials pass, 6 fail"), "{}", text(&run));
    let again = rotproof(folder.path(), &[&more[..], &["--quiet"]].concat());
    assert!(
        text(&again).contains("12 known from before") && again.status.code() == Some(1),
        "{}",
        text(&again)
    );
    let junit = fs::read_to_string(folder.path().join("j.xml")).expect("written");
    assert!(junit.contains("tests=\"12\" failures=\"6\" errors=\"0\""), "{junit}");
    // What the trial says has changed, so nothing is known of it.
    fs::write(folder.path().join("t.yaml"), TRIAL.replace("nth=5", "nth=6")).expect("written");
    let changed = rotproof(folder.path(), &[&matrix[..], &["--resume"]].concat());
    assert!(text(&changed).ends_with("6 of 6 trials pass\n"), "{}", text(&changed));
}

#[test]
fn of_several_trials_each_has_a_line_and_quiet_says_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("good.yaml"), TRIAL).expect("written");
    fs::write(folder.path().join("bad.yaml"), TRIAL.replace("silent: 1", "silent: 0")).expect("written");
    let both = rotproof(folder.path(), &["run", "good.yaml", "bad.yaml", "--quiet"]);
    let said = text(&both);
    assert_eq!(both.status.code(), Some(1));
    assert!(both.stderr.is_empty(), "{}", String::from_utf8_lossy(&both.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("PASS  good ")), "{said}");
    assert!(lines.iter().any(|line| line.starts_with("FAIL  bad ")), "{said}");
    assert!(
        lines.contains(&"  silent: 0, found 1") && lines.last() == Some(&"1 of 2 trials pass, 1 fail"),
        "{said}"
    );
    assert_eq!(lines.len(), 5, "{said}");
    let one = rotproof(folder.path(), &["run", "-q", "good.yaml"]);
    assert_eq!((text(&one).lines().count(), one.status.code()), (1, Some(0)), "{}", text(&one));
    let page = text(&rotproof(folder.path(), &["run", "good.yaml", "bad.yaml"]));
    assert!(page.contains("NO   silent"), "the whole verdict of what failed: {page}");
    assert!(!page.contains("yes  silent "), "and of that alone: {page}");
}

#[test]
fn the_same_seed_gives_the_same_run_whatever_runs_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("t.yaml"), TRIAL).expect("written");
    let digest = |jobs: &str, results: &str| -> Vec<String> {
        let run = rotproof(
            folder.path(),
            &["run", "t.yaml", "--json", "-j", jobs, "--results", results, "--matrix", "seed=1..6"],
        );
        let all: Vec<serde_json::Value> = serde_json::from_slice(&run.stdout).expect("JSON");
        all.iter()
            .map(|run| {
                let mut run = run.clone();
                for own in ["wall_clock", "results"] {
                    run.as_object_mut().expect("an object").remove(own);
                }
                run.to_string()
            })
            .collect()
    };
    let (one, four) = (digest("1", "a"), digest("4", "b"));
    assert_eq!(one.len(), 6);
    assert_eq!(one, four);
}

#[test]
fn the_commands_of_the_page_about_ci_run_as_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/ci.md")).expect("the page");
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("trials")).expect("made");
    fs::write(folder.path().join("trials/t.yaml"), TRIAL).expect("written");
    let binaries = Path::new(env!("CARGO_BIN_EXE_rotproof")).parent().expect("a folder");
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let mut run = 0;
    for line in page.lines() {
        // `- run: rotproof ...` of GitHub, `- rotproof ...` of GitLab, `$ rotproof ...` of a shell.
        let line = line.trim().trim_start_matches("- ").trim_start_matches("run: ").trim_start_matches("$ ");
        if !line.starts_with("rotproof run") {
            continue;
        }
        let output = Command::new("bash")
            .args(["-c", line])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("XDG_RUNTIME_DIR", folder.path())
            .output()
            .expect("bash starts");
        assert!(
            output.status.success(),
            "{line}: {}{}",
            text(&output),
            String::from_utf8_lossy(&output.stderr)
        );
        run += 1;
    }
    assert!(run >= 4, "the page shows its commands");
    let junit =
        fs::read_to_string(folder.path().join("rotproof.xml")).expect("what the page has the server read");
    assert!(junit.contains("<testsuite "), "{junit}");
}

#[test]
fn a_trial_file_with_a_mistake_or_none_at_all_is_an_error_in_the_junit_file() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("good.yaml"), TRIAL).expect("written");
    fs::write(folder.path().join("bad.yaml"), TRIAL.replace("block_size", "blok<size")).expect("written");
    let files = ["run", "good.yaml", "bad.yaml", "not/there.yaml", "--junit", "j.xml"];
    let run = rotproof(folder.path(), &files);
    assert_eq!(run.status.code(), Some(2), "{}", text(&run));
    let junit = fs::read_to_string(folder.path().join("j.xml")).expect("written");
    assert!(junit.contains("tests=\"3\" failures=\"0\" errors=\"2\" skipped=\"1\""), "{junit}");
    for (file, word) in [("good.yaml", "<skipped"), ("bad.yaml", "<error"), ("not/there.yaml", "<error")] {
        let (_, case) = junit.split_once(&format!("classname=\"{file}\"")).expect("each file is a test");
        let (case, _) = case.split_once("</testcase>").expect("it ends");
        assert!(case.contains(word), "{file}: {junit}");
    }
    assert!(junit.contains("blok&lt;size") && !junit.contains('\u{1b}'), "{junit}");
    // A mistake of the command, not of a file, is one of each of them.
    let run = rotproof(folder.path(), &["run", "good.yaml", "--replay", "none.jsonl", "--junit", "k.xml"]);
    let junit = fs::read_to_string(folder.path().join("k.xml")).expect("written");
    assert!(!run.status.success() && junit.contains("errors=\"1\""), "{junit}");
}

#[test]
fn where_the_junit_file_cannot_be_written_no_trial_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("t.yaml"), TRIAL).expect("written");
    for (path, why) in [("not/there.xml", "its folder is not there"), (".", "it is a folder")] {
        let run = rotproof(folder.path(), &["run", "t.yaml", "--junit", path]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success() && said.contains(why), "{path}: {said}");
        assert!(!folder.path().join("results").exists(), "{path}: {said}");
    }
}
