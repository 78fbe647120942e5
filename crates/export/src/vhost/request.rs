//! Requests of a driver, from the chain of memory segments that holds one. Everything in them is untrusted.
//!
//! Source: virtio 1.3, 5.2.6 "Device Operation" of the block device. What the standard leaves open is as QEMU has it.

use rotproof_block::Operation;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};

/// Bytes of a sector, the unit of all places in requests, whatever the size of the device's blocks.
pub const SECTOR_BYTES: u64 = 512;
/// The largest read or write, in bytes.
pub const TRANSFER_BYTES_MAX: u64 = 32 << 20;
/// Bytes of a device's name.
pub const ID_BYTES: usize = 20;

const HEADER_BYTES: usize = 16;
const RANGE_BYTES: u64 = 16;
/// Of a range: the blocks may be given up as well.
const FLAG_UNMAP: u32 = 1;

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins, as the guest sees it.
    pub address: u64,
    /// Its bytes.
    pub length: u32,
    /// The device writes it; else the device reads it.
    pub writable: bool,
}

/// What a driver asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VhostRequest {
    /// Read so many bytes from an offset on into the segments that are left.
    Read(u64, u64),
    /// Write the segments that are left, so many bytes, from an offset on.
    Write(u64, u64),
    /// Make durable what is complete.
    Flush,
    /// The device's name into the segments that are left.
    Id,
    /// [`Operation::Discard`] or [`Operation::WriteZeroes`] of so many bytes from an offset on.
    Clear(Operation, u64, u64),
}

/// A request, or the status that refuses it, and where the status goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedRequest {
    /// Guest address of the byte.
    pub status_address: u64,
    /// `VIRTIO_BLK_S_*` on failure.
    pub request: Result<VhostRequest, u8>,
}

impl VhostRequest {
    /// Reads a request from its segments and leaves in them those of its data. `read` fills bytes from guest memory
    /// and returns false where there is none. None if there is not even a place for the status: such a driver is
    /// broken beyond what it can be told.
    pub fn parse(
        segments: &mut Vec<Segment>,
        read: impl Fn(u64, &mut [u8]) -> bool,
    ) -> Option<ParsedRequest> {
        let last = segments.last_mut().filter(|last| last.writable && last.length > 0)?;
        last.length -= 1;
        let status_address = last.address.checked_add(u64::from(last.length))?;
        Some(ParsedRequest { status_address, request: Self::parse_rest(segments, read) })
    }

    fn parse_rest(segments: &mut Vec<Segment>, read: impl Fn(u64, &mut [u8]) -> bool) -> Result<Self, u8> {
        let io_error = VIRTIO_BLK_S_IOERR as u8;
        let readable = segments.iter().take_while(|segment| !segment.writable).count();
        if segments[readable..].iter().any(|segment| !segment.writable) {
            return Err(io_error);
        }
        let mut header = [0; HEADER_BYTES];
        if !take(segments, &mut header, &read) {
            return Err(io_error);
        }
        segments.retain(|segment| segment.length > 0);
        let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        let sector = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        let bytes_of = |writable| -> u64 {
            let segments = segments.iter().filter(|segment| segment.writable == writable);
            segments.map(|segment| u64::from(segment.length)).sum()
        };
        let (to_device, from_device) = (bytes_of(false), bytes_of(true));
        let transfer = |length: u64| {
            let fits = length.is_multiple_of(SECTOR_BYTES) && length <= TRANSFER_BYTES_MAX;
            let offset = sector.checked_mul(SECTOR_BYTES).filter(|_| fits).ok_or(io_error)?;
            Ok((offset, length))
        };
        match kind {
            VIRTIO_BLK_T_IN if to_device == 0 => {
                transfer(from_device).map(|(offset, length)| Self::Read(offset, length))
            }
            VIRTIO_BLK_T_OUT if from_device == 0 => {
                transfer(to_device).map(|(offset, length)| Self::Write(offset, length))
            }
            VIRTIO_BLK_T_IN | VIRTIO_BLK_T_OUT => Err(io_error),
            VIRTIO_BLK_T_FLUSH => Ok(Self::Flush),
            VIRTIO_BLK_T_GET_ID if from_device > 0 => Ok(Self::Id),
            VIRTIO_BLK_T_GET_ID => Err(io_error),
            // One range, as the configuration says.
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES if to_device == RANGE_BYTES => {
                let mut range = [0; RANGE_BYTES as usize];
                if !take(segments, &mut range, &read) {
                    return Err(io_error);
                }
                Self::clear(kind, &range)
            }
            _ => Err(VIRTIO_BLK_S_UNSUPP as u8),
        }
    }

