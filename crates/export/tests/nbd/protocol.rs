//! What the protocol's specification asks of a server, option by option and command by command.

use std::io::Read;
use std::sync::Arc;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::nbd::{chunk, command, command_flag, info, option, option_reply, transmission_flag};
use rotproof_block::{ErrorKind, Operation};
use rotproof_export::NbdOptions;

use crate::client::{Client, info_request};
use crate::scripted::{Action, Scripted};
use crate::server::{Served, export};

fn two_exports() -> Served {
    let device = |size| MemoryDevice::new(size, 512).expect("sizes that fit");
    Served::new(
        vec![export("one", device(1 << 20)), export("zwei ü", device(2 << 20))],
        NbdOptions::default(),
    )
}

#[test]
fn exports_are_listed_with_their_descriptions() {
    let served = two_exports();
    let mut client = Client::connect(&served.socket());
    let replies = client.option(option::LIST, &[]);
    let texts: Vec<_> = replies.iter().map(|(_, data)| String::from_utf8_lossy(data).into_owned()).collect();
    assert_eq!(replies.len(), 3);
    assert_eq!(texts[0], "\0\0\0\u{3}onethe export one");
    assert!(texts[1].ends_with("zwei üthe export zwei ü"));
    assert_eq!(client.option(option::LIST, b"x")[0].0, option_reply::INVALID);
}

#[test]
fn an_export_tells_name_description_size_and_sizes_of_requests() {
    let served = two_exports();
    let mut client = Client::connect(&served.socket());
    let request = info_request("zwei ü", &[info::NAME, info::DESCRIPTION, 99]);
    let replies = client.option(option::INFO, &request);
    let data: Vec<_> = replies.iter().map(|(_, data)| data.clone()).collect();
    assert_eq!(replies.len(), 5, "{replies:?}");
    assert_eq!(data[0][..10], [&[0, 0][..], &(2u64 << 20).to_be_bytes()].concat());
    assert_eq!(
        data[1],
        [&[0, 3][..], &1u32.to_be_bytes(), &4096u32.to_be_bytes(), &(32u32 << 20).to_be_bytes()].concat()
    );
    assert_eq!(data[2], [&[0, 1][..], "zwei ü".as_bytes()].concat());
    assert_eq!(data[3], [&[0, 2][..], "the export zwei ü".as_bytes()].concat());
    assert_eq!(client.option(option::INFO, &info_request("three", &[]))[0].0, option_reply::UNKNOWN);
    for broken in [&request[..5], &[&request[..], &[0]].concat(), &[255; 8]] {
        assert_eq!(client.option(option::INFO, broken)[0].0, option_reply::INVALID);
    }
    client.go("zwei ü");
    assert_eq!(client.read((2 << 20) - 5, 5), [0; 5]);
}

#[test]
fn the_old_way_to_begin_works_and_an_unknown_name_ends_it() {
    let served = two_exports();
    let mut client = Client::connect(&served.socket());
    client.send_option(option::EXPORT_NAME, b"");
    let mut answer = [0; 10];
    client.stream.read_exact(&mut answer).expect("size and flags");
    assert_eq!(answer[..8], (1u64 << 20).to_be_bytes(), "the first export is the default");
    assert_ne!(u16::from_be_bytes([answer[8], answer[9]]) & transmission_flag::CAN_MULTI_CONN, 0);
    client.write(3, b"hello");
    assert_eq!(client.read(2, 7), b"\0hello\0");
    let mut client = Client::connect(&served.socket());
    client.send_option(option::EXPORT_NAME, b"three");
    assert!(client.is_cut_off());
}

#[test]
fn options_that_are_unknown_or_too_long_are_refused_and_the_next_is_served() {
    let served = two_exports();
    let mut client = Client::connect(&served.socket());
    assert_eq!(client.option(77, b"data")[0].0, option_reply::UNSUPPORTED);
    assert_eq!(client.option(option::LIST, &vec![0; 1 << 20])[0].0, option_reply::TOO_BIG);
    assert_eq!(client.option(option::STARTTLS, &[])[0].0, option_reply::POLICY);
    assert_eq!(client.option(option::STRUCTURED_REPLY, b"x")[0].0, option_reply::INVALID);
    let context = [&0u32.to_be_bytes()[..], &0u32.to_be_bytes()].concat();
    assert_eq!(client.option(option::LIST_META_CONTEXT, &context)[0].0, option_reply::INVALID);
    assert_eq!(client.option(option::EXTENDED_HEADERS, &[])[0].0, option_reply::ACK);
    assert_eq!(client.option(option::EXTENDED_HEADERS, &[])[0].0, option_reply::INVALID);
    assert_eq!(client.option(option::STRUCTURED_REPLY, &[])[0].0, option_reply::EXTENDED_HEADERS_REQUIRED);
    let listed = client.option(option::LIST_META_CONTEXT, &context);
    assert!(listed[0].1.ends_with(b"base:allocation"), "{listed:?}");
    assert_eq!(client.option(option::ABORT, &[])[0].0, option_reply::ACK);
    assert!(client.is_cut_off());
}

