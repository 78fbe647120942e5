//! The messages of a frontend, parsed from untrusted bytes; what is answered to them. Plain data, no I/O.
//!
//! Numbers are in the byte order of the machine, as both sides share its memory. Source: QEMU's
//! `docs/interop/vhost-user.rst`.

/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 12;
/// A body is never longer: the longest here are a table of 32 regions and 4,084 bytes of configuration.
pub const BODY_BYTES_MAX: usize = 4096;
/// Regions of memory that a client may have at a time.
pub const REGIONS_MAX: usize = 32;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const FLAG_REPLY: u32 = 1 << 2;
const FLAG_NEED_REPLY: u32 = 1 << 3;
/// In the number of a ring: no descriptor comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// Numbers of the requests.
pub mod code {
    #![allow(missing_docs)]
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}

/// What precedes a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the request ([`code`]).
    pub code: u32,
    /// The sender wants to know how it went.
    pub needs_reply: bool,
    /// Bytes of the body.
    pub body_bytes: usize,
}

impl Header {
    /// Reads a request's header. None if it is of another version, a reply, or announces too long a body.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let flags = word(bytes, 4)?;
        let body_bytes = word(bytes, 8)? as usize;
        if flags & VERSION_MASK != VERSION || flags & FLAG_REPLY != 0 || body_bytes > BODY_BYTES_MAX {
            return None;
        }
        Some(Self { code: word(bytes, 0)?, needs_reply: flags & FLAG_NEED_REPLY != 0, body_bytes })
    }

    /// The reply to this request, header and body.
    pub fn reply(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        for number in [self.code, VERSION | FLAG_REPLY, body.len() as u32] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(body);
        bytes
    }
}

/// A piece of the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionDescription {
    /// Where descriptors see it.
    pub guest_address: u64,
    /// Bytes, above zero.
    pub size: u64,
    /// Where the client's process sees it; addresses of rings are of this kind.
    pub user_address: u64,
    /// Where it begins in the file that comes with it.
    pub file_offset: u64,
}

/// A request of a frontend that a block device can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VhostMessage {
    /// Which virtio features there are.
    GetFeatures,
    /// Which of them are used.
    SetFeatures(u64),
    /// The session begins.
    SetOwner,
    /// Rings and device go back to where they began.
    Reset,
    /// All of the memory, with one descriptor for each region.
    SetMemoryTable(Vec<RegionDescription>),
    /// Number of entries of a ring.
    SetRingSize(u32, u32),
    /// Where a ring's parts are, as the client's process sees them.
    SetRingAddresses(u32, RingAddresses),
    /// Where a ring goes on.
    SetRingBase(u32, u32),
    /// Stop a ring, and say where it would go on.
    GetRingBase(u32),
    /// The descriptor that tells of new requests, if one comes with it.
    SetRingKick(u32, bool),
    /// The descriptor to tell of completions by.
    SetRingCall(u32, bool),
    /// The descriptor to tell of errors by.
    SetRingError(u32, bool),
    /// Which protocol features there are.
    GetProtocolFeatures,
    /// Which of them are used.
    SetProtocolFeatures(u64),
    /// How many rings there may be.
    GetQueueNumber,
    /// Serve a ring or do not.
    SetRingEnabled(u32, bool),
    /// So many bytes of the configuration from an offset on, and flags that come back.
    GetConfig(u32, u32, u32),
    /// Change the configuration.
    SetConfig,
    /// How many regions of memory there may be.
    GetMemorySlots,
    /// One region more.
    AddRegion(RegionDescription),
    /// One region less.
    RemoveRegion(RegionDescription),
}

/// Where a ring's parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddresses {
    /// The table of descriptors.
    pub descriptors: u64,
    /// What the device has done.
    pub used: u64,
    /// What the driver offers.
    pub available: u64,
}

