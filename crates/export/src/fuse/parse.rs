//! From the bytes the kernel sends to a [`Message`]. The bytes are untrusted: whatever they are, the result is a
//! message or an error, never a panic, and no number in a message is larger than what was checked here.

use super::wire::{
    FallocateIn, HEAD_BYTES, HEADER_BYTES, InHeader, InitIn, OpenIn, Plain, ReadIn, SetattrIn, WriteIn,
    opcode,
};

/// Most bytes one read or write moves: 256 pages, as many as the kernel puts into one request.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// Longest name in the directory.
pub const NAME_BYTES_MAX: usize = 255;

/// A request as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The number its answer must carry.
    pub unique: u64,
    /// What it is about: the directory, the file, or nothing.
    pub node: u64,
    /// What is asked.
    pub operation: FuseOperation<'a>,
}

/// The operations of a directory with one file. What is none of them is answered with `ENOSYS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseOperation<'a> {
    /// The first message: what the kernel can do.
    Init {
        /// Major version of the protocol.
        major: u32,
        /// Minor version of the protocol.
        minor: u32,
        /// Read-ahead the kernel wants, in bytes.
        readahead_bytes_max: u32,
        /// Both words of flags.
        flags: u64,
    },
    /// Which node has this name?
    Lookup(Name<'a>),
    /// Needs no answer.
    Forget,
    /// The attributes of a node.
    GetAttr,
    /// Changes attributes.
    SetAttr {
        /// Which ones (`FATTR_*`).
        valid: u32,
        /// The new size, if it is one of them.
        size: u64,
    },
    /// Opens the file with these `O_*` flags.
    Open {
        /// As in `open(2)`.
        flags: u32,
    },
    /// Closes the file or the directory.
    Release,
    /// Reads from the file.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes wanted, at most [`TRANSFER_BYTES_MAX`].
        size: usize,
    },
    /// Writes the payload to the file.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes of payload, at most [`TRANSFER_BYTES_MAX`].
        size: usize,
        /// Durable before it is answered (`O_SYNC`, `O_DSYNC`).
        durable: bool,
    },
    /// Makes the file durable.
    Fsync,
    /// A descriptor of the file was closed.
    Flush,
    /// `fallocate(2)`.
    Fallocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// `FALLOC_FL_*`.
        mode: u32,
    },
    /// Opens the directory.
    OpenDir,
    /// Reads entries of the directory.
    ReadDir {
        /// Entries to skip.
        offset: u64,
        /// Most bytes of the answer, at most [`TRANSFER_BYTES_MAX`].
        size: usize,
    },
    /// Makes the directory durable.
    FsyncDir,
    /// Space and limits.
    StatFs,
    /// May the caller?
    Access,
    /// The caller of another request got a signal.
    Interrupt,
    /// The file system is unmounted.
    Destroy,
    /// Something else.
    Unknown {
        /// Its number.
        opcode: u32,
    },
}

/// A name of a directory entry, where it lies in the message: in up to two parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    first: &'a [u8],
    rest: &'a [u8],
}

impl Name<'_> {
    /// Whether it is this name.
    pub fn is(&self, name: &[u8]) -> bool {
        name.len() == self.first.len() + self.rest.len()
            && name.starts_with(self.first)
            && name.ends_with(self.rest)
    }
}

impl std::fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.first.escape_ascii(), self.rest.escape_ascii())
    }
}

/// A message that no kernel sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The number to answer `EINVAL` to; absent where not even a header arrived, or no answer is expected.
    pub unique: Option<u64>,
}