fn in_every_style(served: &Served) -> [Client; 3] {
    let socket = served.socket();
    [Client::simple(&socket), Client::structured(&socket), Client::with_extended_headers(&socket)]
}

#[test]
fn every_command_works_in_every_style() {
    let served = Served::memory(1 << 20);
    for (number, mut client) in (0u8..).zip(in_every_style(&served)) {
        client.write(100, &[number + 1; 1000]);
        assert_eq!(client.read(99, 1002), [&[0][..], &[number + 1; 1000], &[0]].concat());
        assert_eq!(client.call(command::FLUSH, 0, 0, 0, &[]).error, 0);
        assert_eq!(client.call(command::CACHE, 0, 0, 4096, &[]).error, 0);
        let zero_flags = command_flag::FUA | command_flag::NO_HOLE;
        assert_eq!(client.call(command::WRITE_ZEROES, zero_flags, 200, 10, &[]).error, 0);
        assert_eq!(client.read(199, 12), [&[number + 1][..], &[0; 10], &[number + 1]].concat());
        assert_eq!(client.call(command::TRIM, command_flag::FUA, 0, 4096, &[]).error, 0);
        assert_eq!(client.read(0, 4096), [0; 4096]);
        assert_eq!(client.read(7, 0), []);
        client.write(7, &[]);
        client.send(command::DISCONNECT, 0, 0, 0, &[]);
        assert!(client.is_cut_off());
    }
}

#[test]
fn large_and_small_requests_in_one_stream_are_kept_apart() {
    let served = Served::memory(8 << 20);
    for mut client in in_every_style(&served) {
        let data: Vec<u8> = (0..3_000_001u32).map(|index| (index % 251) as u8).collect();
        let flags = if client.extended { command_flag::PAYLOAD_LEN } else { 0 };
        let mut sent = Vec::new();
        let mut at = 0;
        for length in [1, 70_000, 5, 4096, 1 << 20, 512, 1 << 20, 131_072, 33_000, 40_000, 9] {
            sent.push(client.send(command::WRITE, flags, at as u64, length as u64, &data[at..at + length]));
            at += length;
        }
        for cookie in sent {
            let answer = client.answer(0).expect("a reply");
            assert_eq!((answer.cookie, answer.error), (cookie, 0));
        }
        assert!(client.read(0, at) == data[..at]);
    }
}

#[test]
fn bounds_and_flags_are_checked_and_the_connection_goes_on() {
    let served = Served::memory(1 << 20);
    let size = 1u64 << 20;
    for mut client in in_every_style(&served) {
        let payload = if client.extended { command_flag::PAYLOAD_LEN } else { 0 };
        for (command, flags, offset, length, expected) in [
            (command::READ, 0, size, 1, libc::EINVAL),
            (command::READ, 0, u64::MAX, 2, libc::EINVAL),
            (command::READ, 0, 0, (32 << 20) + 1, libc::EINVAL),
            (command::READ, command_flag::NO_HOLE, 0, 1, libc::EINVAL),
            (command::WRITE, payload, size - 1, 2, libc::ENOSPC),
            (command::WRITE, payload | command_flag::DF, 0, 1, libc::EINVAL),
            (command::WRITE_ZEROES, 0, size - 1, 2, libc::ENOSPC),
            (command::TRIM, 0, 1, size, libc::EINVAL),
            (command::WRITE_ZEROES, command_flag::FAST_ZERO, 0, 1, libc::EINVAL),
            (command::CACHE, 0, 1, size, libc::EINVAL),
            (99, 0, 0, 0, libc::EINVAL),
        ] {
            let data = if command == command::WRITE { vec![1; length as usize] } else { Vec::new() };
            let answer = client.call(command, flags, offset, length, &data);
            assert_eq!(answer.error, expected.unsigned_abs(), "command {command} at {offset} for {length}");
        }
        assert_eq!(client.read(0, 4096), [0; 4096], "nothing was touched");
    }
}

#[test]
fn a_payload_that_is_too_large_is_skipped_and_a_monstrous_one_ends_the_connection() {
    let served = Served::memory(1 << 20);
    let mut client = Client::simple(&served.socket());
    let length = (32 << 20) + 1;
    assert_eq!(client.call(command::WRITE, 0, 0, length, &vec![1; length as usize]).error, 22);
    client.write(0, b"still here");
    client.send(command::WRITE, 0, 0, 1 << 30, &[]);
    assert!(client.is_cut_off());
}

