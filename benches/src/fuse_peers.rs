//! Files that a loop device can be put on, served by us, by others, and by the smallest FUSE server there can be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_export::{FuseExport, FuseOptions, LoopDevice, LoopOptions, unmount_path};

use crate::fio::{self, Job, Target};
use crate::machine;
use crate::served::Run;

/// How long a server may take to have its file.
const PATIENCE: Duration = Duration::from_secs(10);
/// Whether the kernel sends FUSE requests by io_uring.
const RING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// A file under a loop device. Closed from the top down, in the order of the fields.
pub struct FusePeer {
    /// How figures call it.
    pub name: &'static str,
    loop_device: LoopDevice,
    serving: Serving,
}

enum Serving {
    Ours { _export: FuseExport },
    Processes(Processes),
    Nobody,
}

/// Programs that serve, the one with the mount last.
struct Processes {
    children: Vec<Child>,
    mountpoint: PathBuf,
}

impl FusePeer {
    /// Ours over the memory leaf; requests come by io_uring or by the FUSE device.
    pub fn ours(folder: &Path, size_bytes: u64, by_ring: bool) -> Result<Self> {
        let name = if by_ring { "ring" } else { "device" };
        Self::ours_over(MemoryDevice::new(size_bytes, 512)?, folder, name, by_ring)
    }

    /// Ours over any device.
    pub fn ours_over(
        device: Arc<dyn Device>,
        folder: &Path,
        name: &'static str,
        by_ring: bool,
    ) -> Result<Self> {
        let mountpoint = make_folder(folder, name)?;
        let options = FuseOptions { use_ring: by_ring, ..FuseOptions::default() };
        // Concerns connections that begin while it is on.
        let _switch = by_ring.then(SwitchedOn::new).transpose()?;
        let export = FuseExport::mount(device, &mountpoint, options)?;
        if export.is_over_ring() != by_ring {
            let message = "this kernel does not send FUSE requests by io_uring (Linux 6.14 can)";
            return Err(Error::new(ErrorKind::Missing, message));
        }
        let loop_device = attach(export.path())?;
        Ok(Self { name, loop_device, serving: Serving::Ours { _export: export } })
    }

    /// Two threads that do nothing but copy between the FUSE device and an array.
    pub fn smallest(folder: &Path, size_bytes: u64) -> Result<Self> {
        let mountpoint = make_folder(folder, "smallest")?;
        let program = std::env::current_exe().doing(|| "finding the programs of the benchmarks".into())?;
        let mut command = Command::new(program.with_file_name("smallest-fuse"));
        command.arg(&mountpoint).arg(size_bytes.to_string());
        Self::serve("smallest", &mountpoint.join("disk"), size_bytes, mountpoint, vec![command])
    }

    /// A file in tmpfs: no server at all.
    pub fn tmpfs(folder: &Path, size_bytes: u64) -> Result<Self> {
        let image = folder.join("tmpfs.img");
        machine::make_file(&image, size_bytes)?;
        Ok(Self { name: "tmpfs", loop_device: attach(&image)?, serving: Serving::Nobody })
    }

    /// nbdkit's memory, through nbdfuse.
    pub fn nbdfuse(folder: &Path, size_bytes: u64) -> Result<Self> {
        let (mountpoint, socket) = (make_folder(folder, "nbdfuse")?, folder.join("nbdfuse.sock"));
        let mut server = Command::new("nbdkit");
        server.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        server.args(["memory", &size_bytes.to_string()]);
        let mut client = Command::new("nbdfuse");
        client.arg(mountpoint.join("disk")).arg("--unix").arg(&socket);
        Self::serve("nbdfuse", &mountpoint.join("disk"), size_bytes, mountpoint, vec![server, client])
    }

    /// QEMU's storage daemon on a file in tmpfs.
    pub fn qemu(folder: &Path, size_bytes: u64) -> Result<Self> {
        let (image, file) = (folder.join("qemu.img"), folder.join("qemu-export"));
        machine::make_file(&image, size_bytes)?;
        machine::make_file(&file, 0)?;
        let mut command = Command::new("qemu-storage-daemon");
        command.args(["--blockdev", &format!("driver=file,node-name=disk,filename={}", image.display())]);
        let export = format!("type=fuse,id=export,node-name=disk,writable=on,mountpoint={}", file.display());
        command.args(["--export", &export]);
        Self::serve("qemu", &file.clone(), size_bytes, file, vec![command])
    }

    fn serve(
        name: &'static str,
        file: &Path,
        size_bytes: u64,
        mountpoint: PathBuf,
        commands: Vec<Command>,
    ) -> Result<Self> {
        let mut serving = Processes { children: Vec::new(), mountpoint };
        for mut command in commands {
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            serving.children.push(child.doing(|| format!("starting {name}"))?);
            // The first of two must listen before the second looks for it.
            std::thread::sleep(Duration::from_millis(200));
        }
        let deadline = Instant::now() + PATIENCE;
        while fs::metadata(file).is_ok_and(|file| file.len() != size_bytes) || !file.exists() {
            if Instant::now() > deadline {
                return Err(Error::new(ErrorKind::TimedOut, format!("{name} does not serve its file")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { name, loop_device: attach(file)?, serving: Serving::Processes(serving) })
    }

    /// The loop device.
    pub fn loop_path(&self) -> &Path {
        self.loop_device.path()
    }

    /// Runs `job` on it.
    pub fn measure(&self, job: Job<'_>) -> Result<Run> {
        let before = self.cpu_seconds();
        let measured = fio::run(Target::Path(self.loop_path()), job)?;
        let server_us = (self.cpu_seconds() - before) * 1e6 / measured.requests;
        Ok(Run { rate: measured.iops, server_us, client_us: measured.cpu_us })
    }

    /// Seconds of CPU that serving has taken so far, in processes; the kernel's own threads do not count.
    fn cpu_seconds(&self) -> f64 {
        match &self.serving {
            // Apart from its server this process only waits for fio.
            Serving::Ours { .. } => machine::cpu_of_process(std::process::id()),
            Serving::Processes(processes) => {
                processes.children.iter().map(|child| machine::cpu_of_process(child.id())).sum()
            }
            Serving::Nobody => 0.0,
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let _ = unmount_path(&self.mountpoint, true);
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The kernel sends requests of new FUSE connections by io_uring as long as this lives; then it is as it was.
struct SwitchedOn(Vec<u8>);

impl SwitchedOn {
    fn new() -> Result<Self> {
        let before = fs::read(RING_SWITCH).doing(|| {
            format!("reading {RING_SWITCH}; this kernel has no FUSE over io_uring (Linux 6.14 has)")
        })?;
        fs::write(RING_SWITCH, "Y").doing(|| format!("writing {RING_SWITCH}"))?;
        Ok(Self(before))
    }
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        let _ = fs::write(RING_SWITCH, &self.0);
    }
}

fn make_folder(folder: &Path, name: &str) -> Result<PathBuf> {
    let made = folder.join(name);
    fs::create_dir(&made).map_err(machine::no_folder)?;
    Ok(made)
}

fn attach(file: &Path) -> Result<LoopDevice> {
    LoopDevice::attach(file, LoopOptions { direct_io: true, read_only: false, block_size: Some(512) })
}
