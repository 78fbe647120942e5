//! The fixed newstyle handshake: what a client and the server agree on before the first request.
//!
//! Reads untrusted bytes from a [`Stream`]; every length is checked against what is left and against a limit. Knows
//! nothing of sockets. Source: the NBD protocol's specification, "Handshake phase".

use std::io;
use std::sync::Arc;

use rotproof_block::nbd::{self, Fields, handshake_flag, info, option, option_reply as reply};

use super::export::{Offered, TRANSFER_BYTES_MAX};

/// The longest option that is taken in; longer ones are skipped up to [`SKIPPED_BYTES_MAX`].
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// A client that sends a longer option is disconnected.
const SKIPPED_BYTES_MAX: u32 = 16 << 20;
/// A client that asks for more has no end.
const OPTIONS_MAX: u32 = 1000;
/// The number that block status gives for `base:allocation`.
pub(super) const BASE_ALLOCATION_ID: u32 = 1;

/// What a handshake needs of a connection.
pub(super) trait Stream {
    /// Fills `bytes`.
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()>;
    /// Sends all of `bytes`.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn is_encrypted(&self) -> bool;
    fn start_tls(&mut self) -> io::Result<()>;
}

/// What the server insists on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encryption {
    None,
    /// Nothing but STARTTLS is served without it.
    Required,
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Number of the export.
    pub(super) export: usize,
    /// Reads are answered in chunks.
    pub(super) structured: bool,
    /// Headers have 64-bit lengths; implies `structured`.
    pub(super) extended: bool,
    /// Block status may be asked.
    pub(super) block_status: bool,
}

