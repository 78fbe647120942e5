//! What happens in the guest, from its first process on. Each step is told on the console when it is done.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::disk;
use crate::image::{MODULES, UBLK, module_path};
use crate::log_writes;
use crate::nbd_client;
use crate::ublk;
use crate::ublk_trial;

/// What is told of each step, in its order.
pub const STEPS: [&str; 13] = [
    "the machine is up",
    "the disk over vhost-user",
    "a file system on it",
    "a load that polls it",
    "the kernel's NBD client",
    "no ublk without its driver",
    "the contract of a device over ublk",
    "a stack by ublk",
    "its server killed and another in its place",
    "what a killed one left is cleaned",
    "what dm-log-writes has recorded",
    "trials over ublk and their verdicts",
    "what a killed trial left is cleaned",
];
/// What is told at the end.
pub const DONE: &str = "guest: all is done";

/// The host, as QEMU's user network has it.
const HOST: &str = "10.0.2.2";

/// The first process. It never returns: the machine is switched off.
pub fn main() {
    // Nobody has told where output goes if the console was not there yet.
    let outcome = std::panic::catch_unwind(|| {
        let mut steps = STEPS.iter();
        let mut done = || say(&format!("guest: {}", steps.next().expect("a step with a name")));
        set_up();
        done();
        disk::exercise(Path::new("/dev/vda"), 1);
        done();
        disk::file_system(Path::new("/dev/vda"));
        done();
        polled_load();
        done();
        kernel_nbd_client();
        done();
        ublk::without_the_driver();
        ublk_trial::without_the_driver();
        done();
        load(UBLK);
        ublk::conformance();
        done();
        ublk::serve();
        done();
        ublk::recover();
        done();
        ublk::clean();
        done();
        log_writes::MODULES.iter().for_each(|module| load(module));
        log_writes::imported();
        done();
        ublk_trial::verdicts();
        done();
        ublk_trial::clean();
        done();
        assert_eq!(steps.next(), None, "never reached");
        say(DONE);
    });
    if outcome.is_err() {
        say("guest: failed");
    }
    // SAFETY: a number; nothing is mounted any more. QEMU ends where a machine begins anew.
    unsafe {
        libc::sync();
        libc::reboot(libc::LINUX_REBOOT_CMD_RESTART);
    }
}

fn say(text: &str) {
    let mut console = OpenOptions::new().write(true).open("/dev/console").expect("a console");
    writeln!(console, "{text}").expect("written");
}

fn set_up() {
    for (kind, at) in [(c"devtmpfs", c"/dev"), (c"proc", c"/proc"), (c"sysfs", c"/sys"), (c"tmpfs", c"/run")]
    {
        // SAFETY: strings that end with zero; there is no data.
        let answer = unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
        assert_eq!(answer, 0, "{kind:?}: {}", std::io::Error::last_os_error());
    }
    for module in MODULES {
        load_with(module, if module.contains("virtio_blk") { c"poll_queues=1" } else { c"" });
    }
    network();
}

fn load(module: &str) {
    load_with(module, c"");
}

fn load_with(module: &str, parameters: &CStr) {
    const COMPRESSED: libc::c_int = 4;
    let file = File::open(module_path(module)).expect("it is in the image");
    let mut magic = [0; 6];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut magic, 0).expect("read");
    let flags = if magic == *b"\xfd7zXZ\0" { COMPRESSED } else { 0 };
    // SAFETY: a descriptor, a string that ends with zero, a number.
    let answer =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), flags) };
    let error = std::io::Error::last_os_error();
    assert!(answer == 0 || error.raw_os_error() == Some(libc::EEXIST), "{module}: {error}");
}

/// Gives `lo` and `eth0` the addresses that QEMU's user network has for the first machine.
fn network() {
    // SAFETY: takes numbers only, and what it gives belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)) };
    for (name, address, mask) in
        [(b"lo\0\0", [127, 0, 0, 1], [255, 0, 0, 0]), (b"eth0", [10, 0, 2, 15], [255, 255, 255, 0])]
    {
        let set = |request: libc::Ioctl, address: Option<[u8; 4]>| {
            // SAFETY: all zeros is a valid request.
            let mut request_data: libc::ifreq = unsafe { std::mem::zeroed() };
            for (place, &byte) in request_data.ifr_name.iter_mut().zip(name) {
                *place = byte as libc::c_char;
            }
            match address {
                Some(address) => {
                    // SAFETY: all zeros is a valid address.
                    let mut inet: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                    inet.sin_family = libc::AF_INET as libc::sa_family_t;
                    inet.sin_addr.s_addr = u32::from_ne_bytes(address);
                    // SAFETY: both have the size of a socket address.
                    request_data.ifr_ifru.ifru_addr =
                        unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inet) };
                }
                None => {
                    request_data.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
                }
            }
            // SAFETY: the request lives across the call.
            let answer = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw const request_data) };
            assert_eq!(answer, 0, "{request:#x}: {}", std::io::Error::last_os_error());
        };
        set(libc::SIOCSIFADDR, Some(address));
        set(libc::SIOCSIFNETMASK, Some(mask));
        set(libc::SIOCSIFFLAGS, None);
    }
}

/// Reads and writes that the kernel polls the disk for, also with fixed buffers; and none where nothing can be polled.
fn polled_load() {
    let polled = |target: &str, more: &[&str]| {
        let arguments = [
            "load",
            target,
            "--hipri",
            "--rw=randrw",
            "--size=4MiB",
            "--iodepth=4",
            "--fsync=64",
            "--overwrite",
        ];
        ublk::output(&[&arguments, more].concat())
    };
    for more in [&[][..], &["--fixedbufs", "--bs=64k"]] {
        let outcome = polled("/dev/vda", more);
        let text = String::from_utf8_lossy(&outcome.stdout);
        assert!(
            outcome.status.success() && text.contains("PASS"),
            "{text}{}",
            String::from_utf8_lossy(&outcome.stderr)
        );
    }
    let refused = polled("/run/x", &[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("can be polled"), "{refused:?}");
}

/// Another way to the same stack: it sees what the disk has written, and what it writes the disk sees.
fn kernel_nbd_client() {
    let port = std::env::var("rotproof_port").expect("the kernel's command line has it");
    let port = port.parse().expect("a number");
    let path = Path::new("/dev/nbd0");
    let connected = nbd_client::connect(path, (HOST, port));
    let vhost = disk::open(Path::new("/dev/vda"));
    disk::write(&vhost, 40 << 20..41 << 20, 3);
    disk::exercise(path, 2);
    disk::verify(&disk::open(path), 40 << 20..41 << 20, 3);
    disk::verify(&vhost, 3 << 20..8 << 20, 2);
    connected.disconnect();
    // The server lets the next one in.
    let again = nbd_client::connect(path, (HOST, port));
    disk::verify(&disk::open(path), 3 << 20..8 << 20, 2);
    again.disconnect();
}
