//! Runs the binary as a user would, in a folder and a state folder of the test's own, and looks at what it leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A trial file's text.
pub struct Trial(pub String);

impl Trial {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A finished run.
pub struct Run {
    pub code: i32,
    /// Standard output and standard error.
    pub text: String,
    /// `run.json`, where there is one.
    pub json: Value,
    folder: PathBuf,
}

impl Run {
    pub fn assert_passed(&self) {
        assert_eq!(self.code, 0, "{}", self.text);
        assert_eq!(self.json["verdict"], "pass", "{}", self.text);
    }

    pub fn count(&self, name: &str) -> u64 {
        self.json["counts"][name].as_u64().expect("a count")
    }

    /// All that two equal runs have in common, as text: `run.json` without its clock, and the files beside it.
    pub fn repeatable(&self) -> String {
        let mut json = self.json.clone();
        json.as_object_mut().expect("an object").remove("wall_clock").expect("the clock is apart");
        let mut text = json.to_string();
        for name in ["ledger.jsonl", "failures.jsonl"] {
            text += &fs::read_to_string(self.folder.join(name)).expect("it is among the results");
        }
        text
    }

    /// A file of the results.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The lines of `failures.jsonl`.
    pub fn failures(&self) -> Vec<Value> {
        self.lines("failures.jsonl")
    }

    pub fn ledger(&self) -> Vec<Value> {
        self.lines("ledger.jsonl")
    }

