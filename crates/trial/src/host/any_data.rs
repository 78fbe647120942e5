//! Whether anything at all is stored somewhere: stricter than to recognise what it is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Context, Device, Request, Result, Runtime};

/// Both ends of a device are looked at for so much,
const ENDS_BYTES: u64 = 1 << 20;
/// and so many places between them.
const PLACES: u64 = 256;
const PLACE_BYTES: u64 = 4096;

/// Whether a regular file holds any data: it has an extent that is no hole.
pub fn file_has_data(path: &Path) -> Result<bool> {
    let file = File::open(path).doing(|| format!("opening {}", path.display()))?;
    // SAFETY: the descriptor is open; the call changes nothing but its position.
    let found = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
    if found >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENXIO) => Ok(false),
        // No file system without such a question has holes.
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            Ok(file.metadata().doing(|| format!("looking at {}", path.display()))?.len() > 0)
        }
        _ => Err(error).doing(|| format!("looking for data in {}", path.display())),
    }
}

/// Whether a device holds anything but zeros at its ends, or in some hundred places between.
pub fn device_has_data(device: &dyn Device) -> Result<bool> {
    // Under virtual time a request to a kernel or a server blocks this thread, which is what is wanted here.
    let runtime = Runtime::simulated(0);
    let queue = device.open_queue(&runtime)?;
    let size = device.info().size;
    let ends = ENDS_BYTES.min(size);
    let between = (1..PLACES).map(|place| {
        let offset = (u128::from(size) * u128::from(place) / u128::from(PLACES)) as u64;
        (offset - offset % PLACE_BYTES, PLACE_BYTES)
    });
    for (offset, length) in [(0, ends), (size - ends, ends)].into_iter().chain(between) {
        let length = length.min(size - offset);
        let request = Request::read(offset, Buffer::stale(length as usize), Context::default());
        let completion = runtime.block_on(queue.submit(request))?;
        completion.result?;
        if completion.buffer.iter().any(|&byte| byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::leaf::MemoryDevice;

    #[test]
    fn holes_are_no_data_and_a_single_byte_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        File::create(&path).and_then(|file| file.set_len(1 << 20)).expect("a hole");
        assert!(!file_has_data(&path).expect("looked"));
        std::fs::write(&path, "x").expect("written");
        assert!(file_has_data(&path).expect("looked"));
        assert!(file_has_data(&folder.path().join("y")).is_err());
    }

    #[test]
    fn data_at_the_ends_of_a_device_and_every_so_often_is_seen() {
        for (size, offset) in [(8 << 20, 0), (8 << 20, (8 << 20) - 512), (8 << 20, 4 << 20), (4096, 512)] {
            let device = MemoryDevice::new(size, 512).expect("a device");
            assert!(!device_has_data(device.as_ref()).expect("looked"));
            let runtime = Runtime::simulated(1);
            let queue = device.open_queue(&runtime).expect("opens");
            let mut sector = Buffer::zeroed(512);
            sector[511] = 1;
            let write = queue.submit(Request::write(offset, sector, Context::default()));
            runtime.block_on(write).expect("completes").result.expect("written");
            assert!(device_has_data(device.as_ref()).expect("looked"), "{offset} of {size}");
        }
    }
}
