//! A server that stops completes what it was asked, and stops even if a device never answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::ErrorKind;

use crate::driver::{Attached, kind, status};
use crate::scripted::{Action, Scripted};
use crate::server::{PATIENCE, Served};

#[test]
fn what_was_taken_before_the_end_is_done_and_answered() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let in_device = Arc::clone(&arrived);
    let served = Served::one(Arc::new(Scripted::new(1 << 20, 512, move |_| {
        in_device.fetch_add(1, Ordering::Relaxed);
        Action::Late(Duration::from_millis(100))
    })));
    let mut attached = Attached::one(&served.socket());
    for head in 0..8 {
        attached.ring().submit(3 * head, kind::WRITE, 0, 0, 512, false);
    }
    let deadline = Instant::now() + PATIENCE;
    while arrived.load(Ordering::Relaxed) < 8 {
        assert!(Instant::now() < deadline, "what is offered is taken");
        std::thread::sleep(Duration::from_millis(1));
    }
    served.server.stop().expect("a clean end");
    let ring = attached.ring();
    let deadline = Instant::now();
    for _ in 0..8 {
        let (head, _) = ring.try_done(deadline).expect("done before the end");
        assert_eq!(ring.status(head), status::OK);
    }
    assert!(attached.frontend.is_cut_off());
    assert!(!served.socket().exists(), "the socket goes with the server");
    served.server.stop().expect("to stop twice is no error");
}

#[test]
fn a_device_that_never_answers_does_not_keep_the_server_from_ending() {
    let served = Served::one(Arc::new(Scripted::new(1 << 20, 512, |_| Action::Hang)));
    let mut attached = Attached::new(&served.socket(), 2, u64::MAX);
    for ring in &mut attached.rings {
        for head in 0..8 {
            ring.submit(3 * head, kind::READ, 0, 0, 512, false);
        }
    }
    let began = Instant::now();
    served.server.stop().expect("given up, which is no fault of the server's");
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(attached.ring().try_done(Instant::now()), None, "nothing was ever completed");
}

#[test]
fn idle_clients_and_silent_ones_do_not_delay_the_end() {
    let served = Served::memory(1 << 20);
    let mut idle = Attached::one(&served.socket());
    let mut silent = crate::frontend::Frontend::connect(&served.socket());
    served.server.stop().expect("a clean end");
    assert!(idle.frontend.is_cut_off() && silent.is_cut_off());
}

#[test]
fn a_device_that_panics_ends_its_client_and_no_other() {
    let served = Served::one(Arc::new(Scripted::new(1 << 20, 512, |request| match request.offset {
        4096 => Action::Panic,
        8192 => Action::PanicLater,
        _ => Action::Pass,
    })));
    let mut other = Attached::one(&served.socket());
    for sector in [8, 16] {
        let mut attached = Attached::one(&served.socket());
        attached.ring().submit(0, kind::READ, sector, 0, 512, false);
        assert!(attached.frontend.is_cut_off());
    }
    assert_eq!(other.ring().write(0, &[1; 512]), status::OK);
    let failure = served.server.stop().expect_err("a client could not be served by the server's fault");
    assert_eq!(failure.kind(), ErrorKind::Internal);
    assert!(failure.to_string().contains("panics, as the test wants it"), "{failure}");
}
