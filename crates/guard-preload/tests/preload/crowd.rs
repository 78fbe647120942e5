//! Programs that change the same files at the same time, and are killed while they do: no block is accused of what guards wrote.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::rig::{Rig, library};

struct Crowd {
    rig: Rig,
    program: PathBuf,
}

impl Crowd {
    fn new() -> Self {
        let rig = Rig::new();
        let (source, program) =
            (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/preload/crowd.c"), rig.beside("crowd"));
        let compiled = Command::new("cc").args(["-O1", "-w", "-o"]).arg(&program).arg(source).status();
        assert!(compiled.expect("cc starts").success());
        Self { rig, program }
    }

    /// Three of them that make so many changes each.
    fn start(&self, round: u64, changes: u64) -> Vec<(Child, PathBuf)> {
        let one = |number: u64| {
            let said = self.rig.beside(&format!("said{number}"));
            let child = Command::new(&self.program)
                .arg((round * 3 + number + 1).to_string())
                .arg(changes.to_string())
                .current_dir(self.rig.root())
                .env("LD_PRELOAD", library())
                .env("ROTPROOF_GUARD_ROOT", self.rig.root())
                .stdin(Stdio::null())
                .stdout(File::create(&said).expect("a file"))
                .spawn()
                .expect("it starts");
            (child, said)
        };
        (0..3).map(one).collect()
    }

    /// Waits for them: what fails without reason is told.
    fn end(&self, round: u64, crowd: Vec<(Child, PathBuf)>) {
        for (mut child, said) in crowd {
            let status = child.wait().expect("our child");
            let said = std::fs::read_to_string(said).expect("a file");
            assert!(status.success() || status.code().is_none(), "round {round}, {status}: {said}");
        }
        let report = self.rig.check();
        assert!(report.is_clean(), "round {round}: {report:?}");
        // What the kernel has not closed yet of one that was killed may still seem to be in use for a moment.
        let is_given_up = (0..200).any(|_| {
            self.rig.status().open == 0 || {
                std::thread::sleep(Duration::from_millis(20));
                self.rig.check();
                false
            }
        });
        assert!(is_given_up, "round {round}: memory of files that are gone stays");
    }
}

#[test]
fn many_programs_change_the_same_files_and_no_block_is_accused() {
    let crowd = Crowd::new();
    for round in 0..3 {
        let programs = crowd.start(round, 300);
        crowd.end(round, programs);
    }
    let report = crowd.rig.check();
    assert_eq!((report.torn, report.repaired_count), (0, 0), "{report:?}");
}

#[test]
fn programs_are_killed_in_the_middle_and_no_block_is_accused() {
    let crowd = Crowd::new();
    for round in 0..12 {
        let mut programs = crowd.start(round, 100_000);
        std::thread::sleep(Duration::from_millis(150 + round * 79 % 200));
        // One, which the others outlive for a while, or all of them.
        let first = if round % 2 == 0 { programs.len() } else { 1 };
        for (child, _) in &mut programs[..first] {
            child.kill().expect("our child");
        }
        if first == 1 {
            std::thread::sleep(Duration::from_millis(100));
        }
        for (child, _) in &mut programs {
            let _ = child.kill();
        }
        crowd.end(round, programs);
    }
}
