//! Guests of QEMU: a kernel for real machines in an emulator, without help of the processor, so that it runs wherever a
//! program does. Its memory is a file that is shared with this process, its disk one of virtio, which hands flushes on.
//!
//! Such a guest goes on from a snapshot where it may: of a guest that has booted, with its agent waiting, and that has never had a
//! disk. The disk comes when it goes on, so nothing in its memory can be of another one.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{ContentHash, Error, ErrorKind, Result};
use rotproof_machine::Program;
use serde_json::{Map, Value, json};

use crate::agent;
use crate::guest::{CameUp, Guest};
use crate::kernel::Kernel;
use crate::qmp::Monitor;
use crate::snapshot::{Saved, Snapshots, anonymous};
use crate::start::{GuestDisk, GuestOptions, Launch, archive_file, launch};
use crate::uml::opened;

const PROGRAM: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");
/// Bytes that may be under way on the line: a queue of virtio holds 128 buffers of a page.
const WINDOW_BYTES: usize = 128 << 10;
/// The name of the line, as the agent looks for it.
const LINE: &str = "rotproof";
/// More would be in two pieces of physical addresses, with a hole between them.
pub const QEMU_MEMORY_MAX: u64 = 2 << 30;
/// Where the disk comes in a guest that goes on from a snapshot.
const PORT: &str = "disk_port";
const DISK: &str = "/dev/vda";

/// Ok if this machine has it. Fails with [`ErrorKind::Missing`] and what to do.
pub(crate) fn check_requirements() -> Result<()> {
    Program::find(PROGRAM.0, PROGRAM.1).map(drop)
}

/// Starts one with `kernel`. Fails as [`Guest::start`].
pub(crate) fn start(kernel: &Kernel, options: &GuestOptions<'_>) -> Result<Guest> {
    if options.memory_bytes > QEMU_MEMORY_MAX {
        let context = format!("a guest of QEMU takes {} MiB of memory at most", QEMU_MEMORY_MAX >> 20);
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let machine = Machine {
        program: Program::find(PROGRAM.0, PROGRAM.1)?,
        image: kernel.open_image()?,
        archive: agent::archive(&kernel.modules()?)?,
        options,
    };
    let Some(folder) = options.snapshots else { return machine.boot() };
    let why_not = match machine.restored(folder) {
        Ok((mut guest, monitor, is_new)) => {
            // From here on its disk is its own: another guest could not begin with it.
            machine.plug(&guest, monitor)?;
            guest.came_up = CameUp::Restored { is_new };
            return Ok(guest);
        }
        Err(error) => error,
    };
    options.cancel.check()?;
    say(options.console, &format!("the guest boots, and does not go on from a snapshot: {why_not}"));
    let mut guest = machine.boot()?;
    guest.came_up = CameUp::BootedInstead(why_not.to_string());
    Ok(guest)
}

/// Adds a line of ours to a console.
fn say(console: &Path, what: &str) {
    // Where nobody can be told, the guest is as good.
    let _ = OpenOptions::new()
        .create(true)
        .append(true)
        .open(console)
        .and_then(|mut file| writeln!(file, "rotproof: {what}"));
}

/// A machine that is to be started, one way or another.
struct Machine<'a> {
    program: Program,
    image: File,
    archive: Vec<u8>,
    options: &'a GuestOptions<'a>,
}

/// What QEMU is started with, but for the disk.
struct Words {
    command: Vec<String>,
    inherited: Vec<OwnedFd>,
    line: UnixStream,
}

impl Words {
    fn option(&mut self, name: &str, value: String) {
        self.command.extend([name.to_owned(), value]);
    }

    /// Hands it something that is open, and gives its number.
    fn hand(&mut self, open: impl Into<OwnedFd>) -> i32 {
        let open = open.into();
        let number = open.as_raw_fd();
        self.inherited.push(open);
        number
    }
}

