//! A client that says what it is told, right or wrong, and reads what comes back in every style.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rotproof_block::nbd::{self, Fields, chunk, command, option, option_reply};

use crate::server::PATIENCE;

pub struct Client {
    pub stream: UnixStream,
    pub extended: bool,
    cookies: u64,
}

/// A reply: the error it brings (0 is success), its data, the message of an error.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
    pub message: String,
    pub chunk: Option<u16>,
}

impl Client {
    /// Connects and exchanges flags.
    pub fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
        let mut opening = [0; 18];
        stream.read_exact(&mut opening).expect("the server greets");
        assert_eq!(opening[..8], nbd::MAGIC.to_be_bytes());
        stream.write_all(&3u32.to_be_bytes()).expect("sent");
        Self { stream, extended: false, cookies: 0 }
    }

    /// Connected and in transmission, with simple replies.
    pub fn simple(socket: &Path) -> Self {
        let mut client = Self::connect(socket);
        client.go("");
        client
    }

    pub fn structured(socket: &Path) -> Self {
        let mut client = Self::connect(socket);
        client.acknowledged(option::STRUCTURED_REPLY, &[]);
        client.set_context();
        client.go("");
        client
    }

    pub fn with_extended_headers(socket: &Path) -> Self {
        let mut client = Self::connect(socket);
        client.acknowledged(option::EXTENDED_HEADERS, &[]);
        client.set_context();
        client.go("");
        client.extended = true;
        client
    }

    fn set_context(&mut self) {
        let mut data = 0u32.to_be_bytes().to_vec();
        data.extend(1u32.to_be_bytes());
        data.extend(15u32.to_be_bytes());
        data.extend(b"base:allocation");
        let replies = self.option(option::SET_META_CONTEXT, &data);
        assert_eq!(replies.iter().map(|reply| reply.0).collect::<Vec<_>>(), [option_reply::META_CONTEXT, 1]);
    }

    pub fn go(&mut self, name: &str) {
        let replies = self.option(option::GO, &info_request(name, &[]));
        assert_eq!(replies.last().expect("a reply").0, option_reply::ACK, "{replies:?}");
    }

    fn acknowledged(&mut self, option: u32, data: &[u8]) {
        assert_eq!(self.option(option, data), [(option_reply::ACK, Vec::new())]);
    }

    /// Sends an option and reads its replies up to the last.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, data);
        let mut replies = Vec::new();
        loop {
            let mut header = [0; 20];
            self.stream.read_exact(&mut header).expect("a reply");
            let mut fields = Fields(&header);
            assert_eq!(fields.u64(), Some(nbd::OPTION_REPLY_MAGIC));
            assert_eq!(fields.u32(), Some(option));
            let kind = fields.u32().expect("there");
            let mut data = vec![0; fields.u32().expect("there") as usize];
            self.stream.read_exact(&mut data).expect("the reply's data");
            replies.push((kind, data));
            if kind == option_reply::ACK || kind & option_reply::ERROR != 0 {
                return replies;
            }
        }
    }

    pub fn send_option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = nbd::OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).expect("sent");
    }

    /// Sends a request; returns its cookie.
    pub fn send(&mut self, command: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) -> u64 {
        self.cookies += 1;
        let magic = if self.extended { nbd::EXTENDED_REQUEST_MAGIC } else { nbd::REQUEST_MAGIC };
        let mut bytes = magic.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookies.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        if self.extended {
            bytes.extend(length.to_be_bytes());
        } else {
            bytes.extend(u32::try_from(length).expect("32 bits").to_be_bytes());
        }
        bytes.extend(payload);
        self.stream.write_all(&bytes).expect("sent");
        self.cookies
    }

    /// Reads the next reply; `read_bytes` is how much data a simple reply to a read has.
    pub fn answer(&mut self, read_bytes: usize) -> io::Result<Answer> {
        let mut magic = [0; 4];
        self.stream.read_exact(&mut magic)?;
        match u32::from_be_bytes(magic) {
            nbd::SIMPLE_REPLY_MAGIC => {
                let mut rest = [0; 12];
                self.stream.read_exact(&mut rest)?;
                let mut fields = Fields(&rest);
                let error = fields.u32().expect("there");
                let cookie = fields.u64().expect("there");
                let mut data = vec![0; if error == 0 { read_bytes } else { 0 }];
                self.stream.read_exact(&mut data)?;
                Ok(Answer { cookie, error, data, ..Answer::default() })
            }
            nbd::STRUCTURED_REPLY_MAGIC if !self.extended => self.chunk(16),
            nbd::EXTENDED_REPLY_MAGIC if self.extended => self.chunk(28),
            other => panic!("a reply begins with {other:#x}"),
        }
    }

    fn chunk(&mut self, header_bytes: usize) -> io::Result<Answer> {
        let mut header = [0; 28];
        self.stream.read_exact(&mut header[..header_bytes])?;
        let mut fields = Fields(&header[..header_bytes]);
        assert_eq!(fields.u16(), Some(chunk::FLAG_DONE), "this server replies in one chunk");
        let kind = fields.u16().expect("there");
        let cookie = fields.u64().expect("there");
        let length = if self.extended {
            fields.u64();
            fields.u64().expect("there")
        } else {
            fields.u32().expect("there").into()
        };
        let mut payload = vec![0; usize::try_from(length).expect("fits")];
        self.stream.read_exact(&mut payload)?;
        let mut fields = Fields(&payload);
        let mut answer = Answer { cookie, chunk: Some(kind), ..Answer::default() };
        match kind {
            chunk::ERROR => {
                answer.error = fields.u32().expect("there");
                let length = fields.u16().expect("there").into();
                answer.message =
                    String::from_utf8(fields.bytes(length).expect("there").into()).expect("UTF-8");
            }
            chunk::OFFSET_DATA => {
                fields.u64();
                answer.data = fields.0.to_vec();
            }
            _ => answer.data = payload,
        }
        Ok(answer)
    }

    /// One request and its reply.
    pub fn call(&mut self, command: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) -> Answer {
        let cookie = self.send(command, flags, offset, length, payload);
        let read_bytes = if command == command::READ { usize::try_from(length).expect("fits") } else { 0 };
        let answer = self.answer(read_bytes).expect("a reply");
        assert_eq!(answer.cookie, cookie);
        answer
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        let answer = self.call(command::READ, 0, offset, length as u64, &[]);
        assert_eq!(answer.error, 0);
        answer.data
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let flags = if self.extended { nbd::command_flag::PAYLOAD_LEN } else { 0 };
        assert_eq!(self.call(command::WRITE, flags, offset, data.len() as u64, data).error, 0);
    }

    /// Whether the server has hung up.
    pub fn is_cut_off(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read_exact(&mut byte).expect_err("the server should hang up").kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => true,
            other => panic!("the server should hang up, but: {other:?}"),
        }
    }
}

/// The data of INFO and GO.
pub fn info_request(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).expect("short").to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend(u16::try_from(wanted.len()).expect("few").to_be_bytes());
    for kind in wanted {
        data.extend(kind.to_be_bytes());
    }
    data
}
