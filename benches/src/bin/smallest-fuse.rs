//! The smallest FUSE server there can be, for others to be measured against: one file of memory, two threads, and no
//! work but copying. Run as `smallest-fuse DIRECTORY BYTES`, as root; it serves `DIRECTORY/disk` until it is killed.
//!
//! It trusts the kernel and its caller, as nothing else in this project does.
#![expect(clippy::print_stderr, reason = "a command line program")]

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

/// Largest transfer, and room for a request with its headers.
const TRANSFER: usize = 1 << 20;
const HEADERS: usize = 80;
const CLONE: libc::Ioctl = libc::_IOR::<u32>(229, 0);

/// Words of a message, by their position in bytes.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The memory behind the file. Two requests for the same bytes at once get what they deserve.
#[derive(Clone, Copy)]
struct Memory(*mut u8, usize);

// SAFETY: lives as long as the process; see above for what happens to those who race.
unsafe impl Send for Memory {}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(point), Some(bytes)) = (arguments.next(), arguments.next().and_then(|text| text.parse().ok()))
    else {
        eprintln!("usage: smallest-fuse DIRECTORY BYTES");
        std::process::exit(2);
    };
    let memory = vec![0u8; bytes].leak();
    let memory = Memory(memory.as_mut_ptr(), bytes);
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,max_read={TRANSFER}", device.as_raw_fd());
    let text = |text: &str| CString::new(text).expect("no zero byte");
    let (source, point, kind, data) = (text("smallest"), text(&point), text("fuse.smallest"), text(&data));
    // SAFETY: strings that live across the call.
    let answer =
        unsafe { libc::mount(source.as_ptr(), point.as_ptr(), kind.as_ptr(), 0, data.as_ptr().cast()) };
    if answer != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let other = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let mut buffer = vec![0; HEADERS + TRANSFER];
    serve_one(&device, &mut buffer, memory)?;
    let number = device.as_raw_fd();
    // SAFETY: reads one number.
    if unsafe { libc::ioctl(other.as_raw_fd(), CLONE, &raw const number) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let second = std::thread::spawn(move || serve(&other, memory));
    serve(&device, memory)?;
    second.join().expect("ends as this thread does")
}

fn serve(device: &File, memory: Memory) -> std::io::Result<()> {
    let mut buffer = vec![0; HEADERS + TRANSFER];
    loop {
        match serve_one(device, &mut buffer, memory) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            _ => {}
        }
    }
}

fn serve_one(mut device: &File, buffer: &mut [u8], memory: Memory) -> std::io::Result<()> {
    let length = device.read(buffer)?;
    let (opcode, unique, node) = (u32_at(buffer, 4), u64_at(buffer, 8), u64_at(buffer, 16));
    let body = &buffer[40..length];
    let answer = |mut device: &File, error: i32, data: &[u8]| {
        let mut message = Vec::with_capacity(16 + data.len());
        message.extend_from_slice(&(16 + data.len() as u32).to_ne_bytes());
        message.extend_from_slice(&error.to_ne_bytes());
        message.extend_from_slice(&unique.to_ne_bytes());
        message.extend_from_slice(data);
        device.write_all(&message)
    };
    match opcode {
        // READ: the header and the bytes of the file, as they lie.
        15 => {
            let (offset, size) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
            let size = size.min(memory.1.saturating_sub(offset));
            let mut header = [0; 16];
            header[..4].copy_from_slice(&(16 + size as u32).to_ne_bytes());
            header[8..].copy_from_slice(&unique.to_ne_bytes());
            let parts = [
                libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: 16 },
                // SAFETY: within the memory.
                libc::iovec { iov_base: unsafe { memory.0.add(offset) }.cast(), iov_len: size },
            ];
            // SAFETY: both parts live across the call.
            if unsafe { libc::writev(device.as_raw_fd(), parts.as_ptr(), 2) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        }
        // WRITE
        16 => {
            let (offset, size) = (u64_at(body, 8) as usize, u32_at(body, 16));
            let data = &body[40..];
            assert!(offset + data.len() <= memory.1, "within the file");
            // SAFETY: within the memory, as was just seen.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), memory.0.add(offset), data.len()) };
            answer(device, 0, &[size.to_ne_bytes(), [0; 4]].concat())
        }
        // INIT: asynchronous reads and direct I/O, large writes, 256 pages.
        26 => {
            let wanted = 1u32 | 1 << 5 | 1 << 15 | 1 << 18 | 1 << 22;
            let mut fields = [0; 64];
            fields[..4].copy_from_slice(&7u32.to_ne_bytes());
            fields[4..8].copy_from_slice(&31u32.to_ne_bytes());
            fields[8..12].copy_from_slice(&body[8..12]);
            fields[12..16].copy_from_slice(&(u32_at(body, 12) & wanted).to_ne_bytes());
            fields[16..18].copy_from_slice(&512u16.to_ne_bytes());
            fields[18..20].copy_from_slice(&384u16.to_ne_bytes());
            fields[20..24].copy_from_slice(&(TRANSFER as u32).to_ne_bytes());
            fields[24..28].copy_from_slice(&1u32.to_ne_bytes());
            fields[28..30].copy_from_slice(&256u16.to_ne_bytes());
            answer(device, 0, &fields)
        }
        // LOOKUP of anything finds the file.
        1 => {
            let mut entry = [0; 128];
            entry[..8].copy_from_slice(&2u64.to_ne_bytes());
            entry[16..24].copy_from_slice(&3600u64.to_ne_bytes());
            entry[24..32].copy_from_slice(&3600u64.to_ne_bytes());
            entry[40..].copy_from_slice(&attributes(2, memory.1));
            answer(device, 0, &entry)
        }
        // GETATTR, SETATTR
        3 | 4 => {
            let mut out = [0; 104];
            out[..8].copy_from_slice(&3600u64.to_ne_bytes());
            out[16..].copy_from_slice(&attributes(node, memory.1));
            answer(device, 0, &out)
        }
        // OPEN, OPENDIR: direct I/O, writes beside each other.
        14 | 27 => answer(device, 0, &[[0; 8], [1 | 1 << 6, 0, 0, 0, 0, 0, 0, 0]].concat()),
        // RELEASE, FSYNC, FLUSH, RELEASEDIR, FALLOCATE, ACCESS
        18 | 20 | 25 | 29 | 34 | 43 => answer(device, 0, &[]),
        // FORGET, BATCH_FORGET
        2 | 42 => Ok(()),
        _ => answer(device, -libc::ENOSYS, &[]),
    }
}

fn attributes(node: u64, bytes: usize) -> [u8; 88] {
    let mut fields = [0; 88];
    let (mode, size) = if node == 1 { (0o40755u32, 0) } else { (0o100_600, bytes as u64) };
    fields[..8].copy_from_slice(&node.to_ne_bytes());
    fields[8..16].copy_from_slice(&size.to_ne_bytes());
    fields[16..24].copy_from_slice(&(size / 512).to_ne_bytes());
    fields[60..64].copy_from_slice(&mode.to_ne_bytes());
    fields[64..68].copy_from_slice(&1u32.to_ne_bytes());
    fields[80..84].copy_from_slice(&4096u32.to_ne_bytes());
    fields
}
