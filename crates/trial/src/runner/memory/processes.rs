//! The processes whose memory is meant: those of a command, the one that is the file system, or the one that guards it; what
//! each holds.

use std::path::{Path, PathBuf};

use rotproof_block::{ErrorKind, Result};
use rotproof_inject::{Memory, ProcessMemory, Region};

/// The variable by which the processes of a run are known; whatever the command starts inherits it.
pub(in crate::runner) const RUN_VARIABLE: &str = "ROTPROOF_RUN";

/// Where the processes are looked for.
#[derive(Clone, Debug)]
pub(in crate::runner) struct Processes {
    which: Which,
    /// Where files that rules name lie.
    folder: PathBuf,
}

#[derive(Clone, Debug)]
enum Which {
    /// The variable with its value, as it stands in their environment.
    Marked(String),
    /// The one with this number, by which the folder is served.
    FileSystem(u32),
    /// The one with this number, through which all goes that lies in the folder, and which keeps none of it.
    Guard(u32),
}

/// One that is there now.
#[derive(Debug)]
pub(super) struct Process<'a> {
    pub(super) pid: u32,
    /// As the kernel has it: the beginning of its program's name.
    pub(super) name: String,
    pub(super) memory: ProcessMemory,
    pub(super) regions: Vec<Region>,
    pub(super) folder: &'a Path,
    /// It is the file system in that folder, so what it reads of a file shows which copy is in use.
    pub(super) is_file_system: bool,
}

/// A line of the process table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    pid: u32,
    parent: u32,
    name: String,
    is_marked: bool,
}

impl Processes {
    /// Those whose environment has the variable with that value, and all that they have started.
    pub(in crate::runner) fn of_run(run: &str, folder: &Path) -> Self {
        Self { which: Which::Marked(format!("{RUN_VARIABLE}={run}")), folder: folder.to_owned() }
    }

    /// The process that is the file system in `folder`.
    pub(in crate::runner) fn of_file_system(pid: u32, folder: &Path) -> Self {
        Self { which: Which::FileSystem(pid), folder: folder.to_owned() }
    }

    /// The process that serves a guard's mount in `folder`.
    pub(in crate::runner) fn of_guard(pid: u32, folder: &Path) -> Self {
        Self { which: Which::Guard(pid), folder: folder.to_owned() }
    }

    /// Those that are there now, by their numbers. One that ends meanwhile is left out.
    pub(super) fn now(&self) -> Result<Vec<Process<'_>>> {
        let entries: Vec<Entry> = match &self.which {
            Which::FileSystem(pid) | Which::Guard(pid) => entry(*pid, b"").into_iter().collect(),
            Which::Marked(mark) => {
                let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
                let entries = numbers
                    .filter_map(|number| entry(number.file_name().to_str()?.parse().ok()?, mark.as_bytes()));
                of_the_run(entries.collect())
            }
        };
        let is_file_system = matches!(self.which, Which::FileSystem(_));
        let mut processes = Vec::new();
        for Entry { pid, name, .. } in entries {
            let opened = ProcessMemory::open(pid).and_then(|memory| Ok((memory.regions()?, memory)));
            match opened {
                Ok((regions, memory)) => {
                    let folder = &self.folder;
                    processes.push(Process { pid, name, memory, regions, folder, is_file_system });
                }
                // It has ended.
                Err(error) if error.kind() == ErrorKind::Gone => {}
                Err(error) if !Path::new(&format!("/proc/{pid}/maps")).exists() => drop(error),
                Err(error) => return Err(error),
            }
        }
        Ok(processes)
    }
}

fn entry(pid: u32, mark: &[u8]) -> Option<Entry> {
    let (parent, name) = parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)?;
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_marked = environment.split(|&byte| byte == 0).any(|word| word == mark);
    Some(Entry { pid, parent, name, is_marked })
}

/// Those that are marked, and those below them: a program may overwrite its environment with a title of its own.
fn of_the_run(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|entry| entry.pid);
    loop {
        let marked: Vec<u32> =
            entries.iter().filter(|entry| entry.is_marked).map(|entry| entry.pid).collect();
        let before = marked.len();
        for entry in &mut entries {
            entry.is_marked |= marked.binary_search(&entry.parent).is_ok();
        }
        if entries.iter().filter(|entry| entry.is_marked).count() == before {
            entries.retain(|entry| entry.is_marked);
            return entries;
        }
    }
}

/// The parent and the name in a line of `/proc/PID/stat` (proc(5)); the name stands in parentheses and may hold any.
fn parse_stat(line: &[u8]) -> Option<(u32, String)> {
    let line = String::from_utf8_lossy(line);
    let (start, end) = (line.find('(')?, line.rfind(')')?);
    let name = line.get(start + 1..end)?.to_owned();
    let parent = line.get(end + 1..)?.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((parent, name))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn entry(pid: u32, parent: u32, is_marked: bool) -> Entry {
        Entry { pid, parent, name: "x".to_owned(), is_marked }
    }

    #[test]
    fn what_a_process_of_the_run_has_started_is_of_the_run_too() {
        let entries = vec![entry(9, 7, false), entry(1, 0, false), entry(7, 3, false), entry(3, 1, true)];
        let found: Vec<u32> = of_the_run(entries).iter().map(|entry| entry.pid).collect();
        assert_eq!(found, [3, 7, 9]);
    }

    #[test]
    fn a_name_may_hold_parentheses() {
        assert_eq!(parse_stat(b"12 (a) b (c) S 7 12 12 0"), Some((7, "a) b (c".to_owned())));
        assert_eq!(parse_stat(b"12 a S"), None);
    }

    #[test]
    fn a_process_is_found_by_what_it_has_inherited() {
        let mark = format!("test-{}", std::process::id());
        let mut child = Command::new("sh")
            .args(["-c", "sleep 100 & wait"])
            .env(RUN_VARIABLE, &mark)
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell");
        let processes = Processes::of_run(&mark, Path::new("/"));
        let names = || -> Vec<String> {
            processes.now().expect("looked").into_iter().map(|process| process.name).collect()
        };
        while names() != ["sh", "sleep"] {
            std::thread::yield_now();
        }
        let found = processes.now().expect("looked");
        assert!(found.iter().all(|process| !process.regions.is_empty()), "{found:?}");
        for process in &found {
            Command::new("kill").arg(process.pid.to_string()).status().expect("ended");
        }
        child.wait().expect("it ends");
        while !names().is_empty() {
            std::thread::yield_now();
        }
    }
}
