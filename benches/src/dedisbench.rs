//! The way DEDISbench works - 4 KiB blocks one after the other, contents that repeat as in a given data set, one core, a
//! new file through the page cache, in memory - by our load and by DEDISbench itself, in turns.
//!
//! Source: J. Paulo, P. Reis, J. Pereira, A. Sousa, DEDISbench: A Benchmark for Deduplicated Storage Systems, 2012; its
//! program from its public repository, built here. Its rate is the one that it prints, which begins with the first write.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rotproof_block::error::IoContext;
use rotproof_block::leaf::FileOptions;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_load::{BlockingFile, DeviceDriver, Driver, Duplicates, LoadSpec, Oracle, Workload};
use rotproof_spec::Bytes;
use tempfile::TempDir;

use crate::content::phase;
use crate::figure::{Bar, Figure, in_turns};
use crate::{Effort, machine};

const REPOSITORY: &str = "https://github.com/jtpaulo/dedisbench";
const COMMIT: &str = "0956b9d7b12f2f05fb85708191c2c01f084a2efa";
/// Its program's, by its `Makefile.am`.
const SOURCES: [&str; 11] = [
    "DEDISbench.c",
    "benchcore/accesses/iodist.c",
    "benchcore/duplicates/duplicatedist.c",
    "benchcore/io.c",
    "benchcore/sharedmem/sharedmem.c",
    "io/plotio.c",
    "parserconf/inih/ini.c",
    "populate/populate.c",
    "utils/db/berk.c",
    "utils/random/random.c",
    "utils/utils.c",
];
const PACKAGES: &str = "gcc libdb-dev libssl-dev";
/// Both take this one, a file of DEDISbench: 40 versions of the Linux kernel.
const DISTRIBUTION: &str = "conf/dist_kernels";

const FILE_BYTES: u64 = 1 << 30;
const FILE_BYTES_QUICK: u64 = 256 << 20;
const CORE: usize = 0;

/// Blocks a second. Where DEDISbench cannot be had the row is left out, and that is said.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let peer = match DedisBench::build() {
        Ok(peer) => peer,
        Err(error) => {
            eprintln!("content: no row for DEDISbench: {error}");
            return Ok(());
        }
    };
    let bytes = if effort.is_quick { FILE_BYTES_QUICK } else { FILE_BYTES };
    let folder = TempDir::new_in("/dev/shm").map_err(machine::no_folder)?;
    let distribution = peer.folder.join(DISTRIBUTION);
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        rounds.push(in_turns(
            round,
            || on_one_core(|| ours(&distribution, folder.path(), bytes)),
            || peer.blocks_per_second(folder.path(), bytes),
        )?);
    }
    let rounds: Vec<(f64, f64)> = rounds.into_iter().map(|(ours, peer)| (ours / 1e3, peer / 1e3)).collect();
    let name = "4 KiB, one core, duplicates; DEDISbench";
    found(Figure::from_rounds(name, "k/s", &rounds, Some(Bar::AtLeast(2.0))));
    Ok(())
}

/// Blocks a second of our load, to a new file, by `pwrite` as DEDISbench.
fn ours(distribution: &Path, folder: &Path, bytes: u64) -> Result<f64> {
    let path = folder.join("ours");
    let options =
        FileOptions { size_bytes: Some(bytes), create: true, direct: false, ..FileOptions::default() };
    let driver = DeviceDriver::new(BlockingFile::open(&path, options)?)?;
    let spec = LoadSpec {
        total: Some(Bytes(bytes)),
        duplicates: Duplicates::File(distribution.to_owned()),
        prefill: Some(false),
        ..LoadSpec::default()
    };
    let workload = Workload::new(&spec, 1, driver.objects())?;
    let report = phase(&workload, &driver, &mut Oracle::new(&workload), Phase::Run)?;
    drop(driver);
    fs::remove_file(&path).doing(|| format!("removing {}", path.display()))?;
    Ok(report.writes.requests as f64 / report.elapsed().as_secs_f64())
}

