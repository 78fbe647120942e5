//! The numbers and layouts of the NBD protocol that the server and the leaf share.
//!
//! Source: the protocol's specification, `doc/proto.md` of the NBD project. All numbers on the wire are big-endian.

/// "NBDMAGIC", the first bytes of a server.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT": newstyle negotiation follows; also begins every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins a request with a compact header.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins a request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Begins a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Begins a chunk of a structured reply with an extended header.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of a request with a compact header.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a request with an extended header.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Bytes of a simple reply.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of the header of a structured chunk.
pub const STRUCTURED_REPLY_BYTES: usize = 20;
/// Bytes of the header of a structured chunk with an extended header.
pub const EXTENDED_REPLY_BYTES: usize = 32;

/// Names of exports are at most this long, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// The only metadata context that every server of block status has.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// Flags of the server in the handshake.
pub mod handshake_flag {
    /// Options that are not understood are answered, not the end of the connection.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The 124 zeros at the end of the old negotiation may be left out.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of a client.
pub mod option {
    /// Ends the negotiation without any way to report an error.
    pub const EXPORT_NAME: u32 = 1;
    /// The client leaves.
    pub const ABORT: u32 = 2;
    /// Which exports are there?
    pub const LIST: u32 = 3;
    /// Goes over to TLS.
    pub const STARTTLS: u32 = 5;
    /// What is this export?
    pub const INFO: u32 = 6;
    /// As info, and then begins the transmission.
    pub const GO: u32 = 7;
    /// Replies may come in chunks.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Which metadata contexts are there?
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Chooses metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Requests and replies have lengths of 64 bits.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Replies to options.
pub mod option_reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export; more follow.
    pub const SERVER: u32 = 2;
    /// A part of what was asked of an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every reply that is an error.
    pub const ERROR: u32 = 1 << 31;
    /// The option is not known.
    pub const UNSUPPORTED: u32 = ERROR | 1;
    /// The server does not permit it.
    pub const POLICY: u32 = ERROR | 2;
    /// The option makes no sense.
    pub const INVALID: u32 = ERROR | 3;
    /// Only after TLS.
    pub const TLS_REQUIRED: u32 = ERROR | 5;
    /// There is no such export.
    pub const UNKNOWN: u32 = ERROR | 6;
    /// More than the server is willing to take in.
    pub const TOO_BIG: u32 = ERROR | 9;
    /// Extended headers were chosen already.
    pub const EXTENDED_HEADERS_REQUIRED: u32 = ERROR | 10;
}

/// Kinds of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Its name.
    pub const NAME: u16 = 1;
    /// Text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Least, preferred and largest size of a request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub mod transmission_flag {
    /// The flags mean something.
    pub const HAS_FLAGS: u16 = 1;
    /// No writes.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Has flush.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Has force unit access.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Has trim.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Has writing of zeros.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Has the flag "do not fragment".
    pub const SEND_DF: u16 = 1 << 7;
    /// Several connections see one device: a flush on one covers what completed on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Has cache.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Has the flag "only if it is fast".
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands of the transmission.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// The client leaves; has no reply.
    pub const DISCONNECT: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Discard.
    pub const TRIM: u16 = 4;
    /// Bring into a cache.
    pub const CACHE: u16 = 5;
    /// Write zeros.
    pub const WRITE_ZEROES: u16 = 6;
    /// Ask for the state of blocks.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub mod command_flag {
    /// Durable on completion.
    pub const FUA: u16 = 1;
    /// Zeros may not become a hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The reply may not be in fragments.
    pub const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Only if it is faster than a write.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// A payload follows whose length the header gives.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Kinds of chunks of a structured reply.
pub mod chunk {
    /// The last one.
    pub const FLAG_DONE: u16 = 1;
    /// Nothing but its flag.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeros at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of a metadata context, 32 bits.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents of a metadata context, 64 bits.
    pub const BLOCK_STATUS_EXTENDED: u16 = 6;
    /// Set in every kind that is an error.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error of the whole request.
    pub const ERROR: u16 = ERROR_BIT | 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// The errors that the protocol has. Each is the number of the Linux errno of that name.
pub const ERRORS: [i32; 8] = [
    libc::EPERM,
    libc::EIO,
    libc::ENOMEM,
    libc::EINVAL,
    libc::ENOSPC,
    libc::EOVERFLOW,
    libc::EOPNOTSUPP,
    libc::ESHUTDOWN,
];

/// The big-endian numbers at the beginning of what has arrived; taken one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `length` bytes, if so many are left.
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string that begins with its length in 32 bits.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.bytes(length)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_end_where_the_bytes_end() {
        let mut fields = Fields(&[0, 1, 0, 0, 0, 2, b'h', b'i', 9]);
        assert_eq!(fields.u16(), Some(1));
        assert_eq!(fields.text(), Some(&b"hi"[..]));
        assert_eq!((fields.u16(), fields.u64(), fields.bytes(2)), (None, None, None));
        assert_eq!(fields.bytes(1), Some(&[9][..]));
        assert!(fields.is_empty());
        assert_eq!(Fields(&u32::MAX.to_be_bytes()).text(), None);
    }
}
