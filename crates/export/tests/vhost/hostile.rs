//! Clients that mean ill or are broken get an error or are cut off; others are not disturbed.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rotproof_export::vhost::message::code;

use crate::driver::{Attached, EVENT_INDEX, RING_SIZE, kind, status};
use crate::frontend::{Frontend, Shared, eventfd};
use crate::server::Served;

/// The server still serves others.
fn assert_undisturbed(served: &Served) {
    let mut other = Attached::one(&served.socket());
    assert_eq!(other.ring().write(0, b"undisturbed".repeat(512)[..512].as_ref()), status::OK);
}

#[test]
fn a_client_that_does_not_speak_the_protocol_is_cut_off() {
    use std::io::Write;
    let served = Served::memory(1 << 20);
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 12], &[0; 100]] {
        let mut frontend = Frontend::connect(&served.socket());
        let _ = frontend.stream.write_all(words);
        let _ = frontend.stream.shutdown(std::net::Shutdown::Write);
        assert!(frontend.is_cut_off());
    }
    assert_undisturbed(&served);
    served.server.stop().expect("no fault of the server's");
}

#[test]
fn senseless_messages_end_the_connection_or_are_refused() {
    let served = Served::memory(1 << 20);
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
    let longs = |longs: &[u64]| -> Vec<u8> { longs.iter().flat_map(|long| long.to_ne_bytes()).collect() };
    for (code, body) in [
        (code::SET_FEATURES, longs(&[u64::MAX])),
        (code::SET_PROTOCOL_FEATURES, longs(&[u64::MAX])),
        (code::SET_VRING_NUM, words(&[0, 3])),
        (code::SET_VRING_NUM, words(&[0, 2048])),
        (code::SET_VRING_NUM, words(&[0, 1 << 20])),
        (code::SET_VRING_NUM, words(&[99, 128])),
        (code::SET_VRING_BASE, words(&[0, 1 << 16])),
        (code::SET_VRING_ADDR, longs(&[0, 1, 2, 3, 4])),
        (code::SET_VRING_KICK, longs(&[0])),
        (code::SET_VRING_KICK, longs(&[0x100])),
        (code::SET_VRING_CALL, longs(&[200])),
        (code::GET_VRING_BASE, words(&[99, 0])),
        (code::ADD_MEM_REG, longs(&[0, 1 << 40, 4096, 0, 0])),
        (code::REM_MEM_REG, longs(&[0, 1, 2, 3, 4])),
        (77, vec![]),
    ] {
        let mut attached = Attached::one(&served.socket());
        attached.frontend.send(code, &body, &[]);
        assert!(attached.frontend.is_cut_off(), "{code} {body:?}");
    }
    assert_undisturbed(&served);
    served.server.stop().expect("no fault of the server's");
}

#[test]
fn descriptors_that_are_not_what_they_should_be_are_refused() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::one(&served.socket());
    let zero = std::fs::File::open("/dev/zero").expect("it is always there");
    let memory = Shared::new(1 << 20);
    let frontend = &mut attached.frontend;
    for file in [zero.as_raw_fd(), memory.file.as_raw_fd()] {
        assert!(!frontend.acknowledged(code::SET_VRING_CALL, &0u64.to_ne_bytes(), &[file]));
        assert!(!frontend.acknowledged(code::SET_VRING_KICK, &0u64.to_ne_bytes(), &[file]));
    }
    let event = eventfd();
    let region = |size: u64, offset: u64| -> Vec<u8> {
        [0, 1 << 40, size, 1 << 40, offset].iter().flat_map(|number: &u64| number.to_ne_bytes()).collect()
    };
    for (region, file) in [
        (region(4096, 0), event.as_raw_fd()),
        (region(2 << 20, 0), memory.file.as_raw_fd()),
        (region(1 << 20, 4096), memory.file.as_raw_fd()),
        (region(4096, 1), memory.file.as_raw_fd()),
        (region(1 << 62, 0), memory.file.as_raw_fd()),
    ] {
        assert!(!frontend.acknowledged(code::ADD_MEM_REG, &region, &[file]));
    }
    // The ring still runs, and one message may not carry more than there can be regions.
    assert_eq!(attached.ring().write(0, &[1; 512]), status::OK);
    let many = [event.as_raw_fd(); 100];
    let _ = attached.frontend.try_send(code::SET_OWNER, 0, &[], &many);
    assert!(attached.frontend.is_cut_off());
    assert_undisturbed(&served);
}

#[test]
fn memory_cannot_be_taken_from_under_the_server() {
    let served = Served::memory(1 << 20);
    let attached = Attached::one(&served.socket());
    // SAFETY: plain numbers; the descriptor is open.
    let answer = unsafe { libc::ftruncate(attached.memory.file.as_raw_fd(), 4096) };
    assert_eq!(answer, -1, "touching what is cut off would kill the server");
}

#[test]
fn chains_that_cannot_be_followed_end_the_connection() {
    let served = Served::memory(1 << 20);
    type Spoil = fn(&mut crate::driver::Ring);
    let spoils: [(&str, Spoil); 7] = [
        ("a loop", |ring| ring.descriptor(0, 0, ring.address(0), 16, 1, 0)),
        ("a chain that leaves the table", |ring| ring.descriptor(0, 0, ring.address(0), 16, 1, RING_SIZE)),
        ("a table in a table", |ring| {
            ring.put(0, &[ring.address(0).to_le_bytes().as_slice(), &[16, 0, 0, 0, 4, 0, 0, 0]].concat());
            ring.descriptor(0, 0, ring.address(0), 16, 4, 0);
        }),
        ("a table of half a descriptor", |ring| ring.descriptor(0, 0, ring.address(0), 8, 4, 0)),
        ("a table without memory", |ring| ring.descriptor(0, 0, 64, 16, 4, 0)),
        ("no place for the status", |ring| ring.descriptor(0, 0, ring.address(0), 16, 0, 0)),
        ("a status without memory", |ring| ring.descriptor(0, 0, 64, 16, 2, 0)),
    ];
    for (what, spoil) in spoils {
        let mut attached = Attached::one(&served.socket());
        spoil(attached.ring());
        attached.ring().offer(0);
        assert!(attached.frontend.is_cut_off(), "{what}");
    }
    let mut attached = Attached::one(&served.socket());
    attached.ring().offer(RING_SIZE);
    assert!(attached.frontend.is_cut_off(), "a head that is none");
    assert_undisturbed(&served);
    served.server.stop().expect("no fault of the server's");
}