/// Keeps what `work` does, and the threads it starts, on one core.
fn on_one_core<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: a set of bits, of which none is set.
    let (mut before, mut one): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: both sets live across the calls, and are of the size that is said.
    let is_set = unsafe {
        libc::CPU_SET(CORE, &mut one);
        libc::sched_getaffinity(0, size, &raw mut before) == 0
            && libc::sched_setaffinity(0, size, &raw const one) == 0
    };
    if !is_set {
        return Err(Error::from_io(std::io::Error::last_os_error(), "staying on one core"));
    }
    let result = work();
    // SAFETY: as above. It was so before, so it can be so again.
    unsafe { libc::sched_setaffinity(0, size, &raw const before) };
    result
}

/// The program, and its repository.
struct DedisBench {
    folder: PathBuf,
    program: PathBuf,
}

impl DedisBench {
    /// Finds it beside our own programs, or fetches and builds it there.
    fn build() -> Result<Self> {
        let ours = std::env::current_exe().doing(|| "finding the programs of the benchmarks".into())?;
        let folder = ours.with_file_name("dedisbench");
        let this = Self { program: folder.join("DEDISbench"), folder };
        if this.program.exists() {
            return Ok(this);
        }
        if !this.folder.join(SOURCES[0]).exists() {
            this.fetch()?;
        }
        machine::install(PACKAGES)?;
        let mut compile = Command::new("gcc");
        compile.current_dir(&this.folder).args(["-O2", "-w", "-Iutils/random/randomgen"]);
        compile.arg("-DINI_INLINE_COMMENT_PREFIXES=\"#\"").args(SOURCES);
        compile.args(["-ldb", "-lm", "-lssl", "-lcrypto", "-o", "DEDISbench"]);
        done(compile, "building DEDISbench")?;
        Ok(this)
    }

    fn fetch(&self) -> Result<()> {
        machine::need("git", "git")?;
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", REPOSITORY]).arg(&self.folder).env("GIT_TERMINAL_PROMPT", "0");
        let folder = self.folder.display();
        done(clone, &format!("{REPOSITORY} is not reachable (a clone of it can be put at {folder})"))?;
        let mut checkout = Command::new("git");
        checkout.current_dir(&self.folder).args(["checkout", "--quiet", COMMIT]);
        done(checkout, "checking out the version that is measured").map(drop)
    }

    /// What it says of one run, in a new file.
    fn blocks_per_second(&self, folder: &Path, bytes: u64) -> Result<f64> {
        let making = || "making the configuration of DEDISbench".to_owned();
        // It empties and leaves these in its current folder.
        let here = TempDir::new_in(folder).map_err(machine::no_folder)?;
        fs::create_dir(here.path().join("results")).doing(making)?;
        let megabytes = bytes >> 20;
        let configuration = format!(
            "[execution]\ndistfile={}\naccess_type=0\nnprocs=1\nfilesize={megabytes}\nblocksize=4096\nsync=0\n\
             seed=1\n[results]\ntempfilespath={}/\n[structural]\n",
            self.folder.join(DISTRIBUTION).display(),
            here.path().display(),
        );
        fs::write(here.path().join("configuration"), configuration).doing(making)?;
        let mut command = Command::new("taskset");
        command.args(["-c", &CORE.to_string()]).arg(&self.program).current_dir(here.path());
        command.args(["-p", "-w", &format!("-s{megabytes}"), "-fconfiguration"]);
        let text = done(command, "running DEDISbench")?;
        let rate = text.split("Throughput: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        rate.ok_or_else(|| Error::new(ErrorKind::Internal, format!("DEDISbench says no throughput:\n{text}")))
    }
}

/// What a program printed; fails if it does.
fn done(mut command: Command, doing: &str) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().doing(|| doing.to_owned())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(ErrorKind::Missing, format!("{doing}: {}", said.trim())))
}