impl VhostMessage {
    /// Reads the body of the request `code`. None if it is not one, or one that nobody may ask of a block device with
    /// the protocol features that are offered here.
    pub fn parse(code: u32, body: &[u8]) -> Option<Self> {
        let empty = |message| body.is_empty().then_some(message);
        let number = || (body.len() == 8).then(|| long(body, 0)).flatten();
        let state = || (body.len() == 8).then(|| word(body, 0).zip(word(body, 4))).flatten();
        let ring = || number().map(|number| ((number & 0xff) as u32, number & NO_DESCRIPTOR == 0));
        Some(match code {
            code::GET_FEATURES => empty(Self::GetFeatures)?,
            code::SET_FEATURES => Self::SetFeatures(number()?),
            code::SET_OWNER => empty(Self::SetOwner)?,
            code::RESET_OWNER | code::RESET_DEVICE => empty(Self::Reset)?,
            code::SET_MEM_TABLE => {
                let regions = word(body, 0)? as usize;
                if regions > REGIONS_MAX || body.len() != 8 + regions * REGION_BYTES {
                    return None;
                }
                Self::SetMemoryTable(
                    (0..regions).map(|n| region(body, 8 + n * REGION_BYTES)).collect::<Option<_>>()?,
                )
            }
            code::SET_VRING_NUM => state().map(|(ring, size)| Self::SetRingSize(ring, size))?,
            code::SET_VRING_ADDR if body.len() == 40 => Self::SetRingAddresses(
                word(body, 0)?,
                RingAddresses {
                    descriptors: long(body, 8)?,
                    used: long(body, 16)?,
                    available: long(body, 24)?,
                },
            ),
            code::SET_VRING_BASE => state().map(|(ring, base)| Self::SetRingBase(ring, base))?,
            code::GET_VRING_BASE => state().map(|(ring, _)| Self::GetRingBase(ring))?,
            code::SET_VRING_KICK => ring().map(|(ring, has)| Self::SetRingKick(ring, has))?,
            code::SET_VRING_CALL => ring().map(|(ring, has)| Self::SetRingCall(ring, has))?,
            code::SET_VRING_ERR => ring().map(|(ring, has)| Self::SetRingError(ring, has))?,
            code::GET_PROTOCOL_FEATURES => empty(Self::GetProtocolFeatures)?,
            code::SET_PROTOCOL_FEATURES => Self::SetProtocolFeatures(number()?),
            code::GET_QUEUE_NUM => empty(Self::GetQueueNumber)?,
            // The protocol says 1 or 0. SPDK's initiator sends the size of the ring for 1.
            code::SET_VRING_ENABLE => state().map(|(ring, on)| Self::SetRingEnabled(ring, on != 0))?,
            code::GET_CONFIG => {
                let (offset, size, flags) = (word(body, 0)?, word(body, 4)?, word(body, 8)?);
                // The body has room for the answer.
                (body.len() == 12 + size as usize).then_some(Self::GetConfig(offset, size, flags))?
            }
            code::SET_CONFIG => Self::SetConfig,
            code::GET_MAX_MEM_SLOTS => empty(Self::GetMemorySlots)?,
            code::ADD_MEM_REG if body.len() == 8 + REGION_BYTES => Self::AddRegion(region(body, 8)?),
            code::REM_MEM_REG if body.len() == 8 + REGION_BYTES => Self::RemoveRegion(region(body, 8)?),
            _ => return None,
        })
    }
}

const REGION_BYTES: usize = 32;

/// None for a region of nothing or one that reaches beyond the end of an address space.
fn region(body: &[u8], at: usize) -> Option<RegionDescription> {
    let region = RegionDescription {
        guest_address: long(body, at)?,
        size: long(body, at + 8)?,
        user_address: long(body, at + 16)?,
        file_offset: long(body, at + 24)?,
    };
    let fits = [region.guest_address, region.user_address, region.file_offset]
        .iter()
        .all(|start| start.checked_add(region.size).is_some());
    (region.size > 0 && fits).then_some(region)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ring_is_enabled_by_one_and_by_what_spdk_says() {
        for (number, enabled) in [(0u32, false), (1, true), (128, true)] {
            let body: Vec<u8> = [3u32, number].iter().flat_map(|number| number.to_ne_bytes()).collect();
            let message = VhostMessage::parse(code::SET_VRING_ENABLE, &body);
            assert_eq!(message, Some(VhostMessage::SetRingEnabled(3, enabled)));
        }
    }

    #[test]
    fn tables_are_taken_whole_or_not_at_all() {
        let table = |regions: u32, numbers: &[u64]| {
            let mut body = regions.to_ne_bytes().to_vec();
            body.extend([0; 4]);
            body.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
            VhostMessage::parse(code::SET_MEM_TABLE, &body)
        };
        let region = RegionDescription { guest_address: 1, size: 2, user_address: 3, file_offset: 4 };
        assert_eq!(table(1, &[1, 2, 3, 4]), Some(VhostMessage::SetMemoryTable(vec![region])));
        assert_eq!(table(0, &[]), Some(VhostMessage::SetMemoryTable(vec![])));
        assert_eq!(table(2, &[1, 2, 3, 4]), None, "cut off");
        assert_eq!(table(1, &[1, 0, 3, 4]), None, "a region of nothing");
        assert_eq!(table(1, &[u64::MAX, 2, 3, 4]), None, "beyond the end");
        assert_eq!(table(33, &[1; 33 * 4]), None, "too many");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_fail(
            header in any::<[u8; HEADER_BYTES]>(),
            code in 0u32..50,
            body in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = Header::parse(&header);
            let _ = VhostMessage::parse(code, &body);
        }
    }
}
