//! Who may use a thing that one at a time can use: tasks of any threads, in the order in which they asked.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// A queue of tasks, the first of which has its turn.
#[derive(Default)]
pub(super) struct Turns(Mutex<Line>);

#[derive(Default)]
struct Line {
    next_ticket: u64,
    holder: Option<u64>,
    /// Until its first poll a task has a waker that does nothing.
    waiting: VecDeque<(u64, Waker)>,
}

/// A place in the queue; given up when dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    ticket: u64,
}

impl Turns {
    /// Completes when it is the caller's turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        let turn = {
            let mut line = self.0.lock();
            let ticket = line.next_ticket;
            line.next_ticket += 1;
            if line.holder.is_none() {
                line.holder = Some(ticket);
            } else {
                line.waiting.push_back((ticket, Waker::noop().clone()));
            }
            Turn { turns: self, ticket }
        };
        poll_fn(|task| {
            let mut line = self.0.lock();
            if line.holder == Some(turn.ticket) {
                return Poll::Ready(());
            }
            if let Some((_, waker)) = line.waiting.iter_mut().find(|(ticket, _)| *ticket == turn.ticket) {
                waker.clone_from(task.waker());
            }
            Poll::Pending
        })
        .await;
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = self.turns.0.lock();
        if line.holder != Some(self.ticket) {
            line.waiting.retain(|(ticket, _)| *ticket != self.ticket);
            return;
        }
        let next = line.waiting.pop_front();
        line.holder = next.as_ref().map(|(ticket, _)| *ticket);
        drop(line);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use rotproof_block::Runtime;
    use rotproof_block::runtime::RuntimeOptions;

    use super::*;

    #[test]
    fn tasks_have_their_turns_one_at_a_time_and_in_the_order_in_which_they_asked() {
        let runtime = Runtime::simulated(1);
        let (turns, order) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        let tasks: Vec<_> = (0..5)
            .map(|number| {
                let (runtime_, turns, order) = (runtime.clone(), Rc::clone(&turns), Rc::clone(&order));
                runtime.spawn(async move {
                    let _turn = turns.take().await;
                    order.borrow_mut().push((number, "begins"));
                    runtime_.sleep(Duration::from_millis(10 - number)).await;
                    order.borrow_mut().push((number, "ends"));
                })
            })
            .collect();
        runtime
            .block_on(async {
                for task in tasks {
                    task.await;
                }
            })
            .expect("nobody is forgotten");
        let wanted: Vec<_> = (0..5).flat_map(|number| [(number, "begins"), (number, "ends")]).collect();
        assert_eq!(*order.borrow(), wanted);
    }

    #[test]
    fn who_gives_up_waiting_is_passed_over() {
        let runtime = Runtime::simulated(1);
        let turns = Turns::default();
        let done = runtime.block_on(async {
            let first = turns.take().await;
            let mut given_up = Box::pin(turns.take());
            let mut last = Box::pin(turns.take());
            poll_fn(|task| {
                assert!(given_up.as_mut().poll(task).is_pending() && last.as_mut().poll(task).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(given_up);
            drop(first);
            last.await;
        });
        done.expect("the last one has its turn");
        assert!(turns.0.lock().holder.is_none());
    }

    #[test]
    fn tasks_of_several_threads_exclude_each_other() {
        let (turns, inside) = (Arc::new(Turns::default()), Arc::new(AtomicU64::new(0)));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (turns, inside) = (Arc::clone(&turns), Arc::clone(&inside));
                std::thread::spawn(move || {
                    let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("this machine has io_uring");
                    let work = async {
                        for _ in 0..200 {
                            let _turn = turns.take().await;
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            runtime.yield_now().await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                        true
                    };
                    let mut work = std::pin::pin!(work);
                    let mut patience = Box::pin(runtime.sleep(Duration::from_secs(60)));
                    let ended = runtime.block_on(poll_fn(|task| match work.as_mut().poll(task) {
                        Poll::Ready(done) => Poll::Ready(done),
                        Poll::Pending => patience.as_mut().poll(task).map(|()| false),
                    }));
                    assert!(ended.expect("the ring works"), "a turn was lost");
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("nobody was in there at the same time");
        }
    }
}
