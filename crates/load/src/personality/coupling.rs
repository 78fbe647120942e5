//! The semaphores between the readers of oltp and its writers (filebench's `sempost` and `semblock`).
//!
//! Each read posts one unit to every writer. A writer, when it has written, grants so many more posts and then waits
//! until it has got as many; readers wait where a writer has fallen behind by its high-water mark. So how much is
//! written for how many reads does not depend on timing.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// What a writer waits for, and how far readers may run ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Semaphore {
    pub(super) value: u64,
    pub(super) high_water: u64,
}

/// How often somebody who waits looks whether all is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Coupling {
    semaphores: Vec<Semaphore>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    reads: u64,
    /// How often each writer has blocked.
    blocks: Vec<u64>,
    readers: u32,
}

impl Coupling {
    pub(super) fn new(semaphores: Vec<Semaphore>, readers: u32) -> Self {
        let blocks = vec![0; semaphores.len()];
        Self { semaphores, state: Mutex::new(State { reads: 0, blocks, readers }), changed: Condvar::new() }
    }

    /// A read is done. Waits while a writer is too far behind.
    pub(super) fn post(&self, is_over: impl Fn() -> bool) {
        let mut state = self.state.lock();
        let may_post = |state: &State| {
            self.semaphores
                .iter()
                .zip(&state.blocks)
                .all(|(semaphore, blocks)| state.reads < semaphore.high_water + semaphore.value * blocks)
        };
        while !may_post(&state) && !is_over() {
            self.changed.wait_for(&mut state, LOOK_EVERY);
        }
        state.reads += 1;
        let reads = state.reads;
        if self.semaphores.iter().any(|semaphore| reads.is_multiple_of(semaphore.value)) {
            self.changed.notify_all();
        }
    }

    /// A reader has ended.
    pub(super) fn leave(&self) {
        self.state.lock().readers -= 1;
        self.changed.notify_all();
    }

    /// Waits for the posts that a writer needs to go on. False if they will not come.
    pub(super) fn block(&self, writer: usize, is_over: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        state.blocks[writer] += 1;
        self.changed.notify_all();
        let wanted = self.semaphores[writer].value * state.blocks[writer];
        while state.reads < wanted {
            if state.readers == 0 || is_over() {
                return false;
            }
            self.changed.wait_for(&mut state, LOOK_EVERY);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn writers_get_their_turns_by_the_number_of_reads_alone() {
        let semaphores =
            vec![Semaphore { value: 10, high_water: 20 }, Semaphore { value: 32, high_water: 10 }];
        let coupling = Coupling::new(semaphores, 4);
        let rounds = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        coupling.post(|| false);
                    }
                    coupling.leave();
                });
            }
            for (writer, rounds) in rounds.iter().enumerate() {
                let coupling = &coupling;
                scope.spawn(move || {
                    loop {
                        rounds.fetch_add(1, Ordering::Relaxed);
                        if !coupling.block(writer, || false) {
                            break;
                        }
                    }
                });
            }
        });
        // Once before the first read, then once for each time that the value has been posted.
        assert_eq!(rounds.map(AtomicU64::into_inner), [1 + 400 / 10, 1 + 400 / 32]);
    }

    #[test]
    fn what_is_over_waits_for_nobody() {
        let coupling = Coupling::new(vec![Semaphore { value: 10, high_water: 1 }], 1);
        coupling.post(|| true);
        coupling.post(|| true);
        assert!(!coupling.block(0, || true));
    }
}