    fn clear(kind: u32, range: &[u8; RANGE_BYTES as usize]) -> Result<Self, u8> {
        let sector = u64::from_le_bytes(range[..8].try_into().expect("eight bytes"));
        let sectors = u32::from_le_bytes(range[8..12].try_into().expect("four bytes"));
        let flags = u32::from_le_bytes(range[12..].try_into().expect("four bytes"));
        let (operation, flags_known) = match kind {
            VIRTIO_BLK_T_DISCARD => (Operation::Discard, 0),
            _ => (Operation::WriteZeroes, FLAG_UNMAP),
        };
        if flags & !flags_known != 0 {
            return Err(VIRTIO_BLK_S_UNSUPP as u8);
        }
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or(VIRTIO_BLK_S_IOERR as u8)?;
        Ok(Self::Clear(operation, offset, u64::from(sectors) * SECTOR_BYTES))
    }
}

/// Fills `bytes` from the beginning of the segments that the device reads, and takes them off these.
fn take(segments: &mut [Segment], mut bytes: &mut [u8], read: impl Fn(u64, &mut [u8]) -> bool) -> bool {
    for segment in segments.iter_mut().take_while(|segment| !segment.writable) {
        let length = bytes.len().min(segment.length as usize);
        let (part, rest) = bytes.split_at_mut(length);
        if !part.is_empty() && !read(segment.address, part) {
            return false;
        }
        // What is read is there, so this cannot overflow.
        segment.address = segment.address.wrapping_add(length as u64);
        segment.length -= length as u32;
        bytes = rest;
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use virtio_bindings::virtio_blk::VIRTIO_BLK_S_OK;

    use super::*;

    const IO_ERROR: Result<VhostRequest, u8> = Err(VIRTIO_BLK_S_IOERR as u8);
    const UNSUPPORTED: Result<VhostRequest, u8> = Err(VIRTIO_BLK_S_UNSUPP as u8);

    fn header(kind: u32, sector: u64) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat()
    }

    fn readable(address: u64, length: u32) -> Segment {
        Segment { address, length, writable: false }
    }

    fn writable(address: u64, length: u32) -> Segment {
        Segment { address, length, writable: true }
    }

    /// Parses over memory that begins with `memory` and has 4096 bytes.
    fn parse(memory: &[u8], segments: &mut Vec<Segment>) -> Option<ParsedRequest> {
        let mut all = memory.to_vec();
        all.resize(4096, 0);
        VhostRequest::parse(segments, |address, bytes| {
            let start = usize::try_from(address).unwrap_or(usize::MAX);
            let part = all.get(start..start.saturating_add(bytes.len()));
            part.inspect(|part| bytes.copy_from_slice(part)).is_some()
        })
    }

    fn request(memory: &[u8], segments: &[Segment]) -> Result<VhostRequest, u8> {
        parse(memory, &mut segments.to_vec()).expect("a place for the status").request
    }

    #[test]
    fn reads_and_writes_leave_the_segments_of_their_data() {
        let read = header(VIRTIO_BLK_T_IN, 3);
        let mut segments = vec![readable(0, 16), writable(512, 512), writable(1024, 513)];
        let parsed = parse(&read, &mut segments).expect("a place for the status");
        assert_eq!(parsed.request, Ok(VhostRequest::Read(1536, 1024)));
        assert_eq!(parsed.status_address, 1536);
        assert_eq!(segments, [writable(512, 512), writable(1024, 512)]);

        let write = header(VIRTIO_BLK_T_OUT, 1);
        let mut segments = vec![readable(0, 16), readable(512, 512), writable(9, 1)];
        let parsed = parse(&write, &mut segments).expect("a place for the status");
        assert_eq!((parsed.request, parsed.status_address), (Ok(VhostRequest::Write(512, 512)), 9));
        assert_eq!(segments, [readable(512, 512)]);
    }

    #[test]
    fn a_header_may_be_cut_anywhere_and_run_into_the_data() {
        let write = header(VIRTIO_BLK_T_OUT, 1);
        let mut segments = vec![readable(0, 5), readable(5, 0), readable(5, 11 + 512), writable(2048, 1)];
        let parsed = parse(&write, &mut segments).expect("a place for the status");
        assert_eq!(parsed.request, Ok(VhostRequest::Write(512, 512)));
        assert_eq!(segments, [readable(16, 512)]);
    }

    #[test]
    fn what_makes_no_sense_gets_an_error() {
        let of = |kind, sector| header(kind, sector);
        let data = [readable(0, 16), writable(512, 513)];
        assert_eq!(request(&of(VIRTIO_BLK_T_IN, u64::MAX), &data), IO_ERROR, "beyond every device");
        assert_eq!(request(&of(VIRTIO_BLK_T_IN, 0), &[readable(0, 16), writable(512, 100)]), IO_ERROR);
        assert_eq!(request(&of(VIRTIO_BLK_T_OUT, 0), &data), IO_ERROR, "it writes what cannot be read");
        assert_eq!(request(&of(VIRTIO_BLK_T_IN, 0), &[readable(0, 15), writable(512, 513)]), IO_ERROR);
        assert_eq!(request(&of(VIRTIO_BLK_T_IN, 0), &[readable(4090, 16), writable(512, 513)]), IO_ERROR);
        let reversed = [writable(512, 512), readable(0, 16), writable(9, 1)];
        assert_eq!(request(&of(VIRTIO_BLK_T_IN, 0), &reversed), IO_ERROR);
        let huge = [readable(0, 16), writable(0, u32::MAX), writable(9, 2)];
        assert_eq!(request(&of(VIRTIO_BLK_T_IN, 0), &huge), IO_ERROR);
        assert_eq!(request(&of(99, 0), &data), UNSUPPORTED);
        assert_eq!(request(&of(VIRTIO_BLK_T_GET_ID, 0), &[readable(0, 16), writable(512, 1)]), IO_ERROR);
        assert_eq!(parse(&[], &mut vec![]), None);
        assert_eq!(parse(&[], &mut vec![readable(0, 16)]), None, "no place for a status");
        assert_eq!(parse(&[], &mut vec![readable(0, 16), writable(0, 0)]), None);
        assert_eq!(parse(&[], &mut vec![writable(u64::MAX, 2)]), None, "beyond all memory");
    }

    #[test]
    fn ranges_are_cleared_one_at_a_time_with_the_flags_that_fit() {
        let clear = |kind, flags: u32, bytes: u32| {
            let range = [&7u64.to_le_bytes()[..], &8u32.to_le_bytes(), &flags.to_le_bytes()].concat();
            let memory = [header(kind, 0), range].concat();
            request(&memory, &[readable(0, 16), readable(16, bytes), writable(512, 1)])
        };
        let discard = VhostRequest::Clear(Operation::Discard, 7 * 512, 8 * 512);
        assert_eq!(clear(VIRTIO_BLK_T_DISCARD, 0, 16), Ok(discard));
        assert_eq!(clear(VIRTIO_BLK_T_DISCARD, 1, 16), UNSUPPORTED);
        let zeroes = VhostRequest::Clear(Operation::WriteZeroes, 7 * 512, 8 * 512);
        assert_eq!(clear(VIRTIO_BLK_T_WRITE_ZEROES, 0, 16), Ok(zeroes));
        assert_eq!(clear(VIRTIO_BLK_T_WRITE_ZEROES, 1, 16), Ok(zeroes));
        assert_eq!(clear(VIRTIO_BLK_T_WRITE_ZEROES, 2, 16), UNSUPPORTED);
        assert_eq!(clear(VIRTIO_BLK_T_DISCARD, 0, 32), UNSUPPORTED, "two ranges");
        assert_eq!(clear(VIRTIO_BLK_T_DISCARD, 0, 15), UNSUPPORTED);
    }

    proptest! {
        #[test]
        fn whatever_is_asked_the_data_is_inside_what_was_given(
            kind in prop_oneof![0u32..16, any::<u32>()],
            sector in prop_oneof![0u64..100, any::<u64>()],
            given in prop::collection::vec(
                (prop_oneof![0u64..4096, any::<u64>()], prop_oneof![0u32..1024, any::<u32>()], any::<bool>()),
                0..8,
            ),
        ) {
            let given: Vec<_> =
                given.into_iter().map(|(address, length, writable)| Segment { address, length, writable }).collect();
            let mut left = given.clone();
            if let Some(parsed) = parse(&header(kind, sector), &mut left) {
                prop_assert_ne!(parsed.request, Err(VIRTIO_BLK_S_OK as u8));
                if let Ok(VhostRequest::Read(offset, length) | VhostRequest::Write(offset, length)) = parsed.request {
                    let bytes: u64 = left.iter().map(|segment| u64::from(segment.length)).sum();
                    prop_assert_eq!(bytes, length);
                    prop_assert!(length <= TRANSFER_BYTES_MAX && offset.is_multiple_of(SECTOR_BYTES));
                    for segment in &left {
                        prop_assert!(given.iter().any(|whole| whole.writable == segment.writable
                            && segment.address.wrapping_sub(whole.address) <= u64::from(whole.length)));
                    }
                }
            }
        }
    }
}
