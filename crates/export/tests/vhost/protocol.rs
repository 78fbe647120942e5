//! What clients are told, and what they get: configuration, operations, statuses, rings that stop and go on, clients
//! that leave and come back.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{ErrorKind, Operation};
use rotproof_export::vhost::message::code;

use crate::driver::{Attached, EVENT_INDEX, FLUSH, RING_SIZE, SPDK_FEATURES, kind, status};
use crate::frontend::{Frontend, Shared};
use crate::scripted::{Action, Scripted};
use crate::server::Served;

#[test]
fn the_configuration_is_as_long_as_the_client_wants_it() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::one(&served.socket());
    assert_eq!(attached.config[..8], 2048u64.to_le_bytes());
    assert_eq!(attached.config[20..24], 512u32.to_le_bytes());
    assert_eq!(attached.config[34..36], 4u16.to_le_bytes(), "queues");
    assert!(attached.config[60..].iter().all(|byte| *byte == 0));
    let whole = attached.config.clone();
    let frontend = &mut attached.frontend;
    for size in [60, 8, 256] {
        assert_eq!(frontend.config(size)[12..], whole[..size as usize]);
    }
    assert_eq!(frontend.config(257).len(), 12, "no content: there is not so much");
}

#[test]
fn what_is_written_is_read_again_through_every_ring() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::new(&served.socket(), 4, u64::MAX);
    for number in 0..4u8 {
        let ring = &mut attached.rings[usize::from(number)];
        assert_eq!(ring.write(8 * u64::from(number), &[number + 1; 4096]), status::OK);
    }
    for number in 0..4u8 {
        let ring = &mut attached.rings[3 - usize::from(number)];
        assert_eq!(ring.read(8 * u64::from(number), 4096), [number + 1; 4096]);
    }
}

#[test]
fn requests_in_indirect_tables_and_many_at_a_time_are_served() {
    for features in [u64::MAX, !EVENT_INDEX] {
        let served = Served::memory(1 << 20);
        let mut attached = Attached::new(&served.socket(), 1, features);
        let ring = attached.ring();
        ring.put(0, &[7; 512]);
        ring.submit(5, kind::WRITE, 9, 0, 512, true);
        assert_eq!((ring.done().0, ring.status(5)), (5, status::OK));
        // More rounds than there are indices.
        for round in 0..40u16 {
            let heads: Vec<_> = (0..RING_SIZE / 4).map(|n| n * 3).collect();
            for &head in &heads {
                ring.submit(head, kind::READ, 9, 512 * (1 + usize::from(head)), 512, false);
            }
            let mut done: Vec<_> = heads.iter().map(|_| ring.done()).collect();
            done.sort_unstable();
            assert_eq!(done, heads.iter().map(|&head| (head, 513)).collect::<Vec<_>>(), "round {round}");
            assert_eq!(ring.get(512, 512), [7; 512]);
        }
    }
}

#[test]
fn the_name_is_told_as_far_as_there_is_room() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::one(&served.socket());
    let ring = attached.ring();
    assert_eq!(ring.run(kind::ID, 0, 20), status::OK);
    assert_eq!(ring.get(0, 20), b"a disk of some kind,");
}

#[test]
fn clearing_leaves_zeros_and_refuses_what_it_does_not_know() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::one(&served.socket());
    let ring = attached.ring();
    ring.write(0, &[9; 4096]);
    assert_eq!(ring.clear(kind::DISCARD, 1, 2, 0), status::OK);
    assert_eq!(ring.clear(kind::WRITE_ZEROES, 4, 1, 1), status::OK);
    let expected: Vec<u8> = (0..4096).map(|at| if [1, 2, 4].contains(&(at / 512)) { 0 } else { 9 }).collect();
    assert_eq!(ring.read(0, 4096), expected);
    assert_eq!(ring.clear(kind::DISCARD, 0, 1, 1), status::UNSUPPORTED);
    assert_eq!(ring.clear(kind::DISCARD, 2047, 2, 0), status::IO_ERROR);
    assert_eq!(ring.run(99, 0, 512), status::UNSUPPORTED);
    assert_eq!(ring.run(kind::READ, 2047, 1024), status::IO_ERROR);
    assert_eq!(ring.run(kind::READ, u64::MAX, 512), status::IO_ERROR);
    assert_eq!(ring.read(0, 4096), expected);
}

