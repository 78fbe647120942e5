//! Mixed load over every export at once, from clients that hang up in the middle, on servers some of which are killed:
//! no acknowledged write is lost, nothing leaks, nothing hangs. It needs root.
//!
//! A minute, or as many as `ROTPROOF_SOAK_MINUTES` says:
//! `ROTPROOF_SOAK_MINUTES=30 cargo test --package rotproof-cli --test soak -- --nocapture`.
//!
//! `servers` starts, kills and watches the servers, `ways` is how a client reaches each export, `worker` is a client, and
//! `region` is what it knows of the blocks that are its own.

#[path = "../../crates/export/tests/vhost/driver.rs"]
#[allow(dead_code, reason = "the tests of vhost-user use all of it")]
mod driver;
#[path = "../../crates/export/tests/vhost/frontend.rs"]
#[allow(dead_code, reason = "the tests of vhost-user use all of it")]
mod frontend;
mod region;
mod servers;
#[path = "../stage/mod.rs"]
mod stage;
mod ways;
mod worker;

/// What the driver takes its limits from.
mod server {
    pub use crate::stage::PATIENCE;
}

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use servers::{Reaper, Server};
use stage::PATIENCE;
use ways::Way;
use worker::Worker;

/// What a server may grow by after its first quarter. The pools of threads that come and go are of this size.
const GROWTH_KIB_MAX: u64 = 8 << 10;

#[test]
fn no_acknowledged_write_is_lost_nothing_leaks_and_nothing_hangs() {
    let minutes = std::env::var("ROTPROOF_SOAK_MINUTES").ok();
    let minutes: f64 = minutes.map_or(1.0, |text| text.parse().expect("ROTPROOF_SOAK_MINUTES is a number"));
    let duration = Duration::from_secs_f64(60.0 * minutes);
    let servers: Vec<Arc<Server>> =
        [("steady", false), ("steady-tls", true), ("mortal", false), ("mortal-tls", true)]
            .map(|(name, tls)| Arc::new(Server::start(name, tls)))
            .into();
    let _reaper = Reaper(servers.clone());
    let (failed, failures) = mpsc::channel();
    let mut workers = Vec::new();
    for server in &servers {
        for (number, way) in Way::ALL.into_iter().filter(|way| way.is_tls() == server.tls).enumerate() {
            workers.push(Worker::start(server, way, number as u64, &failed));
        }
    }
    let mortal = servers.iter().filter(|server| server.is_mortal());
    let killers: Vec<_> = mortal.map(|server| servers::haunt(server, &failed)).collect();

    let began = Instant::now();
    let mut sampled = Vec::new();
    let mut alive: Vec<(u64, Instant)> = vec![(0, began); workers.len()];
    while began.elapsed() < duration {
        if let Ok(failure) = failures.recv_timeout(Duration::from_millis(100)) {
            panic!("{failure}");
        }
        for (worker, (steps, since)) in workers.iter().zip(&mut alive) {
            let now = worker.steps.load(Ordering::Relaxed);
            if now != *steps {
                (*steps, *since) = (now, Instant::now());
            }
            assert!(since.elapsed() < PATIENCE, "{} hangs after {steps} steps", worker.name);
        }
        if sampled.is_empty() && began.elapsed() > duration / 4 {
            sampled = sample_at_rest(&servers, &workers, &failures);
        }
    }
    let at_the_end = sample_at_rest(&servers, &workers, &failures);
    for server in &servers {
        server.stop.store(true, Ordering::Relaxed);
    }
    for killer in killers {
        killer.join().expect("a killer does not panic");
    }
    let told: Vec<String> = workers.into_iter().map(Worker::join).collect();
    if let Ok(failure) = failures.try_recv() {
        panic!("{failure}");
    }
    let report = format!("{}\nat a quarter {sampled:?}\nat the end {at_the_end:?}", told.join("\n"));
    #[expect(clippy::print_stderr, reason = "figures for people, with --nocapture")]
    {
        eprintln!("{report}");
    }
    for (before, after) in sampled.iter().zip(&at_the_end) {
        assert!(after.descriptors <= before.descriptors, "descriptors leak: {report}");
        assert!(after.resident_kib <= before.resident_kib + GROWTH_KIB_MAX, "memory leaks: {report}");
    }
    for server in &servers {
        server.end();
    }
}

/// What the steady servers hold while no client is connected.
fn sample_at_rest(
    servers: &[Arc<Server>],
    workers: &[Worker],
    failures: &mpsc::Receiver<String>,
) -> Vec<servers::Sample> {
    let steady = || servers.iter().filter(|server| !server.is_mortal());
    steady().for_each(|server| server.pause.store(true, Ordering::SeqCst));
    let deadline = Instant::now() + PATIENCE;
    for worker in workers.iter().filter(|worker| !worker.is_on_mortal) {
        while !worker.is_parked.load(Ordering::SeqCst) {
            if let Ok(failure) = failures.try_recv() {
                panic!("{failure}");
            }
            assert!(Instant::now() < deadline, "{} does not come to rest", worker.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let samples = steady().map(|server| server.sample()).collect();
    steady().for_each(|server| server.pause.store(false, Ordering::SeqCst));
    samples
}