#[test]
fn extended_headers_say_themselves_whether_a_payload_follows() {
    let served = Served::memory(1 << 20);
    let mut client = Client::with_extended_headers(&served.socket());
    assert_eq!(client.call(command::WRITE, 0, 0, 512, &[]).error, 22, "a write without a payload");
    let flag = command_flag::PAYLOAD_LEN;
    assert_eq!(client.call(command::READ, flag, 0, 5, b"12345").error, 22, "a read with one");
    let answer = client.call(command::WRITE_ZEROES, 0, 0, 1 << 40, &[]);
    assert_eq!(answer.error, libc::ENOSPC.unsigned_abs(), "64-bit lengths are looked at whole");
    client.write(0, b"still here");
}

#[test]
fn block_status_says_that_everything_is_data_to_those_who_chose_it() {
    let served = Served::memory(1 << 20);
    let [mut simple, mut structured, mut extended] = in_every_style(&served);
    assert_eq!(simple.call(command::BLOCK_STATUS, 0, 0, 512, &[]).error, 22);
    let answer = structured.call(command::BLOCK_STATUS, command_flag::REQ_ONE, 0, 5000, &[]);
    assert_eq!(answer.chunk, Some(chunk::BLOCK_STATUS));
    assert_eq!(answer.data, [[0, 0, 0, 1], 5000u32.to_be_bytes(), [0; 4]].concat());
    let answer = extended.call(command::BLOCK_STATUS, 0, 512, 5000, &[]);
    assert_eq!(answer.chunk, Some(chunk::BLOCK_STATUS_EXTENDED));
    let expected = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &5000u64.to_be_bytes(), &0u64.to_be_bytes()].concat();
    assert_eq!(answer.data, expected);
    assert_eq!(structured.call(command::BLOCK_STATUS, 0, 0, 0, &[]).error, 22);
}

#[test]
fn an_error_of_the_device_arrives_as_the_protocol_has_it_with_its_name_where_there_is_room() {
    for (given, expected, name) in [
        (ErrorKind::Medium, libc::EIO, "Input/output error"),
        (ErrorKind::NoSpace, libc::ENOSPC, "No space left"),
        (ErrorKind::TimedOut, libc::EIO, "timed out"),
        (ErrorKind::Os(libc::ENODATA), libc::EIO, "No data"),
        (ErrorKind::ReadOnly, libc::EPERM, "Read-only"),
    ] {
        let served = Served::one(Arc::new(Scripted::new(1 << 20, 512, move |_| Action::Fail(given))));
        for mut client in in_every_style(&served) {
            let answer = client.call(command::READ, 0, 0, 512, &[]);
            assert_eq!(answer.error, expected.unsigned_abs());
            assert!(answer.chunk.is_none() || answer.message.contains(name), "{answer:?}");
        }
    }
}

#[test]
fn force_unit_access_reaches_the_device_or_becomes_a_flush() {
    for has_fua in [true, false] {
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let device = Scripted::new(1 << 20, 512, move |request| {
            log.lock().expect("no panic").push(request.operation);
            Action::Pass
        })
        .with(|info| info.features.fua = has_fua);
        let served = Served::one(Arc::new(device));
        let mut client = Client::simple(&served.socket());
        assert_eq!(client.call(command::WRITE, command_flag::FUA, 0, 512, &[1; 512]).error, 0);
        let expected = if has_fua {
            vec![Operation::Write { fua: true }]
        } else {
            vec![Operation::WRITE, Operation::Flush]
        };
        assert_eq!(*seen.lock().expect("no panic"), expected);
    }
}

#[test]
fn what_one_connection_has_written_all_see() {
    let served = Served::memory(1 << 20);
    let [mut simple, mut structured, mut extended] = in_every_style(&served);
    simple.write(0, b"written");
    assert_eq!(structured.read(0, 7), b"written");
    extended.write(0, b"changed");
    assert_eq!(simple.read(0, 7), b"changed");
    assert_eq!(served.server.connections(), 3);
}

#[test]
fn names_that_clash_and_exports_that_are_missing_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = rotproof_export::NbdAddress::Unix(folder.path().join("s"));
    let device = || MemoryDevice::new(1 << 20, 512).expect("sizes that fit");
    for exports in [vec![], vec![export("a", device()), export("a", device())]] {
        let error =
            rotproof_export::NbdServer::start(exports, std::slice::from_ref(&address), NbdOptions::default())
                .expect_err("senseless");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
