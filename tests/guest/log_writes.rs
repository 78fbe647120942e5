//! The kernel's own recorder: dm-log-writes takes down what a device is asked, and what we make of its log is what the device held.
//!
//! The device-mapper is driven by its ioctls (`include/uapi/linux/dm-ioctl.h`). The kernel writes down what a flush has covered when that
//! flush has ended, and a FUA write and a mark at once. So at each mark the log holds what was durable.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_crash::recording::{Reader, RecorderOptions, log_writes};
use rotproof_crash::{Contents, marks, point_at};
use rotproof_export::{LoopDevice, LoopOptions};

/// The modules, in that order.
pub const MODULES: [&str; 3] =
    ["drivers/block/loop.ko", "drivers/md/dm-mod.ko", "drivers/md/dm-log-writes.ko"];

const DEVICE_BYTES: u64 = 2 << 20;
const LOG_BYTES: u64 = 32 << 20;
const SECTOR: u64 = 512;
const STEPS: u64 = 220;
/// What follows is written with FUA only, so that nothing that waits for a flush comes over it in the log.
const FUA_FROM: u64 = DEVICE_BYTES / 4 * 3;

const HEADER_BYTES: usize = 312;
const NAME_AT: usize = 48;
const NAME: &[u8] = b"logged";
const DEV_CREATE: u32 = 3;
const DEV_REMOVE: u32 = 4;
const DEV_SUSPEND: u32 = 6;
const TABLE_LOAD: u32 = 9;
const TARGET_MSG: u32 = 14;
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Memory as direct I/O wants it.
#[repr(align(4096))]
struct Aligned([u8; 64 << 10]);

/// One command of the device-mapper for our device.
fn command(control: &File, number: u32, targets: u32, payload: &[u8]) {
    let mut bytes = vec![0u8; (HEADER_BYTES + payload.len()).next_multiple_of(8).max(4096)];
    let size = bytes.len() as u32;
    for (at, word) in [(0, 4u32), (12, size), (16, HEADER_BYTES as u32), (20, targets)] {
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes[NAME_AT..NAME_AT + NAME.len()].copy_from_slice(NAME);
    bytes[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
    // `_IOWR(0xfd, number, struct dm_ioctl)`
    let request = 0xc000_0000u32 | (HEADER_BYTES as u32) << 16 | 0xfd << 8 | number;
    // SAFETY: the buffer says itself how long it is, and lives across the call.
    let answer = unsafe { libc::ioctl(control.as_raw_fd(), request as libc::Ioctl, bytes.as_mut_ptr()) };
    assert_eq!(answer, 0, "command {number}: {}", std::io::Error::last_os_error());
}

/// One target over all of the device.
fn table(parameters: &str) -> Vec<u8> {
    let mut table = Vec::new();
    table.extend(0u64.to_le_bytes());
    table.extend((DEVICE_BYTES / SECTOR).to_le_bytes());
    table.extend([0; 8]);
    let mut kind = [0; 16];
    kind[..10].copy_from_slice(b"log-writes");
    table.extend(kind);
    table.extend(parameters.bytes());
    table.push(0);
    table
}

fn mark(control: &File, text: &str) {
    let mut message = 0u64.to_le_bytes().to_vec();
    message.extend(format!("mark {text}").bytes());
    message.push(0);
    command(control, TARGET_MSG, 0, &message);
}

fn backing(path: &str, bytes: u64) -> LoopDevice {
    File::create(path).and_then(|file| file.set_len(bytes)).expect("there is memory");
    let options = LoopOptions { direct_io: false, read_only: false, block_size: Some(SECTOR as u32) };
    LoopDevice::attach(Path::new(path), options).expect("a loop device")
}

fn open(flags: libc::c_int) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT | flags);
    options.open("/dev/dm-0").expect("the device-mapper has made it")
}

