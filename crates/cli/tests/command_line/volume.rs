//! What a user of `rotproof volume` sees.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

/// A folder with files that can be members.
struct Shelf(TempDir);

impl Shelf {
    fn new(files: &[&str]) -> Self {
        let shelf = Self(tempfile::tempdir().expect("a folder"));
        for name in files {
            let file = std::fs::File::create(shelf.path(name)).expect("a file");
            file.set_len(16 << 20).expect("sparse");
        }
        shelf
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn volume(&self, arguments: &[&str]) -> Ended {
        let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
            .arg("volume")
            .args(arguments)
            .current_dir(self.0.path())
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .output()
            .expect("the command runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let code = output.status.code().expect("an exit code");
        Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn passes(&self, arguments: &[&str]) -> String {
        let ended = self.volume(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    fn status(&self, members: &[&str]) -> Value {
        let arguments = [&["status", "--json"], members].concat();
        serde_json::from_str(&self.passes(&arguments)).expect("JSON")
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
    assert!(old.contains("b was a member once and has been replaced"), "{old}");
    shelf.passes(&["destroy", "a", "c", "d", "e", "--yes"]);
    assert_eq!(shelf.volume(&["status", "a"]).code, 2);
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