/// Parses a message that arrived in two parts: `head`, its first [`HEAD_BYTES`](super::HEAD_BYTES) bytes or all of
/// it if it is shorter, and `payload`, the rest. Only the length of a write's payload is looked at.
pub fn parse<'a>(head: &'a [u8], payload: &'a [u8]) -> Result<Message<'a>, Malformed> {
    let header = InHeader::from_prefix(head).ok_or(Malformed { unique: None })?;
    let malformed = Malformed { unique: Some(header.unique) };
    if header.len as usize != head.len() + payload.len() {
        return Err(malformed);
    }
    let body = &head[HEADER_BYTES..];
    let operation = match header.opcode {
        opcode::FORGET | opcode::BATCH_FORGET => Some(FuseOperation::Forget),
        opcode::LOOKUP => parse_name(body, payload).map(FuseOperation::Lookup),
        opcode::GETATTR => Some(FuseOperation::GetAttr),
        opcode::SETATTR => SetattrIn::from_prefix(body)
            .map(|fields| FuseOperation::SetAttr { valid: fields.valid, size: fields.size }),
        opcode::OPEN => OpenIn::from_prefix(body).map(|fields| FuseOperation::Open { flags: fields.flags }),
        opcode::READ => parse_read(body).map(|(offset, size)| FuseOperation::Read { offset, size }),
        opcode::WRITE => parse_write(head, body, payload.len()),
        opcode::STATFS => Some(FuseOperation::StatFs),
        opcode::RELEASE | opcode::RELEASEDIR => Some(FuseOperation::Release),
        opcode::FSYNC => Some(FuseOperation::Fsync),
        opcode::FLUSH => Some(FuseOperation::Flush),
        opcode::INIT => parse_init(body),
        opcode::OPENDIR => Some(FuseOperation::OpenDir),
        opcode::READDIR => parse_read(body).map(|(offset, size)| FuseOperation::ReadDir { offset, size }),
        opcode::FSYNCDIR => Some(FuseOperation::FsyncDir),
        opcode::ACCESS => Some(FuseOperation::Access),
        opcode::INTERRUPT => Some(FuseOperation::Interrupt),
        opcode::DESTROY => Some(FuseOperation::Destroy),
        opcode::FALLOCATE => FallocateIn::from_prefix(body).map(|fields| FuseOperation::Fallocate {
            offset: fields.offset,
            length: fields.length,
            mode: fields.mode,
        }),
        opcode => Some(FuseOperation::Unknown { opcode }),
    };
    let operation = operation.ok_or(malformed)?;
    Ok(Message { unique: header.unique, node: header.nodeid, operation })
}

fn parse_init(body: &[u8]) -> Option<FuseOperation<'static>> {
    let fields = InitIn::from_prefix(body)?;
    let extended = u64::from(fields.flags) & super::wire::init::EXTENDED != 0;
    let flags2 = if extended { <[u8; 4]>::try_from(body.get(16..20)?).ok()? } else { [0; 4] };
    Some(FuseOperation::Init {
        major: fields.major,
        minor: fields.minor,
        readahead_bytes_max: fields.max_readahead,
        flags: u64::from(fields.flags) | u64::from(u32::from_ne_bytes(flags2)) << 32,
    })
}

fn parse_read(body: &[u8]) -> Option<(u64, usize)> {
    let fields = ReadIn::from_prefix(body)?;
    let size = fields.size as usize;
    (size <= TRANSFER_BYTES_MAX).then_some((fields.offset, size))
}

fn parse_write(head: &[u8], body: &[u8], payload_len: usize) -> Option<FuseOperation<'static>> {
    let fields = WriteIn::from_prefix(body)?;
    let size = fields.size as usize;
    let whole = head.len() == HEAD_BYTES && size == payload_len && size <= TRANSFER_BYTES_MAX;
    // O_SYNC contains O_DSYNC.
    let durable = fields.flags & libc::O_DSYNC.cast_unsigned() != 0;
    whole.then_some(FuseOperation::Write { offset: fields.offset, size, durable })
}

fn parse_name<'a>(body: &'a [u8], payload: &'a [u8]) -> Option<Name<'a>> {
    let end_of = |bytes: &[u8]| bytes.iter().position(|&byte| byte == 0);
    let name = match end_of(body) {
        Some(end) => Name { first: &body[..end], rest: &[] },
        None => Name { first: body, rest: &payload[..end_of(payload)?] },
    };
    (1..=NAME_BYTES_MAX).contains(&(name.first.len() + name.rest.len())).then_some(name)
}
