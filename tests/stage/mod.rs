//! The command as scripts use it: what is served from a folder of the test's own, and an end to it on every way out.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Folders of a test, and what it serves from there. Dropped, it kills and cleans.
pub struct Stage {
    pub folder: TempDir,
    pub served: Vec<Child>,
}

pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Stage {
    pub fn new() -> Self {
        let folder =
            tempfile::Builder::new().prefix("rotproof-serve-").tempdir().expect("a temporary folder");
        std::fs::write(
            folder.path().join("disk.yaml"),
            "stack: [memory: { size: 1MiB, block_size: 4096 }]\n",
        )
        .expect("the stack is written");
        Self { folder, served: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rotproof"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("ROTPROOF_STATE_DIR", self.path("state"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = self.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let began = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if began.elapsed() >= PATIENCE {
                let _ = child.kill();
                panic!("{arguments:?} does not end: {:?}", child.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = child.wait_with_output().expect("it has ended");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let code = output.status.code().expect("an exit code");
        Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a command that succeeds, and gives what it says.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let ended = self.run(&[&["ctl"], arguments].concat());
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
        ended.stdout
    }

    pub fn ctl_json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ctl(&[arguments, &["--json"]].concat())).expect("JSON")
    }

    /// Serves, and gives the number of the process and what it says when it is ready.
    pub fn serve(&mut self, arguments: &[&str]) -> (usize, Value) {
        let arguments = [&["serve", "disk.yaml", "--json"], arguments].concat();
        let mut child = self
            .command(&arguments)
            .stdout(Stdio::piped())
            .stderr(File::create(self.path("stderr")).expect("a log"))
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("it was asked for");
        self.served.push(child);
        let line = lines_until(stdout, "\n");
        let ready =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}{}", self.stderr()));
        (self.served.len() - 1, ready)
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    /// Sends a signal, and gives how it ended.
    pub fn end(&mut self, index: usize, signal: i32) -> Option<i32> {
        let child = &mut self.served[index];
        let pid = child.id().cast_signed();
        // SAFETY: the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn assert_nothing_left(&self) {
        let left: Vec<_> = std::fs::read_dir(self.path("state"))
            .expect("the state folder")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let folder = self.folder.path().to_str().expect("UTF-8");
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("proc is mounted");
        assert!(!mounts.contains(folder), "{mounts}");
    }
}

impl Stage {
    /// Kills whatever is still served, and removes what it left.
    pub fn kill_all(&mut self) {
        for child in &mut self.served {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.command(&["clean"]).output();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// What is said up to the line in which a text occurs.
pub fn lines_until(output: impl Read + Send + 'static, text: &'static str) -> String {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        let mut output = BufReader::new(output);
        while !said.contains(text) && output.read_line(&mut said).is_ok_and(|bytes| bytes > 0) {}
        let _ = sender.send(said);
        // Until its end, so that nobody ever writes to a closed pipe.
        let _ = output.read_to_end(&mut Vec::new());
    });
    receiver.recv_timeout(PATIENCE).expect("it never says so")
}

pub fn address(ready: &Value, kind: &str) -> PathBuf {
    let exports = ready["exports"].as_array().expect("a list");
    let export = exports.iter().find(|export| export["as"] == kind).expect("it was asked for");
    PathBuf::from(export["address"].as_str().expect("a text"))
}

/// Runs a program to its end, but not for ever; gives whether it succeeded and all it said.
pub fn outcome(command: &mut Command) -> (bool, String) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child: Child = child.unwrap_or_else(|error| panic!("{command:?} is needed here: {error}"));
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("our child").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{command:?} does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().expect("our child");
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

/// An authority, and a server and a client that it vouches for, as QEMU and libnbd want them laid out.
pub fn certificates(folder: &Path) {
    let openssl = |name: &str, subject: &str, more: &[&str]| {
        let key = folder.join(format!("{name}-key.pem"));
        let certificate = folder.join(format!("{name}-cert.pem"));
        let (succeeded, text) = outcome(
            Command::new("openssl")
                .args(["req", "-x509", "-subj", subject, "-days", "30", "-nodes"])
                .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
                .args(more)
                .arg("-keyout")
                .arg(key)
                .arg("-out")
                .arg(certificate)
                .current_dir(folder),
        );
        assert!(succeeded, "{text}");
    };
    openssl("ca", "/CN=authority", &["-addext", "keyUsage=critical,keyCertSign"]);
    for who in ["server", "client"] {
        let signed = ["-CA", "ca-cert.pem", "-CAkey", "ca-key.pem"];
        let named = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        let purpose = ["-addext", "basicConstraints=critical,CA:FALSE"];
        openssl(who, "/CN=localhost", &[&signed[..], &named, &purpose].concat());
    }
}
