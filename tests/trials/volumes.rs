//! File systems on a volume, over a loop device and over NBD: what they leave on it is whole for their own checkers.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::qemu::machine;
use super::rig::{Rig, Trial};

/// Serves a volume as a file, and has a checker of file systems look at that.
fn check(rig: &Rig, members: [&str; 2], checker: &[&str]) -> (Option<i32>, String) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(["volume", "serve", "--as", "file", "--json", "--socket", "control"])
        .args(members)
        .current_dir(rig.path("."))
        .env("ROTPROOF_STATE_DIR", rig.path("state"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let file = ready["exports"][0]["address"].as_str().expect("a path").to_owned();
    let checked = Command::new(checker[0]).args(&checker[1..]).arg(&file).output().expect("a checker");
    // SAFETY: a signal to a process that was begun here and not waited for.
    unsafe { libc::kill(server.id().cast_signed(), libc::SIGINT) };
    assert_eq!(server.wait().expect("it ends").code(), Some(130));
    let text = [checked.stdout, checked.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (checked.status.code(), text.concat())
}

/// Every other MiB of the middle of the members, from here on: wherever a file system puts a file of 2 MiB, it is in both halves.
fn every_other_mib(from: u32) -> String {
    let pieces: Vec<_> = (from..160).step_by(2).map(|mib| format!("{mib}MiB..{}MiB", mib + 1)).collect();
    pieces.join("|")
}

#[test]
fn what_file_systems_leave_on_a_volume_is_whole_for_their_own_checkers() {
    let checkers: [(&str, &[&str]); 2] =
        [("ext4", &["e2fsck", "-fn"]), ("btrfs", &["btrfs", "check", "--readonly"])];
    for (kind, checker) in checkers {
        for way in ["loop", "nbd"] {
            let rig = Rig::new();
            for member in ["left", "right"] {
                let file = File::create(rig.path(member)).expect("a file");
                file.set_len(200 << 20).expect("a size");
            }
            let subject = match way {
                "loop" => kind.to_owned(),
                _ => machine(&format!("disk: nbd, file_system: {kind}")),
            };
            // Rot on either member in the middle of it, which the volume mends.
            let run = rig.run(&Trial::new(format!(
                "seed: 5\nstack:\n  - volume:\n      of:\n        left: [ file: {{ path: left }}, faults ]\n        right: [ file: {{ \
                 path: right }}, faults ]\nsubject: {subject}\n\
                 load: {{ files: {{ count: 4, size: 2MiB }}, reads: 30%, requests: 2000, flush_every: 100 }}\nfaults:\n  \
                 - \"on=left, write, offset={}, every=7: bit_flip\"\n  \
                 - \"on=right, write, offset={}, every=7: zeros\"\n\
                 expect: {{ failures: 0, errors: 0, silent: 0, unknown: any, reported: 0 }}\n",
                every_other_mib(32),
                every_other_mib(33)
            )));
            // That both rules had hits is part of it.
            run.assert_passed();
            let (code, text) = check(&rig, ["left", "right"], checker);
            assert_eq!(code, Some(0), "{kind}, {way}: {text}");
            if way != "loop" {
                continue;
            }
            // The checker does find what is wrong, where both members have it wrong.
            for member in ["left", "right"] {
                let file = File::options().write(true).open(rig.path(member)).expect("a member");
                let zeros = vec![0; 190 << 20];
                std::os::unix::fs::FileExt::write_all_at(&file, &zeros, 4 << 20).expect("is written");
            }
            let (code, text) = check(&rig, ["left", "right"], checker);
            assert_ne!(code, Some(0), "{kind}: {text}");
            rig.assert_nothing_left();
        }
    }
}
