//! A machine whose state is read: this one, or another whose `/proc` and `/sys` are in folders.
//!
//! What a kernel does not tell, because it is too old, built without it, or hides it in a container, is absent, with a note
//! that says so once; nothing here is an error.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rotproof_machine::ProcessorUse;

use crate::counters::{self, Counters};
use crate::processes::{self, Named};
use crate::spec::ProbesSpec;

/// Where to read what.
#[derive(Debug)]
pub struct Machine {
    name: String,
    proc: PathBuf,
    sys: PathBuf,
    /// Whether Rotproof runs on it.
    is_ours: bool,
    wanted: ProbesSpec,
    processes: Vec<Named>,
    /// Block devices of the subject, which are looked at whatever they are.
    subject_disks: BTreeSet<String>,
    page_bytes: u64,
    ticks_per_second: f64,
    notes: Vec<String>,
    noted: HashSet<PathBuf>,
    text: String,
}

/// What the machine is called that Rotproof runs on.
pub const LOCAL: &str = "local";
/// What Rotproof itself is called among the processes.
pub(crate) const OWN_NAME: &str = "rotproof";
/// A file of `/proc` that is longer says nothing about a machine of this world.
const TEXT_BYTES_MAX: u64 = 16 << 20;

impl Machine {
    /// This one.
    pub fn local(wanted: &ProbesSpec) -> Self {
        // SAFETY: both ask for a constant of the system and touch no memory.
        let (page, ticks) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE), libc::sysconf(libc::_SC_CLK_TCK)) };
        Self {
            is_ours: true,
            page_bytes: u64::try_from(page).unwrap_or(4096),
            ticks_per_second: ticks.max(1) as f64,
            ..Self::in_folders(LOCAL, "/proc", "/sys", wanted)
        }
    }

    /// One whose `/proc` and `/sys` are in these folders; its pages have 4 KiB and its ticks 10 ms.
    pub fn in_folders(
        name: &str,
        proc: impl Into<PathBuf>,
        sys: impl Into<PathBuf>,
        wanted: &ProbesSpec,
    ) -> Self {
        Self {
            name: name.to_owned(),
            proc: proc.into(),
            sys: sys.into(),
            is_ours: false,
            processes: wanted.processes.iter().map(|name| Named::new(name)).collect(),
            wanted: wanted.clone(),
            subject_disks: BTreeSet::new(),
            page_bytes: 4096,
            ticks_per_second: 100.0,
            notes: Vec::new(),
            noted: HashSet::new(),
            text: String::new(),
        }
    }

    /// As seen by somebody who does not run on it: without what this process does itself.
    #[must_use]
    pub fn without_ourselves(self) -> Self {
        Self { is_ours: false, ..self }
    }

    /// What series call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is absent, and why; once each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Ticks of processor time in a second.
    pub(crate) fn ticks_per_second(&self) -> f64 {
        self.ticks_per_second
    }

    /// Looks at this block device too, such as `loop3`: it belongs to the subject.
    pub fn add_subject_disk(&mut self, name: &str) {
        self.subject_disks.insert(name.to_owned());
    }

    /// Whether a block device of that name belongs to the subject.
    pub fn is_of_subject(&self, disk: &str) -> bool {
        self.subject_disks.contains(disk)
    }

    /// Reads everything that is wanted.
    pub fn read(&mut self) -> Counters {
        let mut found = Counters::default();
        if self.wanted.cpu {
            found.cpu = self.parse("stat", counters::cpu);
        }
        if self.wanted.memory {
            found.memory = self.parse("meminfo", counters::memory);
            let page_bytes = self.page_bytes;
            found.swap = self.parse("vmstat", |text| counters::swap(text, page_bytes));
        }
        if self.wanted.network {
            found.interfaces = self.parse("net/dev", counters::interfaces).unwrap_or_default();
            found.retransmits = self.parse("net/snmp", counters::retransmits);
        }
        if self.wanted.disks {
            let (block, subject_disks) = (self.sys.join("block"), self.subject_disks.clone());
            let is_wanted = |name: &str| subject_disks.contains(name) || is_real_disk(&block, name);
            found.disks =
                self.parse("diskstats", |text| counters::disks(text, is_wanted)).unwrap_or_default();
        }
        if self.wanted.pressure {
            for (resource, file) in
                [("cpu", "pressure/cpu"), ("memory", "pressure/memory"), ("io", "pressure/io")]
            {
                found
                    .pressure
                    .extend(self.parse(file, counters::pressure).map(|counters| (resource, counters)));
            }
        }
        self.read_processes(&mut found);
        found
    }

    fn read_processes(&mut self, found: &mut Counters) {
        let (proc, page_bytes) = (&self.proc, self.page_bytes);
        if self.is_ours
            && let Some(mut own) = processes::read(proc, "self", page_bytes)
        {
            own.context_switches = ProcessorUse::of_process().ok().map(|used| used.context_switches());
            found.processes.insert(OWN_NAME.to_owned(), own);
        }
        for named in &mut self.processes {
            if let Some(counters) = named.read(proc, page_bytes) {
                found.processes.insert(named.name().to_owned(), counters);
            }
        }
    }

    fn parse<T>(&mut self, file: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let path = self.proc.join(file);
        self.text.clear();
        let read =
            File::open(&path).and_then(|file| file.take(TEXT_BYTES_MAX).read_to_string(&mut self.text));
        let parsed = match read {
            Ok(_) => parse(&self.text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err("this kernel has no such file".into())
            }
            Err(error) => Err(error.to_string()),
        };
        match parsed {
            Ok(value) => Some(value),
            Err(why) => {
                self.note(&path, &why);
                None
            }
        }
    }

    fn note(&mut self, path: &Path, why: &str) {
        if !self.noted.contains(path) {
            self.noted.insert(path.to_owned());
            self.notes.push(format!("{}: {why}", path.display()));
        }
    }
}