/// The machine itself, the same for each guest. Descriptors come after.
fn base(memory_bytes: u64) -> Vec<String> {
    let memory = format!("{}K", memory_bytes >> 10);
    [
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-accel",
        "tcg",
        "-cpu",
        "max",
        "-machine",
        "q35,memory-backend=memory",
        "-m",
        &memory,
        "-append",
        // Without the last, a kernel whose emulator gets no processor for long takes its timer for broken, and panics.
        "console=ttyS0 rdinit=/init panic=-1 rotproof.line=port no_timer_check",
        "-chardev",
        "stdio,id=console,signal=off",
        "-serial",
        "chardev:console",
        "-device",
        "virtio-serial-pci",
        "-device",
        &format!("pcie-root-port,id={PORT},chassis=1,slot=1"),
    ]
    .map(str::to_owned)
    .to_vec()
}

impl Machine<'_> {
    /// The machine with its line. Its memory is `memory`, or a file of its own.
    fn words(&self, memory: Option<&File>) -> Result<Words> {
        let archive = archive_file(self.options.scratch, &self.archive)?;
        let image = self.image.try_clone().doing(|| "the kernel of a guest".into())?;
        let (line, theirs) = UnixStream::pair().doing(|| "making the line to a guest".into())?;
        let memory_bytes = self.options.memory_bytes;
        let mut words = Words { command: base(memory_bytes), inherited: Vec::new(), line };
        let (image, archive) = (words.hand(image), words.hand(archive));
        words.option("-kernel", format!("/proc/self/fd/{image}"));
        words.option("-initrd", format!("/proc/self/fd/{archive}"));
        let theirs = words.hand(theirs);
        words.option("-chardev", format!("socket,id=line,fd={theirs}"));
        words.option("-device", format!("virtserialport,chardev=line,name={LINE}"));
        let size = format!("id=memory,size={}K,share=on", memory_bytes >> 10);
        match memory {
            None => words.option("-object", format!("memory-backend-memfd,{size}")),
            Some(memory) => {
                let memory = words.hand(memory.try_clone().doing(|| "the memory of a guest".into())?);
                let object = format!("memory-backend-file,{size},mem-path=/proc/self/fd/{memory}");
                words.option("-object", object);
            }
        }
        Ok(words)
    }

    /// A monitor for it; our end.
    fn monitor(words: &mut Words) -> Result<UnixStream> {
        let (monitor, theirs) = UnixStream::pair().doing(|| "making the monitor of a guest".into())?;
        let theirs = words.hand(theirs);
        words.option("-chardev", format!("socket,id=monitor,fd={theirs}"));
        words.option("-mon", "chardev=monitor,mode=control".to_owned());
        Ok(monitor)
    }

    fn launch(
        &self,
        words: Words,
        console: &Path,
        restored_from: Option<(UnixStream, File)>,
    ) -> Result<(Guest, Option<Monitor>)> {
        let mut command = vec![self.program.path().into()];
        command.extend(words.command.into_iter().map(Into::into));
        launch(Launch {
            command,
            inherited: words.inherited,
            environment: Vec::new(),
            line: words.line,
            window_bytes: WINDOW_BYTES,
            disk: DISK,
            restored_from,
            memory_bytes: self.options.memory_bytes,
            console,
            holds_dirty: self.options.holds_dirty,
            cancel: self.options.cancel,
        })
    }

    /// Boots it with its disk.
    fn boot(&self) -> Result<Guest> {
        let mut words = self.words(None)?;
        let disk = Disk::of(&self.options.disk)?;
        let number = words.hand(disk.open);
        let name = if disk.is_file { format!("/proc/self/fd/{number}") } else { number.to_string() };
        match disk.node {
            Some(node) => words.option("-blockdev", node(&name).to_string()),
            None => words.option("-chardev", format!("socket,id=disk,fd={number}")),
        }
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut device = disk.device.get("driver").map(text).unwrap_or_default();
        for (key, value) in disk.device.iter().filter(|(key, _)| *key != "driver") {
            device.push_str(&format!(",{key}={}", text(value)));
        }
        words.option("-device", device);
        self.launch(words, self.options.console, None).map(|(guest, _)| guest)
    }

    /// A guest that has gone on from a snapshot in `folder`, without a disk; and whether the snapshot had to be made first.
    fn restored(&self, folder: &Path) -> Result<(Guest, Monitor, bool)> {
        let snapshots = Snapshots::open(folder)?;
        let key = self.key()?;
        let mut saved = snapshots.load(key);
        if let Err(error) = &saved {
            say(self.options.console, &error.to_string());
            snapshots.remove(key);
        }
        let is_new = !matches!(saved, Ok(Some(_)));
        if is_new {
            let _lock = snapshots.lock(self.options.cancel)?;
            // Whoever had the lock may have made it.
            saved = snapshots.load(key);
            if !matches!(saved, Ok(Some(_))) {
                self.make(&snapshots, key)?;
                saved = snapshots.load(key);
            }
        }
        let saved = saved?.ok_or_else(|| Error::new(ErrorKind::Missing, "the snapshot is gone again"))?;
        let restored = self.restore(saved);
        if restored.is_err() && !self.options.cancel.is_cancelled() {
            // Whole, and of no use to this QEMU.
            snapshots.remove(key);
        }
        restored.map(|(guest, monitor)| (guest, monitor, is_new))
    }

    fn restore(&self, saved: Saved) -> Result<(Guest, Monitor)> {
        let console = self.options.console;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(console)
            .doing(|| format!("opening {}, the console of a guest", console.display()))?;
        file.write_all(saved.console.as_bytes()).doing(|| "the console of a guest".into())?;
        say(console, "so far the boot of which a snapshot was taken; the guest goes on from it");
        let mut words = self.words(Some(&saved.memory))?;
        let monitor = Self::monitor(&mut words)?;
        words.option("-incoming", "defer".to_owned());
        match self.launch(words, console, Some((monitor, saved.devices)))? {
            (guest, Some(monitor)) => Ok((guest, monitor)),
            (_, None) => Err(Error::new(ErrorKind::Internal, "a restored guest has no monitor")),
        }
    }

    /// Gives a guest that has gone on from a snapshot its disk.
    fn plug(&self, guest: &Guest, mut monitor: Monitor) -> Result<()> {
        const NAME: &str = "disk";
        let Disk { open, is_file, node, mut device } = Disk::of(&self.options.disk)?;
        let name = if is_file { monitor.hand_file(&open)? } else { monitor.hand(&open, NAME)? };
        let (command, arguments) = match node {
            Some(node) => ("blockdev-add", node(&name)),
            None => {
                let address = json!({ "type": "fd", "data": { "str": NAME } });
                let backend = json!({ "type": "socket", "data": { "addr": address, "server": false } });
                ("chardev-add", json!({ "id": "disk", "backend": backend }))
            }
        };
        let Value::Object(arguments) = arguments else {
            return Err(Error::new(ErrorKind::Internal, "a disk is described by an object"));
        };
        monitor.command_with(command, &arguments, None)?;
        device.insert("id".into(), "plugged".into());
        device.insert("bus".into(), PORT.into());
        monitor.command_with("device_add", &device, None)?;
        // Whoever mounts it shall not be told that there is none, which would be of the file system.
        guest.command(&format!("disk\t{DISK}")).map(drop).map_err(|error| {
            let context = "the guest has not found its disk, which was plugged in when it went on from a snapshot; with \
                           `snapshot: false` it boots with it";
            Error::new(ErrorKind::Missing, context).caused_by(error)
        })
    }

    /// Boots a guest without a disk, and keeps it as a snapshot.
    fn make(&self, snapshots: &Snapshots, key: ContentHash) -> Result<()> {
        let memory = anonymous(c"memory", self.options.memory_bytes)?;
        let mut words = self.words(Some(&memory))?;
        let monitor = Self::monitor(&mut words)?;
        let console = self.options.scratch.join("snapshot-console");
        let made = self.launch(words, &console, None).and_then(|(guest, _)| {
            let devices = freeze(monitor)?;
            let said = guest.console_text();
            // From now on its memory stands still.
            guest.kill();
            snapshots.store(key, &devices, &memory, &said)
        });
        let _ = std::fs::remove_file(&console);
        made.map_err(|error| error.while_doing("making a snapshot"))
    }

    /// All that decides what a guest is before it has a disk: the emulator, its kernel, what runs inside, the machine.
    fn key(&self) -> Result<ContentHash> {
        let path = self.program.path();
        let about = std::fs::metadata(path).doing(|| format!("looking at {}", path.display()))?;
        let mut image = Vec::new();
        let length = self.image.metadata().doing(|| "the kernel of a guest".into())?.len();
        image.resize(usize::try_from(length).unwrap_or_default(), 0);
        self.image.read_exact_at(&mut image, 0).doing(|| "reading the kernel of a guest".into())?;
        let words = [
            format!("{} {} {} {}", path.display(), about.len(), about.mtime(), about.mtime_nsec()),
            ContentHash::of(&image).to_string(),
            ContentHash::of(&self.archive).to_string(),
            base(self.options.memory_bytes).join(" "),
            format!("{LINE} {WINDOW_BYTES}"),
        ];
        Ok(ContentHash::of(words.join("\n").as_bytes()))
    }
}

