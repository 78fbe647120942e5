//! What the README and the docs promise a newcomer is run here, as written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// The commands of a page: lines that begin with `$ ` inside ```` ```console ```` blocks.
fn commands(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).expect("the page exists");
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        match line.trim_start() {
            "```console" => inside = true,
            "```" => inside = false,
            line if inside => found.extend(line.strip_prefix("$ ").map(str::to_owned)),
            _ => {}
        }
    }
    found
}

/// Runs a command as written, in the workspace.
fn run(command: &str) -> (i32, String) {
    // Where the build goes elsewhere, `target` is there.
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "./target".into());
    let mut bash = Command::new("bash");
    bash.args(["-c", &command.replace("./target/", &format!("{target}/"))]).current_dir(root());
    // A newcomer's shell has nothing of what cargo tells this test of its own package. Build scripts of dependencies
    // look at it, so with it cargo would build them, and all that is above them, once more.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
            bash.env_remove(&name);
        }
    }
    let output = bash.output().expect("bash starts");
    let text = format!(
        "$ {command}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code().unwrap_or(-1), text)
}

/// Removes from the workspace what the commands leave there, unless it was there before.
struct Tidy(Vec<PathBuf>);

impl Tidy {
    fn up(names: &[&str]) -> Self {
        Self(names.iter().map(|name| root().join(name)).filter(|path| !path.exists()).collect())
    }
}

impl Drop for Tidy {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
        }
    }
}

#[test]
#[ignore = "builds in release mode; ./test runs it"]
fn every_command_of_the_readme_works() {
    let _tidy = Tidy::up(&["results", "rotproof.schema.json"]);
    let commands = commands("README.md");
    assert!(commands.len() >= 3, "the README shows its commands: {commands:?}");
    for command in commands {
        // This is the test suite; cloning needs a network.
        if command == "./test" || command.starts_with("git clone") || command.starts_with("cd ") {
            continue;
        }
        let (code, text) = run(&command);
        assert_eq!(code, 0, "{text}");
    }
}

#[test]
fn every_example_is_a_valid_trial() {
    let mut examples = Vec::new();
    let mut folders = vec![root().join("examples")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            // Path files are of the reliability model; its own tests read them.
            if path.is_dir() && !path.ends_with("paths") && !path.ends_with("fleets") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                examples.push(path);
            }
        }
    }
    assert!(examples.len() >= 10, "{examples:?}");
    for example in examples {
        let output = Command::new(env!("CARGO_BIN_EXE_rotproof"))
            .arg("check")
            .arg(&example)
            .output()
            .expect("the binary starts");
        assert!(
            output.status.success(),
            "{}: {}",
            example.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
