//! What processes have used so far: Rotproof itself, and those that were named.
//!
//! To find processes by their names takes a look at every process of the machine, so that is done now and then, and in
//! between only those found are looked at.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use procfs_core::FromRead;
use procfs_core::process::Stat;

/// Of all processes of one name together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessCounters {
    /// Processor time in ticks.
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub resident_bytes: u64,
    pub threads: u64,
    /// Of those that still run only; known of Rotproof alone.
    pub context_switches: Option<u64>,
    /// A number that changes when other processes are counted than before: differences then mean nothing.
    pub generation: u64,
}

/// How long found processes are taken to be all there are.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// The processes of one name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    name: String,
    found: Vec<u32>,
    searched: Option<Instant>,
    generation: u64,
}

impl Named {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), found: Vec::new(), searched: None, generation: 0 }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What they have used so far; none if there is no such process.
    pub(crate) fn read(&mut self, proc: &Path, page_bytes: u64) -> Option<ProcessCounters> {
        if self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH_EVERY) {
            self.searched = Some(Instant::now());
            let found = find(proc, &self.name);
            if found != self.found {
                self.found = found;
                self.generation += 1;
            }
        }
        let before = self.found.len();
        let mut sum = ProcessCounters::default();
        self.found.retain(|process| match read(proc, &process.to_string(), page_bytes) {
            Some(one) => {
                sum.user_ticks += one.user_ticks;
                sum.system_ticks += one.system_ticks;
                sum.resident_bytes += one.resident_bytes;
                sum.threads += one.threads;
                true
            }
            None => false,
        });
        self.generation += u64::from(self.found.len() != before);
        (!self.found.is_empty()).then_some(ProcessCounters { generation: self.generation, ..sum })
    }
}

/// What one process, a number or `self`, has used so far.
pub(crate) fn read(proc: &Path, process: &str, page_bytes: u64) -> Option<ProcessCounters> {
    let text = fs::read(proc.join(process).join("stat")).ok()?;
    let stat = Stat::from_read(text.as_slice()).ok()?;
    Some(ProcessCounters {
        user_ticks: stat.utime,
        system_ticks: stat.stime,
        resident_bytes: stat.rss.saturating_mul(page_bytes),
        threads: u64::try_from(stat.num_threads).unwrap_or_default(),
        context_switches: None,
        generation: 0,
    })
}

/// The numbers of all processes of that name, in order.
fn find(proc: &Path, name: &str) -> Vec<u32> {
    let matches = |found: &str| match name.strip_suffix('*') {
        Some(beginning) => found.starts_with(beginning),
        None => found == name,
    };
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut found: Vec<u32> = numbers
        .filter(|number| {
            // A process may end between the look at the folder and this.
            fs::read_to_string(proc.join(number.to_string()).join("comm"))
                .is_ok_and(|found| matches(found.trim_end_matches('\n')))
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(proc: &Path, number: u32, name: &str, user_ticks: u64) {
        let folder = proc.join(number.to_string());
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("comm"), format!("{name}\n")).expect("written");
        let stat = format!(
            "{number} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {user_ticks} 7 0 0 20 0 3 0 100 1000000 25 18446744073709551615 \
             0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        );
        fs::write(folder.join("stat"), stat).expect("written");
    }

    #[test]
    fn processes_of_one_name_are_added_up() {
        let proc = tempfile::tempdir().expect("a folder");
        process(proc.path(), 12, "nbdkit", 40);
        process(proc.path(), 7, "nbdkit", 2);
        process(proc.path(), 9, "a) b", 5);
        fs::create_dir(proc.path().join("bus")).expect("a folder that is no process");
        let found = Named::new("nbdkit").read(proc.path(), 4096).expect("it is there");
        let wanted = ProcessCounters {
            user_ticks: 42,
            system_ticks: 14,
            resident_bytes: 2 * 25 * 4096,
            threads: 6,
            context_switches: None,
            generation: 1,
        };
        assert_eq!(found, wanted);
        assert_eq!(Named::new("nbd*").read(proc.path(), 4096), Some(wanted));
        assert_eq!(Named::new("a) b").read(proc.path(), 4096).map(|found| found.user_ticks), Some(5));
        assert_eq!(Named::new("nbd").read(proc.path(), 4096), None);
    }

    #[test]
    fn a_process_that_ends_makes_another_generation() {
        let proc = tempfile::tempdir().expect("a folder");
        process(proc.path(), 7, "nbdkit", 2);
        process(proc.path(), 8, "nbdkit", 3);
        let mut named = Named::new("nbdkit");
        let first = named.read(proc.path(), 1).expect("there");
        assert_eq!(named.read(proc.path(), 1), Some(first));
        fs::remove_dir_all(proc.path().join("7")).expect("gone");
        let then = named.read(proc.path(), 1).expect("one is left");
        assert!(then.generation != first.generation && then.user_ticks == 3);
        fs::remove_dir_all(proc.path().join("8")).expect("gone");
        assert_eq!(named.read(proc.path(), 1), None);
    }

    #[test]
    fn this_process_is_found_in_the_real_folder() {
        let found = read(Path::new("/proc"), "self", 4096).expect("we are running");
        assert!(found.resident_bytes > 0 && found.threads > 0, "{found:?}");
    }
}
