//! Says of which commit the binary is, where it is built from a checkout.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-env-changed=ROTPROOF_COMMIT");
    // A package is built from a checkout that may be gone by then, or from none.
    let given = std::env::var("ROTPROOF_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| {
        for path in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&["rev-parse", "--git-path", path]) {
                println!("cargo::rerun-if-changed={path}");
            }
        }
        git(&["rev-parse", "--short=10", "HEAD"])
    });
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=ROTPROOF_VERSION={version}");
}
