//! What a server offers: named devices, and what a client is told of each.

use std::sync::Arc;

use rotproof_block::nbd::{NAME_BYTES_MAX, transmission_flag};
use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Result};

use crate::stripes::SharedStripes;

/// The largest read or write that a client may ask for, in bytes; what it is told.
pub(super) const TRANSFER_BYTES_MAX: u32 = 32 << 20;
/// The size of a request that serves best, unless the device has larger blocks.
const PREFERRED_BYTES: u32 = 4096;

/// A device under a name.
#[derive(Clone)]
pub struct NbdExport {
    /// What clients ask for. The first export of a server also answers to the empty name.
    pub name: String,
    /// Text for people, told to clients that ask.
    pub description: String,
    /// The device.
    pub device: Arc<dyn Device>,
}

/// An export with what its connections share.
pub(super) struct Offered {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) device: Arc<dyn Device>,
    pub(super) stripes: SharedStripes,
    flags: u16,
    pub(super) preferred_bytes: u32,
}

impl Offered {
    /// Bytes that a client is told of, as they are now: the device may have become larger since another client asked.
    pub(super) fn size(&self) -> u64 {
        self.device.info().size
    }

    /// The flags for a client that has asked for structured replies, or has not: without them it cannot be told where a read
    /// was cut into pieces.
    pub(super) fn flags_for(&self, structured: bool) -> u16 {
        if structured { self.flags } else { self.flags & !transmission_flag::SEND_DF }
    }
}

/// Checks names and prepares what is offered. Fails with [`ErrorKind::Invalid`].
pub(super) fn offer(exports: Vec<NbdExport>) -> Result<Vec<Arc<Offered>>> {
    let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
    if exports.is_empty() {
        return invalid("an NBD server needs at least one export".into());
    }
    let mut offered: Vec<Arc<Offered>> = Vec::with_capacity(exports.len());
    for NbdExport { name, description, device } in exports {
        if name.len() > NAME_BYTES_MAX || description.len() > NAME_BYTES_MAX {
            return invalid(format!("name and description of an export have up to {NAME_BYTES_MAX} bytes"));
        }
        if offered.iter().any(|other| other.name == name) {
            return invalid(format!("two exports have the name {name:?}; give each its own"));
        }
        let info = device.info();
        offered.push(Arc::new(Offered {
            name,
            description,
            stripes: SharedStripes::of(&device),
            flags: flags(&info),
            preferred_bytes: info.block_size.max(PREFERRED_BYTES),
            device,
        }));
    }
    Ok(offered)
}

fn flags(info: &DeviceInfo) -> u16 {
    use transmission_flag as flag;
    // Flush and FUA always succeed; several connections see one device by its contract. Whether zeroes cost less than
    // data, as FAST_ZERO promises, only the leaf could say.
    let mut flags = flag::HAS_FLAGS
        | flag::SEND_FLUSH
        | flag::SEND_FUA
        | flag::SEND_DF
        | flag::CAN_MULTI_CONN
        | flag::SEND_CACHE;
    for (holds, flag) in [
        (info.read_only, flag::READ_ONLY),
        (!info.read_only && info.features.discard, flag::SEND_TRIM),
        (!info.read_only && info.features.write_zeroes, flag::SEND_WRITE_ZEROES),
    ] {
        if holds {
            flags |= flag;
        }
    }
    flags
}
