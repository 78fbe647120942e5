//! What becomes of checksums whose newest state is lost on all copies: the one before is whole, and must not be taken for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use rotproof_block::{Device, ErrorKind, Operation, Result, Runtime};

use super::{ChecksumDevice, ChecksumOptions, Found};
use crate::faulty::{Act, Faulty};
use crate::table::BLOCK_BYTES;
use crate::table::sealed::{seal, write_u32};
use crate::testing::{flush, lose_newest_state, memory, read, states, write};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks whose checksums share a page; each page is a granule here.
const PAGE: u64 = 1008 * BLOCK_BYTES;

fn open(below: &Arc<dyn Device>, runtime: &Runtime) -> Result<Arc<ChecksumDevice>> {
    runtime.block_on(ChecksumDevice::open_on(Arc::clone(below), ChecksumOptions::default(), runtime))?
}

fn settle(device: &ChecksumDevice, runtime: &Runtime) {
    runtime.block_on(device.settle(runtime)).expect("runs").expect("settled");
}

#[test]
fn what_was_used_first_since_the_state_before_is_known_from_the_log() {
    let runtime = Runtime::simulated(1);
    let below = memory(64 << 20);
    let device = open(&below, &runtime).expect("opens");
    write(&*device, &runtime, 0, &[1; BLOCK]).expect("written");
    flush(&*device, &runtime);
    write(&*device, &runtime, 8 * PAGE, &[2; BLOCK]).expect("written");
    flush(&*device, &runtime);
    drop(device);
    lose_newest_state(&*below, &runtime);
    for opening in 3..5 {
        let device = open(&below, &runtime).expect("opens");
        write(&*device, &runtime, 8 * PAGE + BLOCK_BYTES, &[opening; BLOCK]).expect("written");
        for (at, byte) in [(0, 1), (8 * PAGE, 2), (8 * PAGE + BLOCK_BYTES, opening), (9 * PAGE, 0)] {
            assert_eq!(read(&*device, &runtime, at, BLOCK).expect("read"), [byte; BLOCK], "at {at}");
        }
        settle(&device, &runtime);
    }
}

#[test]
fn after_an_end_in_order_the_loss_of_one_slot_is_without_harm() {
    let runtime = Runtime::simulated(1);
    let below = memory(64 << 20);
    let device = open(&below, &runtime).expect("opens");
    write(&*device, &runtime, 8 * PAGE, &[2; BLOCK]).expect("written");
    settle(&device, &runtime);
    let data_at = device.data_at();
    drop(device);
    lose_newest_state(&*below, &runtime);
    // What rots now must not be taken for what a loss of power has torn.
    write(&*below, &runtime, data_at + 8 * PAGE, &[3; BLOCK]).expect("written");
    let device = open(&below, &runtime).expect("opens");
    assert_eq!(read(&*device, &runtime, 8 * PAGE, BLOCK).expect_err("it rotted").kind(), ErrorKind::Medium);
    assert_eq!(states(&*below, &runtime, false).len(), 4, "the slot is whole again");
}

#[test]
fn states_that_are_all_too_old_are_refused_and_not_believed() {
    for with_checkpoint in [false, true] {
        let runtime = Runtime::simulated(1);
        let below = memory(64 << 20);
        let device = open(&below, &runtime).expect("opens");
        write(&*device, &runtime, 0, &[1; BLOCK]).expect("written");
        flush(&*device, &runtime);
        let old: Vec<(u64, Vec<u8>)> = states(&*below, &runtime, false)
            .into_iter()
            .map(|(at, _)| (at, read(&*below, &runtime, at, 3 * BLOCK).expect("read")))
            .collect();
        for page in [5, 10] {
            write(&*device, &runtime, page * PAGE, &[2; BLOCK]).expect("written");
            flush(&*device, &runtime);
        }
        if with_checkpoint {
            runtime.block_on(device.checkpoint(&runtime)).expect("runs").expect("written back");
            write(&*device, &runtime, 0, &[3; BLOCK]).expect("written");
            flush(&*device, &runtime);
        }
        drop(device);
        for (at, state) in &old {
            write(&*below, &runtime, *at, state).expect("written");
        }
        let error = open(&below, &runtime).expect_err("they say nothing of what was used since");
        assert_eq!(error.kind(), ErrorKind::Medium);
    }
}

#[test]
fn a_state_that_is_not_answered_for_is_not_passed_over() {
    let runtime = Runtime::simulated(1);
    let medium = memory(64 << 20);
    let faulty = Faulty::over(Arc::clone(&medium));
    let below: Arc<dyn Device> = faulty.clone();
    let device = open(&below, &runtime).expect("opens");
    write(&*device, &runtime, 8 * PAGE, &[2; BLOCK]).expect("written");
    flush(&*device, &runtime);
    drop(device);
    let newest: BTreeSet<u64> = states(&*medium, &runtime, true).into_iter().map(|(at, _)| at).collect();
    faulty.plan(move |request, _| match request.operation {
        Operation::Read if newest.contains(&request.offset) => Act::Fail(ErrorKind::TimedOut),
        _ => Act::Pass,
    });
    let options = ChecksumOptions { found: Found::Open, ..ChecksumOptions::default() };
    let opened = runtime.block_on(ChecksumDevice::open_on(below.clone(), options, &runtime)).expect("runs");
    assert_eq!(opened.expect_err("nobody knows").kind(), ErrorKind::TimedOut);
    faulty.plan(|_, _| Act::Pass);
    let device = open(&below, &runtime).expect("opens");
    assert_eq!(read(&*device, &runtime, 8 * PAGE, BLOCK).expect("read"), [2; BLOCK]);
}

#[test]
fn checksums_of_the_version_before_are_opened_and_are_of_this_one_then() {
    let runtime = Runtime::simulated(1);
    let below = memory(64 << 20);
    let device = open(&below, &runtime).expect("opens");
    write(&*device, &runtime, 0, &[1; BLOCK]).expect("written");
    settle(&device, &runtime);
    drop(device);
    for (at, _) in states(&*below, &runtime, false) {
        let mut state = read(&*below, &runtime, at, 3 * BLOCK).expect("read");
        write_u32(&mut state, 8, 2);
        seal(&mut state, 48);
        write(&*below, &runtime, at, &state).expect("written");
    }
    let device = open(&below, &runtime).expect("opens");
    assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("read"), [1; BLOCK]);
    let states = states(&*below, &runtime, false);
    assert!(
        states.len() == 4 && states.iter().all(|(_, state)| state[8] == 3),
        "an earlier program refuses it"
    );
}
