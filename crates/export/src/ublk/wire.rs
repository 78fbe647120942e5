//! Numbers and layouts of the kernel's ublk driver, as Linux 6.5 and later have them.
//!
//! Source: the kernel's `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst`. Numbers are in the order of
//! this machine.

/// Unit of offsets and lengths.
pub(super) const SECTOR_BYTES: u64 = 512;
/// The most requests of a queue at a time.
pub(super) const DEPTH_MAX: u16 = 4096;
/// The most bytes of a read or write.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The most bytes that are cleared at once.
const CLEARED_BYTES_MAX: u64 = 1 << 30;

/// Commands to the control device: `_IOR` and `_IOWR` of the type `u` and 32 bytes.
pub(super) mod control {
    const fn reads(number: u32) -> u32 {
        2 << 30 | 32 << 16 | (b'u' as u32) << 8 | number
    }

    const fn writes(number: u32) -> u32 {
        1 << 30 | reads(number)
    }

    pub(in crate::ublk) const GET_DEV_INFO: u32 = reads(0x02);
    pub(in crate::ublk) const ADD_DEV: u32 = writes(0x04);
    pub(in crate::ublk) const DEL_DEV: u32 = writes(0x05);
    pub(in crate::ublk) const START_DEV: u32 = writes(0x06);
    pub(in crate::ublk) const STOP_DEV: u32 = writes(0x07);
    pub(in crate::ublk) const SET_PARAMS: u32 = writes(0x08);
    pub(in crate::ublk) const GET_PARAMS: u32 = reads(0x09);
    pub(in crate::ublk) const START_USER_RECOVERY: u32 = writes(0x10);
    pub(in crate::ublk) const END_USER_RECOVERY: u32 = writes(0x11);
    pub(in crate::ublk) const GET_FEATURES: u32 = reads(0x13);
    pub(in crate::ublk) const DEL_DEV_ASYNC: u32 = reads(0x14);
}

/// Commands to a device's queue: `_IOWR` of the type `u` and 16 bytes.
pub(super) mod queue {
    const fn both(number: u32) -> u32 {
        3 << 30 | 16 << 16 | (b'u' as u32) << 8 | number
    }

    pub(in crate::ublk) const FETCH: u32 = both(0x20);
    pub(in crate::ublk) const COMMIT_AND_FETCH: u32 = both(0x21);
}

/// Features of the driver, and flags of a device.
pub(super) mod flag {
    /// The device outlives its server, and waits for another.
    pub(in crate::ublk) const USER_RECOVERY: u64 = 1 << 3;
    /// What a dead server had not answered is given to the next one.
    pub(in crate::ublk) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands have the numbers above.
    pub(in crate::ublk) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// Data is fetched and brought by `pread` and `pwrite`.
    pub(in crate::ublk) const USER_COPY: u64 = 1 << 7;
}

/// What a device is asked for and must be able to do.
pub(super) const FLAGS: u64 =
    flag::USER_RECOVERY | flag::USER_RECOVERY_REISSUE | flag::CMD_IOCTL_ENCODE | flag::USER_COPY;

/// What of them makes a device outlive its server.
pub(super) const RECOVERY: u64 = flag::USER_RECOVERY | flag::USER_RECOVERY_REISSUE;

/// A device with a server.
pub(super) const STATE_LIVE: u16 = 1;
/// A device whose server has died.
pub(super) const STATE_QUIESCED: u16 = 2;

/// What is to be done.
pub(super) mod operation {
    pub(in crate::ublk) const READ: u8 = 0;
    pub(in crate::ublk) const WRITE: u8 = 1;
    pub(in crate::ublk) const FLUSH: u8 = 2;
    pub(in crate::ublk) const DISCARD: u8 = 3;
    pub(in crate::ublk) const WRITE_ZEROES: u8 = 5;
}

/// In the flags of a request: durable on completion.
const FORCE_UNIT_ACCESS: u32 = 1 << 13;

/// `struct ublksrv_ctrl_cmd`: which device, where the answer goes or the question is, and a number.
pub(super) fn control_command(device: u32, buffer: u64, buffer_bytes: u16, data: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[..4].copy_from_slice(&device.to_ne_bytes());
    // No queue in particular.
    bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    bytes[6..8].copy_from_slice(&buffer_bytes.to_ne_bytes());
    bytes[8..16].copy_from_slice(&buffer.to_ne_bytes());
    bytes[16..24].copy_from_slice(&data.to_ne_bytes());
    bytes
}

/// `struct ublksrv_io_cmd`: the answer to the request that had this tag, if it is one.
pub(super) fn queue_command(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceRecord {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) transfer_bytes_max: u32,
    pub(super) number: u32,
    pub(super) server_pid: i32,
    pub(super) flags: u64,
    /// The driver keeps it and does not look at it.
    pub(super) owner: u64,
}

pub(super) const DEVICE_RECORD_BYTES: usize = 64;

impl DeviceRecord {
    pub(super) fn to_bytes(self) -> [u8; DEVICE_RECORD_BYTES] {
        let mut bytes = [0; DEVICE_RECORD_BYTES];
        bytes[..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.state.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.transfer_bytes_max.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.server_pid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.owner.to_ne_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; DEVICE_RECORD_BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(part(bytes, 0)),
            depth: u16::from_ne_bytes(part(bytes, 2)),
            state: u16::from_ne_bytes(part(bytes, 4)),
            transfer_bytes_max: u32::from_ne_bytes(part(bytes, 8)),
            number: u32::from_ne_bytes(part(bytes, 12)),
            server_pid: i32::from_ne_bytes(part(bytes, 16)),
            flags: u64::from_ne_bytes(part(bytes, 24)),
            owner: u64::from_ne_bytes(part(bytes, 32)),
        }
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the structures are longer than their fields are far")
}

/// The parts of `struct ublk_params` that say what disk it is and what it can clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) size: u64,
    pub(super) block_size: u32,
    pub(super) read_only: bool,
    pub(super) flush: bool,
    pub(super) fua: bool,
    pub(super) discard: bool,
    pub(super) write_zeroes: bool,
}

