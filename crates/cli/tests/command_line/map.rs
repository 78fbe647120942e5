//! What a user of `rotproof map` sees.

use std::fs;
use std::path::Path;
use std::process::Command;

use insta::assert_snapshot;
use serde_json::Value;

/// An ext4 that is the same every time.
fn image(folder: &Path) {
    let path = folder.join("disk.img");
    fs::File::create(&path).and_then(|file| file.set_len(256 << 20)).expect("an image");
    fs::create_dir(folder.join("content")).expect("a folder");
    fs::write(folder.join("content/file"), vec![1; 20_000]).expect("a file");
    let made = Command::new("mkfs.ext4")
        .args([
            "-q",
            "-F",
            "-b",
            "4096",
            "-O",
            "^metadata_csum",
            "-U",
            "00000000-0000-4000-8000-000000000001",
        ])
        .args(["-E", "hash_seed=00000000-0000-4000-8000-000000000002,lazy_itable_init=0,lazy_journal_init=0"])
        .args(["-g", "16384", "-d"])
        .arg(folder.join("content"))
        .arg(&path)
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .status();
    assert!(made.expect("mkfs.ext4 of e2fsprogs is there").success());
}

fn map(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .current_dir(folder)
        .arg("map")
        .args(arguments)
        .output()
        .expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    for line in stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    (output.status.code().expect("an exit code"), stdout, stderr)
}

#[test]
fn a_map_is_a_table_a_list_of_one_kind_or_the_answer_for_one_block() {
    let folder = tempfile::tempdir().expect("a folder");
    image(folder.path());
    let told = |arguments: &[&str]| {
        let (code, stdout, stderr) = map(folder.path(), arguments);
        assert_eq!((code, &*stderr), (0, ""), "{arguments:?}");
        stdout
    };
    assert_snapshot!(told(&["disk.img"]));
    assert_snapshot!(told(&["disk.img", "--kind", "super_block"]));
    assert_snapshot!(told(&["disk.img", "--block", "1"]));
    assert_snapshot!(told(&["disk.img", "--kind", "htree"]));
    let whole: Value = serde_json::from_str(&told(&["disk.img", "--json"])).expect("JSON");
    let extents = whole["extents"].as_array().expect("a list");
    assert_eq!(extents[0]["start"], 0);
    assert!(extents.windows(2).all(|pair| pair[0]["end"] == pair[1]["start"]));
    assert_eq!(extents.last().expect("one")["end"], 256 << 20);
    let file = extents.iter().find(|extent| extent["path"] == "/file").expect("its file");
    assert_eq!(file["kind"], "data");
    let offset = file["start"].to_string();
    let one: Value = serde_json::from_str(&told(&["disk.img", "--offset", &offset, "--json"])).expect("JSON");
    assert_eq!((&one["path"], &one["copies"]), (&"/file".into(), &serde_json::json!([file["start"]])));
}

#[test]
fn a_picture_is_drawn_into_a_new_file() {
    let folder = tempfile::tempdir().expect("a folder");
    image(folder.path());
    for name in ["map.svg", "map.html"] {
        let (code, _, stderr) = map(folder.path(), &["disk.img", "--picture", name]);
        assert_eq!((code, &*stderr), (0, ""));
        let drawn = fs::read_to_string(folder.path().join(name)).expect("drawn");
        assert!(drawn.contains("inode_table") && drawn.contains("</svg>"), "{name}");
        let (code, _, stderr) = map(folder.path(), &["disk.img", "--picture", name]);
        assert!(code != 0 && stderr.contains("must not exist yet"), "{stderr}");
    }
}