#[test]
fn errors_arrive_as_the_two_statuses_that_there_are() {
    for (kind_given, seen) in [
        (ErrorKind::Medium, status::IO_ERROR),
        (ErrorKind::NoSpace, status::IO_ERROR),
        (ErrorKind::TimedOut, status::IO_ERROR),
        (ErrorKind::Unsupported, status::UNSUPPORTED),
    ] {
        let served = Served::one(Arc::new(Scripted::new(1 << 20, 512, move |_| Action::Fail(kind_given))));
        let mut attached = Attached::one(&served.socket());
        let ring = attached.ring();
        for request in [kind::READ, kind::WRITE, kind::FLUSH] {
            let length = if request == kind::FLUSH { 0 } else { 512 };
            assert_eq!(ring.run(request, 0, length), seen, "{kind_given:?}");
        }
        assert_eq!(ring.clear(kind::DISCARD, 0, 1, 0), seen);
        served.server.stop().expect("a device that fails is no fault of the server's");
    }
}

#[test]
fn a_driver_that_cannot_flush_gets_durable_writes() {
    for (features, durable) in [(SPDK_FEATURES, true), (SPDK_FEATURES | FLUSH, false)] {
        let seen = Arc::new(AtomicU64::new(0));
        let in_device = Arc::clone(&seen);
        let served = Served::one(Arc::new(Scripted::new(1 << 20, 512, move |request| {
            if request.operation == (Operation::Write { fua: true }) {
                in_device.fetch_add(1, Ordering::Relaxed);
            }
            Action::Pass
        })));
        let mut attached = Attached::new(&served.socket(), 1, features);
        assert_eq!(attached.ring().write(0, &[1; 512]), status::OK);
        assert_eq!(seen.load(Ordering::Relaxed), u64::from(durable));
    }
}

#[test]
fn durable_writes_cost_no_flush_where_nothing_is_volatile() {
    // Whether the device has a volatile cache, and whether a write can be durable by itself; flushes that the same requests take.
    for (flush, fua, flushes) in [(false, false, 0), (false, true, 0), (true, true, 1), (true, false, 3)] {
        let seen = Arc::new(AtomicU64::new(0));
        let in_device = Arc::clone(&seen);
        let device = Scripted::new(1 << 20, 512, move |request| {
            in_device.fetch_add(u64::from(request.operation == Operation::Flush), Ordering::Relaxed);
            Action::Pass
        });
        let device = device.with(|info| (info.features.flush, info.features.fua) = (flush, fua));
        let served = Served::one(Arc::new(device));
        let mut attached = Attached::new(&served.socket(), 1, SPDK_FEATURES | 1 << 14);
        let ring = attached.ring();
        assert_eq!((ring.write(0, &[1; 512]), ring.write(1, &[2; 1024])), (status::OK, status::OK));
        assert_eq!(ring.clear(kind::WRITE_ZEROES, 4, 1, 0), status::OK);
        assert_eq!(seen.load(Ordering::Relaxed), flushes, "flush {flush}, fua {fua}");
    }
}

#[test]
fn a_ring_that_is_stopped_tells_where_it_goes_on_and_does() {
    let served =
        Served::one(Arc::new(Scripted::new(1 << 20, 512, |_| Action::Late(Duration::from_millis(2)))));
    let mut attached = Attached::one(&served.socket());
    for round in 0..3u16 {
        for head in 0..5 {
            attached.ring().submit(3 * head, kind::READ, 0, 0, 512, false);
        }
        // What was taken is complete when the answer comes; what was not is taken later.
        let base = attached.stop_ring(0) as u16;
        assert!(base >= 5 * round && base <= 5 * (round + 1), "{base}");
        attached.start_ring(0, base);
        for _ in 0..5 {
            attached.ring().done();
        }
    }
    assert_eq!(attached.stop_ring(0), 15);
}

#[test]
fn a_ring_that_is_disabled_waits() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::one(&served.socket());
    attached.frontend.send_words(code::SET_VRING_ENABLE, &[0, 0]);
    attached.frontend.ask(code::GET_FEATURES);
    attached.ring().submit(0, kind::READ, 0, 0, 512, false);
    assert_eq!(attached.ring().try_done(std::time::Instant::now() + Duration::from_millis(30)), None);
    attached.frontend.send_words(code::SET_VRING_ENABLE, &[0, 1]);
    assert_eq!(attached.ring().done(), (0, 513));
}

