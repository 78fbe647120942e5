//! What every disk of ours must stand in the guest, whatever it is reached by.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

/// Where a rule fails every read, in bytes; one block of this size.
pub const BAD: u64 = 60 << 20;
/// Where a rule fails every write.
pub const BAD_WRITE: u64 = 61 << 20;
/// Size of the disk.
pub const DISK_BYTES: u64 = 64 << 20;
/// The rules that make it so.
pub fn rules() -> [String; 2] {
    let rule = |name: &str, operation: &str, at: u64| {
        format!("name={name}, {operation}, offset={at}..{}: error", at + 4096)
    };
    [rule("bad", "read", BAD), rule("bad-write", "write", BAD_WRITE)]
}

/// What is transferred at once.
const CHUNK: usize = 64 << 10;
/// What is written and read back.
const USED: u64 = 8 << 20;

const BLKDISCARD: libc::Ioctl = 0x1277;
const BLKZEROOUT: libc::Ioctl = 0x127f;
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;

/// Memory as direct I/O wants it.
#[repr(align(4096))]
struct Aligned([u8; CHUNK]);

/// The content of a chunk: every eight bytes say where they are and who wrote them.
fn fill(buffer: &mut [u8], offset: u64, salt: u64) {
    for (at, word) in (0u64..).zip(buffer.as_chunks_mut::<8>().0) {
        *word = (offset + 8 * at).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt).to_le_bytes();
    }
}

/// Opens a device for direct reading and writing.
pub fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes what can be recognised over a range.
pub fn write(device: &File, range: std::ops::Range<u64>, salt: u64) {
    let mut buffer = Box::new(Aligned([0; CHUNK]));
    for offset in range.step_by(CHUNK) {
        fill(&mut buffer.0, offset, salt);
        device.write_all_at(&buffer.0, offset).unwrap_or_else(|error| panic!("write at {offset}: {error}"));
    }
}

/// Reads it again, the last first.
pub fn verify(device: &File, range: std::ops::Range<u64>, salt: u64) {
    let (mut found, mut expected) = (Box::new(Aligned([0; CHUNK])), vec![0; CHUNK]);
    for offset in range.step_by(CHUNK).collect::<Vec<_>>().into_iter().rev() {
        device
            .read_exact_at(&mut found.0, offset)
            .unwrap_or_else(|error| panic!("read at {offset}: {error}"));
        fill(&mut expected, offset, salt);
        assert!(found.0[..] == expected[..], "what is read at {offset} is not what was written");
    }
}

fn clear(device: &File, request: libc::Ioctl, range: [u64; 2]) -> std::io::Result<()> {
    // SAFETY: the range lives across the call.
    match unsafe { libc::ioctl(device.as_raw_fd(), request, &raw const range) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn assert_zeros(device: &File, offset: u64) {
    let mut buffer = Box::new(Aligned([1; CHUNK]));
    device.read_exact_at(&mut buffer.0, offset).expect("read");
    assert!(buffer.0.iter().all(|&byte| byte == 0), "no zeros at {offset}");
}

/// Writes, reads, flushes, discards, zeroes, and meets the errors.
pub fn exercise(path: &Path, salt: u64) {
    let device = open(path);
    let mut size = 0u64;
    // SAFETY: the number lives across the call.
    assert_eq!(unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, &raw mut size) }, 0);
    assert_eq!(size, DISK_BYTES);
    // From several threads, so that several queues are used.
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (device, part_bytes) = (&device, USED / 4);
            scope.spawn(move || write(device, part * part_bytes..(part + 1) * part_bytes, salt));
        }
    });
    device.sync_all().expect("flushed");
    verify(&device, 0..USED, salt);
    for (request, offset) in [(BLKDISCARD, 1 << 20), (BLKZEROOUT, 2 << 20)] {
        clear(&device, request, [offset, CHUNK as u64]).expect("cleared");
        assert_zeros(&device, offset);
        verify(&device, offset + CHUNK as u64..offset + 2 * CHUNK as u64, salt);
    }
    assert_errors(&device);
}

/// The places that rules have made bad are bad for the guest, and those beside them are good.
pub fn assert_errors(device: &File) {
    let mut buffer = Box::new(Aligned([0; CHUNK]));
    let block = &mut buffer.0[..4096];
    let error = device.read_exact_at(block, BAD).expect_err("the rule fails it");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    let error = device.write_all_at(block, BAD_WRITE).expect_err("the rule fails it");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    device.read_exact_at(block, BAD + 4096).expect("beside it all is well");
    device.write_all_at(block, BAD_WRITE + 4096).expect("beside it all is well");
}

/// A file system of the guest's kernel on it keeps a file across a mount.
pub fn file_system(path: &Path) {
    let status = Command::new("/bin/mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0"])
        .arg(path)
        .arg("32M")
        .status();
    assert!(status.expect("it starts").success(), "mkfs.ext4 fails");
    let mut content = vec![0; 3 << 20];
    fill(&mut content, 0, 77);
    mounted(path, || {
        std::fs::write("/mnt/file", &content).expect("written");
        File::open("/mnt/file").and_then(|file| file.sync_all()).expect("flushed");
    });
    mounted(path, || assert!(std::fs::read("/mnt/file").expect("read") == content, "another content"));
}

fn mounted(path: &Path, then: impl FnOnce()) {
    let source = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no zero in it");
    // SAFETY: all are strings that end with zero; there is no data.
    let answer =
        unsafe { libc::mount(source.as_ptr(), c"/mnt".as_ptr(), c"ext4".as_ptr(), 0, std::ptr::null()) };
    assert_eq!(answer, 0, "mount: {}", std::io::Error::last_os_error());
    then();
    // SAFETY: a string that ends with zero.
    let answer = unsafe { libc::umount2(c"/mnt".as_ptr(), 0) };
    assert_eq!(answer, 0, "umount: {}", std::io::Error::last_os_error());
}
