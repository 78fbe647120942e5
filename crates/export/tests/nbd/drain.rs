//! A server that stops completes what it was asked, and stops even if a device never answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::ErrorKind;
use rotproof_block::nbd::command;

use crate::client::Client;
use crate::scripted::{Action, Scripted};
use crate::server::{PATIENCE, Served};

#[test]
fn what_was_asked_before_the_end_is_done_and_answered() {
    let device = Scripted::new(1 << 20, 512, |_| Action::Late(Duration::from_millis(100)));
    let served = Served::one(Arc::new(device));
    let mut client = Client::simple(&served.socket());
    let cookies: Vec<_> =
        (0..8).map(|index| client.send(command::WRITE, 0, index * 512, 512, &[1; 512])).collect();
    // The requests are in the server when the first has waited a little.
    std::thread::sleep(Duration::from_millis(20));
    served.server.stop().expect("a clean end");
    let mut answered: Vec<_> = (0..8)
        .map(|_| {
            let answer = client.answer(0).expect("a reply");
            assert_eq!(answer.error, 0);
            answer.cookie
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, cookies);
    assert!(client.is_cut_off());
    assert!(!served.socket().exists(), "the socket goes with the server");
    served.server.stop().expect("to stop twice is no error");
}

#[test]
fn a_device_that_never_answers_does_not_keep_the_server_from_ending() {
    let device = Scripted::new(1 << 20, 512, |_| Action::Hang);
    let served = Served::one(Arc::new(device));
    let mut client = Client::simple(&served.socket());
    // More than the server takes, so that some wait in the socket.
    for _ in 0..1100 {
        client.send(command::READ, 0, 0, 512, &[]);
    }
    let began = Instant::now();
    served.server.stop().expect("given up, which is no fault of the server's");
    assert!(began.elapsed() < PATIENCE);
    assert!(client.answer(512).is_err(), "nothing was ever completed");
}

#[test]
fn idle_clients_and_those_that_have_agreed_on_nothing_do_not_delay_the_end() {
    let served = Served::memory(1 << 20);
    let mut idle = Client::simple(&served.socket());
    let mut silent = Client::connect(&served.socket());
    served.server.stop().expect("a clean end");
    assert!(idle.is_cut_off() && silent.is_cut_off());
}

#[test]
fn a_socket_that_is_taken_is_refused_and_left_alone() {
    let served = Served::memory(1 << 20);
    let address = rotproof_export::NbdAddress::Unix(served.socket());
    let device = rotproof_block::leaf::MemoryDevice::new(1 << 20, 512).expect("sizes that fit");
    let exports = vec![crate::server::export("x", device)];
    let error =
        rotproof_export::NbdServer::start(exports, &[address], Default::default()).expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::Refused);
    let mut client = Client::simple(&served.socket());
    assert_eq!(client.read(0, 5), [0; 5]);
}
