//! Builds the program inside guests (`agent/`): one static program, with the compiler at hand and the standard library
//! alone; and a library that User Mode Linux needs on some processors (`xstate/`). Where that cannot be, this crate is built without it, and says why when a guest is wanted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=agent");
    println!("cargo:rerun-if-changed=xstate");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    keep(&out.join("agent"), &out.join("why-not"), "agent/main.rs", &AGENT);
    keep(&out.join("xstate.so"), &out.join("xstate-why-not"), "xstate/main.rs", &XSTATE);
}

const AGENT: [&str; 4] = ["--crate-name", "agent", "-C", "target-feature=+crt-static"];
const XSTATE: [&str; 4] = ["--crate-name", "xstate", "--crate-type", "cdylib"];

/// Builds one of them; where that fails the file is empty, and the other says why.
fn keep(program: &Path, why: &Path, source: &str, options: &[&str]) {
    let said = build(program, source, options).err().unwrap_or_default();
    if !said.is_empty() {
        fs::write(program, []).expect("the folder is ours");
    }
    fs::write(why, said).expect("the folder is ours");
}

fn build(program: &Path, source: &str, options: &[&str]) -> Result<(), String> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let target = variable("TARGET");
    if target != "x86_64-unknown-linux-gnu" && target != "x86_64-unknown-linux-musl" {
        return Err(format!("guests are for x86-64 with Linux, and this was built for {target}"));
    }
    let compiler = env::var_os("RUSTC").ok_or("there is no compiler")?;
    let output = Command::new(compiler)
        .args(["--edition", "2024", "--target", &target])
        .args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols"])
        .args(options)
        .arg("-o")
        .arg(program)
        .arg(source)
        .output()
        .map_err(|error| format!("the compiler cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{source} could not be built; it takes the C library, static too (libc6-dev, glibc-static): {}",
        String::from_utf8_lossy(&output.stderr)
    ))
}
