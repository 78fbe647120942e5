//! Power loss under real file systems, by the command.

use std::process::Command;

use serde_json::Value;

use super::rig::Rig;

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
fn what_makes_no_sense_is_told() {
    let rig = Rig::new();
    for (arguments, part) in [
        (&[][..], "name a file system"),
        (&["zfs"], "possible values: ext4, xfs, btrfs"),
        (&["ext4", "--length", "3"], "1..=2"),
        (&["--state", "absent.json"], "--image FILE"),
        (&["--state", "absent.json", "--image", "x.img"], "what was kept with it"),
    ] {
        let (code, text) = crash(&rig, arguments);
        assert!(matches!(code, 2 | 3) && text.contains(part), "{arguments:?}: {code}, {text}");
    }
}
