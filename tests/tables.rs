//! The tables of a run are read by programs that are not ours: pandas, DuckDB, pyarrow and matplotlib through the example in
//! `examples/python`, SciPy reckons the same statistics, and fio-plot draws what is written for it. Installs them into a
//! folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Runs to its end, or is killed and fails.
fn run(command: &mut Command, limit: Duration) -> Output {
    let out = tempfile::tempfile().expect("a file");
    let copy = || std::process::Stdio::from(out.try_clone().expect("a descriptor"));
    let mut child =
        command.stdout(copy()).stderr(copy()).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("it is our child") {
            Some(status) => break status,
            None if began.elapsed() > limit => {
                child.kill().expect("it can be killed");
                child.wait().expect("and is gone");
                panic!("{command:?} took longer than {limit:?}");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut text = Vec::new();
    {
        use std::io::{Read, Seek};
        let mut out = out;
        out.rewind().expect("a file");
        out.read_to_end(&mut text).expect("readable");
    }
    Output { status, stdout: text, stderr: Vec::new() }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The interpreter with what the examples need. `./test` has installed it before; alone this takes a minute or two.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let installed =
        run(Command::new(root().join("tests/python/install")).arg(&target), Duration::from_secs(280));
    assert!(installed.status.success(), "tests/python/install: {}", text(&installed));
    target.join("bin/python3")
}

fn rotproof(arguments: &[&str]) -> Output {
    let output = run(Command::new(env!("CARGO_BIN_EXE_rotproof")).args(arguments), Duration::from_secs(60));
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    output
}

fn only_folder(folder: &Path) -> PathBuf {
    // Beside it is the link to the latest one.
    let mut entries = std::fs::read_dir(folder)
        .expect("results")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| !path.is_symlink());
    let only = entries.next().expect("one run");
    assert!(entries.next().is_none());
    only
}

#[test]
fn pandas_and_duckdb_read_the_tables_and_redraw_the_time_line() {
    let results: TempDir = tempfile::tempdir().expect("a folder");
    let path = results.path().to_str().expect("UTF-8");
    let trial = root().join("examples/spek/correctable.yaml");
    let trial = trial.to_str().expect("UTF-8");
    rotproof(&["run", trial, "--quiet", "--results", path, "--set", "record.samples=true"]);
    let folder = only_folder(results.path());
    let picture = results.path().join("over-time.svg");
    let script = root().join("examples/python/over_time.py");
    let ended = run(Command::new(python()).arg(script).arg(&folder).arg(&picture), Duration::from_secs(60));
    let said = text(&ended);
    assert!(ended.status.success(), "{said}");
    // What pandas finds is what the report says.
    let share = said.lines().find_map(|line| line.strip_prefix("correctable: ")).expect("the window is told");
    let share: f64 = share.split(' ').next().expect("a number").parse().expect("a number");
    let report = std::fs::read(folder.join("run.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let ours = report["degradation"][0]["during"]["ratio"].as_f64().expect("a ratio");
    assert!((share - ours).abs() < 1e-3, "{share} against {ours}");
    assert!(std::fs::read_to_string(&picture).expect("drawn").contains("</svg>"));
    // Every other table reads too, and samples add up to the intervals.
    let code = "import sys, pandas, pyarrow.parquet as p\n\
                folder = sys.argv[1]\n\
                sizes = {n: len(pandas.read_parquet(f'{folder}/{n}.parquet')) for n in ('ledger', 'failures', 'samples')}\n\
                i = pandas.read_parquet(f'{folder}/intervals.parquet')\n\
                assert sizes['samples'] == i[i.worker.isna()].requests.sum(), sizes\n\
                assert sizes['ledger'] > 0 and sizes['failures'] == 0, sizes\n\
                assert p.read_schema(f'{folder}/intervals.parquet').metadata[b'rotproof.format'] == b'2'\n";
    let ended = run(Command::new(python()).args(["-c", code]).arg(&folder), Duration::from_secs(60));
    assert!(ended.status.success(), "{}", text(&ended));
}

#[test]
fn scipy_reckons_the_same_means_intervals_and_tests() {
    let results: TempDir = tempfile::tempdir().expect("a folder");
    let trial = root().join("examples/spek/correctable.yaml");
    let trial = trial.to_str().expect("UTF-8");
    let set_up = |name: &str, more: &[&str]| {
        let folder = results.path().join(name);
        let path = folder.to_str().expect("UTF-8").to_owned();
        let mut arguments = vec!["run", trial, "--quiet", "--results", &path, "--set", "load.duration=21s"];
        arguments.extend(["--set", "repeat=3"]);
        arguments.extend(more);
        rotproof(&arguments);
        only_folder(&folder)
    };
    let base = set_up("a", &[]);
    let other = set_up("b", &["--set", "faults.0='any, name=path, during=run: delay(6ms)'"]);
    let [a, b] = [&base, &other].map(|path| path.to_str().expect("UTF-8"));
    let report = rotproof(&["report", a, b, "--json"]);
    let file = results.path().join("report.json");
    std::fs::write(&file, &report.stdout).expect("written");
    let script = root().join("examples/python/check_statistics.py");
    let ended = run(Command::new(python()).arg(script).args([a, b]).arg(&file), Duration::from_secs(60));
    let said = text(&ended);
    assert!(ended.status.success() && said.contains("as SciPy has them"), "{said}");
}

#[test]
fn fio_plot_draws_its_kinds_of_chart_from_what_is_written_for_it() {
    let results: TempDir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| results.path().join(name).to_str().expect("UTF-8").to_owned();
    for workers in ["1", "2"] {
        let kept = path(&format!("kept-{workers}"));
        let what =
            ["load", "disk:ssd:16MiB", "--rw=randrw", "--prefill", "--iodepth=8", "--number-ios=20000"];
        let how = ["--interval=20ms", "--quiet", "--numjobs", workers, "--results", &kept];
        rotproof(&[&what[..], &how].concat());
        let run = only_folder(Path::new(&kept));
        let run = run.to_str().expect("UTF-8");
        rotproof(&["report", run, "--fio", &path("fio")]);
        if workers == "1" {
            rotproof(&["report", run, "--fio", &path("fio-1")]);
        }
    }
    let python = python();
    let program = python.with_file_name("fio-plot");
    let (all, one) = (path("fio"), path("fio-1"));
    // The kind of chart, its folders and options, and how large it is with 50 dots an inch.
    type Chart<'a> = (&'a str, &'a [&'a str], &'a [&'a str], (u32, u32));
    let charts: [Chart<'_>; 6] = [
        ("-g", &[&all], &["-t", "bw", "-d", "8", "-n", "1", "2"], (450, 250)),
        ("-l", &[&all], &["-f", "read", "-d", "8", "-n", "2"], (500, 300)),
        ("-N", &[&all], &["-f", "write", "-d", "8", "-n", "1", "2"], (500, 300)),
        ("-H", &[&all], &["-f", "write", "-d", "8", "-n", "2"], (500, 300)),
        ("-L", &[&all], &["-f", "read", "-t", "iops"], (750, 500)),
        ("-C", &[&one, &all], &["-f", "read", "-d", "8", "-n", "1"], (500, 300)),
    ];
    // Blank paper has few colours.
    let code = "import sys, PIL.Image\n\
                picture = PIL.Image.open(sys.argv[1]).convert('RGB')\n\
                print(*picture.size, len(picture.getcolors(1 << 24)) > 100)\n";
    std::thread::scope(|scope| {
        for (kind, folders, options, size) in charts {
            let (program, python, picture) = (&program, &python, path(&format!("{kind}.png")));
            let matplotlib = path("matplotlib");
            scope.spawn(move || {
                let mut command = Command::new(python);
                command
                    .arg(program)
                    .args(["-T", "title", "-D", "50", "-r", "randrw", kind, "-o", &picture, "-i"]);
                command.args(folders).args(options).env("MPLCONFIGDIR", &matplotlib);
                let drawn = run(&mut command, Duration::from_secs(120));
                assert!(drawn.status.success(), "{kind}: {}", text(&drawn));
                let seen = run(Command::new(python).args(["-c", code, &picture]), Duration::from_secs(60));
                let wanted = format!("{} {} True", size.0, size.1);
                assert_eq!(text(&seen).trim(), wanted, "{kind}: {}", text(&drawn));
            });
        }
    });
}
