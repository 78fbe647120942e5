//! What a user of `rotproof volume` sees.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// A folder with files that can be members.
pub(super) struct Shelf(pub(super) TempDir);

impl Shelf {
    pub(super) fn new(files: &[&str]) -> Self {
        let shelf = Self(tempfile::tempdir().expect("a folder"));
        for name in files {
            let file = std::fs::File::create(shelf.path(name)).expect("a file");
            file.set_len(16 << 20).expect("sparse");
        }
        shelf
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn volume(&self, arguments: &[&str]) -> Ended {
        let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
            .arg("volume")
            .args(arguments)
            .current_dir(self.0.path())
            .env("ROTPROOF_STATE_DIR", self.path("state"))
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .output()
            .expect("the command runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let code = output.status.code().expect("an exit code");
        Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub(super) fn passes(&self, arguments: &[&str]) -> String {
        let ended = self.volume(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    pub(super) fn status(&self, members: &[&str]) -> Value {
        let arguments = [&["status", "--json"], members].concat();
        serde_json::from_str(&self.passes(&arguments)).expect("JSON")
    }
}

/// A volume that is served, until this is dropped.
pub(super) struct Served(pub(super) Child);

impl Shelf {
    fn serve(&self, arguments: &[&str]) -> (Served, Value) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rotproof"))
            .args(["volume", "serve", "--as", "nbd", "--json", "--socket", "control"])
            .args(arguments)
            .current_dir(self.0.path())
            .env("ROTPROOF_STATE_DIR", self.path("state"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        (Served(child), serde_json::from_str(&line).expect("JSON"))
    }
}

impl Served {
    pub(super) fn end(mut self) -> i32 {
        let pid = libc::pid_t::try_from(self.0.id()).expect("a process");
        // SAFETY: a signal to a process that was begun here and not waited for.
        unsafe { libc::kill(pid, libc::SIGINT) };
        self.0.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Without the number, which is another each time.
fn without_id(text: &str) -> String {
    let is_id = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let word = |word: &str| if is_id(word) { "ID".to_owned() } else { word.to_owned() };
    text.lines().map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n").collect()
}

fn flip(path: &Path, offset: u64) {
    let mut file = std::fs::File::options().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset)).expect("is there");
    file.read_exact(&mut byte).expect("is read");
    file.seek(SeekFrom::Start(offset)).expect("is there");
    file.write_all(&[byte[0] ^ 1]).expect("is written");
}

#[test]
fn a_volume_is_made_shown_mended_and_ended() {
    let shelf = Shelf::new(&["a", "b", "c", "d", "e"]);
    assert_snapshot!(without_id(&shelf.passes(&["create", "a", "b", "c", "d", "--checksum", "none"])), @r"
    ID  28.0 MiB, 2 copies, no checksums, striped by 64KiB

       0  a  current
       1  b  current
       2  c  current
       3  d  current
    ");
    // The volume is known by its members in any order, and shows who is missing.
    let all = shelf.status(&["d", "b", "a", "c"]);
    assert_eq!(all["members"][3]["path"], "d");
    assert_snapshot!(without_id(&shelf.passes(&["status", "a", "d", "c"])), @r"
    ID  28.0 MiB, 2 copies, no checksums, striped by 64KiB

       0  a  current
       1  -  not in use: it is missing
       2  c  current
       3  d  current
    ");
    let gone = shelf.volume(&["scrub", "a", "b"]);
    assert_eq!(gone.code, 3);
    assert!(gone.stderr.contains("without one of its members 2, 3"), "{}", gone.stderr);
    // Two copies that differ: without checksums nobody knows.
    flip(&shelf.path("b"), (1 << 20) + 5000);
    let scrub = shelf.volume(&["scrub", "a", "b", "c", "d"]);
    assert_eq!(scrub.code, 1, "{}", scrub.stderr);
    assert!(scrub.stdout.contains("1 block: without checksums"), "{}", scrub.stdout);
    assert_snapshot!(shelf.passes(&["replace", "a", "c", "d", "--member", "1", "--with", "e"]), @r"
      copied     14.0 MiB
      repaired   0 B

    DONE
    ");
    let status = shelf.status(&["a", "e", "c", "d"]);
    assert!((0..4).all(|member| status["members"][member]["state"] == "current"), "{status}");
    let old = shelf.passes(&["status", "a", "b", "c", "d", "e"]);
    assert!(old.contains("b was a member once, and is none any more"), "{old}");
    shelf.passes(&["destroy", "a", "c", "d", "e", "--yes"]);
    assert_eq!(shelf.volume(&["status", "a"]).code, 2);
}

#[test]
fn a_volume_is_not_opened_without_members_that_may_have_gone_on_alone() {
    let shelf = Shelf::new(&["a", "b"]);
    shelf.passes(&["create", "a", "b"]);
    for arguments in [&["scrub", "a"][..], &["serve", "a"]] {
        let ended = shelf.volume(arguments);
        assert_eq!(ended.code, 3, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("say `degraded`"), "{arguments:?}: {}", ended.stderr);
    }
    let scrub = shelf.volume(&["scrub", "a", "--degraded"]);
    assert_ne!(scrub.code, 3, "{}", scrub.stderr);
    // It has gone on alone, and knows it; the other does not.
    let again = shelf.volume(&["scrub", "a"]);
    assert_ne!(again.code, 3, "{}", again.stderr);
    assert_eq!(shelf.volume(&["serve", "b"]).code, 3);
    shelf.passes(&["scrub", "a", "b"]);
}

#[test]
fn with_checksums_a_wrong_copy_is_mended_by_a_scrub() {
    let shelf = Shelf::new(&["a", "b"]);
    shelf.passes(&["create", "a", "b"]);
    let status = shelf.status(&["a", "b"]);
    assert_eq!((&status["checksum"], &status["is_open"]), (&"crc32c".into(), &false.into()));
    let text = shelf.passes(&["scrub", "a", "b", "--json"]);
    let scrub: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(scrub["left_bytes"], 0);
    // Of the record any copy will do.
    flip(&shelf.path("a"), 20);
    flip(&shelf.path("a"), 65_536 + 20);
    assert_eq!(shelf.status(&["a", "b"])["members"][0]["state"], "current");
}

#[test]
fn what_is_no_member_or_somebodys_is_refused() {
    let shelf = Shelf::new(&["a", "b", "c", "d"]);
    shelf.passes(&["create", "a", "b"]);
    shelf.passes(&["create", "c", "d", "--copies", "1"]);
    for (arguments, code, part) in [
        (&["create", "a", "b"][..], 2, "a is a member of the volume"),
        (&["create", "a"], 2, "a is a member of the volume"),
        (&["status", "a", "c"], 2, "is a member of another volume"),
        (&["create", "c", "d", "--chunk", "96KiB", "--overwrite"], 2, "write a power of two"),
        (&["create", "c", "--overwrite"], 2, "do not make up mirrors of 2"),
        (&["replace", "a", "b", "--member", "7", "--with", "c"], 2, "c is a member of the volume"),
        (&["replace", "a", "b", "--member", "7", "--with", "c", "--overwrite"], 2, "there is no member 7"),
        (&["replace", "c", "d", "--member", "0", "--with", "b", "--overwrite"], 2, "keeps one copy"),
        (&["status", "absent"], 3, "absent"),
        (&["destroy", "a"], 2, "--yes"),
    ] {
        let ended = shelf.volume(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{arguments:?}: {}", ended.stderr);
    }
    std::fs::write(shelf.path("e"), vec![7; 4 << 20]).expect("a file");
    let dear = shelf.volume(&["create", "e", "e"]);
    assert!(dear.code == 2 && dear.stderr.contains("--overwrite"), "{}", dear.stderr);
    shelf.passes(&["status", "a", "b"]);
}

#[test]
fn versions_are_captured_listed_gone_back_to_and_given_up() {
    let shelf = Shelf::new(&["a", "b"]);
    for name in ["a", "b"] {
        std::fs::File::options()
            .write(true)
            .open(shelf.path(name))
            .expect("a file")
            .set_len(40 << 20)
            .expect("grows");
    }
    let made = shelf.passes(&["create", "a", "b", "--versions", "--every", "1h", "--keep", "3"]);
    assert!(made.contains("a version each 1 h"), "{made}");
    let none = shelf.volume(&["create", "a", "b", "--overwrite", "--every", "60s"]);
    assert!(none.code == 2 && none.stderr.contains("--versions"), "{}", none.stderr);
    assert_eq!(shelf.passes(&["capture", "a", "b", "--name", "first"]), "version 1 is captured\n");
    let text = shelf.passes(&["versions", "b", "a", "--json"]);
    let versions: Value = serde_json::from_str(&text).expect("JSON");
    let first = &versions["versions"][0];
    assert_eq!((&first["id"], &first["name"]), (&1.into(), &"first".into()));
    // The clock of this machine, not that of a run.
    assert!(first["time_ns"].as_u64().expect("a time") > 1_700_000_000_000_000_000);
    let back = shelf.passes(&["rollback", "a", "b", "--to", "1"]);
    assert_eq!(back, "the volume is as in version 1; `rollback --to 2` undoes it\n");
    assert!(shelf.passes(&["versions", "a", "b"]).contains("before going back to 1"));
    shelf.passes(&["versions", "a", "b", "--delete", "1"]);
    let gone = shelf.volume(&["rollback", "a", "b", "--to", "1"]);
    assert!(
        gone.code == 3 && gone.stderr.contains("there is no version 1"),
        "{}: {}",
        gone.code,
        gone.stderr
    );
    let plain = Shelf::new(&["a", "b"]);
    plain.passes(&["create", "a", "b"]);
    let none = plain.volume(&["versions", "a", "b"]);
    assert!(none.stderr.contains("keeps no versions"), "{}", none.stderr);
}

#[test]
fn a_volume_grows_and_keeps_another_number_of_copies() {
    let shelf = Shelf::new(&["a", "b", "c", "d", "e", "f"]);
    shelf.passes(&["create", "a", "--copies", "1"]);
    let two = shelf.passes(&["add", "a", "--copy", "b"]);
    assert!(two.contains("DONE"), "{two}");
    assert_snapshot!(without_id(&shelf.passes(&["grow", "a", "b", "--with", "c", "--with", "d"])), @r"
    ID  27.3 MiB, 2 copies, crc32c, 2 segments

       0  a  current
       1  b  current
       2  c  current
       3  d  current
    ");
    let odd = shelf.volume(&["grow", "a", "b", "c", "d", "--with", "e"]);
    assert!(odd.stderr.contains("give a multiple of 2"), "{}", odd.stderr);
    let few = shelf.volume(&["remove", "a", "b", "c", "d", "--member", "0"]);
    assert!(few.stderr.contains("one of each mirror, 2 in all"), "{}", few.stderr);
    let spare = shelf.passes(&["add", "a", "b", "c", "d", "--spare", "e"]);
    assert_eq!(spare, "e waits as spare 0; give it with the members from now on\n");
    let status = shelf.status(&["a", "b", "c", "d", "e"]);
    assert_eq!(status["spares"][0], "e");
    shelf.passes(&["remove", "a", "b", "c", "d", "e", "--spare", "0"]);
    assert_snapshot!(without_id(&shelf.passes(&["remove", "a", "b", "c", "d", "--member", "1", "--member", "2"])), @r"
    ID  27.3 MiB, one copy, crc32c, 2 segments

       0  a  current
       1  d  current
    ");
    // What went is free for others.
    shelf.passes(&["create", "b", "c", "e", "f"]);
}

#[test]
fn a_volume_that_is_served_is_looked_after_all_the_same() {
    let shelf = Shelf::new(&["a", "b", "c", "d"]);
    for name in ["a", "b", "c", "d"] {
        std::fs::File::options()
            .write(true)
            .open(shelf.path(name))
            .expect("a file")
            .set_len(40 << 20)
            .expect("grows");
    }
    shelf.passes(&["create", "a", "b", "--versions"]);
    let name = format!("volume-test-{}", std::process::id());
    let hook = "echo \"$1 $ROTPROOF_VERB$ROTPROOF_MEMBER$ROTPROOF_VERSION\" >> told";
    // By its name, so that the other commands find it.
    let mut child = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(["volume", "serve", "a", "b", "--as", "nbd", "--json", "--name", &name, "--hook", hook])
        .current_dir(shelf.0.path())
        .env("ROTPROOF_STATE_DIR", shelf.path("state"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let served = Served(child);
    assert!(line.contains("\"ready\":true"), "{line}");
    assert_eq!(shelf.passes(&["capture", "a", "b", "--name", "live"]), "version 1 is captured\n");
    shelf.passes(&["scrub", "a", "b"]);
    shelf.passes(&["add", "a", "b", "--spare", "d"]);
    let replaced = shelf.passes(&["replace", "a", "b", "--member", "1", "--with", "c"]);
    assert!(replaced.contains("DONE"), "{replaced}");
    let back = shelf.passes(&["rollback", "a", "c", "--to", "1"]);
    assert!(back.contains("undoes it"), "{back}");
    let status = shelf.status(&["a", "c"]);
    assert_eq!(status["members"][1]["state"], "current");
    assert_eq!(status["spares"][0], shelf.path("d").display().to_string());
    assert_eq!(status["versions"].as_array().map(Vec::len), Some(2));
    let verbs: Vec<&str> =
        status["tasks"].as_array().expect("tasks").iter().filter_map(|task| task["verb"].as_str()).collect();
    assert_eq!(verbs, ["capture", "scrub", "add_spare", "replace", "rollback"]);
    let bad = shelf.volume(&["rollback", "a", "c", "--to", "77"]);
    assert!(bad.stderr.contains("there is no version 77"), "{}", bad.stderr);
    assert_eq!(served.end(), 130);
    let told = std::fs::read_to_string(shelf.path("told")).expect("was told");
    for line in ["task_begun capture", "version_captured 1", "task_done replace", "member_replaced 1"] {
        assert!(told.contains(line), "{line} in {told}");
    }
    // Closed in order, with all that was changed; then one version of it is served.
    let status = shelf.status(&["a", "c", "d"]);
    assert_eq!((&status["is_open"], &status["spares"][0]), (&false.into(), &"d".into()));
    let (served, ready) = shelf.serve(&["a", "c", "--version", "1"]);
    assert_eq!(ready["size_bytes"], status["size_bytes"]);
    assert_eq!(served.end(), 130);
    // Or both of them beside the present, which is written to and leaves them as they are.
    let (served, ready) = shelf.serve(&["a", "c", "--beside", "1", "--beside", "2", "--as", "file"]);
    let exports: Vec<&Value> = ready["exports"]
        .as_array()
        .expect("exports")
        .iter()
        .filter(|export| export["as"] == "file")
        .collect();
    let names: Vec<&str> = exports.iter().filter_map(|export| export["device"].as_str()).collect();
    assert_eq!(names, ["present", "version-1", "version-2"]);
    let paths: Vec<&str> = exports.iter().filter_map(|export| export["address"].as_str()).collect();
    let content = |path: &str| std::fs::read(path).expect("readable")[..8192].to_vec();
    let present = std::fs::File::options().write(true).open(paths[0]).expect("writable");
    std::os::unix::fs::FileExt::write_all_at(&present, &[7; 4096], 4096).expect("written");
    assert_eq!(content(paths[0])[4096..], [7; 4096]);
    assert!(content(paths[1]).iter().chain(&content(paths[2])).all(|byte| *byte == 0));
    assert!(std::fs::File::options().write(true).open(paths[1]).is_err(), "a version can only be read");
    // Soon after a flush the log of the map says that all of it is durable: by a block without records.
    let vouched = || {
        let member = std::fs::read(shelf.path("a")).expect("readable");
        let blocks = member.chunks_exact(4096).filter(|block| block.starts_with(b"rotpLOG2"));
        let empty = blocks.filter(|block| block[48..52] == [0; 4]);
        empty.map(|block| u64::from_le_bytes(block[24..32].try_into().expect("eight bytes"))).max()
    };
    let before = vouched();
    present.sync_all().expect("flushed");
    let wait = || std::thread::sleep(std::time::Duration::from_millis(100));
    assert!((0..200).any(|_| vouched() > before || (wait(), false).1), "nothing says so");
    drop(present);
    assert_eq!(served.end(), 130);
    let none = shelf.volume(&["serve", "a", "c", "--beside", "9"]);
    assert!(none.stderr.contains("there is no version 9"), "{}", none.stderr);
}

#[test]
fn the_matrix_tells_what_each_cell_has_come_to() {
    let shelf = Shelf::new(&[]);
    let text = shelf.passes(&["matrix"]);
    assert!(text.contains("| bit flip | R R | R R | E E |") && text.contains("none silent"), "{text}");
}