/// Does a sequence of requests to the device, and gives of each mark what the device had durable then.
fn drive(control: &File) -> HashMap<String, Vec<u8>> {
    let (plain, durable_at_once) = (open(0), open(libc::O_DSYNC));
    let mut buffer = Box::new(Aligned([0; 64 << 10]));
    let (mut live, mut durable) = (vec![0u8; DEVICE_BYTES as usize], vec![0u8; DEVICE_BYTES as usize]);
    let mut at_marks = HashMap::new();
    for step in 0..STEPS {
        let draw = |stream| mix(9, stream, step);
        let length = ((1 + draw(1) % 40) * SECTOR) as usize;
        let in_range =
            |from: u64, to: u64| from + draw(2) % ((to - from - length as u64) / SECTOR + 1) * SECTOR;
        let flush = |live: &[u8], durable: &mut Vec<u8>| {
            plain.sync_data().expect("flushed");
            durable.copy_from_slice(live);
        };
        match draw(3) % 16 {
            0 | 1 => flush(&live, &mut durable),
            2 | 3 => {
                let is_flushed = draw(4) % 2 == 0;
                if is_flushed {
                    flush(&live, &mut durable);
                    // What the kernel's device holds is what we think it does.
                    for (at, wanted) in (0u64..).step_by(64 << 10).zip(live.chunks(64 << 10)) {
                        plain.read_exact_at(&mut buffer.0, at).expect("read");
                        assert!(buffer.0[..] == *wanted, "at {at} before mark {step}");
                    }
                }
                let text = format!("{step}");
                mark(control, &text);
                at_marks.insert(text, durable.clone());
            }
            4 => {
                let offset = in_range(0, FUA_FROM);
                let range = [offset, length as u64];
                // SAFETY: the range lives across the call.
                let answer = unsafe { libc::ioctl(plain.as_raw_fd(), BLKDISCARD, &raw const range) };
                assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
                live[offset as usize..][..length].fill(0);
            }
            kind => {
                let data: Vec<u8> = (0..length as u64).map(|at| (mix(3, step, at / 8) >> 5) as u8).collect();
                buffer.0[..length].copy_from_slice(&data);
                if kind < 8 {
                    let offset = in_range(FUA_FROM, DEVICE_BYTES);
                    durable_at_once.write_all_at(&buffer.0[..length], offset).expect("written");
                    live[offset as usize..][..length].copy_from_slice(&data);
                    // The system call ends with a flush, where the device has no FUA of its own or also where it has.
                    durable.copy_from_slice(&live);
                } else {
                    let offset = in_range(0, FUA_FROM);
                    plain.write_all_at(&buffer.0[..length], offset).expect("written");
                    live[offset as usize..][..length].copy_from_slice(&data);
                }
            }
        }
    }
    plain.sync_data().expect("flushed");
    mark(control, "end");
    at_marks.insert("end".to_owned(), live);
    at_marks
}

/// Has the kernel record, imports its log, and compares the image at every mark.
pub fn imported() {
    let (data, log) = (backing("/run/data", DEVICE_BYTES), backing("/run/log", LOG_BYTES));
    let control =
        OpenOptions::new().read(true).write(true).open("/dev/mapper/control").expect("the device-mapper");
    command(&control, DEV_CREATE, 0, &[]);
    let parameters = format!("{} {}", data.path().display(), log.path().display());
    command(&control, TABLE_LOAD, 1, &table(&parameters));
    // Without the flag to suspend it, this brings the device up.
    command(&control, DEV_SUSPEND, 0, &[]);
    let at_marks = drive(&control);
    command(&control, DEV_REMOVE, 0, &[]);
    let bytes = File::open(log.path()).and_then(|log| {
        let mut bytes = vec![0; LOG_BYTES as usize];
        log.read_exact_at(&mut bytes, 0).map(|()| bytes)
    });
    std::fs::write("/run/taken", bytes.expect("read")).expect("there is memory");
    data.detach().expect("nobody uses it");
    log.detach().expect("nobody uses it");
    let recording = Path::new("/run/imported");
    let options = RecorderOptions::default();
    log_writes::import(Path::new("/run/taken"), recording, Some(DEVICE_BYTES), 1, options).expect("a log");
    let reader = Reader::open(recording).expect("a recording");
    let contents = Arc::new(Contents::open(recording, reader.header(), None).expect("a recording"));
    let mut compared = 0;
    for mark in marks(reader).expect("whole") {
        // The kernel ends its log with a mark of its own.
        let Some(wanted) = at_marks.get(&mark.text) else { continue };
        let reader = Reader::open(recording).expect("a recording");
        let point = point_at(reader, Arc::clone(&contents), mark.position, SECTOR).expect("so long");
        assert!(point.open().is_empty(), "of what is durable one order is known, at {}", mark.text);
        let mut ours = vec![0; DEVICE_BYTES as usize];
        contents.read(&point.build(&[]).snapshot, 0, &mut ours).expect("readable");
        let differs = ours.chunks(512).zip(wanted.chunks(512)).position(|(ours, theirs)| ours != theirs);
        assert_eq!(differs, None, "sector at mark {}", mark.text);
        compared += 1;
    }
    assert_eq!(compared, at_marks.len(), "every mark is in the log");
    assert!(compared >= 15, "{compared}");
}
