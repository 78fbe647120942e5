//! What a server offers: devices, each behind a socket of its own.

use std::path::PathBuf;
use std::sync::Arc;

use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Result};

use super::config::features;
use super::request::{ID_BYTES, SECTOR_BYTES};
use crate::stripes::SharedStripes;

/// A device behind a socket.
#[derive(Clone)]
pub struct VhostExport {
    /// What the guest sees as the disk's serial number: its first 20 bytes.
    pub name: String,
    /// Where clients connect. Made with the mode 0600 and removed at the end.
    pub socket: PathBuf,
    /// The device.
    pub device: Arc<dyn Device>,
}

/// An export with what its clients share.
pub(super) struct Offered {
    pub(super) device: Arc<dyn Device>,
    pub(super) info: DeviceInfo,
    pub(super) stripes: SharedStripes,
    pub(super) features: u64,
    pub(super) id: [u8; ID_BYTES],
}

/// Prepares what is offered. Fails with [`ErrorKind::Invalid`] for a device that a virtio disk cannot be.
pub(super) fn offer(export: &VhostExport) -> Result<Offered> {
    let info = export.device.info();
    if !u64::from(info.block_size).is_multiple_of(SECTOR_BYTES) {
        let message = format!(
            "a virtio disk has blocks of a multiple of {SECTOR_BYTES} bytes, and this device of {}",
            info.block_size
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let mut id = [0; ID_BYTES];
    let length = export.name.len().min(ID_BYTES);
    id[..length].copy_from_slice(&export.name.as_bytes()[..length]);
    Ok(Offered {
        device: Arc::clone(&export.device),
        info,
        stripes: SharedStripes::of(&export.device),
        features: features(&info),
        id,
    })
}