pub(super) const PARAMETER_BYTES: usize = 60;
const TYPE_BASIC: u32 = 1;
const TYPE_DISCARD: u32 = 2;

impl Parameters {
    pub(super) fn to_bytes(self) -> [u8; PARAMETER_BYTES] {
        let mut bytes = [0; PARAMETER_BYTES];
        let clears = self.discard || self.write_zeroes;
        let attributes = u32::from(self.read_only)
            | u32::from(self.flush) << 2
            // Without flush there is no cache that anything could be forced through.
            | u32::from(self.fua && self.flush) << 3;
        let shift = self.block_size.trailing_zeros() as u8;
        let cleared_sectors = (CLEARED_BYTES_MAX / SECTOR_BYTES) as u32;
        let limit = |holds: bool| if holds { cleared_sectors } else { 0 };
        let fields: [(usize, &[u8]); 12] = [
            (0, &(PARAMETER_BYTES as u32).to_ne_bytes()),
            (4, &(TYPE_BASIC | if clears { TYPE_DISCARD } else { 0 }).to_ne_bytes()),
            (8, &attributes.to_ne_bytes()),
            // Logical and physical size of a block, the best and the least size of a request.
            (12, &[shift, shift, shift.max(12), shift]),
            (16, &(TRANSFER_BYTES_MAX / SECTOR_BYTES as u32).to_ne_bytes()),
            (24, &(self.size / SECTOR_BYTES).to_ne_bytes()),
            (40, &self.block_size.to_ne_bytes()),
            (44, &self.block_size.to_ne_bytes()),
            (48, &limit(self.discard).to_ne_bytes()),
            (52, &limit(self.write_zeroes).to_ne_bytes()),
            (56, &1u16.to_ne_bytes()),
            (58, &[0; 2]),
        ];
        for (at, field) in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        bytes
    }

    /// Size in bytes and size of a block of a device that is there.
    pub(super) fn geometry(bytes: &[u8; PARAMETER_BYTES]) -> (u64, u32) {
        let sectors = u64::from_ne_bytes(part(bytes, 24));
        (sectors.saturating_mul(SECTOR_BYTES), 1u32.checked_shl(bytes[12].into()).unwrap_or(0))
    }
}

/// `struct ublksrv_io_desc`: what the driver says of a request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Descriptor {
    operation_and_flags: u32,
    sectors: u32,
    first_sector: u64,
    _address: u64,
}

impl Descriptor {
    pub(super) fn operation(self) -> u8 {
        self.operation_and_flags as u8
    }

    pub(super) fn is_durable(self) -> bool {
        self.operation_and_flags & FORCE_UNIT_ACCESS != 0
    }

    /// First byte and number of bytes.
    pub(super) fn range(self) -> (u64, u64) {
        (self.first_sector.saturating_mul(SECTOR_BYTES), u64::from(self.sectors) * SECTOR_BYTES)
    }
}

/// Bytes of the descriptors of a queue, in whole pages.
pub(super) fn descriptor_bytes(depth: u16) -> usize {
    (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(4096)
}

/// Where the descriptors of a queue are to be mapped from.
pub(super) fn descriptors_at(queue: u16) -> u64 {
    u64::from(queue) * descriptor_bytes(DEPTH_MAX) as u64
}

/// Where the data of a request is to be read from and written to.
pub(super) fn data_at(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_kernels_header() {
        assert_eq!(control::ADD_DEV, 0xc020_7504);
        assert_eq!(control::GET_DEV_INFO, 0x8020_7502);
        assert_eq!(queue::FETCH, 0xc010_7520);
        assert_eq!(queue::COMMIT_AND_FETCH, 0xc010_7521);
    }

    #[test]
    fn what_is_said_of_a_device_is_read_as_it_was_written() {
        let record = DeviceRecord {
            queues: 3,
            depth: 128,
            state: STATE_QUIESCED,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            number: 7,
            server_pid: -1,
            flags: FLAGS,
            owner: u64::MAX - 5,
        };
        assert_eq!(DeviceRecord::from_bytes(&record.to_bytes()), record);
    }

    #[test]
    fn a_disk_is_described_with_what_it_can_do() {
        let disk = Parameters {
            size: 1 << 30,
            block_size: 4096,
            read_only: true,
            flush: true,
            fua: true,
            discard: true,
            write_zeroes: false,
        };
        let bytes = disk.to_bytes();
        assert_eq!(Parameters::geometry(&bytes), (1 << 30, 4096));
        assert_eq!(bytes[4..12], [3, 0, 0, 0, 0b1101, 0, 0, 0]);
        assert_eq!((&bytes[48..52], &bytes[52..56]), (&[0, 0, 32, 0][..], &[0; 4][..]));
        let plain = Parameters { flush: false, discard: false, ..disk };
        assert_eq!(plain.to_bytes()[4..12], [1, 0, 0, 0, 1, 0, 0, 0], "nothing to force through");
    }

    #[test]
    fn places_of_data_and_descriptors_do_not_meet() {
        assert_eq!(data_at(0, 1) - data_at(0, 0), 1 << 25);
        assert!(data_at(1, 0) > data_at(0, DEPTH_MAX));
        assert_eq!(descriptors_at(1), 98_304);
        assert_eq!(descriptor_bytes(128), 4096);
        assert!(u64::from(TRANSFER_BYTES_MAX) <= 1 << 25);
    }
}
