//! What a client says to an NBD server, from its first byte to its last. The first byte of the input says what the
//! rest is: everything, the transmission after a handshake that makes sense, or a list of requests to write out.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::nbd::{self, BASE_ALLOCATION, Fields, chunk, command, command_flag, option};
use rotproof_export::{NbdExport, NbdOptions, serve_nbd_client};

const DEVICE_BYTES: u64 = 1 << 20;
/// Far more than a session takes; a server that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that describe a request in a list.
const DESCRIPTION_BYTES: usize = 8;
/// Requests of a list. Reading is what makes many of them slow.
const REQUESTS_MAX: usize = 64;

/// What the server says up to the transmission, in each style.
static GREETING_BYTES: [OnceLock<usize>; 3] = [const { OnceLock::new() }; 3];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Simple,
    Structured,
    Extended,
}

/// The server serves to the end, without a word that the protocol does not have; every request that makes sense as one is
/// answered once.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let styles = [Style::Simple, Style::Structured, Style::Extended];
    let style = styles[usize::from(kind) % styles.len()];
    match kind / 3 % 3 {
        0 => {
            let said = session(rest);
            assert!(said.starts_with(&nbd::MAGIC.to_be_bytes()));
        }
        1 => {
            session(&[&handshake(style), rest].concat());
        }
        _ => check_requests(style, rest),
    }
}

/// What the server says to a client that says this and then nothing any more.
fn session(words: &[u8]) -> Vec<u8> {
    let device = MemoryDevice::new(DEVICE_BYTES, 512).expect("sizes that fit");
    let export = NbdExport { name: "disk".into(), description: "a disk".into(), device };
    let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
    client.set_read_timeout(Some(PATIENCE)).expect("a limit");
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve_nbd_client(server.into(), vec![export], NbdOptions::default()));
        let mut talking = client.try_clone().expect("a descriptor");
        scope.spawn(move || {
            // The server may have hung up on it.
            let _ = talking.write_all(words);
            let _ = talking.shutdown(std::net::Shutdown::Write);
        });
        let mut said = Vec::new();
        if let Err(error) = client.read_to_end(&mut said) {
            // It hung up before all was said, or it hangs.
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
        serving.join().expect("a server does not panic").expect("what a client says is no failure");
        said
    })
}