/// Whether it is a whole disk and not a part of one, and not one of those that memory or files are behind.
fn is_real_disk(block: &Path, name: &str) -> bool {
    let is_made_up = ["loop", "ram", "zram", "nbd", "fd", "sr"].iter().any(|kind| {
        name.strip_prefix(kind).is_some_and(|rest| rest.bytes().next().is_some_and(|c| c.is_ascii_digit()))
    });
    // A slash in the name of a device is an exclamation mark in that of its folder.
    !is_made_up && block.join(name.replace('/', "!")).exists()
}

/// Texts as a kernel wrote them, for tests.
#[cfg(test)]
pub(crate) mod recorded {
    pub(crate) const STAT: &str = "\
cpu  2010 5 800 9000 400 12 30 3 9 0
cpu0 1010 5 400 4500 200 6 15 2 9 0
cpu1 1000 0 400 4500 200 6 15 1 0 0
intr 123456 0 9 0 0
ctxt 987654
btime 1700000000
processes 4321
procs_running 3
procs_blocked 1
softirq 5 1 2 3
";
    pub(crate) const MEMINFO: &str = include_str!("recorded/meminfo");
    pub(crate) const VMSTAT: &str = "nr_free_pages 256\npswpin 11\npswpout 22\nworkingset_nodes 0\n";
    pub(crate) const NET_DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 5000 50 0 0 0 0 0 0 5000 50 0 0 0 0 0 0
  eth0: 1000 10 0 3 0 0 0 0 2000 20 0 4 0 0 0 0
  eth1:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
";
    pub(crate) const SNMP: &str = "\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens OutSegs RetransSegs InErrs
Tcp: 1 200 120000 -1 5 6 77 0
Udp: InDatagrams
Udp: 3
";
    pub(crate) const DISKSTATS: &str = "\
   7       3 loop3 10 0 80 4 5 0 40 2 0 3 6 0 0 0 0 1 1
   1       0 ram0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 100 2 800 40 50 1 400 50 1 70 90 0 0 0 0 3 4
 254       1 vda1 100 2 800 40 50 1 400 50 0 70 90
";
    pub(crate) const PRESSURE: &str = "\
some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000
full avg10=0.00 avg60=0.00 avg300=0.00 total=500000
";

    /// A folder with `proc` and `sys` of these texts.
    pub(crate) fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (file, text) in [
            ("proc/stat", STAT),
            ("proc/meminfo", MEMINFO),
            ("proc/vmstat", VMSTAT),
            ("proc/net/dev", NET_DEV),
            ("proc/net/snmp", SNMP),
            ("proc/diskstats", DISKSTATS),
            ("proc/pressure/cpu", PRESSURE),
            ("proc/pressure/memory", PRESSURE),
            ("proc/pressure/io", PRESSURE),
            ("sys/block/vda/stat", ""),
            ("sys/block/loop3/stat", ""),
            ("sys/block/ram0/stat", ""),
        ] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("written");
        }
        folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(folder: &Path, wanted: &ProbesSpec) -> Machine {
        Machine::in_folders("recorded", folder.join("proc"), folder.join("sys"), wanted)
    }

    #[test]
    fn everything_is_found_in_recorded_texts() {
        let folder = recorded::folder();
        let mut machine = machine(folder.path(), &ProbesSpec::default());
        machine.add_subject_disk("loop3");
        let found = machine.read();
        assert!(found.cpu.is_some() && found.memory.is_some() && found.swap.is_some());
        assert_eq!(found.interfaces.len(), 2);
        assert_eq!(
            found.disks.keys().collect::<Vec<_>>(),
            ["loop3", "vda"],
            "the subject's and the whole disk"
        );
        assert_eq!(found.pressure.len(), 3);
        assert!(found.processes.is_empty(), "Rotproof does not run on that one");
        assert_eq!(machine.notes(), [""; 0]);
    }

    #[test]
    fn what_is_not_there_is_absent_with_one_note_and_no_error() {
        let folder = recorded::folder();
        std::fs::remove_dir_all(folder.path().join("proc/pressure")).expect("gone");
        std::fs::write(folder.path().join("proc/stat"), "cpu nonsense\n").expect("written");
        let mut machine = machine(folder.path(), &ProbesSpec::default());
        for _ in 0..3 {
            let found = machine.read();
            assert!(found.pressure.is_empty() && found.cpu.is_none() && found.memory.is_some());
        }
        assert_eq!(machine.notes().len(), 4, "{:?}", machine.notes());
        assert!(
            machine.notes()[1].ends_with("pressure/cpu: this kernel has no such file"),
            "{:?}",
            machine.notes()
        );
    }

    #[test]
    fn only_what_is_wanted_is_read() {
        let wanted = ProbesSpec {
            cpu: false,
            memory: false,
            network: false,
            disks: false,
            pressure: false,
            ..ProbesSpec::default()
        };
        let mut machine = Machine::in_folders("none", "/nowhere", "/nowhere", &wanted);
        assert_eq!(machine.read(), Counters::default());
        assert_eq!(machine.notes(), [""; 0]);
    }

    #[test]
    fn this_machine_tells_of_its_processors_memory_and_of_this_process() {
        let found = Machine::local(&ProbesSpec::default()).read();
        assert!(found.cpu.is_some_and(|cpu| cpu.total > 0) && found.memory.is_some());
        assert!(found.processes[OWN_NAME].context_switches.is_some());
    }
}
