//! What a device says of itself: features, and the configuration space.
//!
//! Source: virtio 1.3, 5.2.3 "Feature bits" and 5.2.4 "Device configuration layout" of the block device.

use rotproof_block::DeviceInfo;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::request::SECTOR_BYTES;

/// The configuration is padded with zeros to this size: SPDK's initiator asks for so much and takes nothing else.
const CONFIG_BYTES: usize = 256;
/// Segments of data that a driver may give one request; QEMU says the same.
const DATA_SEGMENTS_MAX: u32 = 126;
/// Sectors that a driver may clear at once: 2 GiB.
const CLEARED_SECTORS_MAX: u32 = 1 << 22;

/// Bits of the virtio features.
pub(super) mod feature {
    pub(in super::super) const FLUSH: u64 = 1 << super::VIRTIO_BLK_F_FLUSH;
    pub(in super::super) const EVENT_INDEX: u64 = 1 << super::VIRTIO_RING_F_EVENT_IDX;
    /// There are protocol features. Rings begin disabled.
    pub(in super::super) const PROTOCOL: u64 = 1 << 30;
}

/// Bits of the protocol features.
pub(super) mod protocol_feature {
    pub(in super::super) const REPLY_ACK: u64 = 1 << 3;
    const MULTIQUEUE: u64 = 1 << 0;
    const CONFIG: u64 = 1 << 9;
    const RESET_DEVICE: u64 = 1 << 13;
    const MEMORY_SLOTS: u64 = 1 << 15;
    pub(in super::super) const ALL: u64 = MULTIQUEUE | REPLY_ACK | CONFIG | RESET_DEVICE | MEMORY_SLOTS;
}

/// The virtio features of a device.
pub(super) fn features(info: &DeviceInfo) -> u64 {
    let always = [
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_F_VERSION_1,
    ];
    let mut features = always.iter().fold(feature::PROTOCOL, |features, bit| features | 1 << bit);
    for (holds, bit) in [
        (info.read_only, VIRTIO_BLK_F_RO),
        (!info.read_only && info.features.discard, VIRTIO_BLK_F_DISCARD),
        (!info.read_only && info.features.write_zeroes, VIRTIO_BLK_F_WRITE_ZEROES),
    ] {
        if holds {
            features |= 1 << bit;
        }
    }
    features
}

/// The configuration space of a device with so many queues, in the order of `struct virtio_blk_config`.
pub(super) fn config_space(info: &DeviceInfo, queues: u16) -> [u8; CONFIG_BYTES] {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(info.size / SECTOR_BYTES).to_le_bytes());
    put(12, &DATA_SEGMENTS_MAX.to_le_bytes());
    put(20, &info.block_size.to_le_bytes());
    // Topology: one block of the device is one logical block, nothing is offset, transfers from one block on are good.
    put(26, &1u16.to_le_bytes());
    put(34, &queues.to_le_bytes());
    // Discard, then write zeroes: how much at once, and one range.
    put(36, &CLEARED_SECTORS_MAX.to_le_bytes());
    put(40, &1u32.to_le_bytes());
    put(44, &(info.block_size / SECTOR_BYTES as u32).to_le_bytes());
    put(48, &CLEARED_SECTORS_MAX.to_le_bytes());
    put(52, &1u32.to_le_bytes());
    put(56, &[1]);
    space
}