/// Stops a machine, and gives what it keeps of its devices. Its memory stays where it is.
fn freeze(monitor: UnixStream) -> Result<Vec<u8>> {
    let mut monitor = Monitor::greet(monitor)?;
    monitor.command("stop")?;
    monitor.leave_out_shared_memory()?;
    let mut devices = anonymous(c"devices", 0)?;
    let name = monitor.hand(&devices, "devices")?;
    monitor.command_of("migrate", "uri", format!("fd:{name}"))?;
    let under_way = ["", "none", "setup", "active", "pre-switchover", "device"];
    let status = monitor.wait_while("query-migrate", &under_way)?;
    if status != "completed" {
        let context = format!("QEMU could not save its devices: {status}");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let mut bytes = Vec::new();
    let doing = || "reading what a QEMU has saved".to_owned();
    std::io::Seek::rewind(&mut devices).and_then(|()| devices.read_to_end(&mut bytes)).doing(doing)?;
    Ok(bytes)
}

/// What a block device is to QEMU, by the name that QEMU knows by what it was handed.
type Describe = Box<dyn Fn(&str) -> Value>;

/// A disk in QEMU's words.
struct Disk {
    /// What QEMU is handed for it.
    open: OwnedFd,
    /// That is a file, which QEMU opens by a path.
    is_file: bool,
    /// Of what is a block device to QEMU: its description, by the name that QEMU knows what was handed by.
    node: Option<Describe>,
    /// What its guest sees.
    device: Map<String, Value>,
}

impl Disk {
    fn of(disk: &GuestDisk<'_>) -> Result<Self> {
        // A request that fails is the guest's to see: QEMU would stop the machine for some.
        let device = |block_bytes: u32| {
            let device = json!({
                "driver": "virtio-blk-pci", "drive": "disk", "write-cache": "on", "werror": "report",
                "rerror": "report", "logical_block_size": block_bytes, "physical_block_size": block_bytes,
            });
            device.as_object().cloned().unwrap_or_default()
        };
        Ok(match disk {
            GuestDisk::File { path, block_bytes } => {
                let open: OwnedFd = opened(path)?.into();
                Self {
                    open,
                    is_file: true,
                    node: Some(Box::new(|name| {
                        json!({
                            "driver": "file", "node-name": "disk", "filename": name,
                            "cache": { "direct": true }, "aio": "threads", "locking": "off", "discard": "unmap",
                        })
                    })),
                    device: device(*block_bytes),
                }
            }
            GuestDisk::Nbd { socket, block_bytes } => Self {
                open: socket.try_clone().doing(|| "the connection to an NBD server".into())?.into(),
                is_file: false,
                node: Some(Box::new(|name| {
                    json!({
                        "driver": "nbd", "node-name": "disk", "server": { "type": "fd", "str": name },
                        "discard": "unmap",
                    })
                })),
                device: device(*block_bytes),
            },
            GuestDisk::Vhost(socket) => Self {
                open: socket.try_clone().doing(|| "the connection to a vhost-user server".into())?.into(),
                is_file: false,
                node: None,
                device: json!({ "driver": "vhost-user-blk-pci", "chardev": "disk", "num-queues": 1 })
                    .as_object()
                    .cloned()
                    .unwrap_or_default(),
            },
        })
    }
}