/// Runs the handshake. `None`: the client has left in the way that the protocol has for it.
pub(super) fn negotiate(
    stream: &mut impl Stream,
    exports: &[Arc<Offered>],
    encryption: Encryption,
) -> io::Result<Option<Agreed>> {
    let mut opening = Vec::with_capacity(18);
    opening.extend(nbd::MAGIC.to_be_bytes());
    opening.extend(nbd::OPTION_MAGIC.to_be_bytes());
    opening.extend((handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
    stream.write_all(&opening)?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES) != 0 {
        return Err(violation(format!("unknown flags {flags:#x} in the handshake")));
    }
    let mut negotiation = Negotiation {
        stream,
        exports,
        encryption,
        with_zeroes: flags & u32::from(handshake_flag::NO_ZEROES) == 0,
        structured: false,
        extended: false,
        context_of: None,
        out: Vec::new(),
    };
    for _ in 0..OPTIONS_MAX {
        match negotiation.option()? {
            Next::Option => {}
            Next::Leave => return Ok(None),
            Next::Transmission(agreed) => return Ok(Some(agreed)),
        }
    }
    Err(violation("too many options".into()))
}

fn violation(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

enum Next {
    Option,
    Leave,
    Transmission(Agreed),
}

struct Negotiation<'a, S> {
    stream: &'a mut S,
    exports: &'a [Arc<Offered>],
    encryption: Encryption,
    with_zeroes: bool,
    structured: bool,
    extended: bool,
    /// The export for which `base:allocation` was chosen.
    context_of: Option<usize>,
    /// Replies not yet sent.
    out: Vec<u8>,
}

impl<S: Stream> Negotiation<'_, S> {
    fn option(&mut self) -> io::Result<Next> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header)?;
        let mut fields = Fields(&header);
        let (Some(magic), Some(option), Some(length)) = (fields.u64(), fields.u32(), fields.u32()) else {
            unreachable!("16 bytes have room for all three");
        };
        if magic != nbd::OPTION_MAGIC {
            return Err(violation(format!("an option begins with {magic:#x}")));
        }
        if length > OPTION_BYTES_MAX {
            self.skip(length)?;
            self.reply(option, reply::TOO_BIG, b"the option is too long");
            self.send()?;
            return Ok(Next::Option);
        }
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        let next = self.serve(option, &data)?;
        self.send()?;
        Ok(next)
    }

    fn skip(&mut self, length: u32) -> io::Result<()> {
        if length > SKIPPED_BYTES_MAX {
            return Err(violation(format!("an option of {length} bytes")));
        }
        let mut scratch = [0; 4096];
        let mut left = length as usize;
        while left > 0 {
            let part = left.min(scratch.len());
            self.stream.read_exact(&mut scratch[..part])?;
            left -= part;
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        if out.is_empty() { Ok(()) } else { self.stream.write_all(&out) }
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        self.out.extend(nbd::OPTION_REPLY_MAGIC.to_be_bytes());
        self.out.extend(option.to_be_bytes());
        self.out.extend(kind.to_be_bytes());
        self.out.extend(u32::try_from(data.len()).expect("replies are short").to_be_bytes());
        self.out.extend(data);
    }

    fn refuse(&mut self, option: u32, kind: u32, why: &str) -> Next {
        self.reply(option, kind, why.as_bytes());
        Next::Option
    }

    fn serve(&mut self, option: u32, data: &[u8]) -> io::Result<Next> {
        let locked = self.encryption == Encryption::Required && !self.stream.is_encrypted();
        Ok(match option {
            option::ABORT => {
                self.reply(option, reply::ACK, &[]);
                // A client need not wait for it.
                let _ = self.send();
                Next::Leave
            }
            option::STARTTLS => return self.start_tls(data),
            option::EXPORT_NAME if locked => {
                return Err(violation("an export was asked for without TLS".into()));
            }
            _ if locked => self.refuse(option, reply::TLS_REQUIRED, "this server wants TLS first"),
            option::EXPORT_NAME => return self.export_name(data),
            option::LIST => self.list(data),
            option::INFO | option::GO => self.info(option, data),
            option::STRUCTURED_REPLY => self.structured_reply(data),
            option::EXTENDED_HEADERS => self.extended_headers(data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data),
            _ => self.refuse(option, reply::UNSUPPORTED, "this server does not know the option"),
        })
    }

    fn start_tls(&mut self, data: &[u8]) -> io::Result<Next> {
        let option = option::STARTTLS;
        if !data.is_empty() || self.stream.is_encrypted() {
            return Ok(self.refuse(option, reply::INVALID, "TLS is started once, without data"));
        }
        if self.encryption == Encryption::None {
            return Ok(self.refuse(option, reply::POLICY, "this server has no certificate"));
        }
        self.reply(option, reply::ACK, &[]);
        self.send()?;
        self.stream.start_tls()?;
        // What was said in the clear may have been said by anybody.
        (self.structured, self.extended, self.context_of) = (false, false, None);
        Ok(Next::Option)
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        let by_name = self.exports.iter().position(|export| export.name.as_bytes() == name);
        by_name.or(if name.is_empty() { Some(0) } else { None })
    }

    fn agreed(&self, export: usize) -> Next {
        Next::Transmission(Agreed {
            export,
            structured: self.structured || self.extended,
            extended: self.extended,
            block_status: self.context_of == Some(export),
        })
    }

    /// The old way to begin: it has no word for an error but the end of the connection.
    fn export_name(&mut self, name: &[u8]) -> io::Result<Next> {
        let Some(number) = self.find(name) else {
            return Err(violation(format!("no export {:?}", String::from_utf8_lossy(name))));
        };
        let export = &self.exports[number];
        self.out.extend(export.size().to_be_bytes());
        self.out.extend(export.flags_for(self.structured || self.extended).to_be_bytes());
        if self.with_zeroes {
            self.out.extend([0; 124]);
        }
        Ok(self.agreed(number))
    }

    fn list(&mut self, data: &[u8]) -> Next {
        let option = option::LIST;
        if !data.is_empty() {
            return self.refuse(option, reply::INVALID, "a list takes no data");
        }
        for export in self.exports {
            let mut text = Vec::with_capacity(4 + export.name.len() + export.description.len());
            push_text(&mut text, &export.name);
            text.extend(export.description.as_bytes());
            self.reply(option, reply::SERVER, &text);
        }
        self.reply(option, reply::ACK, &[]);
        Next::Option
    }

    fn info(&mut self, option: u32, data: &[u8]) -> Next {
        let mut fields = Fields(data);
        let parsed = (|| {
            let name = fields.text()?;
            let count = fields.u16()?;
            let wanted: Vec<u16> = (0..count).map(|_| fields.u16()).collect::<Option<_>>()?;
            fields.is_empty().then_some((name, wanted))
        })();
        let Some((name, wanted)) = parsed else {
            return self.refuse(option, reply::INVALID, "the option is not as long as it says");
        };
        let Some(number) = self.find(name) else {
            return self.refuse(option, reply::UNKNOWN, "there is no export of that name");
        };
        let exports = self.exports;
        let export = &exports[number];
        let mut data = info::EXPORT.to_be_bytes().to_vec();
        data.extend(export.size().to_be_bytes());
        data.extend(export.flags_for(self.structured || self.extended).to_be_bytes());
        self.reply(option, reply::INFO, &data);
        // The sizes are told unasked: a client may ignore them.
        let mut data = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [1, export.preferred_bytes, TRANSFER_BYTES_MAX] {
            data.extend(size.to_be_bytes());
        }
        self.reply(option, reply::INFO, &data);
        for (kind, text) in [(info::NAME, &export.name), (info::DESCRIPTION, &export.description)] {
            if wanted.contains(&kind) {
                let mut data = kind.to_be_bytes().to_vec();
                data.extend(text.as_bytes());
                self.reply(option, reply::INFO, &data);
            }
        }
        self.reply(option, reply::ACK, &[]);
        if option == option::GO { self.agreed(number) } else { Next::Option }
    }

    fn structured_reply(&mut self, data: &[u8]) -> Next {
        let option = option::STRUCTURED_REPLY;
        if !data.is_empty() {
            return self.refuse(option, reply::INVALID, "the option takes no data");
        }
        if self.extended {
            return self.refuse(option, reply::EXTENDED_HEADERS_REQUIRED, "extended headers were chosen");
        }
        self.structured = true;
        self.reply(option, reply::ACK, &[]);
        Next::Option
    }

    fn extended_headers(&mut self, data: &[u8]) -> Next {
        let option = option::EXTENDED_HEADERS;
        if !data.is_empty() {
            return self.refuse(option, reply::INVALID, "the option takes no data");
        }
        if self.extended {
            return self.refuse(option, reply::INVALID, "extended headers were chosen already");
        }
        self.extended = true;
        self.reply(option, reply::ACK, &[]);
        Next::Option
    }

    fn meta_context(&mut self, option: u32, data: &[u8]) -> Next {
        if option == option::SET_META_CONTEXT {
            // Whatever comes of it, what was chosen before is forgotten.
            self.context_of = None;
        }
        if !(self.structured || self.extended) {
            return self.refuse(option, reply::INVALID, "metadata needs structured replies");
        }
        let mut fields = Fields(data);
        let parsed = (|| {
            let name = fields.text()?;
            let count = fields.u32()?;
            let mut queries = Vec::new();
            for _ in 0..count {
                queries.push(fields.text()?);
            }
            fields.is_empty().then_some((name, queries))
        })();
        let Some((name, queries)) = parsed else {
            return self.refuse(option, reply::INVALID, "the option is not as long as it says");
        };
        let Some(number) = self.find(name) else {
            return self.refuse(option, reply::UNKNOWN, "there is no export of that name");
        };
        let is_list = option == option::LIST_META_CONTEXT;
        let wanted = queries
            .iter()
            .any(|&query| query == nbd::BASE_ALLOCATION.as_bytes() || (is_list && query == b"base:"))
            || (is_list && queries.is_empty());
        if wanted {
            let id = if is_list { 0 } else { BASE_ALLOCATION_ID };
            let mut data = id.to_be_bytes().to_vec();
            data.extend(nbd::BASE_ALLOCATION.as_bytes());
            self.reply(option, reply::META_CONTEXT, &data);
            if !is_list {
                self.context_of = Some(number);
            }
        }
        self.reply(option, reply::ACK, &[]);
        Next::Option
    }
}

fn push_text(into: &mut Vec<u8>, text: &str) {
    into.extend(u32::try_from(text.len()).expect("names are short").to_be_bytes());
    into.extend(text.as_bytes());
}
