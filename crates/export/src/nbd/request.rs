//! Reads the header of a request, as it comes from a client that nobody trusts.

use rotproof_block::nbd::{self, EXTENDED_REQUEST_BYTES, Fields, REQUEST_BYTES, command, command_flag};

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    /// Flags of the command.
    pub flags: u16,
    /// What to do; any number.
    pub command: u16,
    /// Chosen by the client, repeated in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes; of a payload if [`NbdRequest::payload_bytes`] says so.
    pub length: u64,
}

/// The client does not speak the protocol (any more): there is no telling where its next request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMagic(pub u32);

impl NbdRequest {
    /// The request at the beginning of `bytes` and how many bytes its header has; `None` if it is not whole.
    pub fn parse(bytes: &[u8], extended: bool) -> Result<Option<(Self, usize)>, BadMagic> {
        let mut fields = Fields(bytes);
        let Some(magic) = fields.u32() else { return Ok(None) };
        let (expected, header_bytes) = if extended {
            (nbd::EXTENDED_REQUEST_MAGIC, EXTENDED_REQUEST_BYTES)
        } else {
            (nbd::REQUEST_MAGIC, REQUEST_BYTES)
        };
        if magic != expected {
            return Err(BadMagic(magic));
        }
        let whole = (|| {
            Some(Self {
                flags: fields.u16()?,
                command: fields.u16()?,
                cookie: fields.u64()?,
                offset: fields.u64()?,
                length: if extended { fields.u64()? } else { fields.u32()?.into() },
            })
        })();
        Ok(whole.map(|request| (request, header_bytes)))
    }

    /// Bytes that follow the header.
    pub fn payload_bytes(&self, extended: bool) -> u64 {
        let follows = if extended {
            self.flags & command_flag::PAYLOAD_LEN != 0
        } else {
            self.command == command::WRITE
        };
        if follows { self.length } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: u32, extended: bool) -> Vec<u8> {
        let mut bytes = magic.to_be_bytes().to_vec();
        bytes.extend(command_flag::FUA.to_be_bytes());
        bytes.extend(command::WRITE.to_be_bytes());
        bytes.extend(7u64.to_be_bytes());
        bytes.extend(8192u64.to_be_bytes());
        if extended {
            bytes.extend(512u64.to_be_bytes());
        } else {
            bytes.extend(512u32.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn a_header_is_read_when_it_is_whole() {
        for (magic, extended) in [(nbd::REQUEST_MAGIC, false), (nbd::EXTENDED_REQUEST_MAGIC, true)] {
            let bytes = header(magic, extended);
            for length in 0..bytes.len() {
                assert_eq!(NbdRequest::parse(&bytes[..length], extended), Ok(None), "{length} bytes");
            }
            let expected = NbdRequest {
                flags: command_flag::FUA,
                command: command::WRITE,
                cookie: 7,
                offset: 8192,
                length: 512,
            };
            assert_eq!(NbdRequest::parse(&bytes, extended), Ok(Some((expected, bytes.len()))));
            assert_eq!(NbdRequest::parse(&bytes, !extended), Err(BadMagic(magic)));
            assert_eq!(expected.payload_bytes(extended), if extended { 0 } else { 512 });
        }
    }
}
