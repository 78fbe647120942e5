//! Whether anything at all is stored somewhere: stricter than to recognise what it is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Context, Device, Request, Result, Runtime};

/// A device up to this size is looked at all over.
const WHOLE_BYTES_MAX: u64 = 256 << 20;
/// Both ends of a larger one are looked at for so much,
const ENDS_BYTES: u64 = 1 << 20;
/// and so many places between them.
const PLACES: u64 = 256;
const PLACE_BYTES: u64 = 4096;
/// Read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Whether a regular file holds anything but zeros. All of it is looked at but for its holes.
pub fn file_has_data(path: &Path) -> Result<bool> {
    let file = File::open(path).doing(|| format!("opening {}", path.display()))?;
    has_data(&file).doing(|| format!("looking for data in {}", path.display()))
}

fn has_data(file: &File) -> io::Result<bool> {
    let mut piece = vec![0u8; PIECE_BYTES as usize];
    let mut end = 0;
    while let Some(start) = seek(file, end, libc::SEEK_DATA)? {
        // There is a hole behind the last byte of each file.
        end = seek(file, start, libc::SEEK_HOLE)?.unwrap_or(start);
        let mut at = start;
        while at < end {
            let wanted = PIECE_BYTES.min(end - at) as usize;
            match file.read_at(&mut piece[..wanted], at) {
                // It has become smaller meanwhile.
                Ok(0) => return Ok(false),
                Ok(read) if piece[..read].iter().any(|&byte| byte != 0) => return Ok(true),
                Ok(read) => at += read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(false)
}

/// The next data or hole from `offset` on; none where the file has ended. File systems that know of no holes have one extent.
fn seek(file: &File, offset: u64, what: libc::c_int) -> io::Result<Option<u64>> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open; the call changes nothing but its position.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset, what) };
    if let Ok(found) = u64::try_from(found) {
        return Ok(Some(found));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENXIO) => Ok(None),
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            let (offset, size) = (offset.unsigned_abs(), file.metadata()?.len());
            Ok((offset < size).then_some(if what == libc::SEEK_DATA { offset } else { size }))
        }
        _ => Err(error),
    }
}

/// Whether a device holds anything but zeros: anywhere if it is no larger than 256 MiB, else at its ends, or in some hundred
/// places between.
pub fn device_has_data(device: &dyn Device) -> Result<bool> {
    // Under virtual time a request to a kernel or a server blocks this thread, which is what is wanted here.
    let runtime = Runtime::simulated(0);
    let queue = device.open_queue(&runtime)?;
    let size = device.info().size;
    let holds_data = |(offset, length): (u64, u64)| -> Result<bool> {
        let length = length.min(size - offset);
        let request = Request::read(offset, Buffer::stale(length as usize), Context::default());
        let completion = runtime.block_on(queue.submit(request))?;
        completion.result?;
        Ok(completion.buffer.iter().any(|&byte| byte != 0))
    };
    let mut whole = (0..size.div_ceil(PIECE_BYTES)).map(|piece| (piece * PIECE_BYTES, PIECE_BYTES));
    let ends = ENDS_BYTES.min(size);
    let between = (1..PLACES).map(|place| {
        let offset = (u128::from(size) * u128::from(place) / u128::from(PLACES)) as u64;
        (offset - offset % PLACE_BYTES, PLACE_BYTES)
    });
    let mut sampled = [(0, ends), (size - ends, ends)].into_iter().chain(between);
    let places: &mut dyn Iterator<Item = (u64, u64)> =
        if size <= WHOLE_BYTES_MAX { &mut whole } else { &mut sampled };
    for place in places {
        if holds_data(place)? {
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
    fn holes_and_zeros_are_no_data_and_a_single_byte_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let file = File::create_new(&path).expect("made");
        file.set_len(64 << 20).expect("a hole");
        assert!(!file_has_data(&path).expect("looked"));
        file.write_all_at(&[0; 3 << 20], 5 << 20).expect("written");
        assert!(!file_has_data(&path).expect("looked"), "zeros that were written");
        file.write_all_at(&[1], (40 << 20) + 4097).expect("written");
        assert!(file_has_data(&path).expect("looked"), "one byte in the middle");
        std::fs::write(&path, "x").expect("written");
        assert!(file_has_data(&path).expect("looked"));
        std::fs::write(&path, "").expect("written");
        assert!(!file_has_data(&path).expect("looked"));
        assert!(file_has_data(&folder.path().join("y")).is_err());
    }

    fn written(size: u64, offset: u64) -> bool {
        let device = MemoryDevice::new(size, 512).expect("a device");
        assert!(!device_has_data(device.as_ref()).expect("looked"));
        let runtime = Runtime::simulated(1);
        let queue = device.open_queue(&runtime).expect("opens");
        let mut sector = Buffer::zeroed(512);
        sector[511] = 1;
        let write = queue.submit(Request::write(offset, sector, Context::default()));
        runtime.block_on(write).expect("completes").result.expect("written");
        device_has_data(device.as_ref()).expect("looked")
    }

    #[test]
    fn data_anywhere_on_a_device_is_seen_and_on_a_large_one_at_its_ends_and_every_so_often() {
        for (size, offset) in [
            (8 << 20, 0),
            (8 << 20, (8 << 20) - 512),
            (8 << 20, 3_000_320),
            (4096, 512),
            ((8 << 20) + 512, 8 << 20),
        ] {
            assert!(written(size, offset), "{offset} of {size}");
        }
        let large = 2 * WHOLE_BYTES_MAX;
        for offset in [0, large - 512, large / 2, large / 256 * 17] {
            assert!(written(large, offset), "{offset} of {large}");
        }
    }
}
