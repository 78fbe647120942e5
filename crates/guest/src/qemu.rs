//! Guests of QEMU: a kernel for real machines in an emulator, without help of the processor, so that it runs wherever a
//! program does. Its memory is a file that is shared with this process, its disk one of virtio, which hands flushes on.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::Program;

use crate::guest::Guest;
use crate::kernel::Kernel;
use crate::start::{GuestDisk, GuestOptions, Launch, archive_file, launch};
use crate::uml::opened;

const PROGRAM: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");
/// Bytes that may be under way on the line: a queue of virtio holds 128 buffers of a page.
const WINDOW_BYTES: usize = 128 << 10;
/// The name of the line, as the agent looks for it.
const LINE: &str = "rotproof";
/// More would be in two pieces of physical addresses, with a hole between them.
pub const QEMU_MEMORY_MAX: u64 = 2 << 30;

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
    let program = Program::find(PROGRAM.0, PROGRAM.1)?;
    let archive = archive_file(options.scratch, &kernel.modules()?)?;
    let image = kernel.open_image()?;
    let (line, theirs) = UnixStream::pair().doing(|| "making the line to a guest".into())?;
    let memory = format!("{}K", options.memory_bytes >> 10);
    let mut command: Vec<String> = [
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
        "console=ttyS0 rdinit=/init panic=-1 rotproof.line=port",
        "-chardev",
        "stdio,id=console,signal=off",
        "-serial",
        "chardev:console",
        "-device",
        "virtio-serial-pci",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut option = |name: &str, value: String| command.extend([name.to_owned(), value]);
    option("-object", format!("memory-backend-memfd,id=memory,size={memory},share=on"));
    option("-kernel", format!("/proc/self/fd/{}", image.as_raw_fd()));
    option("-initrd", format!("/proc/self/fd/{}", archive.as_raw_fd()));
    option("-chardev", format!("socket,id=line,fd={}", theirs.as_raw_fd()));
    option("-device", format!("virtserialport,chardev=line,name={LINE}"));
    let mut inherited: Vec<OwnedFd> = vec![theirs.into(), image.into(), archive.into()];
    // A request that fails is the guest's to see: QEMU would stop the machine for some.
    let of_disk = |block_bytes: u32| {
        format!(
            "virtio-blk-pci,drive=disk,write-cache=on,werror=report,rerror=report,\
             logical_block_size={block_bytes},physical_block_size={block_bytes}"
        )
    };
    match options.disk {
        GuestDisk::File { path, block_bytes } => {
            let disk = opened(path)?;
            option(
                "-blockdev",
                format!(
                    "driver=file,node-name=disk,filename=/proc/self/fd/{},cache.direct=on,aio=threads,\
                     locking=off,discard=unmap",
                    disk.as_raw_fd()
                ),
            );
            option("-device", of_disk(block_bytes));
            inherited.push(disk.into());
        }
        GuestDisk::Nbd { ref socket, block_bytes } => {
            let socket = socket.try_clone().doing(|| "the connection to an NBD server".into())?;
            option(
                "-blockdev",
                format!(
                    "driver=nbd,node-name=disk,server.type=fd,server.str={},discard=unmap",
                    socket.as_raw_fd()
                ),
            );
            option("-device", of_disk(block_bytes));
            inherited.push(socket.into());
        }
        GuestDisk::Vhost(ref socket) => {
            let socket = socket.try_clone().doing(|| "the connection to a vhost-user server".into())?;
            option("-chardev", format!("socket,id=disk,fd={}", socket.as_raw_fd()));
            option("-device", "vhost-user-blk-pci,chardev=disk,num-queues=1".to_owned());
            inherited.push(socket.into());
        }
    }
    let mut words = vec![program.path().into()];
    words.extend(command.into_iter().map(Into::into));
    let environment = Vec::new();
    launch(
        Launch { command: words, inherited, environment, line, window_bytes: WINDOW_BYTES, disk: "/dev/vda" },
        options,
    )
}
