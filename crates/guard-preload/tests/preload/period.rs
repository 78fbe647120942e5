//! A flip in each period of a block's life, with real processes, a real page cache and a real disk: the table that
//! `rotproof_guard::simulate` makes by simulation, once more. A writer and a reader halt in each period, and bits flip then: in
//! their memory from outside, in the page cache below them, on the disk below that. As root, for the disk is an ext4 of its own.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use rotproof_guard::simulate::{Fate, Period};
use rotproof_guard::{GuardedFile, Store, StoreOptions, Trouble};
use tempfile::TempDir;

use crate::rig::library;

const BLOCK: usize = 4096;
/// Blocks of a file, in each of which a bit flips.
const BLOCKS: usize = 64;
/// Files for each cell of the table in the documentation: more than a thousand flips.
const FILES: usize = 16;
const BEGIN: &str = "<!-- real period table -->\n";
const END: &str = "<!-- end of the real period table -->";

/// Who carries the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// ext4, by a program.
    Plain,
    /// The same program with the library in front of the C library, as `rotproof guard run` does it.
    Run,
    /// A program that uses the library, with sums that it makes and verifies itself.
    Library,
}

const CARRIERS: [Carrier; 3] = [Carrier::Plain, Carrier::Run, Carrier::Library];

/// An ext4 of its own, in a file, so that the disk below its page cache can be changed.
struct Ground {
    folder: TempDir,
    program: PathBuf,
}

impl Ground {
    fn new() -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let program = folder.path().join("period");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/preload/period.c");
        let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status();
        assert!(built.expect("a compiler").success());
        let image = File::create(folder.path().join("image")).expect("an image");
        image.set_len(64 << 20).expect("room");
        let shell =
            "mkfs.ext4 -q -b 4096 -F image && mkdir disk && mount -o loop image disk && mkdir disk/guarded";
        let done =
            Command::new("sh").args(["-ec", shell]).current_dir(folder.path()).output().expect("a shell");
        assert!(done.status.success(), "as root: {}", String::from_utf8_lossy(&done.stderr));
        let ground = Self { folder, program };
        drop(Store::init(&ground.root(), None, StoreOptions::default()).expect("a guard"));
        ground
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("disk/guarded")
    }

    fn start(&self, carrier: Carrier, what: &str, path: &Path) -> Halting {
        let mut command = Command::new(&self.program);
        command.arg(what).arg(path).arg(BLOCKS.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        if carrier == Carrier::Run {
            command.env("LD_PRELOAD", library()).env("ROTPROOF_GUARD_ROOT", self.root());
        }
        let mut child = command.spawn().expect("started");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Halting { child, to, from: BufReader::new(from) }
    }

    /// Changes a bit of each block of a file on the disk, below ext4, and gives what undoes it.
    fn flip_image(&self, path: &Path) -> Vec<(u64, u8)> {
        let file = File::open(path).expect("a file");
        let image = self.image();
        let flips: Vec<(u64, u8, u8)> = (0..BLOCKS)
            .map(|block| {
                let mut place = block as libc::c_int;
                // SAFETY: FIBMAP, with the number of a block of the file, which becomes that of the disk.
                let asked = unsafe { libc::ioctl(file.as_raw_fd(), 1, &raw mut place) };
                assert!(asked == 0 && place > 0, "{}", std::io::Error::last_os_error());
                let (byte, bit) = place_of(block);
                let place = place as u64 * BLOCK as u64 + byte as u64;
                let mut was = [0];
                image.read_exact_at(&mut was, place).expect("read");
                (place, was[0], was[0] ^ bit)
            })
            .collect();
        self.write_image(&flips.iter().map(|(place, _, flipped)| (*place, *flipped)).collect::<Vec<_>>());
        flips.into_iter().map(|(place, was, _)| (place, was)).collect()
    }

    fn image(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.folder.path().join("image")).expect("the image")
    }

    fn write_image(&self, bytes: &[(u64, u8)]) {
        let image = self.image();
        bytes.iter().for_each(|(place, byte)| image.write_all_at(&[*byte], *place).expect("changed"));
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path().join("disk")).status();
    }
}

/// Which byte of a block changes, and which bit of that.
fn place_of(block: usize) -> (usize, u8) {
    (block * 1237 % BLOCK, 1 << (block % 8))
}

/// Nothing of a file stays in the page cache.
fn drop_cache(path: &Path) {
    let file = File::open(path).expect("the file");
    file.sync_all().expect("durable");
    // SAFETY: takes an open descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Stores into the pages that the kernel has cached, as another process that maps them.
fn flip_cached(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the file");
    let bytes = BLOCKS * BLOCK;
    // SAFETY: a fresh mapping of a file that is so long, undone before this returns.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        for block in 0..BLOCKS {
            let (byte, bit) = place_of(block);
            *start.cast::<u8>().add(block * BLOCK + byte) ^= bit;
        }
        libc::munmap(start, bytes);
    }
}

