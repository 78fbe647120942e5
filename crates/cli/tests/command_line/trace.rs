//! What a user of `rotproof trace` sees.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::Value;

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn trace(arguments: &[&str], input: &[u8]) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .arg("trace")
        .args(arguments)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // A command that refuses its arguments reads nothing.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    let output = child.wait_with_output().expect("the command ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("an exit code");
    let ended = Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) };
    for line in ended.stdout.lines().chain(ended.stderr.lines()) {
        assert!(line.chars().count() <= 80 || line.contains("error:"), "{line}");
    }
    ended
}

/// A trace of two disks with a line that is none.
fn msr() -> Vec<u8> {
    let mut text = String::new();
    for number in 0..1000u64 {
        let (time, disk) = (128_166_372_003_061_629 + number * 20_000, number % 2);
        let kind = if number % 4 == 0 { "Read" } else { "Write" };
        let (offset, size) = (number / 2 * 8192, if number % 10 == 0 { 65_536 } else { 8192 });
        text.push_str(&format!("{time},usr,{disk},{kind},{offset},{size},{}\n", 900 + number));
    }
    text.push_str("the machine was switched off here\n");
    text.into_bytes()
}

#[test]
fn every_help_fits_a_terminal() {
    for arguments in [&["--help"][..], &["info", "--help"], &["convert", "--help"]] {
        let ended = trace(arguments, b"");
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
}

#[test]
fn info_says_what_is_in_a_trace() {
    let ended = trace(&["info", "-"], &msr());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_snapshot!("info", ended.stdout);
    assert_snapshot!("info_malformed", ended.stderr);
    let figures: Value = serde_json::from_str(&trace(&["info", "-", "--json"], &msr()).stdout).expect("JSON");
    assert_eq!(
        (&figures["accesses"], &figures["devices"], &figures["malformed"]),
        (&1000.into(), &2.into(), &1.into())
    );
    assert_eq!(figures["format"], "msr");
    assert_eq!(figures["by_operation"]["read"]["count"], 250);
}

#[test]
fn a_trace_goes_through_every_format_and_stays_what_it_is() {
    let csv = trace(&["convert", "-", "--to", "csv"], &msr());
    assert_eq!(csv.code, 0, "{}", csv.stderr);
    let mut text = csv.stdout.clone();
    for format in ["spc", "disksim", "fio", "msr", "csv"] {
        let ended = trace(&["convert", "-", "--to", format], text.as_bytes());
        assert_eq!(ended.code, 0, "{format}: {}", ended.stderr);
        assert!(ended.stderr.contains("Wrote 1000 accesses."), "{format}: {}", ended.stderr);
        text = ended.stdout;
    }
    // How long each took has gone on the way, and devices are numbered anew.
    let short = |text: &str| -> Vec<String> {
        let fields = |line: &str| -> Vec<String> { line.split(',').map(str::to_owned).collect() };
        text.lines().map(fields).map(|f| [&f[0][..], &f[1], &f[3], &f[4]].join(",")).collect()
    };
    assert_eq!(short(&text), short(&csv.stdout));
}

#[test]
fn a_trace_is_placed_on_a_smaller_device() {
    let ended = trace(&["convert", "-", "--to", "csv", "--onto", "1MiB"], &msr());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for line in ended.stdout.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        assert_eq!(fields[2], "0");
        assert!(number(3) + number(4) <= 1 << 20, "{line}");
    }
}

#[test]
fn what_cannot_be_done_says_what_to_do() {
    let ended = trace(&["info", "-"], b"what is this\nand this\n");
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("--format"), "{}", ended.stderr);
    let ended = trace(&["info", "-", "--malformed-max", "0"], &msr());
    assert_eq!(ended.code, 2);
    assert!(
        ended.stderr.contains("line 1001") && ended.stderr.contains("--malformed-max"),
        "{}",
        ended.stderr
    );
    let ended = trace(&["convert", "-", "--to", "blktrace"], &msr());
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("csv"), "{}", ended.stderr);
    let ended = trace(&["info", "/nonexistent/trace"], b"");
    assert!(
        ended.code == 3 && ended.stderr.contains("/nonexistent/trace"),
        "{} {}",
        ended.code,
        ended.stderr
    );
    let ended = trace(&["convert", "-", "--to", "csv", "--onto", "1"], &msr());
    assert_eq!(ended.code, 2);
}

#[test]
fn nothing_that_is_there_is_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("there");
    std::fs::write(&file, "precious").expect("writes");
    let ended = trace(&["convert", "-", "--to", "csv", "-o", path(&file)], &msr());
    assert_ne!(ended.code, 0);
    assert_eq!(std::fs::read_to_string(&file).expect("reads"), "precious");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}

#[test]
fn any_table_of_values_is_read_by_the_names_that_are_given() {
    let table = b"sn,ts,lbn,len,cmd,vol\n1,0,8,4096,28,7\n2,2500000,16,512,2a,9\n";
    let columns = "time=ts,operation=cmd,offset=lbn*512,length=len,device=vol";
    let ended = trace(&["convert", "-", "--columns", columns, "--time-unit", "us", "--to", "csv"], table);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(
        ended.stdout,
        "time_ns,op,device,offset,length,took_ns\n0,read,7,4096,4096,\n2500000000,write,9,8192,512,\n"
    );
    let ended = trace(&["info", "-", "--columns", &columns.replace("=len", "=bytes")], table);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("no column of the name given for the length"), "{}", ended.stderr);
    let ended = trace(&["info", "-", "--format", "csv"], table);
    assert!(ended.code == 2 && ended.stderr.contains("no column for the time"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--columns"), "{}", ended.stderr);
}

#[test]
fn a_line_of_names_tells_msr_and_what_is_not_known_stays_so_on_the_way_through_every_format() {
    let msr = b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
                128166372003061629,usr,3,Read,4096,512,41286\n128166372003061729,usr,1,Write,0,512,\n";
    let to = |format: &str, input: &[u8]| {
        let ended = trace(&["convert", "-", "--to", format], input);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stdout
    };
    let csv = to("csv", msr);
    assert_eq!(
        csv,
        "time_ns,op,device,offset,length,took_ns\n0,read,3,4096,512,4128600\n10000,write,1,0,512,\n"
    );
    assert_eq!(to("csv", to("msr", msr).as_bytes()), csv);
    for format in ["spc", "disksim", "fio"] {
        let back = to("csv", to(format, msr).as_bytes());
        let devices: Vec<&str> = back.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
        assert_eq!(devices, ["3", "1"], "{format}");
    }
}
