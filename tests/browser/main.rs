//! The page of a run as a browser shows it: without a network, in light and dark, by keyboard, in print. It needs
//! Chromium, Node.js, and playwright-core from the npm registry.

#[path = "../stage/mod.rs"]
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use stage::Stage;

/// Far more than a download or a browser takes.
const PATIENCE: Duration = Duration::from_secs(180);

const TRIAL: &str = "\
name: page
seed: 7
runtime: simulated
stack: [disk: { profile: nvme, size: 16MiB }]
load: { pattern: random, reads: 50%, total: 32MiB, retry: 2 }
faults:
  - 'name=slow, read, at=20ms+60ms: delay(2ms)'
  - 'name=rot, read, every=150, sticky: zeros'
  - 'name=media, read, probability=1%: error(EIO)'
expect: { silent: '>= 1' }
";

/// Runs a program to its end, within [`PATIENCE`]; gives what it prints.
fn run(command: &mut Command) -> String {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} is needed for this test: {error}"));
    let began = Instant::now();
    while child.try_wait().expect("our child").is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().expect("our child");
            let output = child.wait_with_output().expect("our child");
            panic!("it does not end: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("our child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The folder with playwright-core, which is fetched once for a build folder: the tests of this file run side by side, and
/// npm writes a package's files one after the other.
fn modules() -> &'static Path {
    static MODULES: LazyLock<PathBuf> = LazyLock::new(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/browser/package.json");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
        let wanted = fs::read_to_string(source).expect("it is in the repository");
        // Written last: an install that was cut off begins anew.
        let installed = folder.join("installed.json");
        if fs::read_to_string(&installed).ok().as_ref() != Some(&wanted) {
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("package.json"), &wanted).expect("written");
            run(Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--silent"])
                .current_dir(&folder));
            fs::write(&installed, &wanted).expect("written");
        }
        folder
    });
    &MODULES
}

/// What a browser finds on the page of a run, after all that holds for every page has been found to.
fn look(folder: &Path) -> Value {
    let look = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/browser/look.mjs");
    let found = run(Command::new("node").arg(look).args([modules(), &folder.join("report.html"), folder]));
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["messages"], serde_json::json!([]), "nothing on the console");
    for request in found["requests"].as_array().expect("requests") {
        assert!(request.as_str().is_some_and(|url| url.starts_with("file://")), "{request}");
    }
    for scheme in ["light", "dark"] {
        let seen = &found["schemes"][scheme];
        assert_eq!(seen["unlabelled"], 0, "{seen}");
        // What WCAG 2.1 asks for of texts, level AA.
        assert!(seen["contrast"].as_f64() >= Some(4.5), "{scheme}: {seen}");
        assert!(seen["contrast_drawn"].as_f64() >= Some(4.5), "{scheme}: {seen}");
        assert_eq!(
            (&seen["wider_than_window"], &seen["wider_than_telephone"]),
            (&false.into(), &false.into())
        );
    }
    assert_ne!(found["schemes"]["light"]["paper"], found["schemes"]["dark"]["paper"]);
    assert_eq!(found["reached"], "moment", "the cursor is reached by keyboard");
    let readings: Vec<&str> =
        found["readings"].as_array().expect("readings").iter().filter_map(Value::as_str).collect();
    assert!(readings.iter().all(|text| text.contains(" s. ")), "{readings:?}");
    assert!(readings[0] != readings[1] && readings[1] != readings[2], "{readings:?}");
    let zoom = &found["zoom"];
    let share = |moment: &str| zoom[moment]["share"].as_f64().expect("a share");
    // A fifth of the picture, whose axis is not all of it.
    assert!((0.2..0.27).contains(&share("dragged")), "{zoom}");
    assert_ne!(zoom["dragged"]["times"], zoom["before"]["times"], "the axis says which stretch it is");
    assert!((share("back") - 1.0).abs() < 1e-6 && (share("whole") - 1.0).abs() < 1e-6, "{zoom}");
    assert!((share("closer") - 0.25).abs() < 1e-6 && (share("farther") - 0.5).abs() < 1e-6, "{zoom}");
    assert_eq!(
        (&zoom["dragged"]["stretched"], &zoom["dragged"]["outside"]),
        (&0.into(), &0.into()),
        "{zoom}"
    );
    assert_eq!(zoom["disabled"], true);
    assert_eq!(found["scales"], serde_json::json!(["even", "logarithmic", "even"]));
    assert_eq!(found["printed"]["navigation"], "none");
    assert_eq!(found["printed"]["charts"], found["schemes"]["light"]["charts"], "all charts are printed");
    for picture in ["light.png", "dark.png", "page.pdf"] {
        assert!(fs::metadata(folder.join(picture)).expect("made").len() > 10_000, "{picture}");
    }
    found
}

fn at_least(found: &Value, charts: u64, lines: u64) {
    for scheme in ["light", "dark"] {
        let seen = &found["schemes"][scheme];
        assert!(seen["charts"].as_u64() >= Some(charts), "{seen}");
        assert!(seen["lines"].as_u64() >= Some(lines), "{seen}");
    }
}

/// The only run in a folder of results.
fn only(results: &Path) -> PathBuf {
    // Beside it is the link to the latest one.
    let mut runs = fs::read_dir(results)
        .expect("results")
        .map(|run| run.expect("read").path())
        .filter(|path| !path.is_symlink());
    let first = runs.next().expect("a run");
    assert!(runs.next().is_none());
    first
}

#[test]
fn the_page_of_a_run_is_whole_in_a_browser_without_a_network() {
    let stage = Stage::new();
    fs::write(stage.path("trial.yaml"), TRIAL).expect("written");
    let ended = stage.run(&["run", "trial.yaml", "--quiet"]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let folder = only(&stage.path("results"));
    let hits = fs::read_to_string(folder.join("ledger.jsonl")).expect("a ledger").lines().count();
    let found = look(&folder);
    assert!(hits > 20);
    assert_eq!(found["hits"], hits, "every hit of the ledger is in a mark");
    at_least(&found, 6, 20);
    let failing = fs::read_to_string(folder.join("failures.jsonl")).expect("failures").lines().count();
    assert_eq!(found["failing"], failing.min(500), "every failing block has a row");
    assert!(found["at_hit"].as_str().is_some_and(|text| text.contains("Throughput")), "{found}");
}

#[test]
fn the_page_of_a_load_shows_what_it_has_and_nothing_else() {
    let stage = Stage::new();
    let arguments = [
        "load",
        "disk:nvme:8MiB",
        "--rw=randrw",
        "--number-ios=20000",
        "--interval=10ms",
        "--steadystate=bw:50%",
        "--ss-dur=50ms",
        "--results=kept",
        "--quiet",
    ];
    let ended = stage.run(&arguments);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let found = look(&only(&stage.path("kept")));
    let wanted = ["verdict", "tried", "time", "latency", "figures", "repeat"];
    assert_eq!(found["sections"], serde_json::json!(wanted), "neither faults nor places");
    at_least(&found, 6, 10);
    assert_eq!((&found["hits"], &found["at_hit"]), (&Value::from(0), &Value::Null));
    let text = found["text"].as_str().expect("a text");
    for wanted in [
        "read back and right",
        "disk:nvme:8MiB",
        "was steady from its beginning",
        "The same requests again",
        "rotproof load disk:nvme:8MiB --rw=randrw",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("ault"), "nothing of faults, nor of defaults: {text}");
}