#[test]
fn clients_leave_come_back_and_share_a_disk() {
    let served = Served::memory(1 << 20);
    let mut other = Attached::new(&served.socket(), 2, u64::MAX);
    for round in 1..5u8 {
        let mut attached = Attached::new(&served.socket(), 2, u64::MAX);
        if round > 1 {
            assert_eq!(attached.ring().read(0, 512), [round - 1; 512]);
        }
        assert_eq!(attached.rings[1].write(0, &[round; 512]), status::OK);
        assert_eq!(other.ring().read(0, 512), [round; 512]);
        drop(attached);
        served.wait_for_clients(1);
    }
}

#[test]
fn regions_of_memory_come_and_go_while_rings_run() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::one(&served.socket());
    let more = Shared::new(1 << 20);
    let body = |region: [u64; 4]| -> Vec<u8> {
        [0].iter().chain(&region).flat_map(|number| number.to_ne_bytes()).collect()
    };
    let region = body([more.address(), more.size(), more.address(), 0]);
    assert_eq!(attached.frontend.ask(code::GET_MAX_MEM_SLOTS), 32);
    for _ in 0..3 {
        let read_there = |attached: &mut Attached| {
            let ring = attached.ring();
            more.write(0, &[0xee; 512]);
            ring.submit(0, kind::READ, 0, 0, 512, false);
            ring.done();
            // The same chain again, its data in the other region.
            ring.descriptor(0, 1, more.address(), 512, 3, 2);
            ring.offer(0);
            ring.done();
            ring.status(0)
        };
        assert_eq!(read_there(&mut attached), status::IO_ERROR, "no memory");
        assert!(attached.frontend.acknowledged(code::ADD_MEM_REG, &region, &[more.file.as_raw_fd()]));
        assert!(
            !attached.frontend.acknowledged(code::ADD_MEM_REG, &region, &[more.file.as_raw_fd()]),
            "twice"
        );
        assert_eq!(read_there(&mut attached), status::OK);
        let mut seen = [1; 512];
        more.read(0, &mut seen);
        assert_eq!(seen, [0; 512]);
        assert!(attached.frontend.acknowledged(code::REM_MEM_REG, &region, &[]));
        assert!(!attached.frontend.acknowledged(code::REM_MEM_REG, &region, &[]), "there is none any more");
    }
}

#[test]
fn a_reset_ends_the_rings_and_nothing_else() {
    let served = Served::memory(1 << 20);
    let mut attached = Attached::one(&served.socket());
    attached.ring().write(0, &[1; 512]);
    attached.frontend.send(code::RESET_DEVICE, &[], &[]);
    attached.frontend.ask(code::GET_FEATURES);
    attached.ring().submit(0, kind::READ, 0, 0, 512, false);
    assert_eq!(attached.ring().try_done(std::time::Instant::now() + Duration::from_millis(10)), None);
    attached.frontend.send_words(code::SET_VRING_ENABLE, &[0, 1]);
    attached.set_call(0);
    attached.start_ring(0, 1);
    assert_eq!(attached.ring().done(), (0, 513));
    assert_eq!(attached.stop_ring(0), 2);
}

#[test]
fn several_exports_have_several_sockets() {
    let folder = tempfile::tempdir().expect("a folder");
    let export = |name: &str, size| rotproof_export::VhostExport {
        name: name.into(),
        socket: folder.path().join(name),
        device: MemoryDevice::new(size, 512).expect("sizes that fit"),
    };
    let exports = [export("one", 1 << 20), export("two", 2 << 20)];
    let server = rotproof_export::VhostServer::start(&exports, Default::default()).expect("starts");
    for (socket, sectors) in server.sockets().iter().zip([2048u64, 4096]) {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(socket).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Attached::one(socket).config[..8], sectors.to_le_bytes());
    }
    let taken = rotproof_export::VhostServer::start(&exports[..1], Default::default()).expect_err("taken");
    assert_eq!(taken.kind(), ErrorKind::Refused);
    server.stop().expect("a clean end");
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
}

#[test]
fn a_client_that_agrees_on_little_is_served() {
    // Without protocol features rings run as soon as they are kicked, and nothing is acknowledged.
    let served = Served::memory(1 << 20);
    let mut frontend = Frontend::connect(&served.socket());
    let offered = frontend.ask(code::GET_FEATURES);
    assert_ne!(offered & FLUSH, 0);
    drop(frontend);
    let mut attached = Attached::new(&served.socket(), 1, u64::MAX);
    let features = attached.features & !crate::driver::PROTOCOL;
    attached.frontend.send_words(code::SET_VRING_ENABLE, &[0, 0]);
    attached.frontend.send_long(code::SET_FEATURES, features, &[]);
    assert_eq!(attached.ring().write(0, &[1; 512]), status::OK);
}