#[test]
fn what_cannot_be_mapped_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    image(folder.path());
    let image = folder.path().join("disk.img");
    let before = fs::read(&image).expect("readable");
    for (arguments, part) in [
        (&["disk.img", "--kind", "nonsense"][..], "there is no kind of block `nonsense`"),
        (&["disk.img", "--block", "65536"], "the device has 268435456 bytes, 65536 blocks of 4096"),
        (&["disk.img", "--picture", "map.txt"], "neither .svg nor .html"),
        (&["."], "neither a file nor a block device"),
        (&["content/file"], "there is no ext4, xfs, btrfs or ZFS"),
        (&["missing"], "missing"),
    ] {
        let (code, stdout, stderr) = map(folder.path(), arguments);
        assert!(matches!(code, 2 | 3) && stdout.is_empty(), "{arguments:?}: {code} {stdout}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    assert!(fs::read(&image).expect("readable") == before);
    // A super block that says what cannot be, and one that is gone.
    for (bytes, part) in [(&[0xff; 4][..], "the super block is damaged"), (&[0; 1024], "there is no ext4")] {
        let mut damaged = before.clone();
        let at = if bytes.len() == 4 { 1024 + 4 } else { 1024 };
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(folder.path().join("damaged"), &damaged).expect("written");
        let (code, _, stderr) = map(folder.path(), &["damaged"]);
        assert!(code != 0 && stderr.contains(part), "{stderr}");
    }
}

/// A trial's file system is made with its files, read, and gone; its faults are not met.
#[test]
fn a_trial_is_mapped_as_its_run_finds_it_and_nothing_of_it_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let trial = "
stack: [{ memory: { size: 64MiB } }, faults]
subject: ext4
load: { files: { count: 2, size: 1MiB }, prefill: true, block_size: 64KiB, requests: 10 }
faults:
  - { name: nothing, match: { operation: write }, during: [prefill, run], effect: { error: EIO } }
";
    let image = "
stack: [{ file: { path: disk.img, size: 64MiB } }]
subject: ext4
load: { files: { count: 1, size: 1MiB }, requests: 10 }
";
    fs::write(folder.path().join("trial.yaml"), trial).expect("written");
    fs::write(folder.path().join("image.yaml"), image).expect("written");
    let (code, stdout, stderr) = map(folder.path(), &["trial.yaml", "--json"]);
    assert_eq!((code, &*stderr), (0, ""), "{stdout}");
    let told: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(told["file_system"], "ext4");
    assert_eq!(told["totals"]["data"]["bytes"], 2 << 20);
    let paths: std::collections::BTreeSet<&str> = told["extents"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|extent| extent["path"].as_str())
        .collect();
    assert!(paths.contains("/a") && paths.contains("/b"), "{paths:?}");
    // Without prefill the files are there and hold nothing.
    let (code, stdout, _) = map(folder.path(), &["trial.yaml", "--set", "load.prefill=false"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("inode_table") && !stdout.contains("the content of a file"), "{stdout}");
    // What holds something is not written to.
    fs::write(folder.path().join("disk.img"), vec![7; 64 << 20]).expect("written");
    let (code, _, stderr) = map(folder.path(), &["image.yaml"]);
    assert!(code != 0 && stderr.contains("disk.img"), "{code}: {stderr}");
    assert!(fs::read(folder.path().join("disk.img")).expect("there").iter().all(|&byte| byte == 7));
    for (arguments, part) in [
        (
            &[
                "image.yaml",
                "--set",
                "stack=[{memory: {size: 64MiB}}]",
                "--set",
                "subject=raw",
                "--set",
                "load={}",
            ][..],
            "raw have no kinds",
        ),
        (&["disk.img", "--set", "subject=xfs"], "no trial"),
        (&["trial.yaml", "--set", "subjet=xfs"], "did you mean `subject`"),
    ] {
        let (code, _, stderr) = map(folder.path(), arguments);
        assert!(code == 2 && stderr.contains(part), "{arguments:?}: {code}: {stderr}");
    }
    let mut left: Vec<_> =
        fs::read_dir(folder.path()).expect("there").map(|entry| entry.expect("there").file_name()).collect();
    left.sort();
    assert_eq!(left, ["disk.img", "image.yaml", "trial.yaml"]);
}
