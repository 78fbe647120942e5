//! The initial file system of the guest: programs of this machine with their libraries, and modules of the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::log_writes;

/// The driver that comes later than the others.
pub const UBLK: &str = "drivers/block/ublk_drv.ko";

/// The modules that the guest loads, in that order.
pub const MODULES: [&str; 5] = [
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
    "drivers/block/virtio_blk.ko",
    "drivers/block/nbd.ko",
];

/// Where the guest finds a module.
pub fn module_path(module: &str) -> String {
    format!("/modules/{}", module.rsplit('/').next().unwrap_or(module))
}

/// The kernel for guests, brought here if it is not there yet: the image, and the folder of its modules.
pub fn kernel() -> (PathBuf, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-kernel");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guest/fetch-kernel");
    let status = Command::new(&script).arg(&folder).status().expect("bash starts");
    assert!(status.success(), "{} has not brought a kernel, see above", script.display());
    (folder.join("vmlinuz"), folder.join("modules"))
}

/// Writes the file system to `path`: `init` as the first process, and `programs` under the names given.
pub fn write(path: &Path, modules: &Path, init: &Path, programs: &[(&str, &Path)]) {
    let scratch = tempfile::tempdir().expect("a folder");
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "run", "tmp", "mnt", "bin", "modules", "etc"] {
        archive.folder(folder);
    }
    archive.entry("dev/console", 0o020_600, (5, 1), &[]);
    let mut libraries = BTreeSet::new();
    for (name, program) in programs.iter().copied().chain([("init", init)]) {
        libraries.extend(libraries_of(program));
        // Most of a test program is what only debuggers read.
        let stripped = scratch.path().join("program");
        let status = Command::new("strip").arg("-o").arg(&stripped).arg(program).status();
        assert!(status.expect("strip is needed for this test").success());
        archive.file(name, &stripped);
    }
    for library in libraries {
        archive.file(library.to_str().expect("UTF-8").trim_start_matches('/'), &library);
    }
    for module in MODULES.into_iter().chain([UBLK]).chain(log_writes::MODULES) {
        let path = [modules.join(module), modules.join(format!("{module}.xz"))]
            .into_iter()
            .find(|path| path.exists());
        let path = path.unwrap_or_else(|| panic!("the kernel has no module {module}"));
        archive.file(module_path(module).trim_start_matches('/'), &path);
    }
    fs::write(path, archive.finish()).expect("written");
}

/// The shared libraries of a program, and the loader, as this machine finds them.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd is there");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// A cpio archive in the format "newc", which is what the kernel unpacks (`Documentation/driver-api/early-userspace`).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    fn folder(&mut self, name: &str) {
        if self.folders.insert(name.to_owned()) {
            self.entry(name, 0o040_755, (0, 0), &[]);
        }
    }

    /// A program's bytes, and the folders above it.
    fn file(&mut self, name: &str, from: &Path) {
        let steps: Vec<usize> = name.match_indices('/').map(|(at, _)| at).collect();
        for at in steps {
            self.folder(&name[..at]);
        }
        let data = fs::read(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        self.entry(name, 0o100_755, (0, 0), &data);
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.entries += 1;
        let name_bytes = name.len() as u32 + 1;
        let length = u32::try_from(data.len()).expect("less than 4 GiB");
        let fields = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name_bytes, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(data);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}