fn push_option(words: &mut Vec<u8>, option: u32, data: &[u8]) {
    words.extend(nbd::OPTION_MAGIC.to_be_bytes());
    words.extend(option.to_be_bytes());
    words.extend((data.len() as u32).to_be_bytes());
    words.extend(data);
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Up to the transmission.
fn handshake(style: Style) -> Vec<u8> {
    let mut words = 3u32.to_be_bytes().to_vec();
    match style {
        Style::Simple => {}
        Style::Structured => push_option(&mut words, option::STRUCTURED_REPLY, &[]),
        Style::Extended => push_option(&mut words, option::EXTENDED_HEADERS, &[]),
    }
    if style != Style::Simple {
        let query = [text("disk"), 1u32.to_be_bytes().to_vec(), text(BASE_ALLOCATION)].concat();
        push_option(&mut words, option::SET_META_CONTEXT, &query);
    }
    push_option(&mut words, option::GO, &[text("disk"), vec![0, 0]].concat());
    words
}

/// The requests that a list describes: their commands and lengths by cookie, and all of it as bytes.
fn requests(style: Style, list: &[u8]) -> (BTreeMap<u64, (u16, u64)>, Vec<u8>) {
    let (mut asked, mut words) = (BTreeMap::new(), Vec::new());
    let descriptions = list.as_chunks::<DESCRIPTION_BYTES>().0.iter().take(REQUESTS_MAX);
    for (cookie, &[command, flags, o, p, q, l, m, n]) in (0u64..).zip(descriptions) {
        let command = u16::from(command % 10);
        if command == command::DISCONNECT {
            continue;
        }
        // Beyond the end now and then.
        let offset = u64::from_be_bytes([0, 0, 0, 0, 0, o, p, q]) % (DEVICE_BYTES * 5 / 4);
        let length = u64::from_be_bytes([0, 0, 0, 0, 0, l, m, n]) % (DEVICE_BYTES / 32);
        let is_write = command == command::WRITE;
        let length = if is_write { length % 4096 } else { length };
        let mut flags = u16::from(flags & !(command_flag::PAYLOAD_LEN as u8));
        if is_write && style == Style::Extended {
            flags |= command_flag::PAYLOAD_LEN;
        }
        let magic = if style == Style::Extended { nbd::EXTENDED_REQUEST_MAGIC } else { nbd::REQUEST_MAGIC };
        words.extend(magic.to_be_bytes());
        words.extend(flags.to_be_bytes());
        words.extend(command.to_be_bytes());
        words.extend(cookie.to_be_bytes());
        words.extend(offset.to_be_bytes());
        if style == Style::Extended {
            words.extend(length.to_be_bytes());
        } else {
            words.extend((length as u32).to_be_bytes());
        }
        if is_write {
            words.resize(words.len() + length as usize, cookie as u8);
        }
        asked.insert(cookie, (command, length));
    }
    (asked, words)
}

fn check_requests(style: Style, list: &[u8]) {
    let opening = handshake(style);
    let before = GREETING_BYTES[style as usize].get_or_init(|| session(&opening).len());
    let (mut asked, words) = requests(style, list);
    let said = session(&[opening, words].concat());
    let mut fields = Fields(&said[*before..]);
    while !fields.is_empty() {
        let answered = match style {
            Style::Simple => Some(simple_reply(&mut fields, &asked)),
            // Only what has data must come in chunks.
            Style::Structured if Fields(fields.0).u32() == Some(nbd::SIMPLE_REPLY_MAGIC) => {
                let cookie = simple_reply(&mut fields, &BTreeMap::new());
                assert_ne!(asked.get(&cookie).map(|asked| asked.0), Some(command::READ));
                Some(cookie)
            }
            _ => reply_chunk(&mut fields, style, &asked),
        };
        if let Some(cookie) = answered {
            assert!(asked.remove(&cookie).is_some(), "request {cookie} is answered twice, or was never made");
        }
    }
    assert!(asked.is_empty(), "never answered: {asked:?}");
}

/// Gives the request that it answers.
fn simple_reply(fields: &mut Fields<'_>, asked: &BTreeMap<u64, (u16, u64)>) -> u64 {
    assert_eq!(fields.u32(), Some(nbd::SIMPLE_REPLY_MAGIC));
    let (error, cookie) = (fields.u32().expect("an error"), fields.u64().expect("a cookie"));
    assert!(error == 0 || nbd::ERRORS.contains(&(error as i32)), "error {error}");
    if let Some(&(command::READ, length)) = asked.get(&cookie)
        && error == 0
    {
        assert!(fields.bytes(length as usize).is_some(), "less data than was asked for");
    }
    cookie
}

/// Gives the request whose answer it ends, if it does.
fn reply_chunk(fields: &mut Fields<'_>, style: Style, asked: &BTreeMap<u64, (u16, u64)>) -> Option<u64> {
    let extended = style == Style::Extended;
    let magic = if extended { nbd::EXTENDED_REPLY_MAGIC } else { nbd::STRUCTURED_REPLY_MAGIC };
    assert_eq!(fields.u32(), Some(magic));
    let (flags, kind) = (fields.u16().expect("flags"), fields.u16().expect("a kind"));
    let cookie = fields.u64().expect("a cookie");
    if extended {
        fields.u64().expect("an offset");
    }
    let length = if extended { fields.u64() } else { fields.u32().map(u64::from) }.expect("a length");
    let payload = fields.bytes(length as usize).expect("as long as it says");
    let (_, asked_bytes) = asked.get(&cookie).expect("the answer to a request");
    match kind {
        chunk::NONE => assert!(payload.is_empty()),
        chunk::OFFSET_DATA => assert_eq!(payload.len() as u64, 8 + asked_bytes),
        chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXTENDED => {}
        kind => {
            assert_ne!(kind & chunk::ERROR_BIT, 0, "a chunk of kind {kind}");
            let error = Fields(payload).u32().expect("an error");
            assert!(nbd::ERRORS.contains(&(error as i32)), "error {error}");
        }
    }
    (flags & chunk::FLAG_DONE != 0).then_some(cookie)
}

/// Sessions of every style, whole and in parts.
pub fn seeds() -> Vec<Vec<u8>> {
    let list: Vec<u8> = (0..10u8)
        .flat_map(|command| [0, 1, 4].map(|flags| [command, flags, 0, 2, 0, 0, 16, 0]))
        .flatten()
        .collect();
    let mut options = 3u32.to_be_bytes().to_vec();
    push_option(&mut options, option::LIST, &[]);
    push_option(&mut options, option::STARTTLS, &[]);
    push_option(&mut options, option::INFO, &[text("disk"), vec![0, 2, 0, 1, 0, 2]].concat());
    let contexts = [text("disk"), 2u32.to_be_bytes().to_vec(), text("base:"), text("x:y")].concat();
    push_option(&mut options, option::STRUCTURED_REPLY, &[]);
    push_option(&mut options, option::LIST_META_CONTEXT, &contexts);
    push_option(&mut options, 99, b"unknown");
    let (mut named, mut left) = (options.clone(), options);
    push_option(&mut named, option::EXPORT_NAME, b"disk");
    push_option(&mut left, option::ABORT, &[]);
    let mut seeds = vec![[&[0], &named[..], &requests(Style::Structured, &list).1].concat()];
    seeds.push([&[0], &left[..]].concat());
    for (number, style) in [Style::Simple, Style::Structured, Style::Extended].into_iter().enumerate() {
        let words = requests(style, &list).1;
        let number = number as u8;
        seeds.push([&[number], &handshake(style)[..], &words].concat());
        seeds.push([&[3 + number], &words[..]].concat());
        seeds.push([&[6 + number], &list[..]].concat());
    }
    seeds
}