#[test]
fn data_without_memory_and_huge_data_get_an_error() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::one(&served.socket());
    let ring = attached.ring();
    for (address, length) in
        [(64, 512), (u64::MAX - 100, 512), (ring.address(0), 1 << 31), (ring.address(0), 500)]
    {
        for (request, flags) in [(kind::READ, 3), (kind::WRITE, 1)] {
            ring.submit(0, request, 0, 0, 512, false);
            assert_eq!(ring.done().0, 0);
            ring.descriptor(0, 1, address, length, flags, 2);
            ring.offer(0);
            assert_eq!(ring.done().0, 0);
            assert_eq!(ring.status(0), status::IO_ERROR, "{length} bytes at {address}");
        }
    }
    assert_eq!(ring.write(0, &[1; 512]), status::OK);
}

#[test]
fn a_driver_that_offers_without_end_waits_alone() {
    let served = Served::memory(1 << 20);
    let mut greedy = Attached::new(&served.socket(), 1, !EVENT_INDEX);
    greedy.ring().submit(0, kind::READ, 0, 0, 512, false);
    // The same chain again and again, whether it is done or not.
    for _ in 0..1000 {
        greedy.ring().offer(0);
    }
    assert_undisturbed(&served);
    drop(greedy);
    served.wait_for_clients(0);
}

#[test]
fn more_clients_than_there_is_room_for_are_let_go() {
    let served = Served::memory(1 << 20);
    let mut first = Attached::one(&served.socket());
    let silent: Vec<_> = (0..80).map(|_| Frontend::connect(&served.socket())).collect();
    assert_eq!(first.ring().write(0, &[1; 512]), status::OK);
    assert!(served.server.connections() <= 64);
    drop(silent);
}

/// Descriptors of any kind, often near to sense: (address, length, flags, next).
fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    (
        prop_oneof![4 => 0u64..65536, 1 => any::<u64>()],
        prop_oneof![4 => (0u32..5).prop_map(|n| n * 512), 2 => 0u32..64, 1 => any::<u32>()],
        prop_oneof![4 => 0u16..4, 1 => 0u16..8, 1 => any::<u16>()],
        prop_oneof![4 => 0u16..16, 1 => any::<u16>()],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_descriptors_make_the_server_fail(
        descriptors in prop::collection::vec(descriptor(), 16),
        header in (0u32..16, 0u64..4096),
        data in prop::collection::vec(any::<u8>(), 0..256),
        heads in prop::collection::vec(prop_oneof![8 => 0u16..16, 1 => any::<u16>()], 1..20),
        event_index in any::<bool>(),
    ) {
        thread_local! {
            static SERVED: Served = Served::memory(1 << 20);
        }
        SERVED.with(|served| {
            let features = if event_index { u64::MAX } else { !EVENT_INDEX };
            let mut attached = Attached::new(&served.socket(), 1, features);
            let ring = attached.ring();
            ring.put(0, &[&header.0.to_le_bytes()[..], &[0; 4], &header.1.to_le_bytes(), &data].concat());
            for (index, (address, length, flags, next)) in descriptors.iter().enumerate() {
                let address = if *address < 65536 { ring.address(*address as usize) } else { *address };
                ring.descriptor(0, index, address, *length, *flags, *next);
            }
            for head in &heads {
                ring.offer(*head);
            }
            // Whatever becomes of it, the server is done with it soon and serves the next.
            let deadline = Instant::now() + Duration::from_millis(20);
            for _ in &heads {
                if ring.try_done(deadline).is_none() {
                    break;
                }
            }
            drop(attached);
            let mut other = Attached::one(&served.socket());
            assert_eq!(other.ring().write(0, &[1; 512]), status::OK);
            drop(other);
            served.wait_for_clients(0);
        });
    }

    #[test]
    fn no_messages_make_the_server_fail(
        messages in prop::collection::vec(
            (0u32..42, prop::collection::vec(prop_oneof![0u64..8, any::<u64>()], 0..6), 0usize..3, any::<bool>()),
            0..12,
        ),
    ) {
        thread_local! {
            static SERVED: Served = Served::memory(1 << 20);
        }
        SERVED.with(|served| {
            let attached = Attached::one(&served.socket());
            let event = eventfd();
            let files = [event.as_raw_fd(), attached.memory.file.as_raw_fd(), event.as_raw_fd()];
            for (code, longs, files_sent, asks) in &messages {
                let body: Vec<u8> = longs.iter().flat_map(|long| long.to_ne_bytes()).collect();
                let flags = if *asks { 1 << 3 } else { 0 };
                if attached.frontend.try_send(*code, flags, &body, &files[..*files_sent]).is_err() {
                    break;
                }
            }
            let _ = attached.frontend.stream.shutdown(std::net::Shutdown::Write);
            drop(attached);
            let mut other = Attached::one(&served.socket());
            assert_eq!(other.ring().write(0, &[1; 512]), status::OK);
            drop(other);
            served.wait_for_clients(0);
        });
    }
}
