//! Asks a server for an export: the client's side of the fixed newstyle handshake.

use std::io::{self, Read, Write};

use crate::nbd::{self, Fields, NAME_BYTES_MAX, handshake_flag, info, option, option_reply};
use crate::{Error, ErrorKind, Result};

/// A reply to an option longer than this is not believed.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// Largest transfer with a server that does not say: what the specification recommends.
const TRANSFER_BYTES_DEFAULT: u32 = 32 << 20;

/// What a server says of its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    /// In bytes.
    pub(super) size: u64,
    /// Transmission flags.
    pub(super) flags: u16,
    /// The least size of a request.
    pub(super) block_bytes: u32,
    /// The largest size of a read or write.
    pub(super) transfer_bytes_max: u32,
}

/// Runs the handshake over `stream`. Fails with [`ErrorKind::Missing`] if there is no such export, and with
/// [`ErrorKind::Unsupported`] if the server wants what this client does not speak.
pub(super) fn shake_hands(stream: &mut (impl Read + Write), name: &str) -> Result<Export> {
    run(stream, name).map_err(|failure| match failure {
        HandshakeError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Error::new(
            ErrorKind::Missing,
            "the server hung up during the handshake; perhaps it is no NBD server, or serves one client only",
        ),
        HandshakeError::Io(error) => Error::from_io(error, "talking to the server"),
        HandshakeError::Refused(kind, message) => Error::new(kind, message),
    })
}

enum HandshakeError {
    Io(io::Error),
    Refused(ErrorKind, String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn odd(what: impl Into<String>) -> HandshakeError {
    HandshakeError::Refused(ErrorKind::Unsupported, what.into())
}

fn run(stream: &mut (impl Read + Write), name: &str) -> Result<Export, HandshakeError> {
    let mut opening = [0; 18];
    stream.read_exact(&mut opening)?;
    let mut fields = Fields(&opening);
    if (fields.u64(), fields.u64()) != (Some(nbd::MAGIC), Some(nbd::OPTION_MAGIC)) {
        return Err(odd("what answers is no NBD server, or one that speaks the old style only"));
    }
    let flags = fields.u16().unwrap_or_default();
    if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
        return Err(odd("the server does not speak the fixed newstyle of NBD"));
    }
    let mine = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    stream.write_all(&u32::from(mine).to_be_bytes())?;
    if name.len() > NAME_BYTES_MAX {
        return Err(HandshakeError::Refused(ErrorKind::Invalid, "the name of the export is too long".into()));
    }
    let mut data = u32::try_from(name.len()).expect("checked to be short").to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend(1u16.to_be_bytes());
    data.extend(info::BLOCK_SIZE.to_be_bytes());
    let mut request = nbd::OPTION_MAGIC.to_be_bytes().to_vec();
    request.extend(option::GO.to_be_bytes());
    request.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
    request.extend(data);
    stream.write_all(&request)?;
    read_replies(stream, name)
}

fn read_replies(stream: &mut impl Read, name: &str) -> Result<Export, HandshakeError> {
    let mut export = None;
    let mut sizes = (1, TRANSFER_BYTES_DEFAULT);
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header)?;
        let mut fields = Fields(&header);
        let (magic, of, kind, length) = (fields.u64(), fields.u32(), fields.u32(), fields.u32());
        let (kind, length) = (kind.unwrap_or_default(), length.unwrap_or_default());
        if (magic, of) != (Some(nbd::OPTION_REPLY_MAGIC), Some(option::GO)) || length > REPLY_BYTES_MAX {
            return Err(odd("the server's reply is not one of the NBD protocol"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        let mut fields = Fields(&data);
        match kind {
            option_reply::ACK => {
                let (size, flags) = export.ok_or_else(|| odd("the server does not tell the size"))?;
                return Ok(Export { size, flags, block_bytes: sizes.0, transfer_bytes_max: sizes.1 });
            }
            option_reply::INFO => match (fields.u16(), fields.u64()) {
                (Some(info::EXPORT), Some(size)) => export = Some((size, fields.u16().unwrap_or_default())),
                (Some(info::BLOCK_SIZE), _) => {
                    let mut fields = Fields(data.get(2..).unwrap_or_default());
                    let (least, _, most) = (fields.u32(), fields.u32(), fields.u32());
                    if let (Some(least), Some(most)) = (least, most) {
                        sizes = (least, most);
                    }
                }
                _ => {}
            },
            error if error & option_reply::ERROR != 0 => {
                let said = String::from_utf8_lossy(&data);
                let said = if said.is_empty() { String::new() } else { format!(" (it says: {said})") };
                return Err(match error {
                    option_reply::UNKNOWN => HandshakeError::Refused(
                        ErrorKind::Missing,
                        format!("the server has no export {name:?}{said}"),
                    ),
                    option_reply::TLS_REQUIRED => {
                        odd(format!("the server wants TLS, which this client does not speak{said}"))
                    }
                    option_reply::UNSUPPORTED => {
                        odd(format!("the server is too old: it has no NBD_OPT_GO{said}"))
                    }
                    _ => odd(format!("the server refuses the export {name:?} with error {error:#x}{said}")),
                });
            }
            // Kinds that are not known here tell nothing that is needed.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose words are known beforehand.
    struct Scripted(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Scripted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn opening() -> Vec<u8> {
        let mut bytes = nbd::MAGIC.to_be_bytes().to_vec();
        bytes.extend(nbd::OPTION_MAGIC.to_be_bytes());
        bytes.extend(3u16.to_be_bytes());
        bytes
    }

    fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = nbd::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option::GO.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn shake(words: Vec<u8>) -> Result<Export> {
        shake_hands(&mut Scripted(io::Cursor::new(words), Vec::new()), "disk")
    }

    #[test]
    fn the_export_is_as_the_server_says_and_other_information_is_skipped() {
        let mut export = info::EXPORT.to_be_bytes().to_vec();
        export.extend(4096u64.to_be_bytes());
        export.extend(5u16.to_be_bytes());
        let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [512u32, 4096, 65536] {
            sizes.extend(size.to_be_bytes());
        }
        let words = [
            opening(),
            reply(option_reply::INFO, &export),
            reply(option_reply::INFO, &[0, 77]),
            reply(option_reply::INFO, &sizes),
            reply(option_reply::ACK, &[]),
        ];
        let expected = Export { size: 4096, flags: 5, block_bytes: 512, transfer_bytes_max: 65536 };
        assert_eq!(shake(words.concat()).expect("agreed"), expected);
    }

    #[test]
    fn a_server_that_refuses_or_is_none_is_told_apart() {
        for (words, kind, says) in [
            (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), ErrorKind::Unsupported, "no NBD server"),
            (Vec::new(), ErrorKind::Missing, "hung up"),
            (
                [opening(), reply(option_reply::UNKNOWN, b"")].concat(),
                ErrorKind::Missing,
                "has no export \"disk\"",
            ),
            ([opening(), reply(option_reply::TLS_REQUIRED, b"no")].concat(), ErrorKind::Unsupported, "TLS"),
            ([opening(), reply(option_reply::ACK, b"")].concat(), ErrorKind::Unsupported, "size"),
            ([opening(), vec![0; 20]].concat(), ErrorKind::Unsupported, "not one of the NBD protocol"),
        ] {
            let error = shake(words).expect_err(says);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