/// A program that halts.
struct Halting {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Halting {
    /// The number of the line that begins with a word.
    fn wait_for(&mut self, word: &str) -> u64 {
        let line = self.line();
        let number = line.strip_prefix(word).and_then(|rest| rest.trim().parse().ok());
        number.unwrap_or_else(|| panic!("it said `{line}` and not `{word}`"))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn go_on(&mut self) {
        self.to.write_all(b"\n").expect("it waits");
    }

    fn end(mut self) {
        self.go_on();
        assert!(self.child.wait().expect("ended").success());
    }

    fn memory(&self) -> File {
        let path = format!("/proc/{}/mem", self.child.id());
        OpenOptions::new().read(true).write(true).open(path).expect("its memory")
    }

    /// Changes a bit in its memory of each block that lies there one after the other.
    fn flip_memory(&self, address: u64) {
        (0..BLOCKS).for_each(|block| flip_byte(&self.memory(), address + (block * BLOCK) as u64, block));
    }

    /// Lets it go on, and changes a bit of each block at the moment when the system call is made that writes it to the file: its
    /// sum has been made by then.
    fn flip_at_writes(&mut self, address: u64) {
        let process = self.child.id().cast_signed();
        let trace = |request, data: usize| {
            // SAFETY: a process that this thread started; what is written to lies in this frame.
            let done = unsafe { libc::ptrace(request, process, 0usize, data) };
            assert!(done >= 0, "{}", std::io::Error::last_os_error());
        };
        let wait = || {
            let mut status = 0;
            // SAFETY: waits for that process.
            assert_eq!(unsafe { libc::waitpid(process, &raw mut status, libc::__WALL) }, process);
            assert!(libc::WIFSTOPPED(status), "it ended: {status:x}");
            libc::WSTOPSIG(status)
        };
        trace(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACESYSGOOD as usize);
        trace(libc::PTRACE_INTERRUPT, 0);
        wait();
        self.go_on();
        let memory = self.memory();
        let mut block = 0;
        while block < BLOCKS {
            trace(libc::PTRACE_SYSCALL, 0);
            if wait() != libc::SIGTRAP | 0x80 {
                continue;
            }
            // SAFETY: all zeros is a valid value of it.
            let mut now: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
            // SAFETY: the kernel writes at most so many bytes there.
            let got = unsafe {
                libc::ptrace(
                    libc::PTRACE_GET_SYSCALL_INFO,
                    process,
                    size_of_val(&now),
                    (&raw mut now).cast::<libc::c_void>(),
                )
            };
            assert!(got > 0);
            if now.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
                continue;
            }
            // SAFETY: it is an entry.
            let (number, arguments) = unsafe { (now.u.entry.nr, now.u.entry.args) };
            let from = address + (block * BLOCK) as u64;
            if number == libc::SYS_pwrite64.cast_unsigned() && arguments[1] == from {
                flip_byte(&memory, from, block);
                block += 1;
            }
        }
        trace(libc::PTRACE_DETACH, 0);
    }
}

impl Drop for Halting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn flip_byte(memory: &File, block_at: u64, block: usize) {
    let (at, bit) = place_of(block);
    let mut byte = [0];
    memory.read_exact_at(&mut byte, block_at + at as u64).expect("its memory");
    memory.write_all_at(&[byte[0] ^ bit], block_at + at as u64).expect("changed");
}

/// What became of the blocks of a file, in each of which a bit flipped in a period.
fn lives(ground: &Ground, carrier: Carrier, period: Period) -> Vec<Fate> {
    let path = ground.root().join("file");
    let (is_written_again, is_told) = match carrier {
        Carrier::Library => write_by_library(&path, period),
        Carrier::Plain | Carrier::Run => write_by_program(ground, carrier, &path, period),
    };
    match period {
        Period::Disk => {
            drop_cache(&path);
            ground.flip_image(&path);
            drop_cache(&path);
        }
        Period::CleanCache => {
            drop_cache(&path);
            let right = ground.flip_image(&path);
            drop_cache(&path);
            // The cache takes what is on the disk; then the disk is right again.
            std::fs::read(&path).expect("read into the cache");
            ground.write_image(&right);
        }
        _ => {}
    }
    let found = match carrier {
        Carrier::Library => read_by_library(&path, period),
        Carrier::Plain | Carrier::Run => {
            let mut reader = ground.start(carrier, "read", &path);
            let address = reader.wait_for("arrived");
            if period == Period::ReaderMemory {
                reader.flip_memory(address);
            }
            reader.go_on();
            let found = reader.line();
            assert!(reader.child.wait().expect("ended").success());
            found
        }
    };
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(found.len(), BLOCKS);
    let fate = |seen| match seen {
        'x' => Fate::Silent,
        'E' => Fate::Refused,
        _ if is_written_again => Fate::WrittenAgain,
        _ if is_told => Fate::ToldByFsync,
        _ if matches!(period, Period::CleanCache | Period::ReaderMemory) => Fate::ReadAgain,
        _ => Fate::Harmless,
    };
    found.chars().map(fate).collect()
}

/// Whether writes failed, and whether the `fsync` did. Both were done again then.
fn write_by_program(ground: &Ground, carrier: Carrier, path: &Path, period: Period) -> (bool, bool) {
    let mut writer = ground.start(carrier, "write", path);
    let address = writer.wait_for("ready");
    match period {
        Period::BeforeSum => writer.flip_memory(address),
        Period::WriterMemory => writer.flip_at_writes(address),
        _ => {}
    }
    if period != Period::WriterMemory {
        writer.go_on();
    }
    let failed = writer.wait_for("written");
    if period == Period::DirtyCache {
        flip_cached(path);
    }
    writer.go_on();
    let told = writer.wait_for("synced");
    writer.end();
    (failed > 0, told > 0)
}

/// Bytes that repeat nowhere.
fn block_of(number: usize) -> Vec<u8> {
    let mut state = (number as u64 + 1).wrapping_mul(0xD134_2543_DE82_EF95) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..BLOCK).map(|_| next()).collect()
}

