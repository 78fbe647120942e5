//! Clients that mean ill or are broken get an error or are cut off; others are not disturbed.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rotproof_block::hash::mix;
use rotproof_block::nbd::{command, option};

use crate::client::Client;
use crate::scripted::{Action, Scripted};
use crate::server::Served;

#[test]
fn a_client_that_does_not_speak_the_protocol_is_cut_off() {
    let served = Served::memory(1 << 20);
    let mut well_behaved = Client::simple(&served.socket());
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4], &[0; 100]] {
        let mut client = Client::connect(&served.socket());
        // It may hang up before all is sent.
        let _ = client.stream.write_all(words);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        assert!(client.is_cut_off());
    }
    let mut client = Client::simple(&served.socket());
    client.stream.write_all(&[0x42; 28]).expect("sent");
    assert!(client.is_cut_off());
    well_behaved.write(0, b"undisturbed");
    assert_eq!(well_behaved.read(0, 11), b"undisturbed");
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let served = Served::memory(8 << 20);
    let mut well_behaved = Client::simple(&served.socket());
    for round in 0..50 {
        let mut client = Client::simple(&served.socket());
        match round % 4 {
            0 => _ = client.send(command::WRITE, 0, 0, 1 << 20, &[1; 1000]),
            1 => drop(client.stream.write_all(&[0x25, 0x60, 0x95])),
            2 => (0..64).for_each(|_| _ = client.send(command::READ, 0, 0, 1 << 20, &[])),
            _ => {}
        }
    }
    assert_eq!(well_behaved.read(0, 4096), [0; 4096], "a write that did not arrive whole is none");
    let deadline = std::time::Instant::now() + crate::server::PATIENCE;
    while served.server.connections() > 1 {
        assert!(std::time::Instant::now() < deadline, "connections outlive their clients");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_asks_without_reading_waits_alone() {
    let served = Served::memory(8 << 20);
    let mut greedy = Client::simple(&served.socket());
    greedy.stream.set_nonblocking(true).expect("set");
    let request = {
        let mut bytes = rotproof_block::nbd::REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend([0; 20]);
        bytes.extend((1u32 << 20).to_be_bytes());
        bytes
    };
    let mut asked = 0u64;
    // Until the server takes no more, which shows that it does not keep what it cannot send.
    let mut refused = 0;
    while refused < 50 && asked < 1 << 20 {
        match greedy.stream.write(&request) {
            Ok(bytes) => asked += bytes as u64,
            Err(_) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    assert!(refused == 50, "{asked} bytes of requests were taken without end");
    let mut other = Client::simple(&served.socket());
    other.write(0, b"undisturbed");
    assert_eq!(other.read(0, 11), b"undisturbed");
}

#[test]
fn more_clients_than_there_is_room_for_are_let_go() {
    let served = Served::memory(1 << 20);
    let mut clients: Vec<_> = (0..20).map(|_| Client::simple(&served.socket())).collect();
    let silent: Vec<_> = (0..300).filter_map(|_| UnixStream::connect(served.socket()).ok()).collect();
    for client in &mut clients {
        assert_eq!(client.read(0, 5), [0; 5]);
    }
    assert!(served.server.connections() <= 256);
    drop(silent);
}

#[test]
fn a_device_that_is_late_at_random_gives_everybody_the_right_data() {
    let device = Scripted::new(4 << 20, 512, |request| {
        let random = mix(request.context.id, 5, request.offset);
        if random.is_multiple_of(2) {
            Action::Late(Duration::from_micros(random >> 8 & 1023))
        } else {
            Action::Pass
        }
    });
    let served = Served::one(Arc::new(device));
    let mut client = Client::structured(&served.socket());
    let mut sent = std::collections::HashMap::new();
    for index in 0..64u64 {
        let data = [index as u8 + 1; 4096];
        sent.insert(client.send(command::WRITE, 0, index * 4096, 4096, &data), index);
    }
    for _ in 0..64 {
        let answer = client.answer(0).expect("a reply");
        assert_eq!(answer.error, 0);
        sent.remove(&answer.cookie).expect("one reply each");
    }
    for index in 0..64u64 {
        sent.insert(client.send(command::READ, 0, index * 4096, 4096, &[]), index);
    }
    for _ in 0..64 {
        let answer = client.answer(4096).expect("a reply");
        let index = sent.remove(&answer.cookie).expect("one reply each");
        assert_eq!(answer.data, [index as u8 + 1; 4096]);
    }
}

#[test]
fn a_queue_that_panics_ends_its_connection_and_no_other() {
    let device = Scripted::new(1 << 20, 512, |request| match request.offset {
        4096 => Action::Panic,
        8192 => Action::PanicLater,
        _ => Action::Pass,
    });
    let served = Served::one(Arc::new(device));
    let mut other = Client::simple(&served.socket());
    let mut client = Client::simple(&served.socket());
    client.send(command::READ, 0, 4096, 512, &[]);
    assert!(client.is_cut_off());
    let mut client = Client::simple(&served.socket());
    client.send(command::READ, 0, 8192, 512, &[]);
    assert!(client.is_cut_off());
    other.write(0, b"undisturbed");
    let failure = served.server.stop().expect_err("a connection failed by the server's fault");
    assert!(failure.to_string().contains("panics, as the test wants it"), "{failure}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_server_fail(
        options in prop::collection::vec((0u32..14, prop::collection::vec(any::<u8>(), 0..80)), 0..6),
        requests in prop::collection::vec((0u16..10, 0u16..64, any::<u64>(), 0u32..100_000), 0..10),
        garbage in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        thread_local! {
            static SERVED: Served = Served::memory(1 << 20);
        }
        SERVED.with(|served| {
            let mut client = Client::connect(&served.socket());
            for (option, data) in &options {
                if ![option::EXPORT_NAME, option::ABORT].contains(option) {
                    let mut bytes = rotproof_block::nbd::OPTION_MAGIC.to_be_bytes().to_vec();
                    bytes.extend(option.to_be_bytes());
                    bytes.extend((data.len() as u32).to_be_bytes());
                    bytes.extend(data);
                    let _ = client.stream.write_all(&bytes);
                }
            }
            let go = crate::client::info_request("", &[]);
            client.send_option(option::GO, &go);
            for (number, flags, offset, length) in &requests {
                let mut bytes = rotproof_block::nbd::REQUEST_MAGIC.to_be_bytes().to_vec();
                bytes.extend(flags.to_be_bytes());
                bytes.extend(number.to_be_bytes());
                bytes.extend([1; 8]);
                bytes.extend((offset % (2 << 20)).to_be_bytes());
                bytes.extend(length.to_be_bytes());
                if client.stream.write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = client.stream.write_all(&garbage);
            drop(client);
            let mut other = Client::simple(&served.socket());
            other.write(0, b"fine");
            assert_eq!(other.read(0, 4), b"fine");
        });
    }
}