    pub fn lines(&self, name: &str) -> Vec<Value> {
        fs::read_to_string(self.folder.join(name))
            .expect("it is among the results")
            .lines()
            .map(|line| serde_json::from_str(line).expect("a JSON object a line"))
            .collect()
    }
}

/// A run that is killed leaves a dead FUSE mount until it is cleaned, and mkfs.btrfs looks into every one on the
/// machine. So tests that kill are alone, and all others run side by side.
static COMPANY: RwLock<()> = RwLock::new(());

/// Kept for its lifetime: what a test has taken of [`COMPANY`].
enum Place {
    Shared(#[expect(dead_code, reason = "held, not used")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held, not used")] RwLockWriteGuard<'static, ()>),
}

/// The folders of one test.
pub struct Rig {
    folder: TempDir,
    _place: Place,
}

impl Rig {
    pub fn new() -> Self {
        // A test that failed has poisoned nothing that others use.
        Self::at(Place::Shared(COMPANY.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// For a test that kills what it starts.
    pub fn alone() -> Self {
        Self::at(Place::Alone(COMPANY.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn at(place: Place) -> Self {
        let folder = tempfile::Builder::new().prefix("rotproof-test-").tempdir().expect("a temporary folder");
        Self { folder, _place: place }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rotproof"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            // State and mount points of this test lie in its own folder, so tests can run side by side.
            .env("ROTPROOF_STATE_DIR", self.folder.path().join("state"))
            // All tests use the same snapshots of guests, and nothing outside of the build has them.
            .env("ROTPROOF_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    fn write(&self, trial: &Trial) -> PathBuf {
        let path = self.path("trial.yaml");
        fs::write(&path, &trial.0).expect("the trial is written");
        path
    }

    pub fn rotproof(&self, arguments: &[&str]) -> Run {
        let output = self.command(arguments).output().expect("the binary starts");
        let text = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .join("\n");
        Run { code: output.status.code().unwrap_or(-1), text, json: Value::Null, folder: PathBuf::new() }
    }

    /// Runs a trial and reads its results, if there are any.
    pub fn run_raw(&self, trial: &Trial, options: &[&str]) -> Run {
        let file = self.write(trial);
        let results = tempfile::Builder::new()
            .prefix("results-")
            .tempdir_in(self.folder.path())
            .expect("a results folder")
            .keep();
        let (file, folder) = (file.to_string_lossy().into_owned(), results.to_string_lossy().into_owned());
        let mut arguments = vec!["run", file.as_str(), "--results", folder.as_str()];
        arguments.extend(options);
        let mut run = self.rotproof(&arguments);
        // One folder for each run inside.
        let inside = fs::read_dir(&results)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.is_dir() && !path.is_symlink());
        if let Some(folder) = inside {
            if let Ok(text) = fs::read_to_string(folder.join("run.json")) {
                run.json = serde_json::from_str(&text).expect("run.json is JSON");
            }
            run.folder = folder;
        }
        run
    }

    /// Runs a trial to its end; afterwards nothing may be left of it.
    pub fn run(&self, trial: &Trial) -> Run {
        let run = self.run_raw(trial, &[]);
        self.assert_nothing_left();
        run
    }

    /// Starts a trial, waits until its load runs, sends `signal`, and waits for the end.
    pub fn interrupt(&self, trial: &Trial, signal: i32) -> (Option<i32>, String) {
        self.in_the_middle(trial, |child| {
            // SAFETY: the process is our child and has not been waited for.
            assert_eq!(unsafe { libc::kill(child.cast_signed(), signal) }, 0);
        })
    }

    /// The same with a script instead of a signal.
    pub fn disturb(&self, trial: &Trial, script: &str) -> (Option<i32>, String) {
        self.in_the_middle(trial, |_| drop(self.shell(script)))
    }

    /// Starts a trial, and while its load runs does what it may; then interrupts it, which ends it in order.
    pub fn while_it_runs(&self, trial: &Trial, during: impl FnOnce(u32)) {
        let (code, text) = self.in_the_middle(trial, |child| {
            during(child);
            // SAFETY: the process is our child and has not been waited for.
            assert_eq!(unsafe { libc::kill(child.cast_signed(), libc::SIGINT) }, 0);
        });
        assert_eq!(code, Some(130), "{text}");
    }

    /// Starts a trial, interrupts it when it `is_ready`, and reads its results.
    pub fn interrupt_once(&self, trial: &Trial, is_ready: impl FnMut(&Process) -> bool) -> Run {
        self.interrupted(trial, is_ready, 1)
    }

    /// The same, and a second time before it has ended.
    pub fn interrupt_twice(&self, trial: &Trial, is_ready: impl FnMut(&Process) -> bool) -> Run {
        self.interrupted(trial, is_ready, 2)
    }

    fn interrupted(&self, trial: &Trial, is_ready: impl FnMut(&Process) -> bool, times: u32) -> Run {
        let signals = |child: u32| {
            for time in 0..times {
                // Two signals at once would be one.
                std::thread::sleep(Duration::from_millis(u64::from(time) * 200));
                // SAFETY: the process is our child and has not been waited for.
                assert_eq!(unsafe { libc::kill(child.cast_signed(), libc::SIGINT) }, 0);
            }
        };
        self.meddle(trial, is_ready, signals)
    }

    /// Starts a trial, does something to it when it `is_ready`, and reads its results.
    pub fn meddle(
        &self,
        trial: &Trial,
        is_ready: impl FnMut(&Process) -> bool,
        disturb: impl FnOnce(u32),
    ) -> Run {
        let (code, text) = self.in_the_middle_of(trial, is_ready, disturb);
        let results = fs::read_dir(self.path("results")).into_iter().flatten().flatten();
        let folder = results.map(|entry| entry.path()).find(|path| !path.is_symlink()).unwrap_or_default();
        let json = fs::read_to_string(folder.join("run.json")).unwrap_or("null".into());
        let json = serde_json::from_str(&json).expect("run.json is JSON");
        Run { code: code.unwrap_or(-1), text, json, folder }
    }

    fn in_the_middle(&self, trial: &Trial, disturb: impl FnOnce(u32)) -> (Option<i32>, String) {
        self.in_the_middle_of(trial, Process::has_used_time, disturb)
    }

    fn in_the_middle_of(
        &self,
        trial: &Trial,
        is_ready: impl FnMut(&Process) -> bool,
        disturb: impl FnOnce(u32),
    ) -> (Option<i32>, String) {
        let file = self.write(trial);
        self.disturbed(&["run", &file.to_string_lossy()], is_ready, disturb)
    }

    /// Starts the binary, does something to it when it `is_ready`, and waits for its end.
    pub fn disturbed(
        &self,
        arguments: &[&str],
        mut is_ready: impl FnMut(&Process) -> bool,
        disturb: impl FnOnce(u32),
    ) -> (Option<i32>, String) {
        let log = fs::File::create(self.path("log")).expect("a log");
        let mut process = Process(
            self.command(arguments)
                .stdout(log.try_clone().expect("a second handle"))
                .stderr(log)
                .spawn()
                .expect("the binary starts"),
        );
        let said = || fs::read_to_string(self.path("log")).unwrap_or_default();
        let began = Instant::now();
        while !is_ready(&process) {
            assert!(began.elapsed() < DEADLINE, "the load never ran: {}", said());
            assert!(process.0.try_wait().expect("a child").is_none(), "{}", said());
            std::thread::sleep(Duration::from_millis(50));
        }
        disturb(process.0.id());
        let began = Instant::now();
        loop {
            if let Some(status) = process.0.try_wait().expect("a child") {
                return (status.code(), said());
            }
            assert!(began.elapsed() < DEADLINE, "it does not end: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a trial, and fails if it has not ended by then. `look` gets every now and then what the process and its children
    /// have mapped.
    pub fn run_within(
        &self,
        trial: &Trial,
        time: Duration,
        mut look: impl FnMut(String, Vec<String>),
    ) -> Run {
        let file = self.write(trial);
        let log = fs::File::create(self.path("log")).expect("a log");
        let child = self
            .command(&["run", &file.to_string_lossy(), "--results", &self.path("mapped").to_string_lossy()])
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        // Not waited for if it cannot be killed, but taken the device away first.
        let mut process = Process(child);
        let began = Instant::now();
        let status = loop {
            if let Some(status) = process.0.try_wait().expect("a child") {
                break status;
            }
            if began.elapsed() > time {
                self.abort_connections();
                panic!("it does not end: {}", fs::read_to_string(self.path("log")).unwrap_or_default());
            }
            // Whoever looks at a process that is stuck may be stuck with it, so another one looks.
            let maps = |process: u32| {
                let looked = Command::new("timeout")
                    .args(["-s", "KILL", "10", "cat", &format!("/proc/{process}/maps")])
                    .output();
                String::from_utf8_lossy(&looked.expect("timeout starts").stdout).into_owned()
            };
            let serving = process.0.id();
            let children = fs::read_to_string(format!("/proc/{serving}/task/{serving}/children"));
            let children = children.unwrap_or_default();
            let of_children = children.split_whitespace().map(|child| maps(child.parse().expect("a number")));
            look(maps(serving), of_children.collect());
            std::thread::sleep(Duration::from_millis(20));
        };
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        Run { code: status.code().unwrap_or(-1), text, json: Value::Null, folder: PathBuf::new() }
    }

    /// Ends every connection of a FUSE file system below our folder: whoever waits for one gets an error.
    fn abort_connections(&self) {
        let ours = self.folder.path().to_string_lossy().into_owned();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for line in mounts.lines().filter(|line| line.contains(&ours) && line.contains("fuse.rotproof")) {
            // Names of folders of tests hold no blanks.
            let _ = line.split(' ').nth(4).map(|point| rotproof_export::abort_path(Path::new(point)));
        }
    }

    pub fn shell(&self, script: &str) -> String {
        let output = Command::new("bash").args(["-ec", script]).output().expect("bash starts");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What a script says that runs in the folder of this test; `$ROTPROOF` in it is the command, with the test's own state.
    pub fn script(&self, text: &str) -> String {
        let ours = self.command(&[]);
        let mut command = Command::new("bash");
        command.args(["-ec", text]).current_dir(self.folder.path()).env("ROTPROOF", ours.get_program());
        ours.get_envs().for_each(|(name, value)| {
            command.env(name, value.unwrap_or_default());
        });
        let output = command.stdin(Stdio::null()).output().expect("bash starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Mounts below our folder and loop devices over files below it.
    pub fn leftovers(&self) -> Vec<String> {
        let ours = self.folder.path().to_string_lossy().into_owned();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut found: Vec<String> =
            mounts.lines().filter(|line| line.contains(&ours)).map(str::to_owned).collect();
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if backing.contains(&ours) && !backing.contains("foreign.img") {
                found.push(format!(
                    "loop fuse {} over {}",
                    entry.file_name().to_string_lossy(),
                    backing.trim()
                ));
            }
        }
        found
    }

    pub fn assert_nothing_left(&self) {
        assert_eq!(self.leftovers(), Vec::<String>::new());
    }

    /// A file system of that size in memory.
    pub fn small_folder(&self, size: &str) -> SmallFolder {
        let path = tempfile::Builder::new().prefix("small-").tempdir().expect("a folder").keep();
        self.shell(&format!("mount -t tmpfs -o size={size} none {}", path.display()));
        SmallFolder(path)
    }

    /// A loop device that belongs to somebody else.
    pub fn foreign_loop(&self) -> ForeignLoop {
        let image = self.path("foreign.img");
        let device = self.shell(&format!("truncate -s 1M {0} && losetup -f --show {0}", image.display()));
        ForeignLoop(PathBuf::from(device.trim()))
    }
}

/// Nothing that a test waits for takes longer.
const DEADLINE: Duration = Duration::from_secs(60);

/// The binary at work; killed if a test does not wait for its end.
pub struct Process(Child);

impl Process {
    /// Whether it has worked for longer than everything before the load ever takes; programs that are called count for
    /// themselves.
    pub fn has_used_time(&self) -> bool {
        cpu_ticks(self.0.id()) >= LOAD_RUNS_TICKS
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Processor time of a process, in hundredths of a second.
fn cpu_ticks(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which ends with the last parenthesis, the 12th and 13th fields.
    let fields = status.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// In hundredths of a second.
const LOAD_RUNS_TICKS: u64 = 30;

/// Gone with everything in it when it is dropped.
pub struct SmallFolder(PathBuf);

impl SmallFolder {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallFolder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

pub struct ForeignLoop(PathBuf);

impl ForeignLoop {
    pub fn is_attached(&self) -> bool {
        let name = self.0.file_name().expect("a device has a name");
        Path::new("/sys/block").join(name).join("loop/backing_file").exists()
    }
}

impl Drop for ForeignLoop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}