fn open(path: &Path) -> (Arc<Store>, Arc<GuardedFile>) {
    let store = Store::open(path.parent().expect("a folder"), None).expect("the guard");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.expect("a file");
    let guarded = GuardedFile::open(&store, file.as_raw_fd(), true, path).expect("guarded");
    (store, guarded)
}

fn write_by_library(path: &Path, period: Period) -> (bool, bool) {
    let (store, file) = open(path);
    let light = store.settings().pair.light;
    let (mut is_written_again, mut is_told) = (false, false);
    for block in 0..BLOCKS {
        let mut data = block_of(block);
        let (byte, bit) = place_of(block);
        if period == Period::BeforeSum {
            data[byte] ^= bit;
        }
        let sum = light.of(&data).word();
        if period == Period::WriterMemory {
            data[byte] ^= bit;
        }
        match file.write_with_sums(&data, (block * BLOCK) as u64, Some(&[sum])) {
            Ok(count) => assert_eq!(count, BLOCK),
            Err(Trouble::Boundary(_)) => {
                is_written_again = true;
                file.write_with_sums(&block_of(block), (block * BLOCK) as u64, Some(&[sum]))
                    .expect("written");
            }
            Err(trouble) => panic!("{trouble}"),
        }
    }
    if period == Period::DirtyCache {
        flip_cached(path);
    }
    if file.sync(false).is_err() {
        is_told = true;
        for block in 0..BLOCKS {
            file.write_at(&block_of(block), (block * BLOCK) as u64).expect("written");
        }
        file.sync(false).expect("durable");
    }
    (is_written_again, is_told)
}

fn read_by_library(path: &Path, period: Period) -> String {
    let (store, file) = open(path);
    let light = store.settings().pair.light;
    let look = |block: usize| {
        let mut data = vec![0; BLOCK];
        for is_again in [false, true] {
            let mut given = 0;
            let read = file.read_with_sums(&mut data, (block * BLOCK) as u64, &mut |sum| given = sum);
            if !matches!(read, Ok(BLOCK)) {
                return 'E';
            }
            if period == Period::ReaderMemory && !is_again {
                let (byte, bit) = place_of(block);
                data[byte] ^= bit;
            }
            // Where the data are used.
            if light.of(&data).word() == given {
                return if data == block_of(block) { '=' } else { 'x' };
            }
        }
        'E'
    };
    (0..BLOCKS).map(look).collect()
}

fn table(ground: &Ground, files: usize) -> String {
    let mut text =
        "| the bit flips in | ext4 alone | `guard run` | library, with sums |\n|---|---|---|---|\n"
            .to_owned();
    for period in Period::ALL {
        text += &format!("| {period} |");
        for carrier in CARRIERS {
            let seen: Vec<Fate> = (0..files).flat_map(|_| lives(ground, carrier, period)).collect();
            let words: Vec<String> = Fate::ALL
                .into_iter()
                .filter_map(|fate| {
                    let count = seen.iter().filter(|known| **known == fate).count();
                    match count {
                        0 => None,
                        _ if count == seen.len() => Some(fate.to_string()),
                        _ => Some(format!("{fate} {:.0}%", count as f64 * 100.0 / seen.len() as f64)),
                    }
                })
                .collect();
            text += &format!(" {} |", words.join(", "));
        }
        text += "\n";
    }
    text
}

/// `UPDATE_GUARD_TABLE=1 cargo test -p rotproof-guard-preload period` makes more than a thousand flips a cell and writes the table.
#[test]
fn the_period_table_of_real_processes_is_the_one_in_the_documentation() {
    let ground = Ground::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guard.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("a place for the table");
    let (shown, after) = rest.split_once(END).expect("its end");
    if std::env::var_os("UPDATE_GUARD_TABLE").is_some() {
        let table = table(&ground, FILES);
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).expect("written");
    } else {
        let table = table(&ground, 1);
        assert_eq!(shown, table, "UPDATE_GUARD_TABLE=1 cargo test -p rotproof-guard-preload period");
    }
}
